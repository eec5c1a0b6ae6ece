import type { Diagnosis, ProviderDeps, SandboxProvider } from "../lib/sandbox/provider.ts";
export function diagnoseHost(
  _deps: ProviderDeps,
  _signal: AbortSignal,
  _make: (deps: ProviderDeps) => SandboxProvider,
): Promise<Diagnosis> {
  return Promise.resolve({ name: "host", usable: true, missing: [], capabilities: null });
}
