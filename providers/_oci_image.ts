/**
 * From what a task needs to an image that is there: found under the name as the engine resolves it, else pulled; a
 * Dockerfile is built whole, once per context hash, by one builder at a time on this machine.
 */
import { createHash } from "node:crypto";
import { createWriteStream, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Emit } from "../lib/events.ts";
import { HarborError } from "../lib/errors.ts";
import { type FileLock, lockFile } from "../lib/files/lock.ts";
import type { RunResult } from "../lib/runtime/runner.ts";
import { decisiveLine, type EngineFailure, engineFailure, saysAbsent } from "../lib/sandbox/failure.ts";
import type { ImageNeed, PreparedImage } from "../lib/sandbox/provider.ts";
import { LOCK_SUFFIX, scratchRoot } from "../lib/sandbox/scratch.ts";
import { buildArgv, type Builder, type BuildTool, fullReference, imageArgv, pullArgv } from "./_oci_argv.ts";
import { runBuild } from "./_oci_build.ts";
import type { SandboxDeps } from "./_oci_deps.ts";

export interface ImageDeps extends SandboxDeps {
  /** Folder for build logs. */
  scratch: string;
  builder: () => Promise<BuildTool>;
  pullMs: number;
}

/** What runArgv() starts. */
export interface ImageHandle {
  id: string;
}

interface Inspected {
  Id: string;
  RepoDigests?: string[] | null;
  Config?: {
    Env?: string[] | null;
    WorkingDir?: string;
    User?: string;
    Entrypoint?: string[] | string | null;
  };
  /** podman repeats the user here and leaves it out of Config when empty. */
  User?: string;
}

/** A look that failed for reasons of the engine's own is taken once more, after this long. */
const SECOND_LOOK_MS = 500;
const LOOK_MS = 60_000;

/**
 * A present image; undefined only where the engine itself says that it has none of this name. A look that fails in any
 * other way (podman 4.3 under load) is taken once more. Throws "engine.missing" when the engine does not answer,
 * "image.failed" with its words when the second look fails as well.
 */
export async function inspectImage(
  deps: SandboxDeps,
  reference: string,
  signal: AbortSignal,
): Promise<Inspected | undefined> {
  const { program, runner, env, gate, clock } = deps;
  const look = async () => {
    const told = await gate.hold(() =>
      runner.run(imageArgv(program, reference), { env, signal, deadlineMs: LOOK_MS, keepBytes: 8 << 20 })
    );
    signal.throwIfAborted();
    return seen(told, program.path);
  };
  let found = await look();
  if (found.state === "unknown") {
    await clock.sleep(SECOND_LOOK_MS, signal);
    found = await look();
  }
  if (found.state === "present") return found.image;
  if (found.state === "absent") return undefined;
  throw new HarborError(
    "image.failed",
    `${program.path} does not say whether image ${reference} is here: ${found.why}`,
    {
      hint: `see what this says: ${program.path} image inspect ${reference}`,
      details: { reference },
    },
  );
}

type Seen = { state: "present"; image: Inspected } | { state: "absent" } | { state: "unknown"; why: string };

function seen({ ended, exitCode, stdout, stderr }: RunResult, engine: string): Seen {
  if (ended === "deadline") return { state: "unknown", why: `no answer within ${LOOK_MS / 1000} s` };
  if (ended === "exit" && exitCode === 0) {
    const image = firstOf(stdout);
    return image === undefined ? { state: "unknown", why: "its answer is cut off" } : { state: "present", image };
  }
  const failure = engineFailure(stderr);
  if (failure?.kind === "daemon-down" || failure?.kind === "no-permission") {
    throw new HarborError("engine.missing", `${engine} does not answer: ${failure.line}`, {
      hint: "see gym-harbor doctor",
    });
  }
  if (ended === "exit" && saysAbsent(stderr)) return { state: "absent" };
  return { state: "unknown", why: `${failure?.line ?? decisiveLine(stderr)} (exit code ${exitCode})` };
}

function firstOf(inspected: string): Inspected | undefined {
  try {
    return (JSON.parse(inspected) as Inspected[])[0];
  } catch {
    return undefined;
  }
}

