/**
 * What a person reads at the end of a run, on stderr: counts by outcome, what failed with the last words of its tests,
 * what to do about each kind, the slowest tasks, where the files are. Pure.
 */
import { factsOf } from "../episode/failures.ts";
import { visible } from "../runtime/terminal.ts";
import type { TaskRecord } from "./summary.ts";

export interface ClosingFacts {
  records: readonly TaskRecord[];
  skipped: Readonly<Record<string, string>>;
  unvalidated: Readonly<Record<string, string>>;
  /** Folder of the run's files, as to be shown. */
  folder: string;
  rollouts: string;
  failures: string;
  interrupted: boolean;
  /** Seconds of the whole run. */
  seconds: number;
  /** Last part of an episode's test-stdout.txt; "" without one. */
  outputOf(record: TaskRecord): string;
}

/** Tasks that are shown with their last words. */
const SHOWN = 10;
const OUTPUT_LINES = 5;
const SLOWEST = 3;

/** The block, line by line. */
export function closing(facts: ClosingFacts): string[] {
  const { records } = facts;
  const scored = records.filter(({ entry }) => entry.status === "result" && entry.mask_sample === false);
  const masked = records.filter(({ entry }) => entry.mask_sample === true);
  const failed = records.filter(({ entry }) => entry.status === "failed");
  const missing = records.filter(({ entry }) => entry.status === "missing");
  const short = scored.filter(({ entry }) => entry.reward! < 1);
  const trouble = [...short, ...masked, ...failed];
  return [
    "",
    countsLine({ scored, short, masked, failed, missing }, facts),
    ...meanLine(scored, [...masked, ...failed]),
    ...sharedNotes(records).map((note) => `note: ${firstLine(note)}`),
    ...troubleBlock(trouble, facts),
    ...adviceBlock(trouble),
    ...reasonsBlock("left out", facts.skipped),
    ...slowestLine(records),
    `files: ${facts.folder}`,
    ...nothingLine(records, facts),
    ...(missing.length > 0 && facts.interrupted
      ? ["interrupted: the same command with --resume goes on from here"]
      : []),
  ];
}

interface Groups {
  scored: readonly TaskRecord[];
  short: readonly TaskRecord[];
  masked: readonly TaskRecord[];
  failed: readonly TaskRecord[];
  missing: readonly TaskRecord[];
}

function countsLine(groups: Groups, facts: ClosingFacts): string {
  const parts: [number, string][] = [
    [groups.scored.length - groups.short.length, "scored 1 or more"],
    [groups.short.length, "scored below 1"],
    [groups.masked.length, "masked"],
    [groups.failed.length, "failed"],
    [groups.missing.length, "not run"],
    [Object.keys(facts.skipped).length, "left out"],
    [Object.keys(facts.unvalidated).length, "without a solution"],
  ];
  const told = parts.filter(([count]) => count > 0).map(([count, what]) => `${count} ${what}`);
  return `${told.join(", ") || "nothing was run"} in ${duration(facts.seconds)}`;
}

/** The mean both ways where some of it is missing (field case A13). */
function meanLine(scored: readonly TaskRecord[], unscored: readonly TaskRecord[]): string[] {
  if (scored.length + unscored.length === 0) return [];
  if (scored.length === 0) return ["mean reward: no score, nothing was scored"];
  const sum = scored.reduce((total, { entry }) => total + entry.reward!, 0);
  const mean = rounded(sum / scored.length);
  if (unscored.length === 0) return [`mean reward: ${mean} over ${scored.length}`];
  const all = rounded(sum / (scored.length + unscored.length));
  return [
    `mean reward: ${mean} over the ${scored.length} scored (${all} if the ${unscored.length} without a score counted as 0)`,
  ];
}

function troubleBlock(trouble: readonly TaskRecord[], facts: ClosingFacts): string[] {
  const told = new Set(sharedNotes(facts.records));
  const shown = trouble.slice(0, SHOWN).flatMap((record) => ["", ...troubleLines(record, told, facts)]);
  const more = trouble.length - SHOWN;
  return more > 0 ? [...shown, "", `and ${more} more: see ${facts.failures} and ${facts.rollouts}`] : shown;
}

