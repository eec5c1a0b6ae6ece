/**
 * Whom the files of an unpacked layer belong to on this machine. Trees are private to one owner map: through an overlay
 * the files of another map cannot be changed (EACCES), and a wrong owner would be a wrong image.
 */
import { HarborError } from "../errors.ts";

export type OwnerMap =
  /** All ids of the image are one: a plain user with no range of his own, root inside his sandbox. */
  | { kind: "single"; uid: number }
  /** Id n of the image is n inside a user namespace whose ids begin at `start`, as newuidmap maps it for a plain user. */
  | { kind: "range"; start: number }
  /** Id n of the image is start + n, written by root; 0 is the image's own ids. */
  | { kind: "shift"; start: number };

/** How many ids a range or a shifted map has. */
export const MAPPED_IDS = 65_536;
/** chown(2) takes the last id for "leave it". */
const ALL_IDS = 2 ** 32 - 1;
/** Where ids outside of a map end up, as inside a user namespace. */
const NOBODY = 65_534;

/** `single:<uid>`, `range:<start>` or `shift:<start>`. Throws "usage". */
export function parseOwnerMap(text: string): OwnerMap {
  const [, kind, digits] = /^(single|range|shift):(\d{1,10})$/.exec(text) ?? [];
  const id = Number(digits);
  if (kind === "single") return { kind, uid: id };
  if (kind === "range" || kind === "shift") return { kind, start: id };
  throw new HarborError("usage", `'${text}' is no owner map: write single:<uid>, range:<start> or shift:<start>`);
}

export const ownerMapText = (map: OwnerMap): string => `${map.kind}:${map.kind === "single" ? map.uid : map.start}`;

/** Owner on this machine of what belongs to `id` in the image; undefined where there is no choice. */
export function ownerOf(map: OwnerMap, id: number): number | undefined {
  if (map.kind === "single") return undefined;
  const count = map.kind === "shift" && map.start === 0 ? ALL_IDS : MAPPED_IDS;
  const inside = Number.isInteger(id) && id >= 0 && id < count ? id : NOBODY;
  return map.kind === "shift" ? map.start + inside : inside;
}

/**
 * Mode bits that mean the same under the map: where all ids are one, a set-uid program of another user than root would
 * become one of root.
 */
export function modeUnder(map: OwnerMap, mode: number, uid: number, gid: number): number {
  if (map.kind !== "single") return mode;
  return mode & ~(uid === 0 ? 0 : 0o4000) & ~(gid === 0 ? 0 : 0o2000);
}
