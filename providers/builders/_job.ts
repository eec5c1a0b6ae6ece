/**
 * The work on one build: what it reads is settled, the tool runs within its limit, what came out is looked at, and
 * pushed.
 */
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { spaceAt } from "../../lib/files/disk.ts";
import { HarborError } from "../../lib/errors.ts";
import type { BuildRequest } from "../../lib/images/builder.ts";
import { platformName } from "../../lib/images/config.ts";
import { usesHeredocs } from "../../lib/images/heredoc.ts";
import { isLoopback, parseReference } from "../../lib/images/reference.ts";
import { quoted, type RunResult } from "../../lib/runtime/runner.ts";
import { decisiveLine } from "../../lib/sandbox/failure.ts";
import { baseImages } from "../../lib/task/dockerfile_stages.ts";
import { runBuild } from "./_run.ts";
import { buildArgv, inspectArgv, pullArgv, pushArgv, type Tool, untagArgv } from "./_argv.ts";
import type { EngineDeps } from "./_engine.ts";
import { proxiesSet, toolEnvironment } from "./_environment.ts";
import { asksOnAfterLimit, buildFailed, failureClass } from "./_failure.ts";
import {
  dockerfileText,
  type Inputs,
  lacksFrontend,
  namesFrontend,
  type RewriteWork,
  stagedContext,
  withoutHeredocs,
} from "./_inputs.ts";
import { type Inspected, readInspected } from "./_inspect.ts";
import type { BuildLog } from "./_log.ts";
import type { Ready } from "./_ready.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** A push has a limit of its own (spec §4.1). */
const PUSH_MS = 1_800_000;
const LOOK_MS = 60_000;
/** How often the room is looked at: whoever fails for want of it has tidied up when we hear of it. */
const SPACE_MS = 500;

export interface JobOf {
  found: Ready;
  request: BuildRequest;
  /** A folder of the build's own, which goes with it. */
  folder: string;
  log: BuildLog;
  /** Whether the builder knows heredocs by itself. */
  knowsHeredocs: () => Promise<boolean>;
}

export class Job implements AsyncDisposable {
  readonly #env: Env;
  readonly #tool: Tool;
  /** When the build has to be over, by the clock's ticks. */
  readonly #until: number;
  /** Images of generated files, which nobody needs afterwards. */
  readonly #helpers: string[] = [];
  /** Least room that was seen where images are kept. */
  #lowestFree: number | undefined;
  /** As buildx tells it; elsewhere the image's id. */
  configDigest: string | undefined;

