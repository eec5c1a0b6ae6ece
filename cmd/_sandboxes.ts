/** Every provider at once, for the commands that look after this machine rather than run tasks. */
import { makeProvider, PROVIDERS } from "../providers/mod.ts";
import type { Context } from "../lib/context.ts";
import { HarborError } from "../lib/errors.ts";
import { newRunId, thisOwner } from "../lib/sandbox/owner.ts";
import type { ProviderDeps, SandboxProvider } from "../lib/sandbox/provider.ts";
import { makeScratch, removeScratch } from "../lib/sandbox/scratch.ts";

/** What providers are made with besides the machine; nothing: as they are without any option. */
export type Lent = Partial<Pick<ProviderDeps, "offline" | "store" | "registry" | "platform" | "unpackDir">> & {
  /** `sandbox.<name>.…` overrides, by sandbox. */
  options?: Readonly<Record<string, Record<string, unknown>>>;
};

/** Lends every provider for the time of a call. */
export type Lend = <T>(ctx: Context, lent: Lent, work: (providers: SandboxProvider[]) => Promise<T>) => Promise<T>;

/** The real providers; what they made in their temp folder goes with the call. */
export const withProviders: Lend = async (ctx, { options = {}, ...images }, work) => {
  const scratch = makeScratch(ctx.env, thisOwner(newRunId()));
  const forget = ctx.onSecondSignal(() => removeScratch(scratch));
  try {
    const { offline, store, registry, platform, unpackDir } = images;
    const deps = {
      runner: ctx.runner,
      clock: ctx.clock,
      env: ctx.env,
      emit: () => {}, // these commands print their own results
      scratch,
      ...{ offline, store, registry, platform, unpackDir },
    };
    const made = PROVIDERS.map(({ name }) => makeProvider(name, { ...deps, options: options[name] ?? {} }));
    return await work(await Promise.all(made));
  } finally {
    removeScratch(scratch);
    forget();
  }
};

export interface Asked<T> {
  name: string;
  /** Absent when the provider is not to be had here. */
  answer?: T;
  /** Why there is no answer. */
  absent?: string;
}

/**
 * Asks every provider the same. One that this machine lacks, or whose engine does not answer within `deadlineMs`, gives
 * its reason instead of an answer; any other error is thrown.
 */
export function askAll<T>(
  providers: readonly SandboxProvider[],
  ctx: Pick<Context, "clock" | "signal">,
  deadlineMs: number,
  ask: (provider: SandboxProvider, signal: AbortSignal) => Promise<T>,
): Promise<Asked<T>[]> {
  return Promise.all(providers.map(async (provider) => {
    const signal = ctx.clock.deadline(deadlineMs, ctx.signal);
    try {
      return { name: provider.name, answer: await ask(provider, signal) };
    } catch (error) {
      ctx.signal.throwIfAborted();
      if (signal.aborted) return { name: provider.name, absent: `no answer within ${deadlineMs / 1000} s` };
      if (error instanceof HarborError) return { name: provider.name, absent: error.message };
      throw error;
    }
  }));
}
