/**
 * What this machine lets us do: as root or in a user namespace, with which ids, by which programs. Found out once per
 * provider, by trying.
 */
import { accessSync, constants, existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { HarborError } from "../lib/errors.ts";
import type { Runner } from "../lib/runtime/runner.ts";
import { thisUid } from "../lib/runtime/user.ts";
import type { ImageNeed } from "../lib/sandbox/provider.ts";
import { SYS_CANDIDATES } from "./_namespace_mounts.ts";

/** PATH inside, and where we look for the programs we start. */
export const PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

export interface Machine {
  /** `root`: with CAP_SYS_ADMIN here. `user`: in a user namespace of our own. */
  mode: "root" | "user";
  /** Which ids exist inside; `own` is one id, ours, as root. */
  ids: "all" | "ranges" | "own";
  /** Why there are no ranges, when there are none. */
  idsReason: string;
  /** Whose ids unpacked layers carry (lib/unpack/owners.ts): a tree of one map cannot be written through another. */
  ownerMap: string;
  programs: { setpriv: string; unshare: string; bash: string; nsenter: string };
  /** argv that brings `lo` up in the network namespace it runs in; undefined when no program here can. */
  loopback: string[] | undefined;
  procEntries: string[];
  sysPaths: string[];
}

export function findProgram(name: string): string | undefined {
  for (const folder of PATH.split(":")) {
    try {
      accessSync(join(folder, name), constants.X_OK);
      return join(folder, name);
    } catch {
      // next
    }
  }
  return undefined;
}

/** Options of `unshare` that make the user namespace of each kind of ids. */
export const USER_NAMESPACE = {
  ranges: ["--user", "--map-root-user", "--map-users=auto", "--map-groups=auto"],
  own: ["--user", "--map-root-user"],
} as const;

const NEEDED = ["setpriv", "unshare", "bash", "nsenter", "mount", "umount", "pivot_root", "mkfifo", "mknod"] as const;

export function missingPrograms(): string[] {
  return NEEDED.filter((name) => findProgram(name) === undefined);
}

/** Throws "engine.missing" when a program is not there. */
export async function lookAtMachine(runner: Runner): Promise<Machine> {
  const missing = missingPrograms();
  if (missing.length > 0) {
    throw new HarborError("engine.missing", `Sandboxes without an engine need ${missing.join(", ")} on this machine`, {
      hint: "install util-linux 2.38 or newer, bash and coreutils; gym-harbor doctor tells more",
    });
  }
  const mode = process.getuid?.() === 0 && hasSysAdmin() ? "root" : "user";
  const programs = {
    setpriv: findProgram("setpriv")!,
    unshare: findProgram("unshare")!,
    bash: findProgram("bash")!,
    nsenter: findProgram("nsenter")!,
  };
  const { ids, reason, ownerMap } = mode === "root"
    ? { ids: "all" as const, reason: "", ownerMap: "shift:0" }
    : await tryRanges(runner, programs.unshare);
  return {
    mode,
    ids,
    idsReason: reason,
    ownerMap,
    programs,
    loopback: loopbackArgv(),
    procEntries: readdirSync("/proc").filter((name) => !/^\d+$/.test(name)),
    sysPaths: SYS_CANDIDATES.filter((path) => existsSync(path)),
  };
}

/** CAP_SYS_ADMIN is bit 21 of CapEff (capabilities(7)): root in a container often lacks it. */
function hasSysAdmin(): boolean {
  const line = /^CapEff:\s*([0-9a-f]+)/m.exec(readFileSync("/proc/self/status", "latin1"));
  return line !== null && (BigInt(`0x${line[1]}`) & (1n << 21n)) !== 0n;
}

async function tryRanges(
  runner: Runner,
  unshare: string,
): Promise<{ ids: "ranges" | "own"; reason: string; ownerMap: string }> {
  const argv = [unshare, ...USER_NAMESPACE.ranges, "cat", "/proc/self/uid_map"];
  const tried = await runner.run(argv, { deadlineMs: 10_000, env: { PATH } });
  const start = tried.ended === "exit" && tried.exitCode === 0 ? rangeStart(tried.stdout) : undefined;
  if (start !== undefined) return { ids: "ranges", reason: "", ownerMap: `range:${start}` };
  const reason = whyOwnOnly(tried.stderr, findProgram("newuidmap") !== undefined);
  return { ids: "own", reason, ownerMap: `single:${thisUid()}` };
}

/** The missing piece, from what unshare (util-linux 2.38) said of a map with ranges. */
export function whyOwnOnly(stderr: string, hasNewuidmap: boolean): string {
  if (!hasNewuidmap) return "newuidmap is not installed";
  const said = stderr.trim().split("\n").at(-1)!;
  const stranger = /you \(user (\S+)\) don't exist/.exec(said)?.[1];
  if (stranger !== undefined) return `id ${stranger} has no name on this machine, so /etc/subuid can give it no range`;
  return said || "newuidmap gives this user no range of ids";
}

/** Where the ids of a user's range begin on this machine, by the map of a namespace that has them (user_namespaces(7)). */
export function rangeStart(map: string): number | undefined {
  const rows = map.trim().split("\n").map((row) => row.trim().split(/\s+/).map(Number));
  return rows.find(([inside, , count]) => inside === 1 && count! > 1)?.[1];
}

/** SIOCSIFFLAGS (0x8914) with IFF_UP|IFF_RUNNING on "lo", for machines without `ip` (netdevice(7)). */
const IOCTL = {
  python3: 'import fcntl,socket,struct;fcntl.ioctl(socket.socket(),0x8914,struct.pack("16sh22x",b"lo",0x41))',
  perl: 'use Socket; socket(S,AF_INET,SOCK_DGRAM,0)||die $!; ioctl(S,0x8914,pack("a16sx22","lo",0x41))||die $!',
};

function loopbackArgv(): string[] | undefined {
  const ip = findProgram("ip");
  if (ip !== undefined) return [ip, "link", "set", "lo", "up"];
  const ifconfig = findProgram("ifconfig");
  if (ifconfig !== undefined) return [ifconfig, "lo", "up"];
  const busybox = findProgram("busybox");
  if (busybox !== undefined) return [busybox, "ip", "link", "set", "lo", "up"];
  const python = findProgram("python3");
  if (python !== undefined) return [python, "-c", IOCTL.python3];
  const perl = findProgram("perl");
  return perl === undefined ? undefined : [perl, "-e", IOCTL.perl];
}

/** What is missing where commands can run as root alone, and who mends it; undefined where other users can be had. */
export function oneId(machine: Machine, env: Readonly<Record<string, string | undefined>>): string | undefined {
  if (machine.ids !== "own") return undefined;
  const user = env.USER ?? process.getuid?.() ?? "";
  return `${machine.idsReason}; an administrator mends it with: apt-get install uidmap; ` +
    `usermod --add-subuids 100000-165535 --add-subgids 100000-165535 ${user}`;
}

/**
 * Throws "task.unsupported" for an image whose Dockerfile adds a user, where there is one id only: what becomes that user
 * by itself would fail there, and its failure would be scored as the work's.
 */
export function refuseAddedUsers(
  machine: Machine,
  { taskId, addsUser }: Pick<ImageNeed, "taskId" | "addsUser">,
  env: Readonly<Record<string, string | undefined>>,
): void {
  const hint = oneId(machine, env);
  if (hint === undefined || addsUser === undefined) return;
  const { line, words } = addsUser;
  const message =
    `${taskId} has a user of its own (Dockerfile line ${line}: ${words}), and only one id can be had here ` +
    `(${machine.idsReason})`;
  throw new HarborError("task.unsupported", message, { hint });
}

/** Throws "task.unsupported" for a user other than root where there is one id only (decisions 18). */
export function refuseOtherUsers(
  machine: Machine,
  taskId: string,
  users: readonly (string | undefined)[],
  env: Readonly<Record<string, string | undefined>>,
): void {
  const hint = oneId(machine, env);
  const other = users.find((user) => user !== undefined && !/^(|root|0)(:(root|0))?$/.test(user));
  if (hint === undefined || other === undefined) return;
  const message = `${taskId} runs commands as ${other}, and only one id can be had here (${machine.idsReason})`;
  throw new HarborError("task.unsupported", message, { hint });
}
