import { test } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { HarborError } from "../../lib/errors.ts";
import type { Builder, BuilderOptions, BuildRequest } from "../../lib/images/builder.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { type BuilderDeps, chooseBuilder } from "../../providers/builders/mod.ts";
import { openStore } from "../../lib/store/layout.ts";
import { engineSkip } from "../support/engines.ts";
import { registrySkip, startRegistry } from "../support/real_registry.ts";

const BASE = "gym-base:busybox";
const soon = () => AbortSignal.timeout(120_000);

type ToolName = "docker" | "podman" | "buildah";
/** docker twice: with the best builder that its clients have, and with the classic one. */
type Variant = ToolName | "docker classic";

/** A client that can drive the classic builder alone. */
const classicClient = (process.env.PATH ?? "").split(":").map((place) => join(place, "docker")).find((one) => {
  const told = spawnSync(one, ["--version"], { encoding: "utf8" });
  return Number(/version (\d+)/.exec(told.stdout ?? "")?.[1]) >= 23 &&
    spawnSync(one, ["buildx", "version"]).status !== 0;
});

interface Bench extends AsyncDisposable {
  tool: ToolName;
  folder: string;
  output: string[];
  builder(
    more?: Partial<BuilderOptions>,
    env?: Record<string, string | undefined>,
    deps?: Partial<BuilderDeps>,
  ): Promise<Builder>;
  request(dockerfile: string, more?: Partial<BuildRequest>): BuildRequest;
}

function bench(variant: Variant): Bench {
  const tool = variant.split(" ")[0] as ToolName;
  const folder = mkdtempSync(join(tmpdir(), "gh-builders-"));
  const output: string[] = [];
  const names = new Set<string>();
  let contexts = 0;
  // buildah's own storage would have to pull what podman's has.
  const storage = join(folder, "storage.conf");
  const env: Record<string, string | undefined> = {
    ...process.env,
    ...(tool === "buildah" && { CONTAINERS_STORAGE_CONF: storage }),
  };
  if (variant === "docker classic") {
    // A PATH with one client of 23 or later, without the plugin, leaves nothing else.
    const bin = join(folder, "bin");
    mkdirSync(bin);
    symlinkSync(classicClient!, join(bin, "docker"));
    symlinkSync("/bin/cp", join(bin, "cp"));
    env.PATH = bin;
  }
  writeFileSync(
    storage,
    `[storage]\ndriver = "overlay"\ngraphroot = "/var/lib/containers/storage"\nrunroot = "/run/containers/storage"\n`,
  );
  return {
    tool,
    folder,
    output,
    builder: (more = {}, moreEnv = {}, deps = {}) =>
      chooseBuilder(
        {
          tool,
          platform: "linux/amd64",
          retryDelayMs: 50,
          ...(tool === "buildah" && { repository: "127.0.0.1:1/x" }),
          ...more,
        },
        {
          provider: tool,
          runner: systemRunner(),
          clock: systemClock,
          env: { ...env, ...moreEnv },
          scratch: join(folder, "scratch"),
          ...deps,
        },
        soon(),
      ),
    request(dockerfile, more = {}) {
      const context = join(folder, `context-${contexts++}`);
      mkdirSync(context);
      writeFileSync(join(context, "Dockerfile"), dockerfile);
      writeFileSync(join(context, "file"), "from the context");
      const request = {
        context,
        dockerfile: join(context, "Dockerfile"),
        name: `hb__${crypto.randomUUID().replaceAll("-", "")}`,
        platform: "linux/amd64",
        args: {},
        timeoutMs: 120_000,
        push: false,
        logFile: join(folder, "logs", `${contexts}.log`),
        ...more,
      };
      names.add(request.name);
      return request;
    },
    async [Symbol.asyncDispose]() {
      spawnSync(tool, ["rmi", ...(tool === "buildah" ? [] : ["-f"]), ...names]);
      rmSync(folder, { recursive: true, force: true });
      await Promise.resolve();
    },
  };
}

