/** Images by name: what is there as the engine resolves the name is used as it is, what is not is pulled. */
import { HarborError } from "../lib/errors.ts";
import type { RunResult } from "../lib/runtime/runner.ts";
import { decisiveLine, type EngineFailure, engineFailure, saysAbsent } from "../lib/sandbox/failure.ts";
import type { PreparedImage } from "../lib/sandbox/provider.ts";
import { fullReference, imageArgv, pullArgv } from "./_oci_argv.ts";
import type { SandboxDeps } from "./_oci_deps.ts";

const PULL_MS = 1_800_000;

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
export async function namedImage(deps: SandboxDeps, reference: string, signal: AbortSignal): Promise<PreparedImage> {
  const present = await inspectImage(deps, reference, signal);
  if (present !== undefined) return prepared(present, pinned(present, reference));
  const { program, runner, env, gate } = deps;
  const argv = pullArgv(program, program.engine === "podman" ? fullReference(reference) : reference);
  const pulled = await gate.hold(() => runner.run(argv, { env, signal, deadlineMs: PULL_MS }));
  signal.throwIfAborted();
  if (pulled.exitCode !== 0 || pulled.ended === "deadline") throw pullFailed(reference, pulled);
  const image = await inspectImage(deps, reference, signal) ??
    await inspectImage(deps, fullReference(reference), signal);
  if (image === undefined) {
    throw new HarborError("image.failed", `Image ${reference} was pulled, yet ${program.path} does not know it`);
  }
  return prepared(image, pinned(image, reference));
}

function pullFailed(reference: string, pulled: RunResult): HarborError {
  const failure = engineFailure(pulled.stderr);
  const why = pulled.ended === "deadline"
    ? `the pull did not end within ${PULL_MS / 1000} s`
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

/** What its configuration says, for a row and for whoever starts it. */
export function prepared(image: Inspected, reference: string): PreparedImage {
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
