/** From a command line to a container whose control shell answers, and what went wrong where it does not. */
import { HarborError } from "../lib/errors.ts";
import { settlesWithin } from "../lib/runtime/clock.ts";
import { decisiveLine, engineFailure } from "../lib/sandbox/failure.ts";
import type { SandboxSpec } from "../lib/sandbox/provider.ts";
import { type EngineName, removeArgv } from "./_oci_argv.ts";
import { Control, LineEnded } from "./_oci_control.ts";
import type { SandboxDeps } from "./_oci_deps.ts";
import type { Tools } from "./_oci_sandbox.ts";
import { setupScript } from "./_oci_scripts.ts";
import { asRoot, oddVariables } from "./_oci_verdict.ts";

const REMOVE_MS = 60_000;
/** How long an engine may take to bring up what is to be undone. */
const START_UP_MS = 20_000;

/** Characters kept of what one part of the setup says. */
const MOST_SAID = 1 << 20;

/** How often a start is tried that the engine's own haste made fail, and the pause between. */
export const STARTS = 3;
export const AGAIN_MS = 500;

/** Starts the container and its setup; leaves nothing when it does not come up. What is only busy is tried again. */
export async function startContainer(
  name: string,
  argv: readonly string[],
  spec: SandboxSpec,
  deps: SandboxDeps,
  signal: AbortSignal,
): Promise<{ control: Control; tools: Tools }> {
  for (let attempt = 1;; attempt++) {
    try {
      return await startOnce(name, argv, spec, deps, signal);
    } catch (error) {
      if (!(error instanceof HarborError) || error.details?.kind !== "busy" || attempt === STARTS) throw error;
      await deps.clock.sleep(AGAIN_MS, signal);
    }
  }
}

async function startOnce(
  name: string,
  argv: readonly string[],
  spec: SandboxSpec,
  deps: SandboxDeps,
  signal: AbortSignal,
): Promise<{ control: Control; tools: Tools }> {
  const { program, runner, env, gate, clock, scratch } = deps;
  return await gate.hold(async () => {
    signal.throwIfAborted();
    // conmon 2.1 (podman 4.3) leaves a file named "oom" where it was started when the kernel ends something inside.
    const cwd = program.engine === "podman" ? scratch : undefined;
    const control = new Control(await runner.start(argv, { env, cwd }), clock);
    try {
      const tools = await setUp(control, name, spec, signal);
      oddVariables(spec.env, tools.bash !== "");
      return { control, tools };
    } catch (error) {
      await undo(control, name, deps);
      throw error instanceof LineEnded ? neverUp(program.engine, control, spec, await control.ended) : error;
    }
  });
}

/** The first request on a line. Throws "sandbox.failed", or LineEnded when the sandbox is gone. */
export async function setUp(control: Control, name: string, spec: SandboxSpec, signal: AbortSignal): Promise<Tools> {
  const text: Record<string, string> = { made: "", script: "", workdir: "" };
  const codes: Record<string, number> = {};
  let section = "made";
  let ready: string[] = [];
  const decoder = new TextDecoder();
  const workdir = spec.workdir ?? (spec.image.workdir || "/");
  const owner = asRoot(spec.user ?? spec.image.user);
  await control.ask(
    () => setupScript({ ttlSeconds: Math.ceil(spec.ttlMs / 1000), workdir, workdirOwner: owner, script: spec.setup }),
    "ready",
    {
      onMarker: ([verb, ...words]) => {
        if (verb === "made" || verb === "script" || verb === "owned") codes[verb] = Number(words[0]);
        section = verb === "made" ? "script" : verb === "workdir" ? "workdir" : "";
        if (verb === "ready") ready = words;
      },
      onData: (chunk) => {
        if (section in text && text[section]!.length < MOST_SAID) {
          text[section] += decoder.decode(chunk, { stream: true });
        }
      },
    },
    spec.readyTimeoutMs,
    signal,
  ).catch((error) => {
    if (error instanceof LineEnded || signal.aborted) throw error;
    throw new HarborError("sandbox.failed", `Sandbox ${name} was not ready within ${spec.readyTimeoutMs / 1000} s`, {
      cause: error,
    });
  });
  if (codes.made !== 0) {
    throw new HarborError(
      "sandbox.failed",
      `Cannot make the working directory ${workdir} in ${name}: ${decisiveLine(control.errors)}`,
    );
  }
  if (codes.script !== 0) {
    throw new HarborError(
      "sandbox.failed",
      `Setup of ${name} failed with exit code ${codes.script}: ${decisiveLine(text.script!)}`,
    );
  }
  const found = Object.fromEntries(
    ready.map((word) => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)]),
  );
  if (!found.cat) {
    throw new HarborError(
      "sandbox.failed",
      `The image of ${name} has no program named cat: BusyBox or coreutils are needed`,
    );
  }
  return {
    bash: found.bash ?? "",
    tar: Boolean(found.tar),
    workdir: text.workdir!.replace(/\n$/, "") || workdir,
    oomKills: found.oom ? Number(found.oom) : null,
  };
}

/** The client may still be starting it: ending its stdin makes it end as soon as it is there. */
async function undo(control: Control, name: string, deps: SandboxDeps): Promise<void> {
  const { program, runner, env, emit, clock } = deps;
  control.close();
  await settlesWithin(control.ended, START_UP_MS, clock);
  control.leave();
  const removed = await runner.run(removeArgv(program, [name]), {
    env,
    deadlineMs: REMOVE_MS,
    graceMs: 0,
  });
  if (removed.exitCode === 0 || engineFailure(removed.stderr)?.kind === "no-container") return;
  emit({ kind: "warning", text: `sandbox ${name} could not be removed: ${decisiveLine(removed.stderr)}` });
}

function neverUp(engine: EngineName, control: Control, spec: SandboxSpec, exitCode: number): HarborError {
  const { reference } = spec.image;
  const failure = engineFailure(control.errors);
  switch (failure?.kind) {
    case "no-program":
    case "not-executable":
      return new HarborError("sandbox.failed", `Image ${reference} cannot run /bin/sh: ${failure.line}`, {
        hint: "a sandbox needs a POSIX shell at /bin/sh in the image (distroless images have none)",
      });
    case "no-image":
      return new HarborError("image.failed", `Image ${reference} is gone from ${engine} since it was prepared`, {
        hint: "somebody removed it: run again, and gym-harbor brings or builds it anew",
        details: { reference },
      });
    case "daemon-down":
    case "no-permission":
      return new HarborError("engine.missing", `${engine} does not answer: ${failure.line}`, {
        hint: "see gym-harbor doctor",
      });
    default:
      return new HarborError(
        "sandbox.failed",
        `Cannot start a sandbox of ${reference}: ${
          failure?.line ?? decisiveLine(control.errors)
        } (exit code ${exitCode})`,
        { details: { kind: failure?.kind ?? null } },
      );
  }
}
