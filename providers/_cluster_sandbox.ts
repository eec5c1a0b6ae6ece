/** A sandbox of apptainer or enroot: one with a control shell, whose limits are ours and whose folder goes with it. */
import type { Command, ExecResult } from "../lib/sandbox/provider.ts";
import type { Control } from "./_oci_control.ts";
import type { BoxDeps } from "./_oci_deps.ts";
import { OciSandbox, type OciSandboxFacts } from "./_oci_sandbox.ts";

export interface ClusterSandboxFacts extends OciSandboxFacts {
  /** Kills of the kernel's OOM killer inside so far; null when no counter can be read. */
  oomKills: () => number | null;
  /** Takes away what the tool does not. */
  clean: () => Promise<unknown>;
}

export class ClusterSandbox extends OciSandbox {
  #kept = false;
  #cleaned: Promise<void> | undefined;

  constructor(private readonly cluster: ClusterSandboxFacts, control: Control, deps: BoxDeps) {
    super(cluster, control, deps);
  }

  /** The counters that a command could read inside are those of the whole machine. */
  override async exec(command: Command, signal: AbortSignal): Promise<ExecResult> {
    const before = this.cluster.oomKills();
    const result = await super.exec(command, signal);
    const after = this.cluster.oomKills();
    return { ...result, oomKilled: before === null || after === null ? null : after > before };
  }

  override keep(): void {
    this.#kept = true;
    super.keep();
  }

  override [Symbol.asyncDispose](): Promise<void> {
    return this.#cleaned ??= super[Symbol.asyncDispose]().then(async () => {
      if (!this.#kept) await this.cluster.clean();
    });
  }
}
