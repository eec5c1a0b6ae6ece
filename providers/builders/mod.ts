/** Which tool builds images here (spec/images-and-sandboxes §4.2). */
import { HarborError } from "../../lib/errors.ts";
import type { Builder, BuilderOptions, BuildToolName } from "../../lib/images/builder.ts";
import type { Clock } from "../../lib/runtime/clock.ts";
import { inheritedEnv, type Runner } from "../../lib/runtime/runner.ts";
import type { ImageStore } from "../../lib/store/store.ts";
import type { Tool } from "./_argv.ts";
import { programsOnPath } from "./_docker_client.ts";
import { EngineBuilder } from "./_engine.ts";
import { IntoStore } from "./_into_store.ts";

export interface BuilderDeps {
  /** Sandbox that will start what is built. */
  provider: string;
  runner: Runner;
  clock: Clock;
  env: Readonly<Record<string, string | undefined>>;
  /** The run's own folder on a disk of this machine. */
  scratch: string;
  /** Our own store, for sandboxes that start from it. */
  store?: ImageStore;
}

const NONE =
  "No image builder found: install docker (buildah and podman need builds.repository), or name one with builds.tool";
const PUSH_HINT = { hint: "name where images are pushed: ++builds.repository=HOST/PATH" };

/** Sandboxes that start images of our own store. */
const FROM_STORE = ["namespace", "apptainer", "enroot"];

/** Whether an image that is not pushed can be started where this tool leaves it. */
function mayStay(tool: BuildToolName, { allowLocalPodman }: BuilderOptions, provider: string): boolean {
  if (FROM_STORE.includes(provider)) return true;
  if (tool === "podman") return allowLocalPodman ?? provider === "podman";
  return tool === "docker" && provider !== "podman";
}

/**
 * The tools that may build, in the order in which they are tried. Pure. Throws "usage" for a named tool whose images
 * nobody could start.
 */
export function candidates(
  options: BuilderOptions,
  { provider }: Pick<BuilderDeps, "provider">,
  isThere: (tool: Tool["name"]) => boolean,
): BuildToolName[] {
  const { tool, repository } = options;
  const ends = (one: BuildToolName) => repository !== undefined || mayStay(one, options, provider);
  if (tool !== undefined) {
    if (ends(tool)) return [tool];
    throw new HarborError(
      "usage",
      tool === "docker" || tool === "namespace"
        ? `${tool} keeps built images in a store that --sandbox ${provider} does not read`
        : `${tool} keeps built images in a store no sandbox provider reads`,
      PUSH_HINT,
    );
  }
  const order: Tool["name"][] = provider === "podman"
    ? ["podman", "docker", "buildah"]
    : FROM_STORE.includes(provider)
    ? ["docker", "podman", "buildah"]
    : ["docker", "buildah", "podman"];
  return order.filter((one) => isThere(one) && ends(one));
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
      return whereItEnds(builder, deps);
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

/** Pushed images come back by the registry; others go to the store of a sandbox that starts from it. */
function whereItEnds(builder: EngineBuilder, deps: BuilderDeps & { options: BuilderOptions }): Builder {
  const { options, provider, store, runner, env } = deps;
  if (options.repository !== undefined || store === undefined || !FROM_STORE.includes(provider)) return builder;
  return new IntoStore(builder, { store, runner, env, platform: options.platform });
}
