/**
 * A Dockerfile as an image: found under the name of its context hash, else built whole, once per hash, by one builder at
 * a time on this machine.
 */
import { createHash } from "node:crypto";
import { createWriteStream, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Emit } from "../lib/events.ts";
import { HarborError } from "../lib/errors.ts";
import { type FileLock, lockFile } from "../lib/files/lock.ts";
import type { RunResult } from "../lib/runtime/runner.ts";
import { decisiveLine, engineFailure } from "../lib/sandbox/failure.ts";
import type { ImageNeed, PreparedImage } from "../lib/sandbox/provider.ts";
import { LOCK_SUFFIX, scratchRoot } from "../lib/sandbox/scratch.ts";
import { buildArgv, type Builder, type BuildTool } from "./_oci_argv.ts";
import { runBuild } from "./_oci_build.ts";
import type { SandboxDeps } from "./_oci_deps.ts";
import { inspectImage, prepared } from "./_oci_image.ts";

export interface BuildDeps extends SandboxDeps {
  builder: () => Promise<BuildTool>;
}

type DockerfileNeed = Extract<ImageNeed["source"], { kind: "dockerfile" }>;

/** Throws "image.failed" with the line that says why and where the whole log is. */
export async function builtImage(
  deps: BuildDeps,
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

async function buildLock(deps: BuildDeps, need: DockerfileNeed, signal: AbortSignal, emit: Emit): Promise<FileLock> {
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

async function build(deps: BuildDeps, need: DockerfileNeed, signal: AbortSignal, emit: Emit): Promise<void> {
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
