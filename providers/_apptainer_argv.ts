/** Command lines for apptainer (1.1 and newer; singularity takes the same), as pure functions. */
import { beginArgv, logged, unlessAbsent } from "./_cluster_launch.ts";
import type { ExecArgv } from "./_oci_argv.ts";
import { CONTROL } from "./_oci_scripts.ts";

export interface StartRequest {
  /** Name of the instance. */
  id: string;
  /** `.sif` file. */
  image: string;
  /** Folder of this machine's disk that takes what the sandbox writes; undefined keeps it in memory. */
  overlay: string | undefined;
  /** Not root here: become root inside by user namespaces. */
  fakeroot: boolean;
  /** Whether it has a network at all; with one it shares this machine's. */
  network: boolean;
  gpu: boolean;
  /** File for what the start says. */
  log: string;
}

/**
 * Starts an instance in pid, ipc and mount namespaces of its own with nothing of this user's inside. /tmp and the home
 * folder stay on the overlay: those of `--containall` lie in a session folder of 64 MiB on many sites.
 */
export function startArgv(path: string, request: StartRequest): string[] {
  const { id, image, overlay, fakeroot, network, gpu, log } = request;
  return logged(log, [
    ...[path, "instance", "start", "--containall", "--no-mount", "home,tmp,bind-paths", "--pid", "--cleanenv"],
    ...["--no-eval"],
    ...(overlay === undefined ? ["--writable-tmpfs"] : ["--overlay", overlay]),
    ...(fakeroot ? ["--fakeroot"] : []),
    ...(network ? [] : ["--net", "--network", "none"]),
    ...(gpu ? ["--nv"] : []),
    ...[image, id],
  ]);
}

const inside = (path: string, id: string, fakeroot: boolean): string[] => [
  ...[path, "exec", "--pwd", "/", "--cleanenv", "--no-eval", ...(fakeroot ? ["--fakeroot"] : []), `instance://${id}`],
];

/** The attached client whose stdin and stdout are the sandbox's line. */
export const controlArgv = (path: string, id: string, fakeroot: boolean): string[] => [
  ...[...inside(path, id, fakeroot), "/bin/sh", "-c", CONTROL],
];

export const execArgv = (path: string, fakeroot: boolean, { name, user, archive, shell }: ExecArgv): string[] => [
  ...[...inside(path, name, fakeroot), ...beginArgv(user, archive, shell)],
];

export const enterArgv = (path: string, id: string, fakeroot: boolean, shell: string): string[] => [
  ...[...inside(path, id, fakeroot), shell],
];

export const stopArgv = (path: string, id: string): string[] =>
  unlessAbsent("no instance found", [path, "instance", "stop", "--force", id]);

export const listArgv = (path: string, id: string): string[] => [path, "instance", "list", "--json", id];

/** The pid of an instance by what listArgv() printed; undefined when there is none. */
export function instancePid(stdout: string, id: string): number | undefined {
  try {
    const { instances } = JSON.parse(stdout) as { instances?: { instance?: string; pid?: number }[] | null };
    return instances?.find(({ instance }) => instance === id)?.pid;
  } catch {
    return undefined;
  }
}

/** A `.sif` of a folder (the image's layers in one), or of a URI that apptainer knows (`docker-archive:…`). */
export const buildArgv = (path: string, source: string, to: string): string[] => [
  ...[path, "build", "--disable-cache", "--force", to, source],
];

/** Whether a sandbox without any network can be had here: tried for real on an image. */
export const probeNoNetworkArgv = (path: string, image: string, fakeroot: boolean): string[] => [
  ...[path, "exec", "--containall", "--no-mount", "home,tmp,bind-paths", "--net", "--network", "none"],
  ...[...(fakeroot ? ["--fakeroot"] : []), image, "/bin/sh", "-c", ":"],
];

/** Variables that no shell can export, as apptainer hands them on from its own environment. */
export const carried = (variables: Readonly<Record<string, string>>): Record<string, string> =>
  Object.fromEntries(Object.entries(variables).map(([name, value]) => [`APPTAINERENV_${name}`, value]));
