/**
 * One build by docker, buildah or podman: what it reads is settled, the tool runs within its limit, what came out is
 * looked at, and pushed. How each tool is spoken to is in _argv.ts; what its failures mean in _failure.ts.
 */
import { createWriteStream, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { finished } from "node:stream/promises";
import type { Emit } from "../../lib/events.ts";
import { HarborError } from "../../lib/errors.ts";
import type { Builder, BuilderOptions, BuildRequest, BuiltImage } from "../../lib/images/builder.ts";
import { platformName } from "../../lib/images/config.ts";
import { isLoopback, parseReference, pinnedTo } from "../../lib/images/reference.ts";
import type { Clock } from "../../lib/runtime/clock.ts";
import { Shared } from "../../lib/runtime/pool.ts";
import { quoted, type Runner, type RunResult } from "../../lib/runtime/runner.ts";
import { runBuild } from "../_oci_build.ts";
import { buildArgv, inspectArgv, pushArgv, type Tool, untagArgv } from "./_argv.ts";
import { proxiesSet, toolEnvironment } from "./_environment.ts";
import { asksOnAfterLimit, buildFailed, failureClass } from "./_failure.ts";
import { type Inspected, readInspected } from "./_inspect.ts";
import { emulationWarning, type Ready, ready, refuseFull } from "./_ready.ts";
import { spaceAt } from "../../lib/files/disk.ts";

type Env = Readonly<Record<string, string | undefined>>;

export interface EngineDeps {
  runner: Runner;
  clock: Clock;
  env: Env;
  /** The run's own folder on a disk of this machine. */
  scratch: string;
  options: BuilderOptions;
}

/** A push has a limit of its own (spec §4.1). */
const PUSH_MS = 1_800_000;
const LOOK_MS = 60_000;
/** How often the room is looked at: whoever fails for want of it has tidied up when we hear of it. */
const SPACE_MS = 500;

export class EngineBuilder implements Builder {
  readonly #ready = new Shared<Ready>();

  constructor(readonly tool: Tool["name"], private readonly deps: EngineDeps) {}

  async preflight(plan: { heredocs: boolean; platform: string }, signal: AbortSignal): Promise<string[]> {
    const { machine, warnings } = await this.ready(signal);
    const emulation = emulationWarning(platformName(plan.platform), machine, binfmtHandlers());
    return [...warnings, ...(emulation === undefined ? [] : [emulation])];
  }

  /** The tool, asked once. Throws "engine.missing" or "machine.lacks". */
  ready(signal: AbortSignal): Promise<Ready> {
    return this.#ready.get("ready", () => ready(this.tool, this.deps, signal));
  }

  async has(name: string, signal: AbortSignal): Promise<boolean> {
    const { tool } = await this.ready(signal);
    const told = await this.#look(tool, name, this.deps.env, signal);
    return told.ended === "exit" && told.exitCode === 0;
  }

  async build(request: BuildRequest, signal: AbortSignal, emit: Emit): Promise<BuiltImage> {
    const found = await this.ready(signal);
    if (found.storage !== undefined) asReason(() => refuseFull(found.storage!, this.tool, spaceAt(found.storage!)));
    mkdirSync(this.deps.scratch, { recursive: true, mode: 0o700 });
    const folder = mkdtempSync(join(this.deps.scratch, "build-"));
    await using log = new BuildLog(request, emit);
    try {
      const job = new Job(this.deps, found, request, folder, log, signal);
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

  #look(tool: Tool, name: string, env: Env, signal: AbortSignal): Promise<RunResult> {
    return this.deps.runner.run(inspectArgv(tool, name), { env, signal, deadlineMs: LOOK_MS, keepBytes: 16 << 20 });
  }
}

/** The work on one request. */
class Job {
  readonly #env: Env;
  readonly #tool: Tool;
  /** Least room that was seen where images are kept. */
  #lowestFree: number | undefined;
  /** As buildx tells it; elsewhere the image's id. */
  configDigest: string | undefined;

  constructor(
    private readonly deps: EngineDeps,
    private readonly found: Ready,
    private readonly request: BuildRequest,
    private readonly folder: string,
    private readonly log: BuildLog,
    private readonly signal: AbortSignal,
  ) {
    this.#tool = found.tool;
    const { env, options } = deps;
    this.#env = toolEnvironment(found.tool, { env, folder, registries: options.registries ?? new Map() });
  }

  /** Returns the image's id. */
  async build(): Promise<string> {
    const { request, folder } = this;
    const iidFile = join(folder, "iid");
    const metadataFile = join(folder, "metadata.json");
    const { argv, env } = buildArgv(this.#tool, request, {
      context: request.context,
      dockerfile: request.dockerfile,
      iidFile,
      metadataFile,
    });
    const started = this.deps.clock.ticks();
    await this.#retrying(async () => {
      const left = request.timeoutMs - (this.deps.clock.ticks() - started);
      const result = await this.#run(argv, Math.max(1, left), env);
      if (!succeeded(result)) throw this.#failed("build", result, request.timeoutMs);
    });
    this.configDigest = digestIn(metadataFile, "containerimage.config.digest");
    return readFileSync(iidFile, "utf8").trim();
  }

  async inspect(reference: string): Promise<Inspected> {
    const told = await this.deps.runner.run(inspectArgv(this.#tool, reference), {
      env: this.#env,
      signal: this.signal,
      deadlineMs: LOOK_MS,
      keepBytes: 16 << 20,
    });
    this.signal.throwIfAborted();
    if (!succeeded(told)) throw this.#failed("build", told, LOOK_MS);
    return readInspected(this.#tool, told.stdout);
  }

  /** Takes the name away from an image that is not what it stands for. */
  async untag(): Promise<void> {
    await this.deps.runner.run(untagArgv(this.#tool, this.request.name), { env: this.#env, deadlineMs: LOOK_MS });
  }

  /** Returns the digest under which the registry has it. */
  async push(): Promise<string> {
    const { name } = this.request;
    const { host, repository } = parseReference(name);
    const insecure = isLoopback(host) || this.deps.options.registries?.get(host)?.insecure === true;
    const digestFile = join(this.folder, "digest");
    const argv = pushArgv(this.#tool, name, { digestFile, insecure, retries: this.#tries });
    const started = this.deps.clock.ticks();
    const pushed = await this.#retrying(async () => {
      const result = await this.#run(argv, Math.max(1, PUSH_MS - (this.deps.clock.ticks() - started)), {});
      if (!succeeded(result)) throw this.#failed("push", result, PUSH_MS);
      return result;
    });
    const digest = this.#tool.name === "docker"
      ? (await this.inspect(name)).repoDigests.map((one) => parseReference(one))
        .find((one) => one.host === host && one.repository === repository)?.digest ??
        /digest: (sha256:[0-9a-f]{64})/.exec(pushed.stdout)?.[1]
      : readFileSync(digestFile, "utf8").trim();
    if (digest === undefined) {
      throw new HarborError("image.failed", `${name} was pushed, yet ${this.#tool.name} does not tell its digest`);
    }
    return digest;
  }

  async #run(argv: string[], deadlineMs: number, env: Record<string, string>): Promise<RunResult> {
    this.log.say(`$ ${quoted(argv)}`);
    const { storage } = this.found;
    const look = () => {
      const free = storage === undefined ? undefined : spaceAt(storage)?.freeBytes;
      if (free !== undefined) this.#lowestFree = Math.min(free, this.#lowestFree ?? free);
    };
    using _looking = this.deps.clock.every(SPACE_MS, look);
    const enough = new AbortController();
    const result = await runBuild(this.deps, {
      argv,
      env: { ...this.#env, ...env },
      deadlineMs,
      signal: AbortSignal.any([this.signal, enough.signal]),
      onOutput: (chunk) => {
        this.log.write(chunk);
        // It would go on asking a registry that counts its calls, for minutes.
        if (asksOnAfterLimit(new TextDecoder().decode(chunk))) enough.abort();
      },
    });
    this.signal.throwIfAborted();
    look();
    return result;
  }

  get #tries(): number {
    return this.deps.options.retries ?? 2;
  }

  /**
   * docker again, only for what a network or a registry did that may be over in a moment: podman and buildah do that by
   * themselves (three times, at 2 s and more).
   */
  async #retrying<T>(attempt: () => Promise<T>): Promise<T> {
    const { retryDelayMs = 5000 } = this.deps.options;
    const more = this.#tool.name === "docker" ? this.#tries : 0;
    for (let tries = 0;; tries++) {
      try {
        return await attempt();
      } catch (error) {
        if (tries >= more || failureClass(error) !== "network" || LASTING.test((error as Error).message)) throw error;
        const pause = retryDelayMs * 2 ** tries * (0.5 + Math.random());
        this.log.say(`${(error as Error).message}\ntrying again in ${(pause / 1000).toFixed(1)} s`);
        await this.deps.clock.sleep(pause, this.signal);
      }
    }
  }

  #failed(step: "build" | "push", result: RunResult, limitMs: number): HarborError {
    const { request, found } = this;
    return buildFailed({
      tool: this.#tool,
      result,
      image: request.name,
      step,
      limitMs,
      ...(found.storage !== undefined && { storage: found.storage }),
      ...(this.#lowestFree !== undefined && { lowestFreeBytes: this.#lowestFree }),
      platform: platformName(request.platform),
      machine: found.machine,
      logFile: request.logFile,
      proxies: proxiesSet(this.deps.env),
    });
  }
}

