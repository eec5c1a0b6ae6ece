/**
 * One exec through an engine's client, from its first byte to its last: sends the program by stdin, tells the task's
 * output from our markers, holds the deadline, and says how it ended. What an ending means is the sandbox's business.
 */
import type { Writable } from "node:stream";
import type { Archive } from "../lib/files/tar.ts";
import { errno, HarborError } from "../lib/errors.ts";
import { type Clock, settlesWithin } from "../lib/runtime/clock.ts";
import { HeadTail } from "../lib/runtime/head_tail.ts";
import type { Started } from "../lib/runtime/runner.ts";
import type { SandboxDeps } from "./_oci_deps.ts";
import { MarkerStream, newSecret } from "./_oci_markers.ts";
import { oneLine } from "./_oci_scripts.ts";

export interface Launched {
  /** Of the launcher, in the container's own numbers. */
  pid: number;
  start: string;
}

export interface ExecPlan {
  argv: readonly string[];
  env: Readonly<Record<string, string | undefined>>;
  program: string;
  archive?: Archive;
  /** Counted from the moment the command begins. */
  deadlineMs: number;
  out: HeadTail;
  err: HeadTail;
  /** Ends everything of it inside; called at the deadline and on abort, at most once. */
  stop: (launched: Launched | undefined) => Promise<void>;
  signal?: AbortSignal;
  onLaunched?: (launched: Launched) => void;
}

export type ExecEnding =
  /** The launcher told the command's own exit code. */
  | { kind: "exit"; exitCode: number; durationMs: number }
  | { kind: "deadline"; durationMs: number }
  /** The archive could not be unpacked. */
  | { kind: "unpack"; text: string }
  /** The working directory is not there. */
  | { kind: "cwd" }
  /** The engine never started it. `stalled`: not in time. */
  | { kind: "refused"; exitCode: number; text: string; stalled: boolean }
  /** It had begun, then the client ended without the launcher's word: launcher killed, or the whole sandbox. */
  | { kind: "vanished"; exitCode: number; text: string; durationMs: number };

/** How long an engine may take to start a process, and a client to end after its command did. */
const START_MS = 120_000;
const LINGER_MS = 3_000;
const AFTER_KILL_MS = 5_000;
const LAUNCH_MS = 15_000;

type ExecDeps = Pick<SandboxDeps, "runner" | "gate" | "clock">;

/** Throws only the signal's reason and what the runner throws. */
export async function runExec({ runner, gate, clock }: ExecDeps, plan: ExecPlan): Promise<ExecEnding> {
  let open = () => {};
  const begun = new Promise<void>((resolve) => open = resolve);
  let client: Started | undefined;
  // The gate counts engines at work on a start, not commands that run for an hour.
  const held = gate.hold(async () => {
    plan.signal?.throwIfAborted();
    client = await runner.start(plan.argv, { env: plan.env });
    watching(client);
    await begun;
  });
  let watch: Promise<ExecEnding> | undefined;
  const watching = (started: Started) => void (watch = follow(started, plan, clock, open).finally(open));
  await held;
  return await watch!;
}

