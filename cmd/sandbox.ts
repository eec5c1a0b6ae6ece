/** `sandbox list` and `sandbox gc`: what runs of ours hold on this machine, and the end of what dead ones left. */
import { z } from "zod";
import type { Context } from "../lib/context.ts";
import { EXIT } from "../lib/errors.ts";
import type { Leftover } from "../lib/sandbox/provider.ts";
import { scratchRoot, sweepScratch } from "../lib/sandbox/scratch.ts";
import { parseWith } from "./_options.ts";
import { askAll, type Asked, type Lend, withProviders } from "./_sandboxes.ts";

const ListOptions = z.strictObject({
  json: z.boolean().default(false),
  quiet: z.boolean().optional(),
  verbose: z.boolean().optional(),
});
const GcOptions = ListOptions.extend({
  run: z.string().regex(/^[a-z0-9]{1,64}$/, "a run's id is letters and digits, as sandbox list shows it").optional(),
  olderThan: z.string().transform((text, check) => {
    const ms = durationMs(text);
    if (ms === undefined) check.addIssue(`'${text}' is no time; write 90s, 30m, 2h or 1d`);
    return ms ?? 0;
  }).optional(),
});
type ListOptions = z.infer<typeof ListOptions>;
type GcOptions = z.infer<typeof GcOptions>;

/** An engine that does not answer within this is passed over, by name. */
const ANSWER_MS = 60_000;
const SWEEP_MS = 300_000;

export const sandboxList = {
  parse: (argv: string[]): ListOptions =>
    parseWith(argv, ListOptions, (command) =>
      command.name("sandbox list")
        .description("Sandboxes on this machine that runs of gym-harbor hold, or left behind.")
        .option("--json", "one JSON object a line")
        .option("-q, --quiet", "no notes, only results")
        .option("-v, --verbose", "print the programs that are started")),
  async run(options: ListOptions, ctx: Context, lend: Lend = withProviders): Promise<number> {
    const asked = await lend(
      ctx,
      {},
      (providers) => askAll(providers, ctx, ANSWER_MS, (provider, signal) => provider.list({}, signal)),
    );
    if (!options.quiet) sayAbsent(asked, ctx);
    const found = asked.flatMap(({ answer }) => answer ?? []);
    if (options.json) { for (const one of found) ctx.out(JSON.stringify(line(one))); }
    else for (const row of table(found)) ctx.out(row);
    if (found.length === 0 && !options.quiet) ctx.note("no sandboxes of ours");
    return EXIT.ok;
  },
};

export const sandboxGc = {
  parse: (argv: string[]): GcOptions =>
    parseWith(argv, GcOptions, (command) =>
      command.name("sandbox gc")
        .description(
          "Removes containers, processes, mounts and temp folders of runs that are dead. What a living run holds, and " +
            "what another machine owns, is never touched.",
        )
        .option("--older-than <time>", "only what is at least this old (90s, 30m, 2h, 1d)")
        .option("--run <id>", "only what this run left (the id that sandbox list shows)")
        .option("--json", "one JSON object a line")
        .option("-q, --quiet", "only what was removed or could not be")
        .option("-v, --verbose", "print the programs that are started")),
  async run(options: GcOptions, ctx: Context, lend: Lend = withProviders): Promise<number> {
    const filter = { run: options.run, olderThanMs: options.olderThan };
    const asked = await lend(
      ctx,
      {},
      (providers) => askAll(providers, ctx, SWEEP_MS, (provider, signal) => provider.sweep(filter, signal)),
    );
    if (!options.quiet) sayAbsent(asked, ctx);
    const reports = [
      ...asked.flatMap(({ name, answer }) => answer === undefined ? [] : [{ provider: name, ...answer }]),
      { provider: "temp folders", ...sweepScratch(scratchRoot(ctx.env), { ...filter, now: ctx.clock.now() }) },
    ];
    for (const { provider, removed, failed } of reports) {
      for (const id of removed) {
        ctx.out(options.json ? JSON.stringify({ id, provider, removed: true }) : `removed ${id}`);
      }
      for (const { id, reason } of failed) {
        if (options.json) ctx.out(JSON.stringify({ id, provider, removed: false, reason }));
        ctx.note(`could not remove ${id}: ${reason}`);
      }
    }
    const nothing = reports.every(({ removed, failed }) => removed.length + failed.length === 0);
    if (nothing && !options.quiet) ctx.note("nothing to remove");
    return reports.some(({ failed }) => failed.length > 0) ? EXIT.no : EXIT.ok;
  },
};

/** `90s`, `30m`, `2h`, `1d`, or seconds. */
export function durationMs(text: string): number | undefined {
  const [, count, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)?$/.exec(text) ?? [];
  if (count === undefined) return undefined;
  return Number(count) * { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }[unit ?? "s"]!;
}

function sayAbsent(asked: readonly Asked<unknown>[], ctx: Context): void {
  for (const { name, absent } of asked) if (absent !== undefined) ctx.note(`${name} was not looked at: ${absent}`);
}

const line = ({ id, provider, owner: { run, host, pid, start }, alive, ageMs }: Leftover) => ({
  id,
  provider,
  run,
  owner: { host, pid, start },
  alive: alive ?? null,
  age_s: Math.floor(ageMs / 1000),
});

/** Columns for people; nothing for nothing. */
function table(found: readonly Leftover[]): string[] {
  if (found.length === 0) return [];
  const rows = [
    ["SANDBOX", "PROVIDER", "RUN", "OWNER", "AGE"],
    ...found.map(({ id, provider, owner, alive, ageMs }) => [
      id,
      provider,
      owner.run,
      `${owner.host}:${owner.pid} (${alive === undefined ? "elsewhere" : alive ? "alive" : "dead"})`,
      age(ageMs),
    ]),
  ];
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  return rows.map((row) => row.map((cell, column) => cell.padEnd(widths[column]!)).join("  ").trimEnd());
}

function age(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  const [size, unit] = seconds < 120 ? [1, "s"] as const : seconds < 7200 ? [60, "m"] as const : [3600, "h"] as const;
  return `${Math.floor(seconds / size)}${unit}`;
}
