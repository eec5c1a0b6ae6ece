/** What an engine says about an image that it has. */
import { HarborError } from "../lib/errors.ts";
import { envOf, type ImageConfig, platformOf } from "../lib/images/config.ts";
import { canonical, parseReference, pinnedTo, type Reference } from "../lib/images/reference.ts";
import type { RunResult } from "../lib/runtime/runner.ts";
import { decisiveLine, engineFailure, saysAbsent } from "../lib/sandbox/failure.ts";
import type { LocalImage, PreparedImage } from "../lib/sandbox/provider.ts";
import { imageArgv } from "./_oci_argv.ts";
import type { SandboxDeps } from "./_oci_deps.ts";

/** What runArgv() starts. */
export interface ImageHandle {
  id: string;
}

/** The part of `image inspect` that matters (docker 20.10 to 28, podman 4.3). */
export interface Inspected {
  /**
   * docker: `sha256:` and the digest of the configuration, or of the manifest or index where images lie in containerd
   * (`Descriptor` is there then); podman: the digest of the configuration without a prefix.
   */
  Id: string;
  Descriptor?: unknown;
  RepoDigests?: string[] | null;
  Os?: string;
  Architecture?: string;
  RootFS?: { Layers?: string[] | null };
  Config?: ImageConfig;
  /** podman keeps it here and not in Config. */
  Healthcheck?: ImageConfig["Healthcheck"];
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
  if (found.state === "present") {
    const { image } = found;
    return deps.registryDigests === undefined
      ? image
      : { ...image, RepoDigests: await deps.registryDigests(image, signal) };
  }
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
    const [image] = JSON.parse(inspected) as [Inspected?];
    // podman before 5 writes an entrypoint as one text in some answers.
    const entrypoint: unknown = image?.Config?.Entrypoint;
    return typeof entrypoint === "string"
      ? { ...image!, Config: { ...image!.Config, Entrypoint: [entrypoint] } }
      : image;
  } catch {
    return undefined;
  }
}

/** What is known of it, for records: what docker adds of the container that an image was built in is left out. */
export function localImage(image: Inspected): LocalImage {
  const { Entrypoint, Env, Cmd, User, WorkingDir, ExposedPorts, Healthcheck, Volumes } = image.Config ?? {};
  return {
    configDigest: configDigestOf(image) ?? image.Id,
    repoDigests: (image.RepoDigests ?? []).map(parsed).filter((one) => one !== undefined && one.host !== "localhost")
      .map((one) => canonical(one!)),
    config: {
      Entrypoint: Entrypoint ?? null,
      Cmd: Cmd ?? null,
      Env: Env ?? null,
      User: User ?? image.User ?? "",
      WorkingDir: WorkingDir ?? "",
      ExposedPorts: ExposedPorts ?? null,
      Healthcheck: Healthcheck ?? image.Healthcheck ?? null,
      Volumes: Volumes ?? null,
    },
    platform: platformOfImage(image),
  };
}

/** `sha256:…`; undefined where the engine knows images by something else (docker with its images in containerd). */
export const configDigestOf = ({ Id, Descriptor }: Inspected): string | undefined =>
  Descriptor ? undefined : Id.startsWith("sha256:") ? Id : `sha256:${Id}`;

/** `os/arch`. */
export const platformOfImage = ({ Os = "linux", Architecture = "" }: Inspected): string =>
  platformOf({ os: Os, architecture: Architecture });

/** By digest where the image came from a registry, so that a row says exactly what ran. */
export function pinned(image: Inspected, reference: string): string {
  const own = parsed(reference);
  if (own === undefined || own.digest !== undefined) return reference;
  const given = image.RepoDigests?.map(parsed).find((digest) => sameRepository(digest, own));
  return given === undefined ? reference : pinnedTo(own, given.digest!);
}

/**
 * Whether an image found under another name can be the one that a digest names: not when a registry gave it other
 * digests in the same repository and never this one.
 */
export function agrees(image: Inspected, reference: string): boolean {
  const own = parsed(reference);
  if (own?.digest === undefined) return true;
  const known = (image.RepoDigests ?? []).map(parsed).filter((digest) => sameRepository(digest, own));
  return known.length === 0 || known.some((digest) => digest!.digest === own.digest);
}

const sameRepository = (one: Reference | undefined, other: Reference): boolean =>
  one?.host === other.host && one.repository === other.repository;

function parsed(reference: string): Reference | undefined {
  try {
    return parseReference(reference);
  } catch {
    return undefined; // an image id, or a name that only this engine takes
  }
}

/** What its configuration says, for a row and for whoever starts it. */
export function prepared(image: Inspected, reference: string): PreparedImage {
  const { config } = localImage(image);
  return {
    reference,
    workdir: config.WorkingDir || "/",
    env: envOf(config),
    user: config.User ?? "",
    entrypoint: config.Entrypoint ?? [],
    config,
    notes: [],
    handle: { id: image.Id } satisfies ImageHandle,
  };
}
