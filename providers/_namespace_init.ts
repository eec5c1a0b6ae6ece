/**
 * The two small programs that run as PID 1 of a sandbox. Pure: text and argv only.
 *
 * First `sh` runs INIT with all rights of the new namespaces: it mounts, changes the root folder and lets go of this
 * machine's. Then it becomes `bash` running SESSION with Docker's capability set, before the first word of a task runs:
 * every command is forked from it, so nothing that a task may have replaced (a loader, setpriv itself) is ever executed
 * with more rights. Entering from outside (nsenter) would do exactly that.
 *
 * SESSION answers lines: `E <id>` runs the launcher `CONTROL/<id>` as a child in its own process group and prints
 * `S <id> <pid>`; any line makes it print `X <id> <status>` for what has ended since. Bash runs no trap while it reads,
 * so the other side asks: at once when both output pipes have closed, now and then while they are open. As PID 1 it
 * reaps orphans and survives `kill -9 -1`. The end of its input is the end of the sandbox.
 */
import { Buffer } from "node:buffer";
import { quoted, shellQuote } from "../lib/runtime/runner.ts";
import { CONTROL } from "./_namespace_mounts.ts";
import type { Tools } from "./_namespace_tools.ts";

/**
 * Docker's default set (20.10) without mknod (no devices cgroup stands behind it here) and, on a shared network,
 * without net_raw (it would read this machine's traffic).
 */
const CAPABILITIES = [
  "chown",
  "dac_override",
  "fowner",
  "fsetid",
  "kill",
  "setgid",
  "setuid",
  "setpcap",
  "net_bind_service",
  "net_raw",
  "sys_chroot",
  "audit_write",
  "setfcap",
];

export function capabilitySet(sharedNetwork: boolean): string {
  return ["-all", ...CAPABILITIES.filter((name) => !(sharedNetwork && name === "net_raw")).map((name) => `+${name}`)]
    .join(",");
}

/** What a command gives up besides: names as Compose writes them (`NET_RAW`, `CAP_CHOWN`, `ALL`). */
function droppedSet(drop: readonly string[], keep: readonly string[]): string {
  const names = drop.map((name) => name.toLowerCase().replace(/^cap_/, ""));
  return CAPABILITIES.filter((name) => (names.includes(name) || names.includes("all")) && !keep.includes(name))
    .map((name) => `-${name}`).join(",");
}

/**
 * argv that enters a sandbox whose namespaces belong to this machine's root. What it runs in the end may be the task's
 * own `/bin/bash`, so it must not be what nsenter starts with all rights: setpriv and chroot are this machine's, and the
 * mount namespace is not joined, which takes those rights; the root folder alone is the sandbox's. Without ptrace's
 * right a task cannot look into a process that has a capability more than itself, so none can reach this machine's root
 * folder through this one before it has changed to its own: that is what wake_alarm is for.
 */
export function rootEnterArgv(
  init: number,
  words: readonly string[],
  setpriv: string,
  sharedNetwork: boolean,
): string[] {
  const joined = ["--pid", "--ipc", "--uts", "--net"];
  const bounded = [setpriv, "--bounding-set", `${capabilitySet(sharedNetwork)},+wake_alarm`, "--inh-caps", "-all"];
  return ["nsenter", "--target", String(init), ...joined, ...bounded, "chroot", `/proc/${init}/root`, ...words];
}

/** The way from this machine's root folder to the sandbox's. */
export type Entry =
  /** `tree/root` is the sandbox's root and shows this machine's own programs. */
  | { kind: "pivot" }
  /**
   * `tree/root` holds nothing but programs of ours, and the sandbox's root at `box`. What still has all rights runs where
   * no byte of an image can take part (a loader reads /etc/ld.so.preload of its root folder); `chroot` follows after
   * they are given away. Whoever climbs out of it inside finds the folder of programs, read-only.
   */
  | {
    kind: "through-tools";
    box: string;
    umount: readonly string[];
    setpriv: readonly string[];
    chroot: readonly string[];
  };

/** What Compose may say of a service. */
export interface Confined {
  capDrop: readonly string[];
  noNewPrivileges: boolean;
  ulimits: Readonly<Record<string, { soft: number; hard: number }>>;
}

