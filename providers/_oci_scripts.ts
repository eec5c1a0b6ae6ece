/**
 * Every piece of shell that runs in a container on our behalf, as pure functions. POSIX sh only (bash, dash, BusyBox
 * ash), builtins wherever a full process table or a removed /bin must not stop us, names prefixed with `gym_`.
 */
import { shellQuote } from "../lib/runtime/runner.ts";

/** A program text as one line, for `eval "$(printf %b "$line")"`: shells read a line bytewise, so nothing is over-read. */
export const oneLine = (script: string): string => script.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");

/**
 * The sandbox's own process: reads one request a line and carries it out. It ends, and the container with it, when its
 * stdin ends, which is when we end, however that happens. An init passes on what a task sends to PID 1: not for us.
 */
export const CONTROL =
  'trap "" TERM HUP INT;IFS= read -r gym_S||exit 0;while IFS= read -r gym_L;do eval "$(printf %b "$gym_L")";done';

/** Stands in for an init: PID 1 that waits in the foreground reaps every orphan (bash 5, dash 0.5, BusyBox 1.35). */
export const WITH_REAPER = '/bin/sh -c "$1"; exit "$?"';

/** Starts an exec: the secret is the first line of stdin, the program the rest. */
export const LAUNCH = 'IFS= read -r gym_S;eval "$(cat)"';

/** The same where an archive follows on stdin: the program is the second line. */
export const LAUNCH_WITH_ARCHIVE = 'IFS= read -r gym_S;IFS= read -r gym_L;eval "$(printf %b "$gym_L")"';

/** One marker in a single write, so that nothing of a task can come between its bytes. */
const SAY = `gym_say() { echo "
$gym_S $*"; }
`;

/**
 * gym_stat PID: sets gym_state gym_ppid gym_pgrp gym_sess gym_start from /proc/PID/stat (proc(5); the name in
 * parentheses may hold anything, also a newline).
 */
const STAT = `gym_stat() {
  gym_l=
  while IFS= read -r gym_x || [ -n "$gym_x" ]; do gym_l="$gym_l $gym_x"; done 2>/dev/null < "/proc/$1/stat"
  case $gym_l in *") "*) ;; *) return 1;; esac
  set -- \${gym_l##*) }
  [ $# -ge 20 ] || return 1
  gym_state=$1 gym_ppid=$2 gym_pgrp=$3 gym_sess=$4 gym_start=\${20}
}
`;

/**
 * gym_kill PID START ID WIDE SPARE: ends the exec whose launcher is PID and began at START: its session and group; with
 * WIDE=1 also descendants that left the session and whatever carries its id in the environment (what we may read of
 * it: without CAP_SYS_PTRACE only processes of our own user). Nothing older than START is looked at. All are frozen
 * before any is killed, so that a family that forks cannot outrun us; all but the launcher, which runs nothing of the
 * task itself and whose stop some clients would share (nsenter, su). Sets gym_left to what would not die.
 */
const KILL = `gym_marked() {
  gym_e=
  while IFS= read -r gym_e || [ -n "$gym_e" ]; do
    case $gym_e in *"GYM_EXEC_ID=$2"*) return 0;; esac
  done 2>/dev/null < "/proc/$1/environ"
  return 1
}
gym_members() {
  gym_more=1
  while [ "$gym_more" = 1 ]; do
    gym_more=0
    for gym_d in /proc/[0-9]*; do
      gym_k=\${gym_d#/proc/}
      case " $gym_found $5 " in *" $gym_k "*) continue;; esac
      gym_stat "$gym_k" || continue
      case $gym_state in Z|X) continue;; esac
      [ "$gym_start" -ge "$2" ] || continue
      if [ "$gym_k" = "$1" ] || [ "$gym_sess" = "$1" ] || [ "$gym_pgrp" = "$1" ]; then :
      elif [ "$4" = 1 ]; then
        case " $1 $gym_found " in
          *" $gym_ppid "*) ;;
          *) gym_marked "$gym_k" "$3" || continue;;
        esac
      else continue
      fi
      gym_found="$gym_found $gym_k" gym_more=1
      [ "$gym_k" = "$1" ] || gym_halt="$gym_halt $gym_k"
    done
  done
}
gym_kill() {
  gym_round=0 gym_left=
  while [ "$gym_round" -lt 40 ]; do
    gym_round=$((gym_round+1)) gym_found= gym_halt= gym_before=x
    while [ "$gym_found" != "$gym_before" ]; do
      gym_before=$gym_found
      gym_members "$@"
      [ -z "$gym_halt" ] || [ "$gym_found" = "$gym_before" ] || kill -STOP $gym_halt 2>/dev/null
    done
    gym_left=$gym_found
    [ -n "$gym_found" ] || return 0
    kill -KILL $gym_found 2>/dev/null
  done
  return 1
}
`;

/**
 * gym_dir PATH: makes a real folder. A link in the last place is replaced, and below the folders that are ours anywhere
 * in the path; elsewhere an image may have links of its own (/var/run). gym_plain PATH: no part of it is a link.
 */