const cases: Record<string, (bench: Bench) => Promise<void>> = {
  "an image is built, and its configuration told": async (bench) => {
    const builder = await bench.builder();
    const request = bench.request(
      `FROM ${BASE} AS base\nARG WORD\nENV WORD=$WORD\nWORKDIR /srv\nUSER 12\nCOPY file /f\nHEALTHCHECK CMD true\nENTRYPOINT ["/bin/sh"]\nFROM base AS more\nRUN false\n`,
      { args: { WORD: "two words" }, target: "base", labels: { a: "b" } },
    );
    const built = await builder.build(request, soon(), () => {});
    assert.deepEqual(
      [
        built.reference,
        built.platform,
        built.pushed,
        built.config.WorkingDir,
        built.config.User,
        built.config.Entrypoint,
      ],
      [request.name, "linux/amd64", false, "/srv", "12", ["/bin/sh"]],
    );
    assert.ok(built.config.Env?.includes("WORD=two words"));
    assert.ok(built.config.Healthcheck, "kept, since the format is docker's");
    assert.equal((built.config.Labels as Record<string, string>).a, "b");
    assert.match(built.configDigest, /^sha256:[0-9a-f]{64}$/);
    assert.equal(await builder.has(request.name, soon()), true);
    assert.equal(await builder.has("hb__none", soon()), false);
    assert.match(readFileSync(request.logFile, "utf8"), /WORKDIR \/srv/);
  },
  "a failing RUN is the image's failure, with its last words": async (bench) => {
    const builder = await bench.builder();
    const request = bench.request(`FROM ${BASE}\nRUN echo the real reason >&2; exit 7\n`);
    await assert.rejects(builder.build(request, soon(), () => {}), (error) => {
      assert.ok(error instanceof HarborError);
      assert.deepEqual([error.code, error.details?.class], ["image.failed", "build"]);
      assert.match(error.message, /^image build failed \(exit \d+\): /);
      assert.match(error.details?.tail as string, /the real reason/);
      assert.match(readFileSync(request.logFile, "utf8"), /the real reason/);
      return true;
    });
    assert.equal(await builder.has(request.name, soon()), false);
  },
  "B21: a build that never ends is ended at its limit, with all its processes, and names nothing": async (bench) => {
    const builder = await bench.builder();
    const request = bench.request(`FROM ${BASE}\nRUN (sleep 48251 &) ; sleep 48252\n`, { timeoutMs: 5000 });
    const before = new Set(workingContainers(bench.tool));
    const started = performance.now();
    await assert.rejects(builder.build(request, soon(), () => {}), (error) => {
      assert.ok(error instanceof HarborError);
      assert.match(error.message, /^image build exceeded 5 s/);
      assert.equal(error.details?.class, "timeout");
      return true;
    });
    assert.ok(performance.now() - started < 30_000);
    await new Promise((later) => setTimeout(later, 500));
    assert.deepEqual(processes("sleep 4825"), []);
    assert.deepEqual(workingContainers(bench.tool).filter((one) => !before.has(one)), []);
    assert.equal(await builder.has(request.name, soon()), false);
  },
  "an aborted build leaves no process and no image": async (bench) => {
    const builder = await bench.builder();
    const request = bench.request(`FROM ${BASE}\nRUN sleep 48253\n`);
    const abort = new AbortController();
    const reason = new HarborError("aborted", "enough");
    setTimeout(() => abort.abort(reason), 3000);
    await assert.rejects(builder.build(request, abort.signal, () => {}), (error) => error === reason);
    await new Promise((later) => setTimeout(later, 500));
    assert.deepEqual(processes("sleep 48253"), []);
    assert.equal(await builder.has(request.name, soon()), false);
  },
  "an image for another platform than was asked for is refused, and its name taken away": async (bench) => {
    const builder = await bench.builder();
    // FROM scratch takes any platform; --platform in the file wins over the flag.
    const request = bench.request(`FROM --platform=linux/arm64 scratch\nCOPY file /f\n`);
    const built = await builder.build(request, soon(), () => {}).catch((error) => error);
    if (!(built instanceof HarborError)) return assert.equal(built.platform, "linux/amd64"); // it goes by the flag
    assert.equal(built.message, "the image came out as linux/arm64, not linux/amd64");
    assert.equal(await builder.has(request.name, soon()), false);
  },
  "a push gives the digest under which the registry has it": async (bench) => {
    using registry = startRegistry(join(bench.folder, "registry"));
    const name = `${registry.host}/team/hb__${"0".repeat(32)}`;
    const builder = await bench.builder({ repository: `${registry.host}/team` });
    const built = await builder.build(
      bench.request(`FROM ${BASE}\nENV A=${name}\n`, { name, push: true }),
      soon(),
      () => {},
    );
    assert.equal(built.pushed, true);
    assert.match(built.reference, new RegExp(`^${registry.host}/team/hb__0{32}@sha256:[0-9a-f]{64}$`));
    const [repository, digest] = built.reference.slice(registry.host.length + 1).split("@");
    const accept = "application/vnd.docker.distribution.manifest.v2+json";
    const manifest = await fetch(`http://${registry.host}/v2/${repository}/manifests/${digest}`, {
      headers: { accept },
    });
    assert.equal(manifest.headers.get("content-type"), accept, "an image, no index");
    assert.equal((await manifest.json()).config.digest, built.configDigest);
  },
  "a push by somebody whom the registry does not know is refused, and by one it knows is taken": async (bench) => {
    const [user, password] = ["alice", "se:cret"];
    using registry = startRegistry(join(bench.folder, "registry"), { user, password });
    const name = `${registry.host}/team/hb__${"1".repeat(32)}`;
    const logins = join(bench.folder, "login");
    mkdirSync(logins);
    const file = join(logins, "config.json");
    writeFileSync(file, JSON.stringify({ auths: {} }));
    const anonymous = await bench.builder({ repository: `${registry.host}/team` }, { DOCKER_CONFIG: logins });
    const request = bench.request(`FROM ${BASE}\nENV A=${name}\n`, { name, push: true });
    await assert.rejects(anonymous.build(request, soon(), () => {}), (error) => {
      assert.ok(error instanceof HarborError);
      assert.equal(error.details?.class, "credentials");
      assert.ok(error.message.startsWith(`push to ${registry.host}/team refused: `), error.message);
      return true;
    });
    writeFileSync(file, JSON.stringify({ auths: { [registry.host]: { auth: btoa(`${user}:${password}`) } } }));
    const known = await bench.builder({ repository: `${registry.host}/team` }, {
      DOCKER_CONFIG: logins,
      REGISTRY_AUTH_FILE: file,
    });
    const built = await known.build(request, soon(), () => {});
    assert.ok(built.pushed);
    assert.ok(!readFileSync(request.logFile, "utf8").includes(password));
  },
  "a registry that is not there is asked again, and said to be unreachable": async (bench) => {
    const name = `127.0.0.1:1/team/hb__${"2".repeat(32)}`;
    const builder = await bench.builder({ repository: "127.0.0.1:1/team", retries: 1 });
    const request = bench.request(`FROM ${BASE}\nENV A=2\n`, { name, push: true });
    await assert.rejects(builder.build(request, soon(), () => {}), (error) => {
      assert.ok(error instanceof HarborError);
      assert.equal(error.details?.class, "network");
      assert.match(error.message, /did not come through: .*connection refused/);
      return true;
    });
    // The others do it by themselves, and say so only sometimes.
    if (bench.tool === "docker") assert.match(readFileSync(request.logFile, "utf8"), /trying again in/);
  },
  "a base image comes from the mirror that stands before its registry": async (bench) => {
    if (bench.tool === "docker") return; // its daemon's configuration says that
    using registry = startRegistry(join(bench.folder, "registry"));
    const base = `gym-harbor-mirrored-${crypto.randomUUID()}`;
    const engine = spawnSync("podman", [
      "push",
      "-q",
      "--tls-verify=false",
      BASE,
      `${registry.host}/library/${base}:1`,
    ]);
    assert.equal(engine.status, 0, engine.stderr.toString());
    const registries = new Map([["docker.io", { insecure: false, mirrors: [`http://${registry.host}`] }]]);
    // buildah with a storage of its own, as it comes.
    const storageDir = join(bench.folder, "buildah");
    const own = bench.tool === "buildah" ? { CONTAINERS_STORAGE_CONF: undefined } : {};
    const builder = await bench.builder({ registries, ...(bench.tool === "buildah" && { storageDir }) }, own);
    const request = bench.request(`FROM ${base}:1\nRUN true\n`);
    const built = await builder.build(request, soon(), () => {});
    assert.ok(built.config.Env?.includes("LANG=C.UTF-8"));
    spawnSync("podman", ["rmi", `docker.io/library/${base}:1`]);
    if (bench.tool === "buildah") spawnSync("umount", [join(storageDir, "root/overlay")]);
  },
  "a sandbox that starts from our store finds there what an engine built": async (bench) => {
    const store = openStore(join(bench.folder, "store"), { clock: systemClock });
    const builder = await bench.builder({ repository: undefined }, {}, { provider: "namespace", store });
    const request = bench.request(`FROM ${BASE}\nCOPY file /f\nWORKDIR /srv\nHEALTHCHECK CMD true\n`);
    assert.equal(await builder.has(request.name, soon()), false);
    const built = await builder.build(request, soon(), () => {});
    assert.equal(await builder.has(request.name, soon()), true);
    const stored = await store.find(request.name, "linux/amd64");
    assert.equal(stored?.config.digest, built.configDigest);
    assert.equal(stored?.file.config?.WorkingDir, "/srv");
  },
  "E2: heredocs do what BuildKit does with them, also for builders that have none": async (bench) => {
    const builder = await bench.builder();
    const request = bench.request(HEREDOCS, { args: { name: "world" }, noCache: true });
    writeFileSync(join(request.context, ".dockerignore"), "*\n!file\n");
    await builder.build(request, soon(), () => {});
    const log = readFileSync(request.logFile, "utf8");
    assert.match(log, /gym-harbor: Dockerfile line \d+: the heredoc of RUN is given to \/bin\/sh as an argument/);
    const files = Object.fromEntries(
      [...log.matchAll(/FILE (\S+) (\S+) ([0-9a-f]*)!/g)].map(([, name, mode, hex]) => [
        name,
        `${mode} ${new TextDecoder().decode(Uint8Array.from(hex!.match(/../g) ?? [], (byte) => parseInt(byte, 16)))}`,
      ]),
    );
    assert.deepEqual(files, EXPECTED);
    assert.match(log, /ALL: file/, "COPY . takes no file of ours along");
    const images = spawnSync(bench.tool, ["images"], { encoding: "utf8" }).stdout;
    assert.ok(!images.includes("gym-harbor-heredocs"), "the image of generated files is gone");
  },
  "E2: a failing heredoc fails the build, and its step is named": async (bench) => {
    const builder = await bench.builder();
    const request = bench.request(`FROM ${BASE}\nRUN <<EOF\n#!/bin/sh\nexit 9\nEOF\n`);
    await assert.rejects(builder.build(request, soon(), () => {}), {
      code: "image.failed",
      message: /exit (code: )?9|code: 9|\(exit 9\)/,
    });
  },
  "a frontend that cannot be fetched is done without": async (bench) => {
    const builder = await bench.builder();
    const request = bench.request(
      `# syntax=docker/dockerfile:1\nFROM ${BASE}\nRUN <<EOF\necho made > /made\nEOF\nRUN test -s /made\n`,
    );
    await builder.build(request, soon(), () => {});
  },
};

