/** Command lines for the networks, volumes and sidecars of a group, as pure functions. No value of a variable is in one. */
import type { MemberSpec, ServiceMount, ServiceSpec } from "../lib/sandbox/group.ts";
import type { Limits } from "../lib/sandbox/provider.ts";
import { type EngineName, limitFlags, type Program, proxyFlags } from "./_oci_argv.ts";
import { memberAddress } from "./_oci_subnets.ts";

type Labels = Readonly<Record<string, string>>;

export const labelFlags = (labels: Labels): string[] =>
  Object.entries(labels).flatMap(([key, value]) => ["--label", `${key}=${value}`]);

export interface NetworkRequest {
  name: string;
  labels: Labels;
  subnet: string;
  /** Nothing gets out, and this machine is not reached either. */
  internal: boolean;
  /** podman: a name server on the network. */
  nameServer: boolean;
}

/**
 * Without a way out: docker's bridge then gets no address of this machine (`inhibit_ipv4`, seen to work in 20.10);
 * podman's gets none when it needs none for a name server, whose questions would leave the machine (aardvark 1.4).
 */
export function networkArgv({ engine, path }: Program, request: NetworkRequest): string[] {
  const { name, labels, subnet, internal, nameServer } = request;
  return [
    ...[path, "network", "create", "--driver", "bridge", "--subnet", subnet, ...labelFlags(labels)],
    ...(internal ? ["--internal"] : []),
    ...(internal && engine === "docker" ? ["--opt", "com.docker.network.bridge.inhibit_ipv4=true"] : []),
    ...(engine === "podman" && !nameServer ? ["--disable-dns"] : []),
    name,
  ];
}

export const volumeArgv = ({ path }: Program, name: string, labels: Labels): string[] => [
  ...[path, "volume", "create", ...labelFlags(labels), name],
];

export interface Attachment {
  network: string;
  subnet: string;
  internal: boolean;
  nameServer: boolean;
  /** In the order of their addresses. */
  members: readonly { service: string; aliases: readonly string[] }[];
}

/** How a member is connected. `networkOf`: the container whose network it shares. */
export function networkFlags(
  engine: EngineName,
  attachment: Attachment,
  member: Pick<MemberSpec, "service" | "aliases" | "extraHosts" | "noNetwork" | "hostname">,
  networkOf: string | undefined,
): string[] {
  if (networkOf !== undefined) return ["--network", `container:${networkOf}`]; // its names and hosts come with it
  const hostname = member.hostname === undefined ? [] : ["--hostname", member.hostname];
  const extra = Object.entries(member.extraHosts).flatMap(([name, ip]) => ["--add-host", `${name}:${ip}`]);
  if (member.noNetwork) return ["--network", "none", ...hostname, ...extra];
  const { network, subnet, internal, nameServer, members } = attachment;
  const names = [member.service, ...member.aliases];
  const aliases = names.flatMap((name) => ["--network-alias", name]);
  // Of names outside nothing is asked: the engine's name server would hand the question on from this machine.
  const noNames = internal ? ["--dns", "127.0.0.1", "--dns-opt", "timeout:1", "--dns-opt", "attempts:1"] : [];
  if (engine === "docker") return ["--network", network, ...aliases, ...noNames, ...hostname, ...extra];
  const own = members.findIndex(({ service }) => service === member.service);
  const others = members.flatMap(({ service, aliases }, index) =>
    [service, ...aliases].flatMap((name) => ["--add-host", `${name}:${memberAddress(subnet, index)}`])
  );
  return [
    ...["--network", network, ...(own < 0 ? [] : ["--ip", memberAddress(subnet, own)])],
    ...(nameServer ? aliases : []),
    ...noNames,
    ...hostname,
    ...others,
    ...extra,
  ];
}

/** What a member has beside its network. `volume`: the engine's name of a volume of the group. */
export function memberFlags(
  engine: EngineName,
  member: Omit<MemberSpec, "service" | "aliases" | "extraHosts" | "hostname">,
  volume: (name: string) => string,
  { selinux, ownLimits }: { selinux: boolean; ownLimits: string },
): string[] {
  return [
    ...member.mounts.flatMap((mount) => mountFlags(mount, volume, selinux)),
    ...member.capAdd.flatMap((capability) => ["--cap-add", capability]),
    ...member.capDrop.flatMap((capability) => ["--cap-drop", capability]),
    ...(member.noNewPrivileges ? ["--security-opt", "no-new-privileges"] : []),
    ...(member.shmBytes === undefined ? [] : ["--shm-size", `${member.shmBytes}b`]),
    ...ulimitFlags(engine, member.ulimits, ownLimits),
    ...(member.readOnly ? ["--read-only"] : []),
  ];
}

/** podman lowers its own limit of processes to this before it starts anything (4.3). */
const PODMAN_PROCESSES = 32_768;

/**
 * One `--ulimit` makes podman forget its configured defaults and ask for more than a process of ours may have (4.3), so
 * the two that it would raise are given with it, as high as they can be. `own`: /proc/self/limits.
 */