export interface InitRequest {
  base: string;
  tools: Tools;
  /** How this machine's root is let go of; see Entry. */
  entry: Entry;
  /** argv that brings `lo` up; absent where the network namespace came with it up or is shared. */
  loopback?: readonly string[];
  /** Kilobytes for the tmpfs when writes stay in memory; undefined keeps them on disk. */
  memory?: { sizeKb?: number };
  sharedNetwork: boolean;
  /** CPUs to stay on (`taskset -c`), where no cgroup holds them. */
  cpuList?: string;
  /** Processes allowed, where no cgroup counts them. */
  maxProcesses?: number;
  /** Whether nested user namespaces can be forbidden from inside (we own this user namespace). */
  ownUserNamespace: boolean;
  /** The sandbox ends by itself after this many seconds without a word from us. */
  ttlSeconds: number;
  /** Name of the machine inside; undefined keeps this machine's. */
  hostname?: string;
  /** What a member of a group may do less, and its own limits. */
  confined?: Confined;
  /** Named pipes to make; none when the control folder has them from an earlier sandbox. */
  pipes: readonly string[];
}

/** INIT: exits with the failing step's message on stderr; prints `P <pid of PID 1 as this machine counts>` first. */
export function initProgram(request: InitRequest): string {
  const { base } = request;
  const q = shellQuote;
  const steps = ["set -eu", "umask 022", `cd ${q(base)}`];
  // /proc is still this machine's: the shell reads its own entry there.
  steps.push("read -r pid _ </proc/self/stat", `echo "P $pid"`);
  steps.push("echo 1000 >/proc/self/oom_score_adj 2>/dev/null || :");
  if (request.ownUserNamespace) steps.push("echo 0 >/proc/sys/user/max_user_namespaces 2>/dev/null || :");
  if (request.cpuList !== undefined) steps.push(`taskset -cp ${request.cpuList} $$ >/dev/null`);
  if (request.memory !== undefined) {
    const size = request.memory.sizeKb === undefined ? "" : `,size=${request.memory.sizeKb}k`;
    steps.push(`mount -t tmpfs -o mode=755,nodev${size} tmpfs tree`, "cp -a own/. tree/");
  }
  if (request.pipes.length > 0) steps.push(`mkfifo -m 600 ${request.pipes.map(q).join(" ")}`);
  steps.push("mount --fstab fstab -a");
  if (request.loopback !== undefined) steps.push(request.loopback.map(q).join(" "));
  if (request.hostname !== undefined) {
    // The file is the machine's root's alone, also in a namespace of one's own; the program may not be installed.
    const name = q(request.hostname);
    steps.push(`{ hostname ${name} || echo ${name} >/proc/sys/kernel/hostname; } 2>/dev/null || :`);
  }
  const { entry, tools } = request;
  const newPrivileges = request.confined?.noNewPrivileges === true ? ["--no-new-privs"] : [];
  const bounded = ["--bounding-set", capabilitySet(request.sharedNetwork), "--inh-caps", "-all"];
  const rights = [...newPrivileges, ...bounded];
  const session = [...tools.bash, "--norc", "--noprofile", "-c", sessionProgram(request), "gym-harbor"];
  steps.push("cd tree/root", "pivot_root . .old");
  const words = entry.kind === "pivot" ? ["umount -l /.old", [...tools.setpriv, ...rights, ...session]] as const : [
    quoted([...entry.umount, "-i", "-n", "-l", "/.old"]),
    [...entry.setpriv, ...rights, ...entry.chroot, entry.box, ...session],
  ] as const;
  steps.push(words[0], `exec ${quoted(words[1])}`);
  return steps.join("\n");
}

/** Bash would end on these, PID 1 or not; commands get them back. */
const IGNORED = "HUP INT QUIT ILL TRAP ABRT BUS FPE USR1 SEGV USR2 PIPE ALRM TERM XCPU XFSZ VTALRM SYS";

/** Letters by which bash knows what Compose names (bash(1), ulimit; prlimit(2)). */
const ULIMITS: Record<string, string> = {
  as: "v",
  core: "c",
  cpu: "t",
  data: "d",
  fsize: "f",
  locks: "x",
  memlock: "l",
  msgqueue: "q",
  nice: "e",
  nofile: "n",
  nproc: "u",
  rss: "m",
  rtprio: "r",
  sigpending: "i",
  stack: "s",
};
/** What bash counts in KiB where Compose counts in bytes. */
const IN_KIB = new Set(["as", "core", "data", "fsize", "memlock", "rss", "stack"]);