/** What BuildKit's own tests of heredocs build, in one file. */
const HEREDOCS = `FROM ${BASE} AS build
ARG name=nobody
ENV BASEVAR=b
WORKDIR /dest
COPY <<EOF single
single file
EOF
COPY <<EOF <<EOF2 double/
first file
EOF
second file
EOF2
COPY --chmod=0750 <<EOF all
dummy content
EOF
COPY --chown=12:34 <<EOF file /dest/owned/
dummy content
EOF
COPY <<EOF quotefile
"quotes in file"
EOF
COPY <<EOF slashfile1
\\
EOF
COPY <<EOF slashfile2
\\\\
EOF
COPY <<EOF slashfile3
\\$
EOF
COPY <<"EOF" rawslashfile3
\\$
EOF
RUN <<EOF
echo "i am" >> basic
id -u >> basic
EOF
RUN <<EOF
#!/bin/awk -f
BEGIN {
	print "hello" >> "shebang"
	print "it's" >> "shebang"
}
EOF
RUN cat <<EOF1 | tr '[:upper:]' '[:lower:]' > ./out1; \\
	cat <<EOF2 | tr '[:lower:]' '[:upper:]' > ./out2
hello WORLD
EOF1
HELLO world
EOF2
RUN <<FILE1 cat > test8.1 && <<FILE2 cat > test8.2
part1
FILE1
part2
FILE2
COPY <<-EOF bar-copy
	bar
EOF
RUN <<-EOF
echo "
	bar" > bar-run
EOF
RUN <<EOF
# not a comment of the Dockerfile

echo "
	foo" > foo-run
EOF
RUN <<-EOF sh > bar3-run
echo "
	bar"
EOF
COPY <<EOF c1
Hello \${name} of $BASEVAR and \${LANG}!
EOF
COPY <<'EOF' c2
Hello \${name}!
EOF
RUN <<EOF
name="new \${name}"
echo "Hello \${name}!" > r2
EOF
SHELL ["/bin/awk"]
RUN <<EOF
BEGIN {
	print "foo" > "/dest/fake"
}
EOF
SHELL ["/bin/sh", "-c"]
COPY . /ctx
RUN echo ALL: $(ls -A /ctx); for f in $(find . -type f); do \\
      echo "FILE $f $(stat -c '%a:%u:%g' $f) $(od -An -v -tx1 $f | tr -d ' \\n')!"; done
`;

