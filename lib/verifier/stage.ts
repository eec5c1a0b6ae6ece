/**
 * Sets the stage for a verifier (episodes §3.5): `/tests` and `/logs/verifier` are ours and empty before its files
 * arrive, whatever was planted there. Pure: shell text and file lists; the exec that carries them is in run.ts.
 */
import { shellQuote } from "../runtime/runner.ts";

export const TESTS = "/tests";
export const VERIFIER_LOGS = "/logs/verifier";
export const AGENT_LOGS = "/logs/agent";
const ARTIFACTS = "/logs/artifacts";
/** Our own folder in a sandbox, root's alone (decisions 15). */
export const OURS = "/tmp/.gym-harbor";

/** Shell text, run as root at seed: the log folders tasks expect, writable by everyone (decisions 14). */
export function seedText(): string {
  const folders = [AGENT_LOGS, VERIFIER_LOGS, ARTIFACTS].join(" ");
  return `mkdir -p ${folders} && chmod 0777 ${folders}\n`;
}

/**
 * Shell text, run as root, that leaves `/tests` and `/logs/verifier` empty and owned by root. A link in their place
 * is removed, not followed; attributes that stop removal (`chattr +i`) are cleared; a folder that still cannot be
 * emptied is moved aside. `keep`: files below /logs/verifier that stay (sidecar inputs, dataset.toml).
 * POSIX sh with the tools of BusyBox; exit 1 names the folder that could not be emptied.
 */
export function emptyText(keep: readonly string[] = []): string {
  const inputs = keep.map((path) => shellQuote(path)).join(" ");
  const aside = `${OURS}/inputs`;
  const setAside = keep.length === 0 ? "" : `rm -rf ${aside}
for f in ${inputs}; do
  if [ -f ${VERIFIER_LOGS}/"$f" ] && [ ! -L ${VERIFIER_LOGS}/"$f" ]; then
    mkdir -p "$(dirname ${aside}/"$f")" && mv ${VERIFIER_LOGS}/"$f" ${aside}/"$f"
  fi
done
`;
  const putBack = keep.length === 0 ? "" : `[ ! -d ${aside} ] || cp -R ${aside}/. ${VERIFIER_LOGS}/
rm -rf ${aside}
`;
  return `umask 022
empty() {
  rm -rf -- "$1" 2>/dev/null
  if [ -e "$1" ] || [ -L "$1" ]; then
    chattr -R -i -a "$1" >/dev/null 2>&1
    rm -rf -- "$1" 2>/dev/null
  fi
  mkdir -p -- "$1" 2>/dev/null
  [ -d "$1" ] && [ -z "$(ls -A "$1")" ] && return 0
  mv -- "$1" "$1.$$.old" 2>/dev/null && mkdir -- "$1" && return 0
  echo "cannot empty $1" >&2
  exit 1
}
[ ! -L /logs ] || rm -f /logs
${setAside}empty ${TESTS}
empty ${VERIFIER_LOGS}
${putBack}[ ! -L ${AGENT_LOGS} ] || rm -f ${AGENT_LOGS}
mkdir -p ${AGENT_LOGS}
rm -rf ${AGENT_LOGS}/trajectory.json
chmod 0777 ${TESTS} ${VERIFIER_LOGS} ${AGENT_LOGS}
`;
}
