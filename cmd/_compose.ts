/** `harbor_environment_server.compose_overlay`: Compose files of the operator's own, named on the command line. */
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { HarborError } from "../lib/errors.ts";
import type { EpisodeSettings } from "../lib/episode/settings.ts";

/** Absolute paths, in order. Throws "target.missing" for one that is not there. */
export function composeOverlays({ compose_overlay }: Pick<EpisodeSettings, "compose_overlay">, cwd: string): string[] {
  return compose_overlay.map((named) => {
    const path = resolve(cwd, named);
    if (existsSync(path)) return path;
    throw new HarborError("target.missing", `harbor_environment_server.compose_overlay: ${named} does not exist`, {
      hint: "name Compose files by their paths, relative to the working directory",
    });
  });
}
