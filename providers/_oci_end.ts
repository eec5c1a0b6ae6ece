/** How a command of a container, and the container itself, come to their end; and what is known afterwards. */
import { HarborError, messageOf } from "../lib/errors.ts";
import { settlesWithin } from "../lib/runtime/clock.ts";
import { decisiveLine, engineFailure } from "../lib/sandbox/failure.ts";
import type { Alive } from "../lib/sandbox/provider.ts";
import { type Control, LineEnded } from "./_oci_control.ts";
import type { BoxDeps } from "./_oci_deps.ts";
import type { Launched } from "./_oci_exec.ts";
import { type KillRequest, killScript, loneKillScript } from "./_oci_scripts.ts";

const ANSWER_MS = 20_000;
const END_MS = 10_000;
const REMOVE_MS = 30_000;

/** Ends an exec by a second one. The pids that would not die; undefined when it could not be run. */
export async function killByExec(
  { client, runner, env }: Pick<BoxDeps, "client" | "runner" | "env">,
  container: string,
  request: KillRequest,
  user: string | undefined,
): Promise<string[] | undefined> {
  const argv = client.exec({ name: container, user, archive: false, envNames: [], shell: "/bin/sh" });
  const stdin = `kill\n${loneKillScript(request)}`;
  const killed = await runner.run(argv, { env, stdin, deadlineMs: ANSWER_MS, graceMs: 0 });
  return /\nkill killed(.*)\n/.exec(killed.stdout)?.[1]?.split(" ").filter((pid) => pid !== "");
}

export class End {
  constructor(
    private readonly id: string,
    private readonly control: Control,
    private readonly deps: BoxDeps,
  ) {}

  /**
   * Makes everything of an exec dead: by the line, else by a second exec, else by ending the sandbox, which then throws
   * "sandbox.lost". `wide` and `user` as the exec was started.
   */
  async stop(launched: Launched | undefined, id: string, wide: boolean, user: string | undefined): Promise<void> {
    if (launched === undefined) return;
    const request = { ...launched, id, wide };
    let left = await this.#killByLine(request).catch(async (error) =>
      error instanceof LineEnded ? [] : await killByExec(this.deps, this.id, request, undefined)
    );
    // Root without CAP_SYS_PTRACE cannot see whose environment carries the id among another user's processes.
    if (wide && user !== undefined) left = await killByExec(this.deps, this.id, request, user) ?? left;
    for (const pause of [50, 200, 500, 1000, 2000]) {
      if (left === undefined || left.length === 0) break;
      await this.deps.clock.sleep(pause);
      left = await this.#killByLine(request).catch(() => []);
    }
    if (left?.length === 0) return;
    await this.remove();
    const what = left === undefined ? "a command" : `processes ${left.join(", ")} of a command`;
    throw new HarborError("sandbox.lost", `Sandbox ${this.id} was removed: ${what} could not be ended at the limit`);
  }

  async #killByLine(request: KillRequest): Promise<string[]> {
    let left: string[] = [];
    const onMarker = ([, ...pids]: string[]) => left = pids.filter((pid) => pid !== "");
    await this.control.ask((n) => killScript(n, request), "killed", { onMarker }, ANSWER_MS);
    return left;
  }

  /** What can be known about it now. */
  async evidence(): Promise<Alive> {
    const { client, runner, env, gate } = this.deps;
    if (!this.control.over) {
      const told = await gate.hold(() => runner.run(client.state(this.id), { env, deadlineMs: ANSWER_MS, graceMs: 0 }));
      if (client.isRunning(told.stdout, this.id)) return { state: "running" };
      const text = engineFailure(told.stderr)?.line ?? decisiveLine(told.stderr);
      return { state: "gone", oomKilled: null, exitCode: null, text };
    }
    // The attached client ends with the exit code of the sandbox's first process.
    const exitCode = await this.control.ended;
    const oomKilled = exitCode === 137 ? await this.#oomEvent() : false;
    return { state: "gone", oomKilled, exitCode, text: decisiveLine(this.control.errors) };
  }

  /** What the engine itself saw: docker tells of OOM kills, podman 4.3 does not. */
  async #oomEvent(): Promise<true | null> {
    const { client, runner, env } = this.deps;
    const argv = client.oomEvents(this.id);
    if (argv === undefined) return null;
    const told = await runner.run(argv, { env, deadlineMs: ANSWER_MS, graceMs: 0 });
    return /\boom\b/.test(told.stdout) ? true : null;
  }

  /** Leaves it running without us, for as long as it may live. */
  async letGo(ttlMs: number): Promise<void> {
    this.control.letGo(Math.ceil(ttlMs / 1000));
    await this.deps.clock.sleep(200);
    this.control.leave();
  }

  /** The sandbox ends when its line does, and an engine removes it: no further call of the engine. */
  async end(): Promise<void> {
    this.control.close();
    const ended = await settlesWithin(this.control.ended, END_MS, this.deps.clock);
    if (!ended || this.deps.client.outlivesLine) await this.remove();
  }

  /** By force. Never throws: what cannot be removed is told as a warning, and found again by `sandbox gc`. */
  async remove(): Promise<void> {
    const { client, runner, env, emit, gate } = this.deps;
    let reason = "";
    for (let attempt = 0; attempt < 2; attempt++) {
      const removed = await gate.hold(() =>
        runner.run(client.remove(this.id), { env, deadlineMs: REMOVE_MS, graceMs: 0 })
      )
        .catch((error) => ({ exitCode: 1, stderr: messageOf(error), ended: "exit" as const }));
      if (removed.exitCode === 0 || engineFailure(removed.stderr)?.kind === "no-container") return this.control.close();
      reason = removed.ended === "deadline"
        ? `${client.name} rm did not end within ${REMOVE_MS / 1000} s`
        : decisiveLine(removed.stderr);
    }
    this.control.close();
    emit({
      kind: "warning",
      text: `sandbox ${this.id} could not be removed: ${reason}; gym-harbor sandbox gc tries again`,
    });
  }
}
