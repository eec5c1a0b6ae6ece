/** Which tool builds images here (spec/images-and-sandboxes §4.2). */
import { HarborError } from "../../lib/errors.ts";
import type { Builder, BuilderOptions, BuildToolName } from "../../lib/images/builder.ts";
import type { Clock } from "../../lib/runtime/clock.ts";
import { inheritedEnv, type Runner } from "../../lib/runtime/runner.ts";
import type { Registry } from "../../lib/registry/registry.ts";
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
  /** For builds without an engine: where base images come from, where they are unpacked. */
  registry?: Registry;
  offline?: boolean;
  unpackDir?: string;
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
  const engines = order.filter((one) => isThere(one) && ends(one));
  // Without any engine, what starts images from our store can also build them into it.
  return repository === undefined && FROM_STORE.includes(provider) ? [...engines, "namespace"] : engines;
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
    try {
      if (tool === "namespace") return await namespaceBuilder(options, deps);
      const builder = new EngineBuilder(tool, deps);
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

async function namespaceBuilder({ platform }: BuilderOptions, deps: BuilderDeps): Promise<Builder> {
  const { runner, clock, env, scratch, store, registry, offline, unpackDir } = deps;
  if (store === undefined) {
    throw new HarborError("machine.lacks", "builds.tool=namespace has no image store to build into");
  }
  const [{ NamespaceProvider }, { NamespaceBuilder }] = await Promise.all([
    import("../namespace.ts"),
    import("./namespace.ts"),
  ]);
  const own = { runner, clock, env, scratch, store, registry, offline, unpackDir, platform };
  const provider = () => new NamespaceProvider({ ...own, emit: () => {}, options: {} });
  return new NamespaceBuilder({ store, clock, provider });
}