/** A limit above our own cannot be had: then ours holds, as for every engine that runs under it. */
function ulimitLines(ulimits: Confined["ulimits"]): string {
  const word = (name: string, value: number) =>
    value < 0 ? "unlimited" : String(IN_KIB.has(name) ? Math.ceil(value / 1024) : value);
  return Object.entries(ulimits).filter(([name]) => ULIMITS[name] !== undefined).map(([name, { soft, hard }]) =>
    `ulimit -S -${ULIMITS[name]} ${word(name, soft)} 2>/dev/null\nulimit -H -${ULIMITS[name]} ${
      word(name, hard)
    } 2>/dev/null\n`
  ).join("");
}

function sessionProgram({ ttlSeconds, maxProcesses, tools, confined }: InitRequest): string {
  const limit = (maxProcesses === undefined ? "" : `ulimit -u ${maxProcesses} 2>/dev/null\n`) +
    ulimitLines(confined?.ulimits ?? {});
  return `set -m
trap '' ${IGNORED}
${limit}declare -A pids
kept=
reap() {
  local id
  for id in "\${!pids[@]}"; do
    [ -e "/proc/\${pids[$id]}" ] && continue
    wait "\${pids[$id]}" 2>/dev/null
    printf 'X %s %s\\n' "$id" "$?"
    unset "pids[$id]"
  done
}
printf 'R\\n'
while :; do
  IFS=' ' read -r -t ${Math.max(1, Math.ceil(ttlSeconds))} verb id
  status=$?
  [ "$SECONDS" -ge ${Math.max(1, Math.ceil(ttlSeconds))} ] && exit 0
  if [ "$status" != 0 ]; then
    [ -z "$kept" ] && exit 0
    exec ${quoted(tools.sleep)} "$((${Math.max(1, Math.ceil(ttlSeconds))} - SECONDS))" </dev/null >/dev/null 2>&1
  fi
  case $verb in
    E)
      ( trap - ${IGNORED}; . "${CONTROL}/$id" ) &
      pids[$id]=$!
      printf 'S %s %s\\n' "$id" "$!"
      ;;
    K) kept=1 ;;
  esac
  reap
done 2>/dev/null
`;
}

export interface Account {
  uid: number;
  gid: number;
  groups: readonly number[];
  home: string;
}

export interface LaunchRequest {
  id: string;
  /** `steps`: a script of ours that runs in a copy of PID 1's own shell; a shell less to start. */
  run: { script: string } | { argv: readonly string[] } | { steps: string };
  env: Readonly<Record<string, string>>;
  cwd: string;
  /** Absent: as the sandbox's root. */
  account?: Account;
  /** Capabilities that it gives up besides. */
  capDrop?: readonly string[];
  tools: Tools;
  /** Names of the two output pipes in the control folder. */
  stdout: string;
  stderr: string;
}

/**
 * Names that bash gives a meaning of its own or will not let us set: they travel by `env` (their values may show in a
 * process list for the blink until `env` has become the command), as do names that are no shell names.
 */
const SHELL_OWN = new Set(
  ("BASHOPTS BASHPID BASH_ARGC BASH_ARGV BASH_COMMAND BASH_LINENO BASH_SUBSHELL BASH_VERSINFO COMP_WORDBREAKS DIRSTACK " +
    "EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD IFS LINENO OPTIND POSIXLY_CORRECT PPID PS4 RANDOM SECONDS " +
    "SHELLOPTS SRANDOM UID _").split(" "),
);

/** Names that would reach into programs of ours on the way to the command: a loader obeys them. */
const LOADER_OWN = /^(LD_|GLIBC_TUNABLES$)/;

/** A script longer than this does not fit one argument of execve (MAX_ARG_STRLEN is 131,072 bytes). */
const LONGEST_ARGUMENT = 100_000;

