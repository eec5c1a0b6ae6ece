/** The configuration of an image that a build made, by its base's and by what its stages set. Pure. */
import { type ImageConfig, type ImageFile, platformName } from "../../lib/images/config.ts";
import type { Settings } from "../_build_plan.ts";

/** A base's settings with those of one stage over them (moby/buildkit frontend/dockerfile/dockerfile2llb). */
export function configWith(base: ImageConfig, settings: Settings): ImageConfig {
  const env = new Map((base.Env ?? []).map((line) => [line.split("=", 1)[0]!, line]));
  for (const [name, value] of Object.entries(settings.env)) env.set(name, `${name}=${value}`);
  const keys = (names: readonly string[], known: Readonly<Record<string, unknown>> | null | undefined) => ({
    ...known,
    ...Object.fromEntries(names.map((name) => [name, {}])),
  });
  const labels = { ...(base.Labels as Record<string, string> | null | undefined), ...settings.labels };
  return {
    ...base,
    Env: [...env.values()],
    User: settings.user,
    ...(settings.workdir !== "/" || base.WorkingDir ? { WorkingDir: settings.workdir } : {}),
    ...(settings.entrypoint !== undefined && { Entrypoint: settings.entrypoint }),
    ...(settings.cmd !== undefined && { Cmd: settings.cmd }),
    ...(settings.shell !== undefined && { Shell: settings.shell }),
    ...(settings.healthcheck !== undefined && { Healthcheck: settings.healthcheck }),
    ...(settings.stopSignal !== undefined && { StopSignal: settings.stopSignal }),
    ...(settings.exposed.length > 0 && { ExposedPorts: keys(settings.exposed, base.ExposedPorts) }),
    ...(settings.volumes.length > 0 && { Volumes: keys(settings.volumes, base.Volumes) }),
    ...(Object.keys(labels).length > 0 && { Labels: labels }),
    ...(settings.onBuild.length > 0 && { OnBuild: settings.onBuild }),
  };
}

export interface FileRequest {
  base: ImageFile | undefined;
  config: ImageConfig;
  /** `os/arch`. */
  platform: string;
  /** Digests of the new layers' archives, lowest first. */
  diffIds: readonly string[];
  created: string;
  /** What made it, for `history`. */
  by: string;
}

export function imageFile({ base, config, platform, diffIds, created, by }: FileRequest): ImageFile {
  const [os = "", architecture = ""] = platformName(platform).split("/");
  const history = (base?.history as unknown[] | undefined) ?? [];
  const made = diffIds.length > 0
    ? diffIds.map(() => ({ created, created_by: by }))
    : [{ created, created_by: by, empty_layer: true }];
  return {
    architecture,
    os,
    ...(base?.variant !== undefined && { variant: base.variant }),
    created,
    config,
    rootfs: { type: "layers", diff_ids: [...base?.rootfs.diff_ids ?? [], ...diffIds] },
    history: [...history, ...made],
  };
}