const PATHS = `gym_next() {
  case $gym_r in */*) gym_c=\${gym_r%%/*} gym_r=\${gym_r#*/};; *) gym_c=$gym_r gym_r=;; esac
}
gym_dir() {
  gym_p= gym_r=\${1#/}
  while [ -n "$gym_r" ]; do
    gym_next
    [ -n "$gym_c" ] || continue
    gym_p=$gym_p/$gym_c
    if [ -L "$gym_p" ]; then
      case "$gym_r|$gym_p/" in "|"*|*"|/tests/"*|*"|/logs/"*|*"|/solution/"*|*"|/tmp/.gym-harbor/"*) rm -f "$gym_p";; esac
    fi
    [ -d "$gym_p" ] || { rm -f "$gym_p"; mkdir "$gym_p" && chmod 755 "$gym_p"; } || return 1
  done
}
gym_plain() {
  gym_p= gym_r=\${1#/}
  while [ -n "$gym_r" ]; do
    gym_next
    [ -n "$gym_c" ] || continue
    gym_p=$gym_p/$gym_c
    [ ! -L "$gym_p" ] || return 1
  done
}
`;

/** gym_size FILE: sets gym_b without reading the file, as BusyBox's wc would (3 GiB of nothing: a minute). */
const SIZE = `gym_size() {
  set -- $(ls -ln "$1")
  gym_b=$5
}
`;

/** gym_oom: sets gym_o to the kernel's count of OOM kills in this container's cgroup (v2, then v1), or "". */
const OOM = `gym_oom() {
  gym_o=
  for gym_f in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
    [ -r "$gym_f" ] || continue
    while read -r gym_k gym_v; do [ "$gym_k" != oom_kill ] || gym_o=$gym_v; done < "$gym_f"
    [ -z "$gym_o" ] || return 0
  done
}
`;

export interface SetupRequest {
  ttlSeconds: number;
  workdir: string;
  /** Owner of a working directory that had to be made; undefined leaves it to root. */
  workdirOwner: string | undefined;
  script: string | undefined;
}

/**
 * The first request of a sandbox. Answers `0 made CODE`, output of the script, `0 script CODE`, `0 owned CODE`, the
 * working directory between `0 workdir` and `0 ready oom=N PROGRAM=PATH…`.
 */
export function setupScript({ ttlSeconds, workdir, workdirOwner, script }: SetupRequest): string {
  const dir = shellQuote(workdir);
  const own = workdirOwner === undefined ? ":" : `chown ${shellQuote(workdirOwner)} ${dir} </dev/null 1>&2`;
  // The owner may be a user that the script makes.
  return `umask 022
${SAY}${STAT}${KILL}${PATHS}${SIZE}${OOM}
( trap - TERM HUP INT; sleep ${ttlSeconds} && kill -KILL $$ ) </dev/null >/dev/null 2>&1 &
gym_own=:
[ -d ${dir} ] || { gym_own= && mkdir -p ${dir}; } </dev/null 1>&2
gym_say 0 made $?
${script === undefined ? ":" : asRootScript(script)}
gym_say 0 script $?
[ -n "$gym_own" ] || ${own}
gym_say 0 owned $?
gym_say 0 workdir
(cd ${dir} && pwd -P)
command -v head >/dev/null 2>&1 || head() { cat; }
gym_oom
gym_say 0 ready "oom=$gym_o" "bash=$(command -v bash)" "tar=$(command -v tar)" "head=$(command -v head)" "cat=$(command -v cat)"
`;
}

/** In a shell of its own: an error of its syntax or its `exit` must not end ours, nor our ignored signals be its. */
const asRootScript = (script: string): string => `( trap - TERM HUP INT; eval ${shellQuote(script)} ) </dev/null 2>&1`;

/** Root's script before an upload, and the folders it goes to. Answers `N script CODE` and `N folders CODE`. */
export function beforeScript(n: number, script: string | undefined, folders: readonly string[]): string {
  const made = folders.map((folder) => `gym_dir ${shellQuote(folder)}`).join(" &&\n");
  return `${script === undefined ? ":" : asRootScript(script)}
gym_c=$?; gym_say ${n} script "$gym_c"
[ "$gym_c" != 0 ] || { ${made || ":"}
} </dev/null 2>&1
gym_say ${n} folders $?
`;
}

export interface KillRequest {
  pid: number;
  start: string;
  id: string;
  wide: boolean;
}

/** Ends an exec from outside. Answers `N killed PIDS-THAT-REMAIN…`. */
export const killScript = (n: number, { pid, start, id, wide }: KillRequest): string =>
  `gym_kill ${pid} ${start} ${id} ${wide ? 1 : 0} $$; gym_say ${n} killed $gym_left\n`;

/** The same for a shell that was never told our functions (a second exec, where the control shell is stuck). */
export const loneKillScript = (request: KillRequest): string =>
  `${SAY}${STAT}${KILL}gym_kill ${request.pid} ${request.start} ${request.id} ${
    request.wide ? 1 : 0
  } $$; gym_say killed $gym_left\n`;

/**
 * After a command: the count of OOM kills and small files. Answers `N oom COUNT`, then per file `N file I` and its bytes,
 * or `N absent I`, `N refused I REASON`, and `N collected`.
 */
