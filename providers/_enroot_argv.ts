/** Command lines for enroot (3.4), as pure functions. Where its data lies is said by its environment (enrootEnv()). */
import { join } from "node:path";
import { beginArgv, inBackground, unlessAbsent } from "./_cluster_launch.ts";
import type { ExecArgv } from "./_oci_argv.ts";
import { CONTROL } from "./_oci_scripts.ts";

/** Everything of one sandbox below its own folder, so that nothing of it stays when that goes. */
export const enrootEnv = (base: string, gpu: boolean): Record<string, string> => ({
  ENROOT_DATA_PATH: join(base, "data"),
  ENROOT_CACHE_PATH: join(base, "cache"),
  ENROOT_RUNTIME_PATH: join(base, "run"),
  ENROOT_TEMP_PATH: join(base, "tmp"),
  ENROOT_UNSHARE_PID: "yes",
  ENROOT_MOUNT_HOME: "no",
  NVIDIA_VISIBLE_DEVICES: gpu ? "all" : "void",
});

export const createArgv = (id: string, image: string): string[] => ["enroot", "create", "--name", id, image];

export interface StartRequest {
  id: string;
  /** An image's own start script is passed over (`--rc /dev/null`). */
  bypassRc: boolean;
  /** After this it ends by itself. */
  ttlSeconds: number;
  /** File for what the start says. */
  log: string;
}

/** The first process: waits for whatever is handed to it until its time is over. */
const KEEP_ALIVE = 'trap "" TERM INT HUP; sleep "$0" & wait';

/** Starts it in the background: enroot becomes the container's own first process. Root inside is our own id. */
export const startArgv = ({ id, bypassRc, ttlSeconds, log }: StartRequest): string[] =>
  inBackground(log, [
    ...["enroot", "start", "--rw", "--root", ...(bypassRc ? ["--rc", "/dev/null"] : []), id],
    ...["/bin/sh", "-c", KEEP_ALIVE, String(ttlSeconds)],
  ]);

/** The attached client whose stdin and stdout are the sandbox's line. */
export const controlArgv = (pid: number): string[] => ["enroot", "exec", String(pid), "/bin/sh", "-c", CONTROL];

export const execArgv = (pid: number, { user, archive, envNames, shell }: ExecArgv): string[] => [
  ...["enroot", "exec", ...envNames.flatMap((name) => ["--env", name]), String(pid)],
  ...beginArgv(user, archive, shell),
];

export const enterArgv = (pid: number, shell: string): string[] => ["enroot", "exec", String(pid), shell];

export const removeArgv = (id: string): string[] =>
  unlessAbsent("No such file or directory", ["enroot", "remove", "--force", id]);

export const listArgv = (): string[] => ["enroot", "list", "--fancy"];

/** The pid of a running container by the table that listArgv() printed; undefined when it does not run. */
export function containerPid(stdout: string, id: string): number | undefined {
  const [head = "", ...rows] = stdout.split("\n");
  const column = head.trim().split(/\s+/).indexOf("PID");
  const row = rows.map((line) => line.trim().split(/\s+/)).find(([name]) => name === id);
  const pid = Number(row?.[column]);
  return column > 0 && Number.isInteger(pid) && pid > 1 ? pid : undefined;
}

/** A folder as a squashfs file. Only root can keep the owners that the image has. */
export const squashArgv = (tree: string, to: string, asRoot: boolean): string[] => [
  ...["mksquashfs", tree, to, "-noappend", "-no-progress", "-quiet", ...(asRoot ? [] : ["-all-root"])],
];