function troubleLines(record: TaskRecord, told: ReadonlySet<string>, facts: ClosingFacts): string[] {
  const { entry } = record;
  const kind = entry.failure_kind;
  const what = entry.status === "failed"
    ? `failed${entry.failure?.stage ? ` at ${entry.failure.stage}` : ""}`
    : entry.mask_sample
    ? "masked"
    : `reward ${entry.reward}`;
  const reason = firstLine(record.reason);
  const output = lastLines(facts.outputOf(record));
  return [
    `${nameOf(record, facts.records)}: ${what}${kind === null ? "" : ` (${kind}: ${factsOf(kind).meaning})`}`,
    ...(reason === "" ? [] : [`  ${reason}`]),
    ...(entry.sandbox?.notes ?? []).filter((note) => !told.has(note)).map((note) => `  note: ${firstLine(note)}`),
    ...output.map((line) => `  | ${line}`),
    ...(entry.paths?.test_stdout ? [`  ${facts.folder}/${entry.paths.test_stdout}`] : []),
  ];
}

/** Notes that stand on every episode: told once, not with each. */
function sharedNotes(records: readonly TaskRecord[]): string[] {
  const noted = records.filter(({ entry }) => entry.sandbox !== undefined);
  const [first, ...others] = noted.map(({ entry }) => entry.sandbox!.notes);
  if (first === undefined || others.length === 0) return [];
  return first.filter((note) => others.every((notes) => notes.includes(note)));
}

/** What to do about each kind that occurred, once. */
function adviceBlock(trouble: readonly TaskRecord[]): string[] {
  const kinds = [...new Set(trouble.map(({ entry }) => entry.failure_kind).filter((kind) => kind !== null))].sort();
  if (kinds.length === 0) return [];
  return ["", "what to do:", ...kinds.map((kind) => `  ${kind}: ${factsOf(kind).advice}`)];
}

function reasonsBlock(what: string, reasons: Readonly<Record<string, string>>): string[] {
  const entries = Object.entries(reasons);
  if (entries.length === 0) return [];
  const shown = entries.slice(0, SHOWN).map(([id, reason]) => `  ${id}: ${firstLine(reason)}`);
  const more = entries.length - SHOWN;
  return ["", `${what}:`, ...shown, ...(more > 0 ? [`  and ${more} more: see skipped.json`] : [])];
}

function slowestLine(records: readonly TaskRecord[]): string[] {
  const timed = records.filter(({ seconds }) => seconds > 0);
  if (timed.length < 2) return [""];
  const slowest = [...timed].sort((a, b) => b.seconds - a.seconds).slice(0, SLOWEST);
  return ["", `slowest: ${slowest.map((one) => `${nameOf(one, records)} ${duration(one.seconds)}`).join(", ")}`];
}

function nothingLine(records: readonly TaskRecord[], facts: ClosingFacts): string[] {
  if (records.length === 0 && Object.keys(facts.unvalidated).length > 0) {
    return ["no selected task had a solution to run"];
  }
  const dispatched = records.filter(({ entry }) => entry.status !== "missing");
  if (dispatched.length === 0 || dispatched.some(({ entry }) => entry.status === "result")) return [];
  const kinds: Record<string, number> = {};
  for (const { entry } of dispatched) {
    const kind = entry.failure_kind ?? entry.failure?.class ?? "unknown";
    kinds[kind] = (kinds[kind] ?? 0) + 1;
  }
  return [
    `None of the ${dispatched.length} dispatched rollouts produced a result ${JSON.stringify(kinds)}. ` +
    `Inspect ${facts.failures}; the run has no score to report.`,
  ];
}

/** With the number of the repeat where there are several. */
const nameOf = ({ entry }: TaskRecord, all: readonly TaskRecord[]): string =>
  all.some((other) => other.entry.rollout_index > 0) ? `${entry.task_id}#${entry.rollout_index}` : entry.task_id;

const firstLine = (text: string | null): string => visible((text ?? "").split("\n", 1)[0]!.trim()).slice(0, 400);

/** The last lines that say something; what a carriage return would overwrite is left out, as a terminal would. */
function lastLines(output: string): string[] {
  return output.split("\n").map((line) => visible(line.split("\r").filter(Boolean).at(-1) ?? "").slice(0, 200))
    .filter((line) => line.trim() !== "").slice(-OUTPUT_LINES);
}

const rounded = (value: number): string => String(Math.round(value * 10_000) / 10_000);

/** `0.4 s`, `12 s`, `3 min 5 s`, `2 h 4 min`. */
export function duration(seconds: number): string {
  if (seconds < 10) return `${Math.round(seconds * 10) / 10} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
