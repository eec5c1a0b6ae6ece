/**
 * What one run holds on this machine: its identity, its temp folder and the provider of its sandboxes, made on first
 * need. Before the provider is used, what dead runs left is removed.
 */
import { chooseSandbox } from "../providers/mod.ts";
import type { Context } from "../lib/context.ts";
import { messageOf } from "../lib/errors.ts";
import type { Emit } from "../lib/events.ts";
import { newRunId, type Owner, thisOwner } from "../lib/sandbox/owner.ts";
import type { ProviderDeps, ProviderName, SandboxProvider } from "../lib/sandbox/provider.ts";
import { isKept, makeScratch, markKept, removeScratch, scratchRoot, sweepScratch } from "../lib/sandbox/scratch.ts";
import type { ImageSetup } from "./_images.ts";

export interface RunSandboxesOptions {
  /** `--sandbox`. */
  name: string;
  /** `sandbox.<name>.…` overrides, by sandbox. */
  options: Readonly<Record<string, Record<string, unknown>>>;
  emit: Emit;
  /** Absent where a command needs no images of its own. */
  images?: ImageSetup;
  /** Instead of the provider that `name` stands for; for tests. */
  provider?: (owner: Owner, scratch: string) => SandboxProvider;
}

/** What a sandbox gets of a command's images. An engine takes those of a bundle by an import, which checks them. */
function imagesFor(name: ProviderName, setup: ImageSetup): Partial<ProviderDeps> {
  const { offline, registry, registries, platform, unpackDir, store, ownStore } = setup;
  const isEngine = name === "docker" || name === "podman";
  return {
    ...{ offline, registry, registries, platform, store: isEngine ? ownStore : store },
    ...(unpackDir !== undefined && { unpackDir }),
  };
}

export class RunSandboxes implements AsyncDisposable {
  readonly owner = thisOwner(newRunId());
  readonly scratch: string;
  #provider: SandboxProvider | undefined;
  #forget: () => void;

  /** Throws HarborError "machine.lacks" when no temp folder can be made. */
  constructor(private readonly ctx: Context, private readonly given: RunSandboxesOptions) {
    this.scratch = makeScratch(ctx.env, this.owner);
    this.#provider = given.provider?.(this.owner, this.scratch);
    this.#forget = ctx.onSecondSignal(() => {
      this.#provider?.sweepNow(this.owner.run);
      removeScratch(this.scratch);
    });
  }

  /** The sandbox that is used; what was asked for while none was needed. */
  get name(): string {
    return this.#provider?.name ?? this.given.name;
  }

  readonly emit: Emit = (event) => {
    if (event.kind === "kept") markKept(this.scratch);
    this.given.emit(event);
  };

  /** Throws as chooseSandbox(). */
  async provider(): Promise<SandboxProvider> {
    const { scratch, emit, ctx: { runner, clock, env, signal } } = this;
    this.#provider ??= await chooseSandbox(this.given.name, (name) => {
      const images = this.given.images === undefined ? {} : imagesFor(name, this.given.images);
      return { runner, clock, env, emit, scratch, options: this.given.options[name] ?? {}, ...images };
    }, signal);
    await this.#sweep(this.#provider);
    return this.#provider;
  }

  /**
   * Removes what dead runs left, save what they left on purpose (--keep-failed). Best effort: a run must not fail for
   * what another one left.
   */
  async #sweep(provider: SandboxProvider): Promise<void> {
    const { env, signal, clock } = this.ctx;
    try {
      const filter = { except: (run: string) => isKept(env, run) };
      const { removed, failed } = await provider.sweep(filter, signal);
      failed.push(...sweepScratch(scratchRoot(env), { ...filter, now: clock.now() }).failed);
      if (removed.length > 0) this.emit({ kind: "note", text: `removed what a dead run left: ${removed.join(", ")}` });
      for (const { id, reason } of failed) this.emit({ kind: "warning", text: `cannot remove ${id}: ${reason}` });
    } catch (error) {
      signal.throwIfAborted();
      this.emit({ kind: "warning", text: `cannot look for what dead runs left: ${messageOf(error)}` });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.#provider?.[Symbol.asyncDispose]?.();
    } finally {
      if (!isKept(this.ctx.env, this.owner.run)) removeScratch(this.scratch);
      this.#forget();
    }
  }
}
