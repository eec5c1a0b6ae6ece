/** What a builder's own store says of an image: the three tools' shapes read into one. */
import { z } from "zod";
import { HarborError } from "../../lib/errors.ts";
import { ImageConfig, platformOf } from "../../lib/images/config.ts";
import type { Tool } from "./_argv.ts";

export interface Inspected {
  /** `sha256:…` of the configuration; of the manifest where docker keeps images in containerd. */
  id: string;
  /** `os/arch`. */
  platform: string;
  config: ImageConfig;
  repoDigests: string[];
}

const Engine = z.object({
  Id: z.string(),
  Os: z.string(),
  Architecture: z.string(),
  Config: ImageConfig.nullish(),
  RepoDigests: z.array(z.string()).nullish(),
  /** podman tells these beside Config. */
  User: z.string().nullish(),
  Healthcheck: z.looseObject({}).nullish(),
});

const Buildah = z.object({
  FromImageID: z.string(),
  Docker: z.object({ os: z.string(), architecture: z.string(), config: ImageConfig.nullish() }),
});

/** Throws HarborError "image.failed" for an answer that cannot be read. */
export function readInspected({ name }: Pick<Tool, "name">, stdout: string): Inspected {
  try {
    if (name === "buildah") {
      const { FromImageID, Docker } = Buildah.parse(JSON.parse(stdout));
      return {
        id: digest(FromImageID),
        platform: platformOf(Docker),
        config: kept(Docker.config ?? {}),
        repoDigests: [],
      };
    }
    const [one] = z.tuple([Engine], Engine).parse(JSON.parse(stdout));
    const config = {
      ...one.Config,
      ...(one.User && { User: one.User }),
      ...(one.Healthcheck && { Healthcheck: one.Healthcheck }),
    };
    return {
      id: digest(one.Id),
      platform: platformOf({ os: one.Os, architecture: one.Architecture }),
      config: kept(config),
      repoDigests: one.RepoDigests ?? [],
    };
  } catch (cause) {
    throw new HarborError("image.failed", `${name} told of an image in a form that is not known`, { cause });
  }
}

const digest = (id: string): string => id.startsWith("sha256:") ? id : `sha256:${id}`;

/** What decides how an image starts, without the empty ones: each tool fills in others. */
const STARTING = [
  "Entrypoint",
  "Cmd",
  "Env",
  "User",
  "WorkingDir",
  "ExposedPorts",
  "Healthcheck",
  "Volumes",
  "Shell",
  "StopSignal",
  "OnBuild",
  "Labels",
] as const;

function kept(config: ImageConfig): ImageConfig {
  return Object.fromEntries(
    STARTING.map((key) => [key, config[key]] as const).filter(([, value]) =>
      value !== null && value !== undefined && value !== "" &&
      !(typeof value === "object" && Object.keys(value).length === 0)
    ),
  );
}
