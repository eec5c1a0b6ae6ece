/**
 * A pull or overlay Dockerfile on top of its base image, without a builder: what it sets is read off, its RUN lines are
 * kept for the seed (task-format §6.2–6.4). Pure.
 */
import type { OverlayLine, PreparedImage } from "../sandbox/provider.ts";
import { type BaseState, type Change, resolveDockerfile } from "../task/dockerfile_mode.ts";
import { envOf, type ImageConfig } from "./config.ts";

/** What a shell of an image without PATH finds programs in (task-format §6.2). */
const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** The state that a Dockerfile begins with. */
const baseState = (config: ImageConfig): BaseState => ({
  env: { PATH: DEFAULT_PATH, ...envOf(config) },
  workdir: config.WorkingDir || "/",
  user: config.User ?? "",
});

/** The configuration of an image that a provider holds, as records spell it. */
export const configOf = (image: PreparedImage): ImageConfig => ({
  Env: Object.entries(image.env).map(([name, value]) => `${name}=${value}`),
  WorkingDir: image.workdir,
  User: image.user,
  Entrypoint: image.entrypoint,
});

/** `image`, which is the base, as the Dockerfile leaves it. */
export function withDockerfile(image: PreparedImage, changes: readonly Change[], base: ImageConfig): PreparedImage {
  const state = baseState(base);
  const resolved = resolveDockerfile(changes, state);
  const overlay: OverlayLine[] = resolved.runs;
  return {
    ...image,
    env: { ...state.env, ...resolved.env },
    declared: resolved.env,
    workdir: resolved.workdir ?? state.workdir,
    user: resolved.user ?? state.user,
    entrypoint: resolved.entrypointCleared ? [] : image.entrypoint,
    ...(overlay.length > 0 && { overlay }),
  };
}