/** Faults of the way to a registry that a second try does not mend. */
const LASTING = /no such host|http response to https client|x509: /i;

const succeeded = ({ ended, exitCode }: RunResult): boolean => ended === "exit" && exitCode === 0;

/** Everything that a build said, in a file and as events. */
class BuildLog implements AsyncDisposable {
  readonly #file;
  readonly #text = new TextDecoder();

  constructor(private readonly request: BuildRequest, private readonly emit: Emit) {
    mkdirSync(dirname(request.logFile), { recursive: true });
    this.#file = createWriteStream(request.logFile, { mode: 0o600 });
  }

  write(chunk: Uint8Array): void {
    this.#file.write(chunk);
    this.emit({ kind: "build-output", image: this.request.name, text: this.#text.decode(chunk, { stream: true }) });
  }

  /** A line of ours. */
  say(line: string): void {
    this.write(new TextEncoder().encode(`gym-harbor: ${line}\n`));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#file.end();
    await finished(this.#file);
  }
}

function digestIn(metadataFile: string, key: string): string | undefined {
  try {
    const value = (JSON.parse(readFileSync(metadataFile, "utf8")) as Record<string, unknown>)[key];
    return typeof value === "string" ? value : undefined;
  } catch {
    return undefined; // only buildx writes one
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
