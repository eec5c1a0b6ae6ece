/**
 * Command lines of the image builders, as pure functions (spec/images-and-sandboxes §4.4). Tried with docker 20.10 (its
 * BuildKit and its classic builder), podman 4.3 and buildah 1.28.
 */
import type { BuildRequest } from "../../lib/images/builder.ts";

/** What docker's client drives: the buildx plugin, the BuildKit inside clients before 23, or the classic builder. */
export type DockerKind = "buildx" | "buildkit" | "classic";

/** One tool, with the flags that it needs on every call (buildah's storage). */
export interface Tool {
  name: "docker" | "buildah" | "podman";
  path: string;
  /** docker only. */
  kind?: DockerKind;
  /** Flags before the verb. */
  flags?: readonly string[];
}

/** Files that a build reads and writes besides its request. */
export interface BuildFiles {
  context: string;
  dockerfile: string;
  /** Gets the image's id. */
  iidFile: string;
  /** Gets what buildx knows of its result. */
  metadataFile: string;
}

export interface Settled {
  argv: string[];
  /** Values of build arguments, which the client takes from its environment: a command line is everybody's to read. */
  env: Record<string, string>;
}

/** Throws nothing; what a tool has no flag for is left out here and named by `unsupported()`. */
export function buildArgv(tool: Tool, request: BuildRequest, files: BuildFiles): Settled {
  const { name, kind } = tool;
  const args = buildArguments(request.args);
  const cache = (request.cacheFrom ?? []).map((from) => kind === "buildx" ? from : plainReference(from));
  const argv = [
    ...program(tool),
    ...(kind === "buildx"
      ? ["buildx", "build", "--load", "--provenance=false", "--sbom=false", "--metadata-file", files.metadataFile]
      : ["build"]),
    ...(name !== "docker" ? ["--format", "docker", "--layers", "--force-rm"] : []),
    ...(kind === "classic" ? ["--force-rm"] : kind !== undefined ? ["--progress", "plain"] : []),
    ...["--platform", request.platform, "-t", request.name, "--iidfile", files.iidFile, "-f", files.dockerfile],
    ...args.argv,
    ...(request.target === undefined ? [] : ["--target", request.target]),
    ...Object.entries(request.labels ?? {}).flatMap(([key, value]) => ["--label", `${key}=${value}`]),
    ...(request.shmSize === undefined ? [] : ["--shm-size", request.shmSize]),
    ...Object.entries(request.ulimits ?? {}).flatMap(([key, value]) => ["--ulimit", `${key}=${value}`]),
    ...(request.noCache ? ["--no-cache"] : []),
    // Without the flag, what is here is used. buildah before 1.33 would look for a newer one.
    ...(request.pull ? [name === "docker" ? "--pull" : "--pull=always"] : name === "docker" ? [] : ["--pull=false"]),
    ...(request.network === "none" ? ["--network", "none"] : []),
    ...cache.filter((from) => from !== undefined).flatMap((from) => ["--cache-from", from]),
    files.context,
  ];
  return { argv, env: args.env };
}

const program = ({ path, flags = [] }: Tool): string[] => [path, ...flags];

/** A registry's reference out of `type=registry,ref=…`; undefined for a cache that only buildx reads. */
function plainReference(from: string): string | undefined {
  if (!/^\w+=/.test(from)) return from;
  const fields = new Map(from.split(",").map((field) => field.split("=", 2) as [string, string]));
  return fields.get("type") === "registry" ? fields.get("ref") : undefined;
}

/** Names that would steer the client itself keep their value on the command line. */
const STEERING =
  /^(PATH|HOME|USER|TMPDIR|LC_.*|LANG|LD_.*|GO.*|SSL_.*|XDG_.*|DOCKER_.*|BUILDKIT_.*|BUILDX_.*|BUILDAH_.*|CONTAINERS?_.*|STORAGE_.*|REGISTR.*|.*_PROXY)$/i;

function buildArguments(args: Readonly<Record<string, string>>): Settled {
  const settled: Settled = { argv: [], env: {} };
  for (const [name, value] of Object.entries(args)) {
    const hidden = /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) && !STEERING.test(name);
    settled.argv.push("--build-arg", hidden ? name : `${name}=${value}`);
    if (hidden) settled.env[name] = value;
  }
  return settled;
}

/** A build that leaves no name: buildx keeps its result to itself, BuildKit behind docker's client writes an id. */
export const probeArgv = (tool: Tool, { context, dockerfile, iidFile }: Omit<BuildFiles, "metadataFile">): string[] =>
  tool.kind === "buildx"
    ? [...program(tool), "buildx", "build", "--progress", "plain", "-f", dockerfile, context]
    : [...program(tool), "build", "--progress", "plain", "--iidfile", iidFile, "-f", dockerfile, context];

export const inspectArgv = (tool: Tool, reference: string): string[] =>
  tool.name === "buildah"
    ? [...program(tool), "inspect", "--type", "image", reference]
    : [...program(tool), "image", "inspect", reference];

export interface PushFlags {
  /** Gets the manifest's digest from buildah and podman; docker says it by RepoDigests. */
  digestFile: string;
  insecure: boolean;
  retries: number;
}

export function pushArgv(tool: Tool, reference: string, { digestFile, insecure, retries }: PushFlags): string[] {
  if (tool.name === "docker") return [...program(tool), "push", reference];
  return [
    ...[...program(tool), "push", "--digestfile", digestFile, "--format", "v2s2"],
    // 0 means its default (1.28). podman 4.3 has no such flag and tries three times.
    ...(tool.name === "buildah" ? ["--retry", String(Math.max(1, retries))] : []),
    ...(insecure ? ["--tls-verify=false"] : []),
    reference,
  ];
}

export const pullArgv = (tool: Tool, reference: string): string[] => [...program(tool), "pull", "-q", reference];

/** Takes a name away; the layers stay for the next build. */
export const untagArgv = (tool: Tool, reference: string): string[] =>
  tool.name === "docker" ? [...program(tool), "rmi", "--no-prune", reference] : [...program(tool), "rmi", reference];
