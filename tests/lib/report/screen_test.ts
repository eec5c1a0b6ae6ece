import assert from "node:assert/strict";
import { test } from "node:test";
import type { Event } from "../../../lib/events.ts";
import { fit, liveLines, screen, type ScreenOptions } from "../../../lib/report/screen.ts";
import { systemClock } from "../../../lib/runtime/clock.ts";

const OPTIONS: ScreenOptions = { quiet: false, verbose: false, utf8: true };

/** What reaches stderr: lines from note(), escape sequences from draw(). */
function shown(events: Event[], options: Partial<ScreenOptions> = {}, live = false) {
  const lines: string[] = [];
  let drawn = "";
  const view = screen({
    clock: systemClock,
    terminal: { live, columns: 60 },
    note: (line) => void lines.push(line),
    draw: (text) => void (drawn += text),
  }, { ...OPTIONS, ...options });
  for (const event of events) view.emit(event);
  view.close();
  return { lines, drawn };
}

const started: Event = { kind: "run-started", episodes: 2, tasks: 2, concurrency: 1, sandbox: "docker" };
const phase = (task: string): Event => ({
  kind: "phase",
  episode: "0-0",
  task,
  phase: "agent",
  at: systemClock.ticks(),
});
const finished = (changes: Partial<Extract<Event, { kind: "finished" }>> = {}): Event => ({
  kind: "finished",
  episode: "0-0",
  task: "hello",
  outcome: "scored",
  reward: 1,
  failureKind: null,
  reason: null,
  durationMs: 2100,
  logs: null,
  ...changes,
});

test("a pipe gets plain lines and no escape sequence", () => {
  const { lines, drawn } = shown([
    started,
    phase("hello"),
    finished(),
    finished({
      task: "world",
      outcome: "failed",
      reward: null,
      failureKind: "provider_unavailable",
      reason: "gone\nx",
    }),
  ]);
  assert.equal(drawn, "");
  assert.deepEqual(lines, [
    "running 2 episodes of 2 tasks on docker, 1 at a time",
    "[1/2] hello: reward 1 in 2.1 s",
    "[2/2] world: failed (provider_unavailable): gone in 2.1 s",
  ]);
});

test("repeats of one task are told apart", () => {
  const { lines } = shown([{ ...started, tasks: 1 } as Event, finished({ episode: "0-1-a2" })]);
  assert.equal(lines[1], "[1/2] hello#1: reward 1 in 2.1 s");
});

test("--quiet leaves warnings and kept sandboxes only", () => {
  const { lines } = shown([
    started,
    finished(),
    { kind: "note", text: "a note" },
    { kind: "warning", text: "odd", task: "hello" },
    { kind: "kept", task: "hello", enter: "docker exec -it x bash" },
  ], { quiet: true });
  assert.deepEqual(lines, ["warning: hello: odd", "hello: sandbox kept; enter it with: docker exec -it x bash"]);
});

test("a terminal gets a live block that is gone at the end", () => {
  const { lines, drawn } = shown([started, phase("hello"), finished()], {}, true);
  assert.deepEqual(lines, ["running 2 episodes of 2 tasks on docker, 1 at a time"]);
  assert.match(drawn, /0\/2 done/);
  assert.match(drawn, /1\/2 done · 1 scored 1 or more/);
  assert.ok(drawn.endsWith("\r\x1b[0J"), JSON.stringify(drawn));
});

test("I10: what goes wrong stands as a line on a terminal, too", () => {
  const { lines } = shown(
    [started, finished({ outcome: "masked", reward: null, failureKind: "verifier_error" })],
    {},
    true,
  );
  assert.equal(lines[1], "[1/2] hello: masked (verifier_error) in 2.1 s");
});

test("a note on a terminal stands above the live block", () => {
  const { lines, drawn } = shown([started, { kind: "note", text: "built" }], {}, true);
  assert.deepEqual(lines, ["running 2 episodes of 2 tasks on docker, 1 at a time", "built"]);
  assert.ok(drawn.includes("\r\x1b[0J"));
});

test("C6: what a task is called or prints is shown, never sent", () => {
  const { lines } = shown([{ kind: "warning", text: "\u001b[2J", task: "a\u0007" }, {
    kind: "build-output",
    image: "x",
    text: "\u001b]0;t",
  }], {
    verbose: true,
  });
  assert.deepEqual(lines, ["warning: a\\x07: \\x1b[2J", "\\x1b]0;t"]);
});

test("liveLines() shows eight running episodes with phase and time, and counts the rest", () => {
  const running = new Map(Array.from({ length: 10 }, (_, index) => [
    `${index}-0`,
    { task: `task-${index}`, phase: "verifying" as const, since: 0 },
  ]));
  const tally = { total: 20, repeats: false, done: 3, passed: 1, below: 1, unscored: 1 };
  const lines = liveLines(running, tally, 65_000, false);
  assert.equal(lines[0], "  task-0  verifying    1 min 5 s");
  assert.deepEqual(lines.slice(8), [
    "  and 2 more",
    "3/20 done, 1 scored 1 or more, 1 below 1, 1 without a score",
  ]);
});

test("fit() counts cells, so that a line never wraps", () => {
  assert.equal(fit("abcdef", 4, true), "abc…");
  assert.equal(fit("abcdef", 4, false), "abcd");
  assert.equal(fit("日本語", 4, false), "日本");
  assert.equal(fit("abc", 4, true), "abc");
});
