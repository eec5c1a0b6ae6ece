/** Words of a command line that name images: references, or files that list them (images.json, map.json of `save`). */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { z } from "zod";
import { HarborError } from "../../lib/errors.ts";
import { statTarget } from "../../lib/files/tree.ts";

/** `images.json` of a run is a plain list. */
const ImageList = z.array(z.string().min(1));

/** Distinct references, in their order. Throws "usage" for a file that lists none. */
export function referencesIn(words: readonly string[], cwd: string): string[] {
  const named = words.flatMap((word) => {
    const path = resolve(cwd, word);
    return word.endsWith(".json") && statTarget(path)?.isFile() ? listIn(path, word) : [word];
  });
  return [...new Set(named)];
}

function listIn(path: string, shown: string): string[] {
  try {
    return ImageList.parse(JSON.parse(readFileSync(path, "utf8")));
  } catch (cause) {
    throw new HarborError("usage", `${shown} is not a list of images, as images.json of a run is`, { cause });
  }
}

/** Overrides (`registries.<host>.mirrors=…`) among references, which have no `=`. */
export function split(words: readonly string[]): { references: string[]; overrides: string[] } {
  return {
    references: words.filter((word) => !word.includes("=")),
    overrides: words.filter((word) => word.includes("=")),
  };
}
