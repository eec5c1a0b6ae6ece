/**
 * docker, buildah and podman as builders. How each is spoken to is in _argv.ts, what its failures mean in _failure.ts,
 * one build in _job.ts.
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { spaceAt } from "../../lib/files/disk.ts";
import type { Emit } from "../../lib/events.ts";
import { HarborError } from "../../lib/errors.ts";
import type { Builder, BuilderOptions, BuildRequest, BuiltImage } from "../../lib/images/builder.ts";
import { platformName } from "../../lib/images/config.ts";
import { parseReference, pinnedTo } from "../../lib/images/reference.ts";
import type { Clock } from "../../lib/runtime/clock.ts";
import { Shared } from "../../lib/runtime/pool.ts";
import type { Runner } from "../../lib/runtime/runner.ts";
import { inspectArgv, probeArgv, type Tool, untagArgv } from "./_argv.ts";
import { toolEnvironment } from "./_environment.ts";
import { Job, succeeded } from "./_job.ts";
import { BuildLog } from "./_log.ts";
import { emulationWarning, type Ready, ready, refuseFull } from "./_ready.ts";

export interface EngineDeps {
  runner: Runner;
  clock: Clock;
  env: Readonly<Record<string, string | undefined>>;
  /** The run's own folder on a disk of this machine. */
  scratch: string;
  options: BuilderOptions;
}

const LOOK_MS = 60_000;

export class EngineBuilder implements Builder {
  readonly #ready = new Shared<Ready>();
  readonly #heredocs = new Shared<boolean>();

  constructor(readonly tool: Tool["name"], private readonly deps: EngineDeps) {}

  async preflight(plan: { heredocs: boolean; platform: string }, signal: AbortSignal): Promise<string[]> {
    const { machine, warnings } = await this.ready(signal);
    if (plan.heredocs) await this.#knowsHeredocs(signal);
    const emulation = emulationWarning(platformName(plan.platform), machine, binfmtHandlers());
    return [...warnings, ...(emulation === undefined ? [] : [emulation])];
  }

  /** The tool, asked once. Throws "engine.missing" or "machine.lacks". */
  ready(signal: AbortSignal): Promise<Ready> {
    return this.#ready.get("ready", () => ready(this.tool, this.deps, signal));
  }

  async has(name: string, signal: AbortSignal): Promise<boolean> {
    const { tool } = await this.ready(signal);
    const { runner, env } = this.deps;
    const told = await runner.run(inspectArgv(tool, name), { env, signal, deadlineMs: LOOK_MS, keepBytes: 16 << 20 });
    signal.throwIfAborted();
    return succeeded(told);
  }

  async build(request: BuildRequest, signal: AbortSignal, emit: Emit): Promise<BuiltImage> {
    const found = await this.ready(signal);
    if (found.storage !== undefined) asReason(() => refuseFull(found.storage!, this.tool, spaceAt(found.storage!)));
    const folder = this.#folder();
    try {
      await using log = new BuildLog(request, emit);
      const knowsHeredocs = () => this.#knowsHeredocs(signal);
      await using job = new Job(this.deps, { found, request, folder, log, knowsHeredocs }, signal);
      const id = await job.build();
      const image = await job.inspect(id);
      const platform = platformName(request.platform);
      if (image.platform !== platform) {
        await job.untag();
        throw new HarborError("image.failed", `the image came out as ${image.platform}, not ${platform}`, {
          hint: "look at FROM --platform, and at the platform of the base image; or set builds.platform",
          details: { class: "platform", image: request.name, log: request.logFile },
        });
      }
      const { config } = image;
      const built = { configDigest: job.configDigest ?? image.id, config, platform };
      if (!request.push) return { reference: request.name, ...built, pushed: false };
      const digest = await job.push();
      return { reference: pinnedTo(parseReference(request.name), digest), ...built, pushed: true };
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }

  /**
   * Tried once, on docker's BuildKit alone: its age says little, since the frontend may be another. The others' heredocs
   * are always rewritten: buildah's need files beside its storage, and fail in nested rootless builds (#6331) and on
   * Lustre.
   */
  #knowsHeredocs(signal: AbortSignal): Promise<boolean> {
    return this.#heredocs.get("heredocs", async () => {
      const { tool } = await this.ready(signal);
      if (tool.kind !== "buildx" && tool.kind !== "buildkit") return false;
      const folder = this.#folder();
      try {
        const env = toolEnvironment(tool, { env: this.deps.env, folder: join(folder, "tool"), registries: new Map() });
        const dockerfile = join(folder, "Dockerfile");
        const iidFile = join(folder, "iid");
        writeFileSync(dockerfile, "FROM scratch\nCOPY <<EOF /probe\nknown\nEOF\n");
        const argv = probeArgv(tool, { context: folder, dockerfile, iidFile });
        const told = await this.deps.runner.run(argv, { env, signal, deadlineMs: LOOK_MS });
        signal.throwIfAborted();
        if (!succeeded(told)) return false;
        if (tool.kind === "buildkit") {
          const image = readFileSync(iidFile, "utf8").trim();
          await this.deps.runner.run(untagArgv(tool, image), { env, deadlineMs: LOOK_MS });
        }
        return true;
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    });
  }

  #folder(): string {
    mkdirSync(this.deps.scratch, { recursive: true, mode: 0o700 });
    return mkdtempSync(join(this.deps.scratch, "build-"));
  }
}

/** A fault of the machine that ends one build is that task's reason, too. */
function asReason(check: () => void): void {
  try {
    check();
  } catch (error) {
    if (!(error instanceof HarborError)) throw error;
    throw new HarborError("image.failed", error.message, { hint: error.hint, details: error.details, cause: error });
  }
}

function binfmtHandlers(): string[] {
  try {
    return readdirSync("/proc/sys/fs/binfmt_misc");
  } catch {
    return [];
  }
}
