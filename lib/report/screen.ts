/**
 * A reader of the event stream for people, on stderr: on a terminal one live line per running episode with its phase
 * and time, in a pipe a line per finished episode, nothing when quiet. No meaning depends on colour; words of a task
 * are shown with their control characters spelled out.
 */
import type { Context } from "../context.ts";
import type { Emit, Event, Phase } from "../events.ts";
import { visible } from "../runtime/terminal.ts";
import { duration } from "./closing.ts";

export interface ScreenOptions {
  /** Nothing but warnings. */
  quiet: boolean;
  /** Also phases and build output in a pipe. */
  verbose: boolean;
  /** Whether the locale is UTF-8; otherwise only ASCII symbols. */
  utf8: boolean;
}

export interface Screen {
  emit: Emit;
  /** Removes the live lines; what is emitted later comes as plain lines. */
  close(): void;
}

type Effects = Pick<Context, "clock" | "terminal" | "draw" | "note">;

interface Running {
  task: string;
  phase: Phase;
  since: number;
}

const REDRAW_MS = 250;
const MOST_LINES = 8;
const PHASES: Record<Phase, string> = {
  seeding: "starting",
  agent: "agent",
  verifying: "verifying",
  cleaning: "cleaning up",
};

/** Begins to show a run; what it is told goes to `emit`. */
export function screen(effects: Effects, options: ScreenOptions): Screen {
  const live = effects.terminal.live && !options.quiet;
  const running = new Map<string, Running>();
  const tally: Tally = { total: 0, repeats: false, done: 0, passed: 0, below: 0, unscored: 0 };
  let drawn = 0;
  let stopped = false;

  const erase = () => {
    if (drawn > 0) effects.draw(`\r${drawn > 1 ? `\x1b[${drawn - 1}A` : ""}\x1b[0J`);
    drawn = 0;
  };
  const draw = () => {
    if (!live || stopped) return;
    erase();
    const frame = liveLines(running, tally, effects.clock.ticks(), options.utf8)
      .map((line) => fit(line, effects.terminal.columns - 1, options.utf8));
    effects.draw(frame.join("\n"));
    drawn = frame.length;
  };
  const say = (line: string) => {
    erase();
    effects.note(line);
    draw();
  };
  const redraws = live ? effects.clock.every(REDRAW_MS, draw) : undefined;

  return {
    emit(event) {
      keepCount(event, running, tally);
      const line = plainLine(event, tally, options, live);
      if (line !== null) say(line);
      else if (event.kind === "finished" || event.kind === "run-started") draw();
    },
    close() {
      redraws?.[Symbol.dispose]();
      erase();
      stopped = true;
    },
  };
}

interface Tally {
  total: number;
  /** Tasks have several episodes: their names carry a number. */
  repeats: boolean;
  done: number;
  passed: number;
  below: number;
  unscored: number;
}

function keepCount(event: Event, running: Map<string, Running>, tally: Tally): void {
  if (event.kind === "run-started") {
    tally.total = event.episodes;
    tally.repeats = event.episodes > event.tasks;
  } else if (event.kind === "phase") {
    running.set(event.episode, { task: nameOf(event, tally), phase: event.phase, since: event.at });
  } else if (event.kind === "finished") {
    running.delete(event.episode);
    if (event.outcome === "cancelled") return;
    tally.done++;
    if (event.outcome !== "scored") tally.unscored++;
    else if (event.reward! < 1) tally.below++;
    else tally.passed++;
  }
}

/** The live lines, as they are now. Pure. */
export function liveLines(running: ReadonlyMap<string, Running>, tally: Tally, now: number, utf8: boolean): string[] {
  const shown = [...running.values()].slice(0, MOST_LINES);
  const width = Math.min(40, Math.max(...shown.map(({ task }) => task.length), 0));
  const rows = shown.map(({ task, phase, since }) =>
    `  ${visible(task).padEnd(width)}  ${PHASES[phase].padEnd(11)}  ${duration(Math.floor((now - since) / 1000))}`
  );
  const more = running.size - shown.length;
  const counts = [
    `${tally.done}/${tally.total} done`,
    `${tally.passed} scored 1 or more`,
    ...(tally.below > 0 ? [`${tally.below} below 1`] : []),
    ...(tally.unscored > 0 ? [`${tally.unscored} without a score`] : []),
  ];
  return [...rows, ...(more > 0 ? [`  and ${more} more`] : []), counts.join(utf8 ? " · " : ", ")];
}

/** What a person reads for an event where lines stay; null for none. Pure. */
function plainLine(event: Event, tally: Tally, options: ScreenOptions, live: boolean): string | null {
  if (event.kind === "warning") {
    return visible(`warning: ${event.task === undefined ? "" : `${event.task}: `}${event.text}`);
  }
  if (event.kind === "kept") return visible(`${event.task}: sandbox kept; enter it with: ${event.enter}`);
  if (options.quiet) return null;
  switch (event.kind) {
    case "note":
      return visible(event.text);
    case "run-started":
      return `running ${event.episodes} episode${event.episodes === 1 ? "" : "s"} of ${event.tasks} task${
        event.tasks === 1 ? "" : "s"
      } on ${event.sandbox}, ${event.concurrency} at a time`;
    case "prepare":
      return live && !options.verbose ? null : visible(`prepare ${event.done}/${event.total}: ${event.text}`);
    case "pull":
    case "push":
      return transferLine(event, options);
    case "build-output":
      return options.verbose ? visible(event.text) : null;
    case "phase":
      return options.verbose && !live ? `${nameOf(event, tally)}: ${PHASES[event.phase]}` : null;
    case "finished":
      // On a terminal the counts are enough for what went well.
      return live && event.outcome === "scored" && event.reward! >= 1 ? null : finishedLine(event, tally);
  }
}

/** Where lines stay a transfer is two of them at most; parts of it are for who looks at each. */
function transferLine(event: Extract<Event, { kind: "pull" | "push" }>, { verbose }: ScreenOptions): string | null {
  const { kind, image, total, bytes, state } = event;
  const mib = (n: number) => (n / 2 ** 20).toFixed(1);
  if (state === "begun") return visible(`${kind}ing ${image} (${mib(total - bytes)} of ${mib(total)} MiB to go)`);
  if (state === "done") return visible(`${kind}ed ${image}`);
  return verbose ? visible(`${kind}ing ${image}: ${mib(bytes)} of ${mib(total)} MiB`) : null;
}

/** `hello`, or `hello#1` for a repeat; an episode is called `<task>-<repeat>` or `<task>-<repeat>-a<attempt>`. */
const nameOf = ({ task, episode }: { task: string; episode: string }, { repeats }: Tally): string =>
  repeats ? `${task}#${episode.split("-")[1]}` : task;

function finishedLine(event: Extract<Event, { kind: "finished" }>, tally: Tally): string | null {
  if (event.outcome === "cancelled") return null;
  const kind = event.failureKind === null ? "" : ` (${event.failureKind})`;
  const what = event.outcome === "scored" ? `reward ${event.reward}` : event.outcome;
  const reason = event.outcome === "failed" && event.reason !== null ? `: ${event.reason.split("\n", 1)[0]}` : "";
  const line = `[${tally.done}/${tally.total}] ${nameOf(event, tally)}: ${what}${kind}${reason}`;
  return visible(`${line} in ${duration(event.durationMs / 1000)}`);
}

/** `text` cut to `columns` cells; East Asian wide characters and emoji take two. */
export function fit(text: string, columns: number, utf8: boolean): string {
  let used = 0;
  let kept = "";
  for (const character of text) {
    const cells = WIDE.test(character) ? 2 : 1;
    if (used + cells > columns) return utf8 ? `${kept.slice(0, -1)}…` : kept;
    used += cells;
    kept += character;
  }
  return kept;
}

const WIDE =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Extended_Pictographic}/u;
