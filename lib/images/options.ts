/** `builds.*`: who builds images, where they go, how many at a time (images §4.1). Pure. */
import { z } from "zod";
import { HarborError } from "../errors.ts";
import { nearest } from "../suggest.ts";
import { platformName } from "./config.ts";
import { parseReference } from "./reference.ts";

const text = z.string().min(1, "must not be empty");
const optional = <T extends z.ZodType>(type: T) => type.nullish().transform((value) => value ?? undefined);

const Shape = z.strictObject({
  /** False: only images that are recorded. */
  enabled: z.boolean().default(true),
  tool: optional(z.enum(["docker", "buildah", "podman", "namespace"])),
  /** Images are pushed below it; unset, they stay on this machine. */
  repository: optional(text),
  platform: z.string().regex(/^[a-z0-9]+\/[a-z0-9_]+(?:\/[a-z0-9]+)?$/, "must be os/arch, such as linux/amd64")
    .default("linux/amd64"),
  /** Build also what could be started from its base, or has a docker_image. */
  force: z.boolean().default(false),
  /** Builds at a time; episodes have a limit of their own. */
  concurrency: z.int().positive().default(4),
  /** Longest build, in seconds; the task's own build_timeout_sec may be shorter. */
  timeout_s: z.number().positive().default(3600),
  retries: z.int().nonnegative().default(2),
  /** Seconds before the first retry, then doubled. */
  retry_delay_s: z.number().nonnegative().default(5),
  allow_local_podman: optional(z.boolean()),
  storage_dir: optional(text),
});
export type BuildOptions = z.infer<typeof Shape>;

const BUILD_OPTION_NAMES: readonly string[] = Object.keys(Shape.shape);

/**
 * The options as given below `builds.`, with what the environment says for what was not. Throws HarborError "usage"
 * naming the key, the value found and the value wanted.
 */
export function buildOptions(
  given: Readonly<Record<string, unknown>>,
  env: Readonly<Record<string, string | undefined>>,
): BuildOptions {
  const unknown = Object.keys(given).find((key) => !BUILD_OPTION_NAMES.includes(key));
  if (unknown !== undefined) {
    const close = nearest(unknown, BUILD_OPTION_NAMES);
    throw new HarborError("usage", `unknown key 'builds.${unknown}'`, {
      hint: `${close === undefined ? "" : `did you mean builds.${close}? `}there are ${BUILD_OPTION_NAMES.join(", ")}`,
    });
  }
  const repository = given.repository === undefined ? env.NEMO_GYM_BUILD_REPOSITORY || undefined : given.repository;
  const parsed = Shape.safeParse({ ...given, repository });
  if (!parsed.success) {
    const issue = parsed.error.issues[0]!;
    const key = String(issue.path[0]);
    const found = key === "repository" ? repository : given[key];
    throw new HarborError("usage", `builds.${key} is ${JSON.stringify(found)}: ${issue.message}`, {
      hint: "leave the key out for its default",
    });
  }
  const options = parsed.data;
  if (options.repository !== undefined) checkRepository(options.repository);
  return { ...options, repository: options.repository?.replace(/\/+$/, "") };
}

/** A place below which images get names of their own: no tag, no digest. */
function checkRepository(repository: string): void {
  const plain = repository.replace(/\/+$/, "");
  const { tag, digest } = parseReference(plain);
  if (digest !== undefined || /:[^/]*$/.test(plain.replace(/^[^/]*/, "")) || (tag !== "latest" && tag !== undefined)) {
    throw new HarborError("usage", `builds.repository is ${JSON.stringify(repository)}: it must have no tag`, {
      hint: "images below it are named hb__<context hash>",
    });
  }
}

/** The platform of a run without its variant, as records compare it. */
export const platformOfOptions = ({ platform }: Pick<BuildOptions, "platform">): string => platformName(platform);