const EXPECTED: Record<string, string> = {
  "./single": "644:0:0 single file\n",
  "./double/EOF": "644:0:0 first file\n",
  "./double/EOF2": "644:0:0 second file\n",
  "./all": "750:0:0 dummy content\n",
  "./owned/EOF": "644:12:34 dummy content\n",
  "./owned/file": "644:12:34 from the context",
  "./quotefile": '644:0:0 "quotes in file"\n',
  "./slashfile1": "644:0:0 \n",
  "./slashfile2": "644:0:0 \\\n",
  "./slashfile3": "644:0:0 $\n",
  "./rawslashfile3": "644:0:0 \\$\n",
  "./basic": "644:0:0 i am\n0\n",
  "./shebang": "644:0:0 hello\nit's\n",
  "./out1": "644:0:0 hello world\n",
  "./out2": "644:0:0 HELLO WORLD\n",
  "./test8.1": "644:0:0 part1\n",
  "./test8.2": "644:0:0 part2\n",
  "./bar-copy": "644:0:0 bar\n",
  "./bar-run": "644:0:0 \nbar\n",
  "./foo-run": "644:0:0 \n\tfoo\n",
  "./bar3-run": "644:0:0 \nbar\n",
  "./c1": "644:0:0 Hello world of b and C.UTF-8!\n",
  "./c2": "644:0:0 Hello \${name}!\n",
  "./r2": "644:0:0 Hello new world!\n",
  "./fake": "644:0:0 foo\n",
};