/** The launcher file of one command, and the script beside it when that is too long for an argument. */
export function launcher(request: LaunchRequest): { launcher: string; script?: string } {
  const q = shellQuote;
  const lines: string[] = [];
  const byEnv: string[] = [];
  for (const [name, value] of Object.entries(request.env)) {
    if (value.includes("\0")) continue;
    if (/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) && !SHELL_OWN.has(name) && !LOADER_OWN.test(name)) {
      lines.push(`export ${name}=${q(value)}`);
    } else if (name !== "" && !name.includes("=")) byEnv.push(q(`${name}=${value}`));
  }
  lines.push(`cd -- ${q(request.cwd)} || { printf 'F %s cwd\\n' ${request.id}; exit 126; }`);
  lines.push("unset OLDPWD");
  const shell = `if [ -x /bin/bash ]; then shell=/bin/bash; else shell=/bin/sh; fi\n` +
    `[ -x $shell ] || { printf 'F %s shell\\n' ${request.id}; exit 126; }`;
  if ("steps" in request.run) {
    lines.push(
      `exec </dev/null >${CONTROL}/${request.stdout} 2>${CONTROL}/${request.stderr}`,
      "set +m",
      request.run.steps,
    );
    return { launcher: lines.join("\n") + "\n" };
  }
  let script: string | undefined;
  let command: string;
  let redirect = `</dev/null`;
  // A shell does not take IFS from its environment; whoever asks for it by name means the script.
  const own = request.env.IFS === undefined ? "" : `export IFS=${q(request.env.IFS)}\n`;
  if ("argv" in request.run) command = request.run.argv.map(q).join(" ");
  else {
    lines.push(shell);
    if (Buffer.byteLength(request.run.script) < LONGEST_ARGUMENT) {
      command = `$shell -c ${q(own + request.run.script)}`;
    } else {
      script = own + request.run.script;
      redirect += ` 8<${CONTROL}/${request.id}.script`;
      // The dot keeps trailing newlines, which $( ) would eat.
      command = `$shell -c ${q(`s=$(${quoted(request.tools.cat)} <&8; echo .); exec 8<&-; eval "\${s%.}"`)}`;
    }
  }
  if (byEnv.length > 0) command = `${quoted(request.tools.env)} ${byEnv.join(" ")} ${command}`;
  // The two that change the user are needed until that is done; who is not root then has none of the rest anyway.
  const dropped = droppedSet(request.capDrop ?? [], request.account === undefined ? [] : ["setuid", "setgid"]);
  const confine = dropped === "" ? "" : `${quoted(request.tools.setpriv)} --bounding-set ${dropped} `;
  if (request.account !== undefined) {
    const { uid, gid, groups } = request.account;
    const extra = groups.length > 0 ? `--groups ${groups.join(",")}` : "--clear-groups";
    const setpriv = request.tools.setpriv;
    lines.push(`[ -x ${q(setpriv[0]!)} ] || { printf 'F %s setpriv\\n' ${request.id}; exit 126; }`);
    command = `${quoted(setpriv)} --reuid ${uid} --regid ${gid} ${extra} ${command}`;
  }
  lines.push(
    `exec ${redirect} >${CONTROL}/${request.stdout} 2>${CONTROL}/${request.stderr}`,
    `exec ${confine}${command}`,
  );
  return { launcher: lines.join("\n") + "\n", ...(script !== undefined && { script }) };
}

/** What a user name or number means, by the sandbox's own /etc/passwd and /etc/group. Undefined: no such user. */
export function accountOf(user: string, passwd: string, group: string): Account | undefined {
  const [name, groupName] = user.split(":", 2) as [string, string | undefined];
  const numeric = /^\d+$/.test(name);
  const groups = group.split("\n").map((line) => line.split(":"));
  const row = passwd.split("\n").map((line) => line.split(":")).find((fields) =>
    fields.length >= 6 && (fields[0] === name || (numeric && fields[2] === name))
  );
  if (row === undefined && !numeric) return undefined;
  const uid = row === undefined ? Number(name) : Number(row[2]);
  let gid = row === undefined ? 0 : Number(row[3]);
  let extra = row === undefined
    ? []
    : groups.filter((fields) => fields[3]?.split(",").includes(row[0]!)).map((fields) => Number(fields[2]));
  if (groupName !== undefined) {
    const known = groups.find((fields) => fields[0] === groupName);
    if (known === undefined && !/^\d+$/.test(groupName)) return undefined;
    gid = known === undefined ? Number(groupName) : Number(known[2]);
    extra = [];
  }
  return { uid, gid, groups: [...new Set(extra)].filter(Number.isInteger), home: row?.[5] || "/" };
}
