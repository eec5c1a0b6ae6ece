# Sourced by the stand-ins: one record of a call, words between unit separators, calls between record separators.
if [ -n "${STAND_IN_LOG:-}" ]; then
  { printf '%s' "${0##*/}"; printf '\037%s' "$@"; printf '\036'; } >>"$STAND_IN_LOG"
fi
# Namespaces as root, and as a plain user in a user namespace of his own.
if [ "$(id -u)" = 0 ]; then user=() enter=(); else user=(--user --map-root-user) enter=(--user --preserve-credentials); fi

# box ROOT PIDFILE NET COMMAND...: runs it as the first process of namespaces whose root is ROOT; says its pid in PIDFILE.
box() {
  local root=$1 pidfile=$2 net=$3; shift 3
  exec unshare "${user[@]}" --mount --pid --ipc --propagation private ${net:+--net} --fork --kill-child=SIGKILL \
    bash -c '
      root=$1 pidfile=$2 net=$3; shift 3
      read -r pid _ </proc/self/stat
      exec 9>"$pidfile"
      [ -z "$net" ] || ip link set lo up
      mount --bind "$root" "$root"
      mkdir -p "$root/proc" "$root/dev"
      mount -t tmpfs -o mode=755 dev "$root/dev"
      for d in null zero full random urandom tty; do : >"$root/dev/$d"; mount --bind "/dev/$d" "$root/dev/$d"; done
      mkdir -m 1777 "$root/dev/shm"; ln -s /proc/self/fd "$root/dev/fd"
      mount -t proc proc "$root/proc"
      [ -z "$net" ] || { mkdir -p "$root/sys"; mount -t sysfs -o ro sys "$root/sys"; }
      cd "$root" && mkdir -p .old && pivot_root . .old && umount -l /.old && rmdir /.old
      echo "$pid" >&9; exec 9>&-
      exec "$@"' box "$root" "$pidfile" "$net" "$@"
}

# join PID VARIABLES... -- COMMAND...: runs it beside that process.
join() {
  local pid=$1; shift
  local variables=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root)
  while [ "$1" != -- ]; do variables+=("$1"); shift; done; shift
  exec env -i "${variables[@]}" nsenter --target "$pid" "${enter[@]}" --mount --pid --ipc --net --root -- \
    /bin/sh -c 'cd /; exec "$@"' sh "$@"
}
