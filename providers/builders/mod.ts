/** Which tool builds images here (spec/images-and-sandboxes §4.2). */
import { HarborError } from "../../lib/errors.ts";
import type { Builder, BuilderOptions, BuildToolName } from "../../lib/images/builder.ts";
import type { Clock } from "../../lib/runtime/clock.ts";
import { inheritedEnv, type Runner } from "../../lib/runtime/runner.ts";
import type { Tool } from "./_argv.ts";
import { programsOnPath } from "./_docker_client.ts";
import { EngineBuilder } from "./_engine.ts";

export interface BuilderDeps {
  /** Sandbox that will start what is built. */
  provider: string;
  runner: Runner;
  clock: Clock;
  env: Readonly<Record<string, string | undefined>>;
  /** The run's own folder on a disk of this machine. */
  scratch: string;
}

const NONE =
  "No image builder found: install docker (buildah and podman need builds.repository), or name one with builds.tool";

/** Whether images may stay in podman's own store: only when podman starts them. */
const mayStayInPodman = ({ allowLocalPodman }: BuilderOptions, { provider }: BuilderDeps): boolean =>
  allowLocalPodman ?? provider === "podman";

/**
 * The tools that may build, in the order in which they are tried. Pure. Throws "usage" for a named tool whose images
 * nobody could start.
 */
export function candidates(
  options: BuilderOptions,
  deps: Pick<BuilderDeps, "provider">,
  isThere: (tool: Tool["name"]) => boolean,
): BuildToolName[] {
  const { tool, repository } = options;
  const local = repository === undefined;
  const podmanMayKeep = mayStayInPodman(options, deps as BuilderDeps);
  if (tool !== undefined) {
    const kept = tool === "buildah" || (tool === "podman" && !podmanMayKeep);
    if (local && kept) {
      throw new HarborError("usage", `${tool} keeps built images in a store no sandbox provider reads`, {
        hint: "name where images are pushed: ++builds.repository=HOST/PATH",
      });
    }
    return [tool];
  }
  const order: Tool["name"][] = deps.provider === "podman"
    ? ["podman", "docker", "buildah"]
    : ["docker", "buildah", "podman"];
  return order.filter((one) => isThere(one) && (!local || one === "docker" || (one === "podman" && podmanMayKeep)));
}

/**
 * The builder for this run: the first of the candidates whose preflight passes. Throws "usage" for a choice that cannot
 * work, "engine.missing" when there is none, with each one's reason.
 */
export async function chooseBuilder(
  options: BuilderOptions,
  given: BuilderDeps,
  signal: AbortSignal,
): Promise<Builder> {
  const deps = { ...given, env: inheritedEnv(given.env), options };
  const tools = candidates(options, deps, (tool) => programsOnPath(tool, deps.env.PATH).length > 0);
  const reasons: string[] = [];
  for (const tool of tools) {
    if (tool === "namespace") throw new HarborError("not-built", "builds.tool=namespace: not in this version");
    const builder = new EngineBuilder(tool, deps);
    try {
      await builder.ready(signal);
      return builder;
    } catch (error) {
      if (!(error instanceof HarborError)) throw error;
      if (options.tool !== undefined) throw error;
      reasons.push(`${tool}: ${error.message}`);
    }
  }
  throw new HarborError("engine.missing", NONE, {
    ...(reasons.length > 0 && { hint: `on PATH but not usable: ${reasons.join("; ")}` }),
  });
}
