/** Where the sandbox on image layers keeps things, and whether that place can hold them. */
import { readFileSync } from "node:fs";
import { spaceAt } from "../lib/files/disk.ts";
import { bytesText } from "../lib/bytes.ts";
import { mountOf } from "../lib/sandbox/machine.ts";
import type { Missing } from "../lib/sandbox/provider.ts";

export interface Place {
  /** What it is to us: `image store`, `unpacked layers`. */
  role: string;
  /** Absolute. */
  folder: string;
  /** The option that moves it elsewhere. */
  moveBy: string;
}

/** A line each for a person: folder, file system, room. */
export function placeFacts(places: readonly Place[]): string[] {
  const mounts = readFileSync("/proc/self/mountinfo", "utf8");
  return places.map(({ role, folder }) => {
    const space = spaceAt(folder);
    const room = space === undefined ? "" : `, ${bytesText(space.freeBytes)} free`;
    return `${role}: ${folder} (${mountOf(folder, mounts).fileSystem ?? "unknown file system"}${room})`;
  });
}

const LEAST_BYTES = 2 * 2 ** 30;

/** What of the places is worth mending. */
export function placeNotes(places: readonly Place[]): Missing[] {
  return places.flatMap(({ role, folder, moveBy }): Missing[] => {
    const space = spaceAt(folder);
    if (space === undefined) return [{ what: `${role}: ${folder} cannot be looked at`, fix: moveBy }];
    return [
      ...(space.freeBytes < LEAST_BYTES
        ? [{
          what: `${role}: ${folder} has ${bytesText(space.freeBytes)} left`,
          fix: `gym-harbor images gc, or ${moveBy}`,
        }]
        : []),
      ...(space.network !== undefined && role === "unpacked layers"
        ? [{ what: `${role}: ${folder} is on ${space.network}, where overlays and owners do not work`, fix: moveBy }]
        : []),
    ];
  });
}