export function ulimitFlags(engine: EngineName, ulimits: MemberSpec["ulimits"], own: string): string[] {
  const flags = Object.entries(ulimits).map(([name, { soft, hard }]) => `${name}=${soft}:${hard}`);
  if (engine === "podman" && flags.length > 0) {
    for (
      const [name, label, most] of [["nproc", "processes", PODMAN_PROCESSES], [
        "nofile",
        "open files",
        Infinity,
      ]] as const
    ) {
      const hard = Math.min(
        most,
        Number(new RegExp(`^Max ${label}\\s+\\S+\\s+(\\d+)`, "m").exec(own)?.[1] ?? Infinity),
      );
      if (!(name in ulimits) && Number.isFinite(hard)) flags.push(`${name}=${hard}:${hard}`);
    }
  }
  return flags.flatMap((flag) => ["--ulimit", flag]);
}

function mountFlags(mount: ServiceMount, volume: (name: string) => string, selinux: boolean): string[] {
  switch (mount.kind) {
    case "bind":
      return bound(mount.source, mount.target, [mount.readOnly ? "ro" : "rw", ...(selinux ? ["z"] : [])]);
    case "volume":
      return bound(volume(mount.name), mount.target, [
        mount.readOnly ? "ro" : "rw",
        ...(mount.noCopy ? ["nocopy"] : []),
      ]);
    case "scratch":
      return ["--volume", mount.target];
    case "tmpfs":
      return ["--tmpfs", mount.options === "" ? mount.target : `${mount.target}:${mount.options}`];
  }
}

const bound = (source: string, target: string, options: string[]): string[] => [
  "--volume",
  `${source}:${target}:${options.join(",")}`,
];

export interface ServiceRun {
  /** The container's name. */
  name: string;
  labels: Labels;
  /** Id of an image that is present. */
  image: string;
  /** networkFlags() and memberFlags(). */
  flags: readonly string[];
  limits: Limits;
  pids: number | undefined;
  /** podman hands this machine's proxy variables on where it may. */
  proxies: boolean;
  envFlags: readonly string[];
  spec: Pick<ServiceSpec, "argv" | "workdir" | "user" | "init" | "stopSignal" | "stopGraceMs" | "ttlMs">;
}

/** Bytes of output that an engine keeps of one sidecar. */
const LOG_MIB = 64;

/** Starts a sidecar as its author meant it: its own program is its first process. It is kept when it ends, with its log. */
export function serviceArgv({ engine, path }: Program, run: ServiceRun): string[] {
  const { name, labels, image, flags, limits, pids, proxies, envFlags, spec } = run;
  const [program, ...args] = spec.argv as [string, ...string[]];
  return [
    ...[path, "run", "--detach", "--name", name, ...labelFlags(labels)],
    ...["--pull", "never", "--no-healthcheck"],
    ...(engine === "docker"
      ? ["--log-driver", "json-file", "--log-opt", `max-size=${LOG_MIB}m`]
      : ["--log-driver", "k8s-file", "--log-opt", `max-size=${LOG_MIB}mb`, "--systemd=false"]),
    // docker has no such bound: a sidecar that outlives us is found by its labels.
    ...(engine === "podman" && Number.isFinite(spec.ttlMs) ? ["--timeout", String(Math.ceil(spec.ttlMs / 1000))] : []),
    ...flags,
    ...proxyFlags(engine, proxies),
    ...limitFlags(engine, limits),
    ...(pids === undefined ? [] : ["--pids-limit", String(pids)]),
    ...(spec.init ? ["--init"] : []),
    ...(spec.stopSignal === undefined ? [] : ["--stop-signal", spec.stopSignal]),
    ...(spec.workdir === undefined ? [] : ["--workdir", spec.workdir]),
    ...(spec.user === undefined ? [] : ["--user", spec.user]),
    ...envFlags,
    // podman reads a text that looks like a JSON list as one.
    ...["--entrypoint", engine === "podman" ? JSON.stringify([program]) : program, image, ...args],
  ];
}

export const waitArgv = ({ path }: Program, name: string): string[] => [path, "wait", name];

/** Everything that it printed; the streams come as two. */
export const logsArgv = ({ path }: Program, name: string, lines?: number): string[] => [
  ...[path, "logs", ...(lines === undefined ? [] : ["--tail", String(lines)]), name],
];

export const stopArgv = ({ path }: Program, name: string, seconds: number): string[] => [
  ...[path, "stop", "--time", String(seconds), name],
];

/** A program in a sidecar whose image has no shell. */
export const plainExecArgv = (
  { path }: Program,
  name: string,
  { user, cwd, envNames, argv }: { user?: string; cwd?: string; envNames: readonly string[]; argv: readonly string[] },
): string[] => [
  ...[path, "exec", ...(user === undefined ? [] : ["--user", user]), ...(cwd === undefined ? [] : ["--workdir", cwd])],
  ...envNames.flatMap((variable) => ["--env", variable]),
  name,
  ...argv,
];

export type ThingKind = "network" | "volume";

/** What of ours an engine has beside containers, by label. */
export const listThingsArgv = ({ path }: Program, kind: ThingKind, label: string): string[] => [
  ...[path, kind, "ls", "--quiet", "--filter", `label=${label}`],
];

export const inspectThingsArgv = ({ path }: Program, kind: ThingKind, names: readonly string[]): string[] => [
  ...[path, kind, "inspect", ...names],
];

export const removeThingsArgv = ({ path }: Program, kind: ThingKind, names: readonly string[]): string[] => [
  ...[path, kind, "rm", ...(kind === "volume" ? ["--force"] : []), ...names],
];