  constructor(
    private readonly deps: EngineDeps,
    private readonly of: JobOf,
    private readonly signal: AbortSignal,
  ) {
    const { found, folder, request } = of;
    this.#tool = found.tool;
    this.#env = toolEnvironment(found.tool, {
      env: deps.env,
      folder: join(folder, "tool"),
      registries: deps.options.registries ?? new Map(),
    });
    this.#until = deps.clock.ticks() + request.timeoutMs;
  }

  /** Returns the image's id. */
  async build(): Promise<string> {
    const { request, folder } = this.of;
    const work = this.#rewriteWork();
    let inputs = await stagedContext(request, work);
    const text = dockerfileText(inputs.dockerfile);
    // The frontend that a file names may know more than the builder's own: it is tried first.
    const isLeft = this.#usesFrontends && namesFrontend(text);
    if (usesHeredocs(text) && !isLeft && !await this.of.knowsHeredocs()) {
      inputs = await withoutHeredocs(inputs, work, { keepSyntax: true });
    }
    if (await this.#buildFrom(inputs) === "no-frontend") {
      this.of.log.say("the frontend that '# syntax=' names cannot be fetched: building with the builder's own");
      const knows = !usesHeredocs(text) || await this.of.knowsHeredocs();
      inputs = await withoutHeredocs(inputs, work, { keepSyntax: false, keepHeredocs: knows });
      await this.#buildFrom(inputs);
    }
    this.configDigest = digestIn(join(folder, "metadata.json"), "containerimage.config.digest");
    return readFileSync(join(folder, "iid"), "utf8").trim();
  }

  async #buildFrom(inputs: Inputs): Promise<"built" | "no-frontend"> {
    const { request } = this.of;
    const mayLack = this.#usesFrontends && namesFrontend(dockerfileText(inputs.dockerfile));
    if (request.pull && this.#helpers.length > 0) await this.#pullBases(request.dockerfile);
    const settled = this.#helpers.length > 0 ? { ...request, pull: false } : request;
    const { argv, env } = buildArgv(this.#tool, settled, this.#files(inputs));
    return await this.#retrying(async () => {
      const result = await this.#run(argv, this.#left(), env);
      if (succeeded(result)) return "built";
      if (mayLack && lacksFrontend(result.stderr + result.stdout)) return "no-frontend";
      throw this.#failed("build", result, request.timeoutMs);
    });
  }

  async inspect(reference: string): Promise<Inspected> {
    const told = await this.#ask(inspectArgv(this.#tool, reference));
    if (!succeeded(told)) throw this.#failed("build", told, LOOK_MS);
    return readInspected(this.#tool, told.stdout);
  }

  /** Takes the name away from an image that is not what it stands for. */
  async untag(): Promise<void> {
    await this.#ask(untagArgv(this.#tool, this.of.request.name));
  }

  /** Returns the digest under which the registry has it. */
  async push(): Promise<string> {
    const { name } = this.of.request;
    const { host, repository } = parseReference(name);
    const insecure = isLoopback(host) || this.deps.options.registries?.get(host)?.insecure === true;
    const digestFile = join(this.of.folder, "digest");
    const argv = pushArgv(this.#tool, name, { digestFile, insecure, retries: this.#tries });
    const until = this.deps.clock.ticks() + PUSH_MS;
    const pushed = await this.#retrying(async () => {
      const result = await this.#run(argv, Math.max(1, until - this.deps.clock.ticks()), {});
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

  async [Symbol.asyncDispose](): Promise<void> {
    for (const helper of this.#helpers) {
      await this.deps.runner.run(untagArgv(this.#tool, helper), { env: this.#env, deadlineMs: LOOK_MS });
    }
  }

  #rewriteWork(): RewriteWork {
    const { folder, request, log } = this.of;
    return {
      folder,
      space: spaceAt,
      say: (line) => log.say(line),
      args: request.args,
      platform: request.platform,
      copyTree: async (from, to) => {
        mkdirSync(to);
        const copied = await this.deps.runner.run(["cp", "-a", "--", `${from}/.`, to], {
          signal: this.signal,
          deadlineMs: this.#left(),
        });
        this.signal.throwIfAborted();
        if (succeeded(copied)) return;
        throw new HarborError("image.failed", `Cannot copy ${from} to ${to}: ${decisiveLine(copied.stderr)}`);
      },
      configOf: async (reference) => {
        const here = await this.#ask(inspectArgv(this.#tool, reference));
        if (!succeeded(here)) await this.#pull(reference);
        return (await this.inspect(reference)).config;
      },
      makeFiles: async (name, context) => {
        this.#helpers.push(name);
        const files = this.#files({ context, dockerfile: join(context, "Dockerfile") });
        const { platform, timeoutMs, logFile } = request;
        const helper = { ...files, name, platform, args: {}, timeoutMs, push: false, logFile };
        const result = await this.#run(buildArgv(this.#tool, helper, files).argv, this.#left(), {});
        if (!succeeded(result)) throw this.#failed("build", result, request.timeoutMs);
      },
    };
  }

  async #pullBases(dockerfile: string): Promise<void> {
    const { args, platform, target } = this.of.request;
    for (const one of baseImages(dockerfileText(dockerfile), { args, platform, target })) await this.#pull(one);
  }

  async #pull(reference: string): Promise<void> {
    const result = await this.#run(pullArgv(this.#tool, reference), this.#left(), {});
    if (!succeeded(result)) throw this.#failed("build", result, this.of.request.timeoutMs);
  }

  #files({ context, dockerfile }: Inputs) {
    const { folder } = this.of;
    return { context, dockerfile, iidFile: join(folder, "iid"), metadataFile: join(folder, "metadata.json") };
  }

  get #usesFrontends(): boolean {
    return this.#tool.kind === "buildx" || this.#tool.kind === "buildkit";
  }

  #left(): number {
    return Math.max(1, this.#until - this.deps.clock.ticks());
  }

  async #ask(argv: string[]): Promise<RunResult> {
    const { runner } = this.deps;
    const options = { env: this.#env, signal: this.signal, deadlineMs: LOOK_MS, keepBytes: 16 << 20 };
    const told = await runner.run(argv, options);
    this.signal.throwIfAborted();
    return told;
  }

  async #run(argv: string[], deadlineMs: number, env: Record<string, string>): Promise<RunResult> {
    const { log, found } = this.of;
    log.say(`$ ${quoted(argv)}`);
    const look = () => {
      const free = found.storage === undefined ? undefined : spaceAt(found.storage)?.freeBytes;
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
        log.write(chunk);
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
        this.of.log.say(`${(error as Error).message}\ntrying again in ${(pause / 1000).toFixed(1)} s`);
        await this.deps.clock.sleep(pause, this.signal);
      }
    }
  }

  #failed(step: "build" | "push", result: RunResult, limitMs: number): HarborError {
    const { request, found } = this.of;
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

export const succeeded = ({ ended, exitCode }: RunResult): boolean => ended === "exit" && exitCode === 0;

function digestIn(metadataFile: string, key: string): string | undefined {
  try {
    const value = (JSON.parse(readFileSync(metadataFile, "utf8")) as Record<string, unknown>)[key];
    return typeof value === "string" ? value : undefined;
  } catch {
    return undefined; // only buildx writes one
  }
}