export function collectScript(n: number, files: readonly { path: string; maxBytes: number }[]): string {
  const one = ({ path, maxBytes }: { path: string; maxBytes: number }, index: number) => {
    const file = shellQuote(path);
    return `( if ! gym_plain ${file}; then gym_say ${n} refused ${index} a symbolic link
elif [ ! -e ${file} ]; then gym_say ${n} absent ${index}
elif [ ! -f ${file} ]; then gym_say ${n} refused ${index} not a regular file
elif gym_size ${file} && [ "\${gym_b:-0}" -gt ${maxBytes} ]; then gym_say ${n} refused ${index} larger than ${maxBytes} bytes, it has $gym_b
else gym_say ${n} file ${index}; head -c ${maxBytes + 1} < ${file}
fi ) </dev/null
`;
  };
  return `gym_oom; gym_say ${n} oom "$gym_o"
${files.map(one).join("")}gym_say ${n} collected
`;
}

/**
 * A folder as a tar stream, at most `maxBytes` of it. Answers `N absent`, `N refused REASON`, or `N tar` and the
 * archive; then `N sent CODE`.
 */
export function bringScript(n: number, folder: string, maxBytes: number): string {
  const dir = shellQuote(folder);
  return `( if ! gym_plain ${dir}; then gym_say ${n} refused a symbolic link
elif [ ! -d ${dir} ]; then [ -e ${dir} ] && gym_say ${n} refused not a folder || gym_say ${n} absent
else gym_say ${n} tar; { tar -cf - -C ${dir} . ; } | head -c ${maxBytes}
fi ) </dev/null
gym_say ${n} sent $?
`;
}

/** What an archive on stdin is unpacked with, as root: modes survive, GNU and BusyBox alike. */
const UNPACK = `tar -xf - -C / || { gym_c=$?; gym_say unpack "$gym_c" >&7; exit 1; }
`;

export interface ExecRequest {
  id: string;
  /** An archive follows on stdin and is unpacked first. */
  archive: boolean;
  /** Absent: only the archive. */
  command?: {
    run: { script: string } | { argv: string[] };
    cwd: string;
    env: Readonly<Record<string, string>>;
    /** Absolute path of the shell for scripts. */
    shell: string;
    /** End what the command left behind, before its end is told. */
    sweep: boolean;
  };
}

/**
 * What a launcher evaluates. Says on stderr `start PID STARTTIME`, then `unpack CODE` or `cwd` when that failed; on both
 * streams `run` when the command begins and `end CODE` when it ended.
 */
export function execScript({ id, archive, command }: ExecRequest): string {
  const head = `${SAY}${STAT}exec 7>&2
gym_stat $$; gym_say start $$ "\${gym_start:-0}" >&7
${archive ? UNPACK : ""}exec </dev/null
`;
  if (command === undefined) return `${head}gym_say end 0 >&7; gym_say end 0\n`;
  const { run, cwd, env, shell, sweep } = command;
  const exported = Object.entries(env).filter(([name]) => shellCanExport(name));
  const sweeping = sweep ? `gym_kill $$ "\${gym_start:-0}" ${id} 1 $$\n` : "";
  // `exec`, because an argv means programs: no builtin, keyword, function or assignment of this shell.
  // The launcher's own stderr is closed off: shells write there how a child of theirs was killed.
  return `${head}${sweep ? KILL : ""}cd ${shellQuote(cwd)} 2>/dev/null || { gym_say cwd >&7; exit 1; }
exec 2>/dev/null
${exported.map(([name, value]) => `export ${name}=${shellQuote(value)}\n`).join("")}export GYM_EXEC_ID=${id}
gym_say run; gym_say run >&7
${"argv" in run ? `(exec ${run.argv.map(shellQuote).join(" ")}) 2>&7 7>&-` : runScript(shell, run.script)}
gym_c=$?
${sweeping}gym_say end "$gym_c"; gym_say end "$gym_c" >&7
`;
}

/** Linux takes 128 KiB for one argument (MAX_ARG_STRLEN); a longer script goes through a pipe. */
const LONGEST_ARGUMENT = 100_000;

function runScript(shell: string, script: string): string {
  if (new TextEncoder().encode(script).length <= LONGEST_ARGUMENT) return `${shell} -c ${shellQuote(script)} 2>&7 7>&-`;
  return `printf %s ${shellQuote(script)} | ${shell} -c 'gym_s=$(cat); exec </dev/null; eval "$gym_s"' 2>&7 7>&-`;
}

/**
 * Names that our own shell could not export or would change: they come by the client's environment instead, and only a
 * launcher that is bash hands them on (dash and BusyBox drop what they cannot name).
 */
const SHELLS_OWN =
  /^(UID|EUID|PPID|IFS|OPTIND|LINENO|RANDOM|SECONDS|SHELLOPTS|BASHOPTS|BASH_.*|BASHPID|GROUPS|DIRSTACK|FUNCNAME|HISTCMD|PIPESTATUS|PWD|OLDPWD|_|gym_.*)$/;

export const shellCanExport = (name: string): boolean =>
  /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) && !SHELLS_OWN.test(name);
