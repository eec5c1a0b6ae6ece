/** Root folders to make images from where there is no engine and no registry: programs of this machine, as a tar file. */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

export type RootfsKind = "busybox" | "host";

/** Kept between runs: making one takes seconds. */
const FOLDER = join(process.env.GYM_HARBOR_ENGINES ?? "/tmp/gym-harbor-engines", "rootfs");

/** A tar file of the kind's root folder. Throws when it is not there and cannot be made (only root can). */
export function rootfsTar(kind: RootfsKind): string {
  const tar = join(FOLDER, `${kind}.tar`);
  if (existsSync(tar)) return tar;
  const script = join(dirname(fileURLToPath(import.meta.url)), "kit/make-base-images.sh");
  execFileSync("bash", [script, FOLDER, kind], { env: { ...process.env, TARS_ONLY: "1" }, stdio: "pipe" });
  return tar;
}
