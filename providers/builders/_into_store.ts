/**
 * A builder whose images go into our own store, for sandboxes that start from there: the engine builds, and saves what
 * it built straight into the store, its configuration byte for byte.
 */
import type { Emit } from "../../lib/events.ts";
import { HarborError } from "../../lib/errors.ts";
import type { Builder, BuildRequest, BuiltImage } from "../../lib/images/builder.ts";
import { platformName } from "../../lib/images/config.ts";
import type { Runner } from "../../lib/runtime/runner.ts";
import { importFromEngine, saveArgv } from "../../lib/store/engine.ts";
import type { ImageStore } from "../../lib/store/store.ts";
import type { EngineBuilder } from "./_engine.ts";

export interface IntoStoreDeps {
  store: ImageStore;
  runner: Runner;
  env: Readonly<Record<string, string | undefined>>;
  /** `os/arch[/variant]` of the run. */
  platform: string;
}

export class IntoStore implements Builder {
  constructor(private readonly engine: EngineBuilder, private readonly deps: IntoStoreDeps) {}

  get tool() {
    return this.engine.tool;
  }

  preflight(plan: { heredocs: boolean; platform: string }, signal: AbortSignal): Promise<string[]> {
    if (this.deps.store.readOnly) {
      throw new HarborError("machine.lacks", `Cannot keep built images in ${this.deps.store.folder}: it is read-only`, {
        hint: "name another store with --image-store, or push images with builds.repository",
      });
    }
    return this.engine.preflight(plan, signal);
  }

  async build(request: BuildRequest, signal: AbortSignal, emit: Emit): Promise<BuiltImage> {
    const built = await this.engine.build(request, signal, emit);
    const { store, runner, env } = this.deps;
    const { tool } = await this.engine.ready(signal);
    const [, ...words] = saveArgv(tool.name, request.name);
    const argv = [tool.path, ...(tool.flags ?? []), ...words];
    await importFromEngine(tool.name, request.name, store, { runner, names: [request.name], argv, env }, signal);
    return built;
  }

  async has(name: string): Promise<boolean> {
    return await this.deps.store.find(name, platformName(this.deps.platform)) !== undefined;
  }
}
