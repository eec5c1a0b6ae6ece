/** One measured number. Every bench module exports `bench(binary)` and returns these; tools/bench/mod.ts prints them. */
export interface Row {
  /** `group: what was measured, under which conditions`. */
  name: string;
  value: number;
  /** `ms`, `tasks/s`, `MB`, or `×` for a ratio taken within one run. */
  unit: string;
  /** What the value must not cross. Absent: the value is printed for information. */
  limit?: number;
  /** Which side of the limit is good. Default "lower". */
  better?: "lower" | "higher";
  /** Within its limit (true without one). Build it with `judged()`. */
  ok: boolean;
  /** How it was taken, or why it could not be. */
  note?: string;
}

/** Fills in `ok` from the limit. */
export function judged(row: Omit<Row, "ok">): Row {
  if (row.limit === undefined) return { ...row, ok: true };
  return {
    ...row,
    ok: row.better === "higher" ? row.value >= row.limit : row.value <= row.limit,
  };
}

/** What a bench module exports. `binary` is the compiled file. */
export type Bench = (binary: string) => Promise<Row[]>;

/** Middle value; the mean of the middle pair for an even count. NaN for none. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
