/** How sandboxes of apptainer and enroot end, and what of them is left when their owner died. */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import process from "node:process";
import { decisiveLine } from "../lib/sandbox/failure.ts";
import { concerns, isAlive } from "../lib/sandbox/owner.ts";
import type { Leftover, OwnerFilter, ProviderDeps, SweepReport } from "../lib/sandbox/provider.ts";
import { scratchFolders, scratchRoot } from "../lib/sandbox/scratch.ts";
import { endTraces, killTraces, namespaceOf } from "./_cluster_processes.ts";
import type { ClusterTool } from "./_cluster_tool.ts";
import { removeGroups, removeGroupsNow } from "./_namespace_limits.ts";
import { boxesIn, removeBase, removeBaseNow, type SandboxState, stateOf } from "./_namespace_state.ts";

const REMOVE_MS = 60_000;

export class ClusterLeftovers {
  constructor(private readonly tool: ClusterTool, private readonly deps: ProviderDeps) {}

  /** Whatever of a sandbox there is, once its tool was told to remove it. */
  async takeAway(base: string, state: SandboxState): Promise<string | undefined> {
    const { runner, clock } = this.deps;
    const namespace = state.init && namespaceOf(state.init);
    const env = { ...this.deps.env, ...this.tool.env(base, false) };
    const path = await this.tool.facts(clock.deadline(REMOVE_MS)).then((facts) => facts.path, () => this.tool.name);
    const removed = await runner.run(this.tool.remove(path, state.id), { env, deadlineMs: REMOVE_MS })
      .catch((error) => ({ exitCode: 1, stderr: String(error) }));
    await endTraces({ namespace, groups: state.groups }, clock);
    await removeBase(base, { ids: process.getuid?.() === 0 ? "all" : "ranges" }, runner).catch(() => {});
    await removeGroups(state.groups, clock);
    return existsSync(base) ? `${base} could not be removed: ${decisiveLine(removed.stderr)}` : undefined;
  }

  #found(filter: OwnerFilter): { leftover: Leftover; base: string; state: SandboxState }[] {
    const { env, scratch, clock } = this.deps;
    const runs = new Set([...scratchFolders(scratchRoot(env)).map(({ folder }) => folder), scratch]);
    return [...runs].flatMap((run) => boxesIn(run, this.tool.name)).flatMap((base) => {
      const state = stateOf(base);
      if (state === undefined || !concerns(filter, state.owner)) return [];
      const { id, owner } = state;
      const ageMs = Math.max(0, clock.now().getTime() - Date.parse(state.created));
      if (ageMs < (filter.olderThanMs ?? 0)) return [];
      return [{ base, state, leftover: { id, provider: this.tool.name, owner, alive: isAlive(owner), ageMs } }];
    });
  }

  list(filter: OwnerFilter): Leftover[] {
    return this.#found(filter).map(({ leftover }) => leftover);
  }

  async sweep(filter: OwnerFilter): Promise<SweepReport> {
    const report: SweepReport = { removed: [], failed: [] };
    for (const { leftover, base, state } of this.#found(filter)) {
      if (filter.evenAlive !== true && leftover.alive !== false) continue;
      const reason = await this.takeAway(base, state);
      if (reason === undefined) report.removed.push(state.id);
      else report.failed.push({ id: state.id, reason });
    }
    return report;
  }

  sweepNow(run: string): void {
    for (const { base, state } of this.#found({ run })) {
      const namespace = state.init && namespaceOf(state.init);
      const [program, ...args] = this.tool.remove(this.tool.name, state.id);
      try {
        const env = { ...this.deps.env, ...this.tool.env(base, false) } as Record<string, string>;
        execFileSync(program!, args, { env, timeout: 10_000, killSignal: "SIGKILL", stdio: "ignore" });
      } catch {
        // its processes and its folder go all the same
      }
      for (let round = 0; round < 50 && killTraces({ namespace, groups: state.groups }); round++);
      removeBaseNow(base);
      removeGroupsNow(state.groups);
    }
  }
}
