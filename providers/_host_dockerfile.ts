import type { Emit } from "../lib/events.ts";
import type { Shared } from "../lib/runtime/pool.ts";
import type { ImageNeed, PreparedImage, Sandbox, SandboxSpec } from "../lib/sandbox/provider.ts";
import type { Machine } from "./_host_machine.ts";
export interface HostImage {
  layers: string[];
}
export interface ApplyDeps {
  machine: Machine;
  mode: "all" | "no-install" | "skip";
  scratch: string;
  shared: Shared<unknown>;
  emit: Emit;
  open(spec: SandboxSpec): Promise<Sandbox>;
}
export function applyDockerfile(need: ImageNeed, _deps: ApplyDeps, _signal: AbortSignal): Promise<PreparedImage> {
  const notes = need.source.kind === "named" ? [`image: docker_image ${need.source.reference} is not used`] : [];
  return Promise.resolve({
    reference: "host",
    workdir: "/",
    env: {},
    user: "",
    entrypoint: [],
    notes,
    handle: { layers: [] },
  });
}
