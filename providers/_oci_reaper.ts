/**
 * Ends a group whose owner died without a word. Main ends with our pipes, its sidecars do not: so a small shell on this
 * machine waits for the end of a pipe of ours, and unless it was told that all is well it removes what carries the group's
 * label. What even it misses (a killed session, a machine that went down) is for `sandbox gc`.
 */
import type { Started } from "../lib/runtime/runner.ts";
import type { EngineName } from "./_oci_argv.ts";
import type { SandboxDeps } from "./_oci_deps.ts";

/** POSIX sh: `$1` the client, `$2` the label, `$3` more flags of its `rm`. A word on stdin means that all is well. */
const REAP = `read -r word && exit 0
ids=$("$1" ps -a -q --filter "label=$2"); [ -z "$ids" ] || "$1" rm -f $3 -v $ids
ids=$("$1" volume ls -q --filter "label=$2"); [ -z "$ids" ] || "$1" volume rm -f $ids
for id in $("$1" network ls -q --filter "label=$2"); do "$1" network rm "$id"; done
`;

const reaperArgv = (engine: EngineName, path: string, label: string): string[] => [
  ...["/bin/sh", "-c", REAP, "gym-harbor-reaper", path, label, engine === "podman" ? "-t 0" : ""],
];

export class Reaper {
  private constructor(private readonly shell: Started) {}

  static async start({ program, runner, env, scratch }: SandboxDeps, label: string): Promise<Reaper> {
    const shell = await runner.start(reaperArgv(program.engine, program.path, label), { env, cwd: scratch });
    shell.stdin.on("error", () => {}); // it was ended by somebody: then it has no more to do for us
    shell.stdout.resume();
    shell.stderr.resume();
    return new Reaper(shell);
  }

  /** Nothing is left for it to do. */
  async dismiss(): Promise<void> {
    this.shell.stdin.end("well\n");
    await this.shell.exited;
  }
}
