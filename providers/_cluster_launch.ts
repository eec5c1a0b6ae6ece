/**
 * How a command begins in a sandbox of apptainer or enroot, whose exec knows no users and joins the caller's session:
 * a small shell makes itself the leader of a session and the user that is asked for, then starts our launcher.
 * Pure text; POSIX sh, builtins first.
 */
import { LAUNCH, LAUNCH_WITH_ARCHIVE } from "./_oci_scripts.ts";

/**
 * $1 user as docker takes it (name, number, with `:group`), empty for root; $2 the launcher; $3 the shell for it. Where
 * the image has neither setpriv of util-linux nor chroot of coreutils (BusyBox has others of these names, which its
 * shell prefers to the files) only `su` is left, which knows names alone.
 */
export const BEGIN = `gym_user=$1 gym_launch=$2 gym_shell=$3
IFS= read -r gym_l </proc/self/stat; set -- \${gym_l##*) }
gym_lead=
[ "$4" = $$ ] || ! command -v setsid >/dev/null 2>&1 || gym_lead=setsid
[ -n "$gym_user" ] || exec $gym_lead "$gym_shell" -c "$gym_launch"
gym_who=\${gym_user%%:*} gym_group= gym_name= gym_uid= gym_gid= gym_home=/
case $gym_user in *:*) gym_group=\${gym_user#*:};; esac
while IFS=: read -r gym_n gym_x gym_u gym_g gym_c gym_h gym_s; do
  [ "$gym_n" = "$gym_who" ] || [ "$gym_u" = "$gym_who" ] || continue
  gym_name=$gym_n gym_uid=$gym_u gym_gid=$gym_g gym_home=$gym_h
  break
done 2>/dev/null </etc/passwd
case $gym_who in *[!0-9]*) ;; *) gym_uid=\${gym_uid:-$gym_who} gym_gid=\${gym_gid:-0};; esac
if [ -n "$gym_group" ]; then
  case $gym_group in *[!0-9]*) gym_gid=;; *) gym_gid=$gym_group;; esac
  while IFS=: read -r gym_n gym_x gym_g gym_m; do [ "$gym_n" != "$gym_group" ] || gym_gid=$gym_g; done 2>/dev/null </etc/group
fi
if [ -z "$gym_uid" ] || [ -z "$gym_gid" ]; then
  echo "unable to find user $gym_user: no matching entries in passwd file" >&2
  exit 126
fi
HOME=$gym_home; export HOME
gym_groups=--clear-groups
[ -z "$gym_name" ] || [ -n "$gym_group" ] || gym_groups=--init-groups
for gym_d in /usr/bin /bin /usr/sbin /sbin; do
  if "$gym_d/setpriv" --reuid 0 --regid 0 --clear-groups /bin/sh -c : 2>/dev/null; then
    exec $gym_lead "$gym_d/setpriv" --reuid "$gym_uid" --regid "$gym_gid" $gym_groups "$gym_shell" -c "$gym_launch"
  elif "$gym_d/chroot" --userspec=0:0 / /bin/sh -c : 2>/dev/null; then
    exec $gym_lead "$gym_d/chroot" --userspec="$gym_uid:$gym_gid" / "$gym_shell" -c "$gym_launch"
  fi
done
if [ -n "$gym_name" ] && command -v su >/dev/null 2>&1; then
  # The launcher has to lead, not su, which waits for it.
  ! command -v setsid >/dev/null 2>&1 || gym_lead=setsid
  export gym_lead gym_shell gym_launch
  exec su -s /bin/sh -c 'gym_a=$gym_lead gym_b=$gym_shell gym_c=$gym_launch
unset gym_lead gym_shell gym_launch; exec $gym_a "$gym_b" -c "$gym_c"' "$gym_name"
fi
echo "unable to find user $gym_user: the image has no program that could become it" >&2
exit 126
`;

/** What an exec of the tool starts inside. */
export const beginArgv = (user: string | undefined, archive: boolean, shell: string): string[] => [
  ...["/bin/sh", "-c", BEGIN, "gym-harbor", user ?? "", archive ? LAUNCH_WITH_ARCHIVE : LAUNCH, shell],
];

/** Runs `argv` in control groups (their folders): whatever it starts is held by them. */
export function inGroups(folders: readonly string[], argv: readonly string[]): string[] {
  if (folders.length === 0) return [...argv];
  const join = 'gym_n=$0; while [ "$gym_n" -gt 0 ]; do echo $$ > "$1/cgroup.procs" || exit 125; shift; ' +
    'gym_n=$((gym_n-1)); done; exec "$@"';
  return ["/bin/sh", "-c", join, String(folders.length), ...folders, ...argv];
}

/** Runs `argv`; that it finds nothing to remove (a text it says) is no failure. */
export const unlessAbsent = (says: string, argv: readonly string[]): string[] => [
  ...["/bin/sh", "-c", 'gym_o=$("$@" 2>&1) && exit 0; case $gym_o in *"$0"*) exit 0;; esac; echo "$gym_o" >&2; exit 1'],
  ...[says, ...argv],
];

/** Starts `argv` in a session of its own, its output in a file, and does not wait for it. */
export const inBackground = (file: string, argv: readonly string[]): string[] => [
  ...["/bin/sh", "-c", 'setsid "$@" >"$0" 2>&1 </dev/null &', file, ...argv],
];

/** Runs `argv` with its output in a file: a daemon that it leaves behind would hold our pipes. */
export const logged = (file: string, argv: readonly string[]): string[] => [
  ...["/bin/sh", "-c", 'exec "$@" >"$0" 2>&1 </dev/null', file, ...argv],
];
