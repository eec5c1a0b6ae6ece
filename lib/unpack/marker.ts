/** The file beside an unpacked layer that says what it is. It comes last: a tree without one is none. */
import { lstatSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import type { Unpacked } from "./layer.ts";

/** Folder of the layer's files inside a tree's folder, and the file that says what it is. */
export const FILES = "t";
export const MARKER = "layer.json";
/** Trees that are being made. */
export const NEW_PREFIX = ".new-";
/** Taken for moments by whoever begins to use trees, and by a clean-up while it chooses. */
export const USE_LOCK = "use.lock";

export const Marker = z.looseObject({
  schema_version: z.literal(1),
  owner_map: z.string(),
  /** `layer`, or `flat` for all layers of an image. */
  kind: z.enum(["layer", "flat"]),
  /** Of the layer; of the topmost one in a flat tree. */
  diff_id: z.string(),
  /** Digest over the diff ids from the lowest layer to this one (OCI image-spec, "ChainID"). */
  chain_id: z.string(),
  opaque: z.array(z.string()),
  entries: z.number(),
  bytes: z.number(),
  devices: z.number(),
  attributes_left_out: z.number(),
});
export type Marker = z.infer<typeof Marker>;

/** What a tree's folder says of itself; undefined when it is none, or was made by another version. */
export function readMarker(folder: string): Marker | undefined {
  try {
    return lstatSync(join(folder, FILES)).isDirectory()
      ? Marker.parse(JSON.parse(readFileSync(join(folder, MARKER), "utf8")))
      : undefined;
  } catch {
    return undefined;
  }
}

export const markerOf = (
  made: Unpacked,
  ownerMap: string,
  identity: Pick<Marker, "kind" | "diff_id" | "chain_id">,
): Marker => ({
  schema_version: 1,
  owner_map: ownerMap,
  ...identity,
  opaque: made.opaque,
  entries: made.entries,
  bytes: made.bytes,
  devices: made.devices,
  attributes_left_out: made.attributesLeftOut,
});
