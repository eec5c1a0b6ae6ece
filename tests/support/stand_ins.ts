/**
 * Stand-ins for tools that cannot be installed where we test (apptainer, enroot): programs in `stand_ins/` that write down
 * how they were called and run the command on this machine. What they show is our side of the conversation.
 */
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { systemClock } from "../../lib/runtime/clock.ts";
import { type LayoutStore, openStore } from "../../lib/store/layout.ts";
import { madeImage, sha256 } from "./odd_registry.ts";

export const STAND_INS = join(import.meta.dirname!, "stand_ins");
/** The image that `storeWithBusyBox` holds. */
export const IMAGE = "stand-in.local/busybox:1";

export interface StandIns extends Disposable {
  /** For the provider and what it starts. */
  env: Record<string, string>;
  folder: string;
  /** Every call so far: program and arguments. */
  calls(): string[][];
}

export function standIns(): StandIns {
  const folder = mkdtempSync(join(tmpdir(), "gym-harbor-stand-in-"));
  const log = join(folder, "calls");
  writeFileSync(log, "");
  return {
    folder,
    env: {
      ...process.env as Record<string, string>,
      PATH: `${STAND_INS}:${process.env.PATH}`,
      XDG_CACHE_HOME: join(folder, "cache"),
      TMPDIR: folder,
      STAND_IN_LOG: log,
      STAND_IN_STATE: join(folder, "state"),
    },
    calls: () =>
      readFileSync(log, "utf8").split("\x1e").filter((call) => call !== "").map((call) => call.split("\x1f")),
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** Why no stand-in can run here; undefined where it can. */
export function standInSkip(): string | undefined {
  if (process.getuid?.() !== 0) return "needs root: the stand-ins mount";
  if (!existsSync("/bin/busybox")) return "busybox: not installed (busybox-static)";
  const tried = spawnSync("unshare", ["--mount", "--pid", "--fork", "true"]);
  return tried.status === 0 ? undefined : "unshare does not work here";
}

/** A program of this machine with the libraries it needs. */
function carry(name: string, root: string): void {
  const path = spawnSync("sh", ["-c", `command -v ${name}`], { encoding: "utf8" }).stdout.trim();
  const libraries = spawnSync("ldd", [path], { encoding: "utf8" }).stdout.match(/\/\S+(?= \()/g) ?? [];
  for (const file of [path, ...libraries]) {
    mkdirSync(join(root, dirname(file)), { recursive: true });
    spawnSync("cp", ["-L", file, join(root, file)]);
  }
}

/** A store whose one image is a BusyBox root with two users. */
export async function storeWithBusyBox(folder: string): Promise<LayoutStore> {
  const root = join(folder, "root");
  for (const name of ["bin", "etc", "tmp", "root", "usr/bin", "var"]) mkdirSync(join(root, name), { recursive: true });
  chmodSync(join(root, "tmp"), 0o1777);
  spawnSync("cp", ["/bin/busybox", join(root, "bin/busybox")]);
  const applets = spawnSync("/bin/busybox", ["--list"], { encoding: "utf8" }).stdout.split("\n");
  for (const name of applets) if (name !== "" && name !== "busybox") symlinkSync("busybox", join(root, "bin", name));
  carry("setpriv", root); // BusyBox's own cannot become a number
  writeFileSync(join(root, "etc/passwd"), "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n");
  writeFileSync(join(root, "etc/group"), "root:x:0:\n");
  const tar = spawnSync("tar", ["-C", root, "-cf", "-", "."], { maxBuffer: 64 << 20 }).stdout;
  const store = openStore(join(folder, "store"), { clock: systemClock });
  const made = madeImage({ layers: [new Uint8Array(tar)] });
  const signal = new AbortController().signal;
  for (const bytes of [new TextEncoder().encode(made.config), ...made.layers]) {
    const descriptor = { mediaType: "x", digest: sha256(bytes), size: bytes.length };
    await store.take(descriptor, () => Promise.resolve(new Blob([bytes as BlobPart]).stream()), signal);
  }
  const manifest = { mediaType: JSON.parse(made.manifest).mediaType, digest: made.digest, size: made.manifest.length };
  await store.add({ manifest, manifestBytes: new TextEncoder().encode(made.manifest) }, [IMAGE]);
  return store;
}
