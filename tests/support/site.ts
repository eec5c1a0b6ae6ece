/**
 * A dataset and its images on one side, and a place without a network on the other: no interfaces, no engine on PATH, a
 * user id that no machine knows, the bundle on media that cannot be written.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import type { CliOptions } from "./cli.ts";
import { makeImage, putImage, testStore } from "./images.ts";
import { rootfsTar } from "./rootfs.ts";
import { type RunFiles, TempFolder, validate } from "./tasks.ts";

/** An id without an entry in any passwd. */
const FOREIGN_ID = "345678";
/** Variables by which a person's session tells where its things are. */
const OF_A_LOGIN = [
  "HOME",
  "XDG_CACHE_HOME",
  "XDG_RUNTIME_DIR",
  "XDG_CONFIG_HOME",
  "DOCKER_HOST",
  "CONTAINERS_CONF",
  "USER",
];
const ENGINE = /^(?:docker|podman|buildah|nerdctl|containerd|runc|crun|skopeo)/;

const reward = (condition: string): string =>
  `if ${condition}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt`;

export class Site extends TempFolder {
  readonly data = this.join("words");
  readonly store = this.join("store");

  /** Tasks that start from `base` in each way that an image can be had; one of them fails on purpose. */
  constructor(readonly base: string, { builds = false }: { builds?: boolean } = {}) {
    super("site");
    mkdirSync(this.join("work"), { mode: 0o777 });
    execFileSync("chmod", ["777", this.join("work")]);
    this.task("words/prebuilt", { image: base, solve: "echo hi > /tmp/x", test: reward("grep -q hi /tmp/x") });
    this.task("words/wrong", { image: base, solve: "true", test: reward("test -e /nowhere") });
    this.task("words/group/pull", {
      image: null,
      solve: 'echo "$WORD" > said',
      test: reward('test "$(cat /w/said)" = b'),
      files: { "environment/Dockerfile": `FROM ${base}\nENV WORD=b\nWORKDIR /w\n` },
    });
    this.task("words/overlay", {
      image: null,
      solve: "cp /seed copy",
      test: reward("grep -q seed /w/copy"),
      files: { "environment/Dockerfile": `FROM ${base}\nRUN echo seed > /seed\nWORKDIR /w\n` },
    });
    if (!builds) return;
    this.task("words/built", {
      image: null,
      solve: "cp /carried/file copy",
      test: reward("grep -q 'from the context' /w/copy"),
      files: {
        "environment/Dockerfile": `FROM ${base}\nCOPY file /carried/file\nWORKDIR /w\n`,
        "environment/file": `from the context ${crypto.randomUUID()}\n`,
      },
    });
  }

  /** Puts the base image into the store of this side, from programs of this machine. */
  async fillStore(): Promise<void> {
    const tar = new Uint8Array(readFileSync(rootfsTar("host")));
    const image = makeImage([tar], {
      config: { Env: ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"], Cmd: ["/bin/bash"] },
      compress: (bytes) => gzipSync(bytes, { level: 1 }),
    });
    await putImage(testStore(this.store), image, [this.base]);
  }

  /** Carries a bundle to the other side, byte by byte. */
  carry(bundle: string): string {
    const there = this.join("carried");
    cpSync(bundle, there, { recursive: true, verbatimSymlinks: true, preserveTimestamps: true });
    return there;
  }

  /** How the program is started where there is nothing; see nowhere(). */
  nowhere(bundle: string): CliOptions {
    return nowhere(bundle, this.join("work"));
  }

  validate(target: string, name: string, args: readonly string[], options: CliOptions = {}): Promise<RunFiles> {
    return validate(target, this.join("work", name, "rollouts.jsonl"), args, options);
  }
}

/**
 * How the program is started where there is nothing: no interfaces, no engine, no home, a user id that no machine knows,
 * `bundle` read-only. `work` is the working and temp folder and must be writable by anyone.
 */
export function nowhere(bundle: string, work: string): CliOptions {
  const script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"';
  const user = ["setpriv", "--reuid", FOREIGN_ID, "--regid", FOREIGN_ID, "--clear-groups"];
  return {
    cwd: work,
    wrap: ["unshare", "--net", "--mount", "sh", "-c", script, "sh", bundle, ...user],
    env: {
      ...Object.fromEntries(OF_A_LOGIN.map((name) => [name, undefined])),
      PATH: pathWithoutEngines(join(work, "bin")),
      TMPDIR: work,
    },
  };
}

function pathWithoutEngines(folder: string): string {
  if (existsSync(folder)) return folder;
  mkdirSync(folder);
  for (const from of ["/usr/bin", "/bin", "/usr/sbin", "/sbin"]) {
    for (const name of readdirSync(from)) {
      if (!ENGINE.test(name) && !existsSync(join(folder, name))) symlinkSync(join(from, name), join(folder, name));
    }
  }
  return folder;
}

/** What must be the same wherever a dataset is run: rewards and digests by task, and the dataset's digest. */
export function identity({ rows, failures, summary }: RunFiles): unknown {
  return {
    rewards: Object.fromEntries(
      rows.map((row) => [row._ng_task_id.task_id, [row.reward, row._ng_digest, row._ng_dataset_digest]]).sort(),
    ),
    failures: failures.length,
    dataset: summary?.dataset.digest,
  };
}

/** Every path below a folder with kind, mode, link and content: equal texts are equal trees. */
export function treeText(folder: string): string {
  const script =
    "find . -printf '%y %m %p %l\\n' | LC_ALL=C sort; find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum";
  const text = execFileSync("bash", ["-c", script], { cwd: folder, encoding: "utf8", maxBuffer: 1 << 28 });
  return createHash("sha256").update(text).digest("hex") + "\n" + text;
}