/** What buildah builds in; podman shows them only with --external. */
function workingContainers(tool: ToolName): string[] {
  if (tool === "docker") return [];
  const shown = ["ps", "-a", "--external", "--format", "{{.ID}} {{.Image}} {{.Names}}"];
  const lines = spawnSync("podman", shown, { encoding: "utf8" }).stdout.split("\n");
  return lines.filter((line) => line.includes(`${BASE} `) && line.includes("-working-container"));
}

const processes = (word: string) =>
  spawnSync("ps", ["-eo", "stat,args"], { encoding: "utf8" }).stdout.split("\n").filter((line) =>
    line.includes(word) && !line.startsWith("Z")
  );

test("E16: a disk that fills up during a build is told by its folder", { skip: loopSkip() ?? false }, async () => {
  await using one = bench("buildah");
  const [image, place] = [join(one.folder, "disk.img"), join(one.folder, "disk")];
  mkdirSync(place);
  writeFileSync(image, "");
  truncateSync(image, 400 * 1024 ** 2);
  for (const argv of [["mkfs.ext4", "-q", "-m", "0", image], ["mount", "-o", "loop", image, place]]) {
    assert.equal(spawnSync(argv[0]!, argv.slice(1)).status, 0, argv.join(" "));
  }
  try {
    const builder = await one.builder({ storageDir: join(place, "images") }, { CONTAINERS_STORAGE_CONF: undefined });
    const request = one.request("FROM scratch\nCOPY big /\n");
    writeFileSync(join(request.context, "big"), new Uint8Array(600 * 1024 ** 2));
    await assert.rejects(builder.build(request, soon(), () => {}), (error) => {
      assert.ok(error instanceof HarborError);
      assert.equal(error.details?.class, "disk", error.message);
      assert.ok(error.message.startsWith(`no space left on device in ${join(place, "images/root")}`), error.message);
      return true;
    });
  } finally {
    spawnSync("umount", [join(place, "images/root/overlay")]);
    spawnSync("umount", ["-l", place]);
  }
});

/** Why no file system in a file can be mounted here. */
function loopSkip(): string | undefined {
  if (process.getuid?.() !== 0) return "needs root to mount a file system";
  if (spawnSync("buildah", ["--version"]).error !== undefined) return "buildah: not installed";
  return spawnSync("losetup", ["-f"]).status === 0 ? undefined : "no loop device";
}

for (const tool of ["docker", "docker classic", "podman", "buildah"] as const) {
  for (const [name, check] of Object.entries(cases)) {
    if (!name.includes(process.env.GYM_HARBOR_CASE ?? "")) continue;
    const skip = engineSkip(tool.startsWith("docker") ? "docker" : "podman") ??
      (tool === "docker classic" && classicClient === undefined
        ? "no docker client of 23 or later without buildx"
        : undefined) ??
      (/push/.test(name) ? registrySkip() : undefined);
    test(`${tool}: ${name}`, { skip: skip ?? false }, async () => {
      await using one = bench(tool);
      await check(one);
    });
  }
}