/** Throws "image.failed". */
export async function namedImage(deps: ImageDeps, reference: string, signal: AbortSignal): Promise<PreparedImage> {
  const present = await inspectImage(deps, reference, signal);
  if (present !== undefined) return prepared(present, pinned(present, reference));
  const { program, runner, env, gate } = deps;
  const argv = pullArgv(program, program.engine === "podman" ? fullReference(reference) : reference);
  const pulled = await gate.hold(() => runner.run(argv, { env, signal, deadlineMs: deps.pullMs }));
  signal.throwIfAborted();
  if (pulled.exitCode !== 0 || pulled.ended === "deadline") throw pullFailed(reference, pulled, deps.pullMs);
  const image = await inspectImage(deps, reference, signal) ??
    await inspectImage(deps, fullReference(reference), signal);
  if (image === undefined) {
    throw new HarborError("image.failed", `Image ${reference} was pulled, yet ${program.path} does not know it`);
  }
  return prepared(image, pinned(image, reference));
}

function pullFailed(reference: string, pulled: RunResult, limitMs: number): HarborError {
  const failure = engineFailure(pulled.stderr);
  const why = pulled.ended === "deadline"
    ? `the pull did not end within ${limitMs / 1000} s`
    : failure?.line ?? decisiveLine(pulled.stderr);
  return new HarborError("image.failed", `Image ${reference} is not on this machine and cannot be pulled: ${why}`, {
    hint: pullHint(failure?.kind, reference),
    details: { reference, kind: failure?.kind ?? null },
  });
}

function pullHint(kind: EngineFailure["kind"] | undefined, reference: string): string {
  switch (kind) {
    case "rate-limited":
      return "log in to the registry, or wait: it limits pulls by address";
    case "image-denied":
    case "no-image":
      return `check the name, or log in if the registry hides it; a local image must be tagged ${reference}`;
    case "unreachable":
      return "no way to the registry from here: load the image by hand (docker load, podman load) and run again";
    default:
      return "pull it by hand to see all that the engine says";
  }
}

/** By digest where the image came from a registry, so that a row says exactly what ran. */
function pinned(image: Inspected, reference: string): string {
  const repository = reference.replace(/@sha256:.*$/, "").replace(/:[^/:]*$/, "");
  const own = image.RepoDigests?.find((digest) => {
    const name = digest.slice(0, digest.indexOf("@"));
    return name === repository || name === fullReference(repository);
  });
  return own ?? reference;
}

function prepared(image: Inspected, reference: string): PreparedImage {
  const config = image.Config ?? {};
  const entrypoint = config.Entrypoint ?? [];
  return {
    reference,
    workdir: config.WorkingDir || "/",
    env: Object.fromEntries((config.Env ?? []).map((line) => {
      const at = line.indexOf("=");
      return at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 1)];
    })),
    user: config.User ?? image.User ?? "",
    entrypoint: typeof entrypoint === "string" ? [entrypoint] : entrypoint,
    notes: [],
    handle: { id: image.Id } satisfies ImageHandle,
  };
}

type DockerfileNeed = Extract<ImageNeed["source"], { kind: "dockerfile" }>;

/** Throws "image.failed" with the line that says why and where the whole log is. */
export async function builtImage(
  deps: ImageDeps,
  need: DockerfileNeed,
  signal: AbortSignal,
  emit: Emit,
): Promise<PreparedImage> {
  const present = await inspectImage(deps, need.tag, signal);
  if (present !== undefined) return prepared(present, need.tag);
  using _lock = await buildLock(deps, need, signal, emit);
  const meanwhile = await inspectImage(deps, need.tag, signal);
  if (meanwhile !== undefined) return prepared(meanwhile, need.tag);
  await build(deps, need, signal, emit);
  const image = await inspectImage(deps, need.tag, signal);
  if (image === undefined) {
    throw new HarborError("image.failed", `Image ${need.tag} was built, yet ${deps.program.path} does not know it`);
  }
  return prepared(image, need.tag);
}

async function buildLock(deps: ImageDeps, need: DockerfileNeed, signal: AbortSignal, emit: Emit): Promise<FileLock> {
  try {
    return await lockFile(lockPath(deps, need.tag), {
      clock: deps.clock,
      waitMs: need.buildTimeoutMs + 60_000,
      signal,
      onWait: (holder) => emit({ kind: "note", text: `waiting for the build of ${need.tag} by ${holder}` }),
    });
  } catch (cause) {
    if (!(cause instanceof HarborError) || cause.code !== "store.locked") throw cause;
    throw new HarborError("image.failed", `Another process still builds ${need.tag}: ${cause.message}`, { cause });
  }
}

