/** Command lines for docker and podman, as pure functions. No secret is ever in one: values travel by stdin or environment. */
import type { Limits, Network } from "../lib/sandbox/provider.ts";
import { CONTROL, LAUNCH, LAUNCH_WITH_ARCHIVE, WITH_REAPER } from "./_oci_scripts.ts";

export type EngineName = "docker" | "podman";

export interface Program {
  engine: EngineName;
  /** What is started, usually the engine's name. */
  path: string;
}

export interface RunRequest {
  name: string;
  labels: Readonly<Record<string, string>>;
  /** Id of an image that is present. */
  image: string;
  network: Network;
  /** Network that "public" means; undefined is the engine's default. */
  publicNetwork: string | undefined;
  limits: Limits;
  /** Processes and threads at most; undefined leaves the engine's default. */
  pids: number | undefined;
  /** Whether podman hands this machine's proxy variables on, as it does by itself. */
  proxies: boolean;
  /** In a group: how it is connected there, instead of `network`, and what else it has as a member. */
  member?: readonly string[];
  /** More flags of the operator's (`++sandbox.docker.run_args`). */
  extra: readonly string[];
}

/**
 * Starts a sandbox with us attached: its first process is the control shell, as root, whatever the image starts. The
 * engine itself removes it when it ends, also when we are gone by then.
 */
export function runArgv({ engine, path }: Program, request: RunRequest): string[] {
  const { name, labels, image, network, publicNetwork, limits, pids, proxies, member, extra } = request;
  const net = network === "no-network" ? "none" : network === "host" ? "host" : publicNetwork;
  return [
    ...[path, "run", "-i", "--rm", "--sig-proxy=false", "--name", name],
    ...Object.entries(labels).flatMap(([key, value]) => ["--label", `${key}=${value}`]),
    // The attached client sees all output; a log beside it would only fill the disk.
    ...["--pull", "never", "--log-driver", "none", "--no-healthcheck", "--user", "0", "--workdir", "/"],
    ...(engine === "docker" ? ["--init", "--stop-timeout", "1"] : ["--systemd=false", "--stop-timeout", "0"]),
    ...(member ?? (net === undefined ? [] : ["--network", net])),
    ...proxyFlags(engine, proxies),
    ...limitFlags(engine, limits),
    ...(pids === undefined ? [] : ["--pids-limit", String(pids)]),
    ...extra,
    ...["--entrypoint", "/bin/sh", image],
    ...(engine === "docker" ? ["-c", CONTROL] : ["-c", WITH_REAPER, "gym-harbor", CONTROL]),
  ];
}

/** Limits that the engine holds (heldLimits()). No swap beside the memory. */
export const limitFlags = (engine: EngineName, { cpus, memoryMb, gpus }: Limits): string[] => [
  ...(cpus === undefined ? [] : ["--cpus", String(cpus)]),
  ...(memoryMb === undefined ? [] : ["--memory", `${memoryMb}m`, "--memory-swap", `${memoryMb}m`]),
  ...(gpus ? gpuFlags(engine, gpus) : []),
];

/** Where nothing may or can get out, variables that point there would only mislead. docker hands on none by itself. */
export const proxyFlags = (engine: EngineName, proxies: boolean): string[] =>
  engine === "podman" && !proxies ? ["--http-proxy=false"] : [];

const gpuFlags = (engine: EngineName, count: number): string[] =>
  engine === "docker"
    ? ["--gpus", String(count)]
    : Array.from({ length: count }, (_, index) => ["--device", `nvidia.com/gpu=${index}`]).flat();

export interface ExecArgv {
  name: string;
  /** As the engine takes it; undefined is root. */
  user: string | undefined;
  archive: boolean;
  /** Variables that the client takes from its own environment. */
  envNames: readonly string[];
  /** What reads our program. */
  shell: string;
}

export function execArgv({ path }: Program, { name, user, archive, envNames, shell }: ExecArgv): string[] {
  return [
    ...[path, "exec", "-i"],
    ...(user === undefined ? [] : ["--user", user]),
    ...envNames.flatMap((variable) => ["--env", variable]),
    ...[name, shell, "-c", archive ? LAUNCH_WITH_ARCHIVE : LAUNCH],
  ];
}

/** At once, with anonymous volumes. podman would wait ten seconds for the first process without `-t 0`. */
export function removeArgv({ engine, path }: Program, names: readonly string[]): string[] {
  return [path, "rm", "-f", ...(engine === "podman" ? ["-t", "0"] : []), "-v", ...names];
}

export const stateArgv = ({ path }: Program, name: string): string[] => [path, "container", "inspect", name];

/** Whether the kernel's OOM killer struck in a container, as docker tells it also after the end; podman does not. */
export const oomEventsArgv = ({ engine, path }: Program, name: string): string[] | undefined =>
  engine === "podman" ? undefined : [
    path,
    "events",
    "--since",
    "1h",
    "--until",
    "0s",
    "--filter",
    `container=${name}`,
    "--filter",
    "event=oom",
    "--format",
    "{{.Action}}",
  ];

export const listArgv = (
  { path }: Program,
  label: string,
): string[] => [path, "ps", "-a", "-q", "--no-trunc", "--filter", `label=${label}`];

export const imageArgv = ({ path }: Program, reference: string): string[] => [path, "image", "inspect", reference];

export const pullArgv = (
  { path }: Program,
  reference: string,
  platform?: string,
): string[] => [path, "pull", "-q", ...(platform === undefined ? [] : ["--platform", platform]), reference];

/** Reads a docker-archive from stdin. */
export const loadArgv = ({ path }: Program): string[] => [path, "load", "--quiet"];

/** Writes a docker-archive to stdout; by id, so that no name of the engine's comes with it. */
export const saveArgv = ({ engine, path }: Program, id: string): string[] => [
  ...[path, "save", ...(engine === "podman" ? ["--quiet", "--format", "docker-archive"] : []), id],
];

export const tagArgv = ({ path }: Program, id: string, name: string): string[] => [path, "tag", id, name];

export const copyInArgv = ({ path }: Program, name: string): string[] => [path, "cp", "-", `${name}:/`];

export const copyOutArgv = (
  { path }: Program,
  name: string,
  folder: string,
): string[] => [path, "cp", `${name}:${folder}`, "-"];

/**
 * A reference as the engine must hear it to pull: Docker's rules for short names (spec/images-and-sandboxes §5.1),
 * since podman without a list of registries to search resolves none (podman 4.3).
 */
export function fullReference(reference: string): string {
  const slash = reference.indexOf("/");
  const first = slash < 0 ? "" : reference.slice(0, slash);
  if (first.includes(".") || first.includes(":") || first === "localhost") return reference;
  return `docker.io/${slash < 0 ? "library/" : ""}${reference}`;
}