function follow(client: Started, plan: ExecPlan, clock: Clock, onStart: () => void): Promise<ExecEnding> {
  return new Promise<ExecEnding>((resolve, reject) => {
    const secret = newSecret();
    const noise = new HeadTail(64 * 1024);
    let launched: Launched | undefined;
    let tellLaunched = () => {};
    const hasLaunched = new Promise<void>((resolve) => tellLaunched = resolve);
    let runAt: number | undefined;
    let ends = 0;
    let exitCode: number | undefined;
    let settled = false;
    let unread: HarborError | undefined;
    let deadlineHit = false;
    let deadline: Disposable | undefined;
    const sinceRun = () => (runAt === undefined ? 0 : clock.ticks() - runAt);

    const settle = (finish: () => void) => {
      if (settled) return;
      settled = true;
      deadline?.[Symbol.dispose]();
      starting[Symbol.dispose]();
      plan.signal?.removeEventListener("abort", onAbort);
      void settlesWithin(client.ended, LINGER_MS, clock).then((gone) => gone || client.kill("SIGKILL"));
      finish();
    };
    const end = (ending: ExecEnding) => settle(() => resolve(ending));

    /** Ends it inside, gives the client a moment to hand over what was printed, and settles in any case. */
    const stop = async (finish: () => void) => {
      // Not there yet: a client that is killed now would leave a command that starts all the same.
      if (launched === undefined) await settlesWithin(Promise.race([hasLaunched, client.ended]), LAUNCH_MS, clock);
      try {
        await plan.stop(launched);
      } catch (error) {
        return settle(() => reject(error));
      }
      await settlesWithin(client.ended, AFTER_KILL_MS, clock);
      client.kill("SIGKILL");
      settle(finish);
    };
    const onDeadline = () => {
      deadlineHit = true;
      const durationMs = sinceRun();
      void stop(() => resolve({ kind: "deadline", durationMs }));
    };
    const onAbort = () => {
      deadlineHit = true;
      void stop(() => reject(plan.signal!.reason));
    };
    const starting = clock.after(START_MS, () => {
      client.kill("SIGKILL");
      end({ kind: "refused", exitCode: 125, text: noise.text(), stalled: true });
    });

    const onMarker = (words: string[]) => {
      switch (words[0]) {
        case "start":
          launched = { pid: Number(words[1]), start: words[2] ?? "0" };
          starting[Symbol.dispose]();
          tellLaunched();
          onStart();
          return plan.onLaunched?.(launched);
        case "unpack":
          return settle(() => unread === undefined ? resolve({ kind: "unpack", text: noise.text() }) : reject(unread));
        case "cwd":
          return end({ kind: "cwd" });
        case "run":
          if (runAt !== undefined) return;
          runAt = clock.ticks();
          deadline = clock.after(plan.deadlineMs, onDeadline);
          return;
        case "end":
          exitCode = Number(words[1]);
          if (++ends === 2 && !deadlineHit) end({ kind: "exit", exitCode, durationMs: sinceRun() });
      }
    };
    // Before the command begins both streams are the client's and our own (docker writes what the runtime refused to
    // stdout); afterwards they are the command's. Each says so for itself: they do not arrive in step.
    let [outBegan, errBegan] = [false, false];
    const out = new MarkerStream(secret, (chunk) => (outBegan ? plan.out : noise).push(chunk), (words) => {
      if (words[0] === "run") outBegan = true;
      onMarker(words);
    });
    const err = new MarkerStream(secret, (chunk) => (errBegan ? plan.err : noise).push(chunk), (words) => {
      if (words[0] === "run") errBegan = true;
      onMarker(words);
    });
    client.stdout.on("data", (chunk) => out.push(chunk));
    client.stderr.on("data", (chunk) => err.push(chunk));

    if (plan.signal?.aborted) onAbort();
    else plan.signal?.addEventListener("abort", onAbort, { once: true });

    void client.ended.then((ended) => {
      out.end();
      err.end();
      if (deadlineHit) return; // stop() tells
      if (exitCode !== undefined) return end({ kind: "exit", exitCode, durationMs: sinceRun() });
      const text = noise.text();
      if (launched === undefined) return end({ kind: "refused", exitCode: ended.exitCode, text, stalled: false });
      end({ kind: "vanished", exitCode: ended.exitCode, text, durationMs: sinceRun() });
    });
    void send(client.stdin, secret, plan).catch((error) => unread = error);
  });
}

/** A client or command that ends before it has read all is told by its ending; only a file of ours that fails is thrown. */
async function send(to: Writable, secret: string, { program, archive }: ExecPlan): Promise<void> {
  to.on("error", () => {});
  to.write(`${secret}\n${archive === undefined ? program : `${oneLine(program)}\n`}`);
  try {
    await archive?.writeTo(to);
  } catch (error) {
    if (error instanceof HarborError && errno(error.cause)?.match(/^E(PIPE|CONNRESET)$|STREAM/) === null) throw error;
  } finally {
    to.end();
  }
}