/** Beside the runs' folders, where `sandbox gc` finds it: one file per engine, the address it is reached at, and image. */
function lockPath({ program, env }: SandboxDeps, tag: string): string {
  const where = [program.engine, env.DOCKER_HOST, env.DOCKER_CONTEXT, env.CONTAINER_HOST, env.CONTAINERS_STORAGE_CONF];
  const address = createHash("sha256").update(where.join("\n")).digest("hex").slice(0, 8);
  const root = scratchRoot(env);
  mkdirSync(root, { recursive: true, mode: 0o700 });
  return join(root, `build-${address}-${tag}${LOCK_SUFFIX}`);
}

async function build(deps: ImageDeps, need: DockerfileNeed, signal: AbortSignal, emit: Emit): Promise<void> {
  const tool = await deps.builder();
  const { builder } = tool;
  mkdirSync(deps.scratch, { recursive: true, mode: 0o700 });
  const logPath = join(deps.scratch, `build-${need.tag}.log`);
  const log = createWriteStream(logPath, { mode: 0o600 });
  const text = new TextDecoder();
  const onOutput = (chunk: Uint8Array) => {
    log.write(chunk);
    emit({ kind: "build-output", image: need.tag, text: text.decode(chunk, { stream: true }) });
  };
  try {
    const result = await runBuild(deps, {
      argv: buildArgv(tool, need),
      env: { ...deps.env, ...buildEnv(builder, deps.scratch) },
      deadlineMs: need.buildTimeoutMs,
      signal,
      onOutput,
    });
    signal.throwIfAborted();
    if (result.ended === "exit" && result.exitCode === 0) return;
    throw buildFailed(need, builder, result, logPath);
  } finally {
    await new Promise<void>((closed) => log.end(() => closed()));
  }
}

function buildEnv(builder: Builder, scratch: string): Record<string, string> {
  switch (builder) {
    case "classic":
      return { DOCKER_BUILDKIT: "0" };
    case "buildkit":
      return { DOCKER_BUILDKIT: "1" };
    case "buildah":
      return { TMPDIR: scratch }; // what a killed build leaves there goes with the run's folder
    default:
      return {};
  }
}

function buildFailed(need: DockerfileNeed, builder: Builder, result: RunResult, logPath: string): HarborError {
  const output = `${result.stdout}\n${result.stderr}`;
  const failure = engineFailure(result.stderr) ?? engineFailure(result.stdout);
  const details = { dockerfile: need.dockerfile, log: logPath, builder };
  if (result.ended === "deadline") {
    return new HarborError(
      "image.failed",
      `Build of ${need.dockerfile} was ended at its limit of ${need.buildTimeoutMs / 1000} s: last said: ${
        decisiveLine(output)
      }`,
      {
        hint: `raise environment.build_timeout_sec; the whole log is ${logPath}`,
        details,
      },
    );
  }
  if (
    failure?.kind === "unknown-instruction" &&
    /^\s*(RUN|COPY|ADD)\s.*<<-?["']?\w/mi.test(readFileSync(need.dockerfile, "utf8"))
  ) {
    return new HarborError(
      "image.failed",
      `Build of ${need.dockerfile} failed: this builder (${builder}) does not know heredocs (RUN <<EOF): ${failure.line}`,
      {
        hint: "use docker with BuildKit 23 or newer, podman 5, or write the RUN without a heredoc",
        details,
      },
    );
  }
  const wanted = /the (--\w+) option requires BuildKit/i.exec(output)?.[1];
  if (wanted !== undefined) {
    return new HarborError(
      "image.failed",
      `Build of ${need.dockerfile} failed: this builder (${builder}) does not know ${wanted}, which needs BuildKit`,
      { hint: "install the buildx plugin (docker-buildx-plugin), or use --sandbox podman", details },
    );
  }
  return new HarborError(
    "image.failed",
    `Build of ${need.dockerfile} failed (exit code ${result.exitCode}): ${stepLines(output)}`,
    {
      hint: `the whole log is ${logPath}`,
      details,
    },
  );
}

/** What a person needs to see: the step that failed and what it said last. */
function stepLines(output: string): string {
  const lines = output.split("\n").map((line) => line.trimEnd()).filter((line) => line.trim() !== "");
  const step = lines.findLast((line) => /^(STEP|Step) \d+|^#\d+ \[/.test(line));
  const said = decisiveLine(output);
  return step === undefined ? said : `${said} (${step})`;
}
