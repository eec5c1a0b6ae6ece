/**
 * Which artifacts are kept, where they land, and which of them claim one place (task-format §2.9, Harbor 0.25.0).
 */
import { posix } from "node:path";
import type { ArtifactToml } from "./schema.ts";
import type { Artifact } from "./task.ts";

/** Published by every agent that wants to, so it is always collected. */
const CONVENTION = "/logs/artifacts";

/** The entries in full, the implied one in front unless it is declared. */
export function effectiveArtifacts(entries: readonly ArtifactToml[]): Artifact[] {
  const declared = entries.map((entry): Artifact => {
    const { source, destination, service = "main", exclude = [] } = typeof entry === "string"
      ? { source: entry }
      : entry;
    return { source, destination: place(destination ?? source), service, exclude };
  });
  const hasConvention = declared.some((one) => one.source === CONVENTION && one.service === "main");
  const implied: Artifact = { source: CONVENTION, destination: place(CONVENTION), service: "main", exclude: [] };
  return hasConvention ? declared : [implied, ...declared];
}

/** Relative place below the artifacts folder; `.` for all of it. */
function place(path: string): string {
  const normal = posix.normalize(path.replace(/^\/+/, "") || ".");
  return normal.length > 1 ? normal.replace(/\/$/, "") : normal;
}

/** Pairs that would write to one place; the first keeps it. */
export function collisions(artifacts: readonly Artifact[]): [first: Artifact, second: Artifact][] {
  return artifacts.flatMap((second, index) =>
    artifacts.slice(0, index).filter((first) => collide(first, second)).map((
      first,
    ): [Artifact, Artifact] => [first, second])
  );
}

function collide(first: Artifact, second: Artifact): boolean {
  if (!contains(first.destination, second.destination) && !contains(second.destination, first.destination)) {
    return false;
  }
  return !repeats(first, second);
}

/** Whether `second` only names again what `first` puts there anyway. */
function repeats(first: Artifact, second: Artifact): boolean {
  if (first.service !== second.service || first.exclude.join("\0") !== second.exclude.join("\0")) return false;
  const from = posix.normalize(first.source);
  const to = posix.normalize(second.source);
  return contains(from, to) && posix.relative(first.destination, second.destination) === posix.relative(from, to);
}

function contains(folder: string, path: string): boolean {
  if (folder.startsWith("/") !== path.startsWith("/")) return false;
  return folder === "." || folder === path || path.startsWith(folder.endsWith("/") ? folder : `${folder}/`);
}
