/**
 * The control session with a sandbox's PID 1: starts commands, learns how they ended, keeps their output within
 * bounds, ends them with all their processes at their deadline.
 *
 * Output comes through named pipes of the control folder, one pair a command; a pair is used again only after its last
 * writer has closed it. A service that outlives its command keeps its pair, and what it prints then is read and dropped.
 */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { HarborError } from "../lib/errors.ts";
import type { Clock } from "../lib/runtime/clock.ts";
import { type FifoReader, readFifo } from "../lib/runtime/fifo.ts";
import { HeadTail } from "../lib/runtime/head_tail.ts";
import type { Runner, Started } from "../lib/runtime/runner.ts";
import type { Purpose } from "../lib/sandbox/provider.ts";
import { type Account, launcher, type LaunchRequest } from "./_namespace_init.ts";
import type { Tools } from "./_namespace_tools.ts";
import { descendants, EXEC_ID, hostPid, killAll, membersOf, suspectsOf } from "./_namespace_tree.ts";

/** How long a command that has ended may still have output on the way while others hold its pipes. */
const HELD_PIPE_MS = 100;
/** Asking for the end of a command whose pipes are open: at first often, then rarely. */
const FIRST_ASK_MS = 10;
const LAST_ASK_MS = 100;
/** How long killed processes may take to be gone before the whole sandbox is ended. */
const DYING_MS = 5000;
/** PID 1 never says more in a line; a root of the sandbox may write to its socket (pidfd_getfd) and never end one. */
const LONGEST_LINE = 4096;

export interface SessionCommand {
  run: LaunchRequest["run"];
  env: Readonly<Record<string, string>>;
  cwd: string;
  account?: Account;
  purpose: Purpose;
  deadlineMs: number;
  keepBytes: number;
  /** Sees output as it arrives. */
  onOutput?: (chunk: Uint8Array, stream: "stdout" | "stderr") => void;
  /** Is told its first process as this machine counts it. */
  onStart?: (pid: number) => void;
}

export interface SessionResult {
  ended: "exit" | "deadline";
  exitCode: number;
  stdout: string;
  stderr: string;
  droppedBytes: number;
}

interface Pair {
  stdout: string;
  stderr: string;
}

interface Running {
  id: string;
  innerPid: number | undefined;
  since: number;
  status: number | undefined;
  failure: string | undefined;
  openPipes: number;
  changed: () => void;
  started?: (pid: number | undefined) => void;
}

export interface SessionDeps {
  runner: Runner;
  clock: Clock;
  /** The control folder on this machine. */
  control: string;
  tools: Tools;
  /** Capabilities that every command gives up besides. */
  capDrop?: readonly string[];
  /** PID 1 of the sandbox as this machine counts it. */
  init: number;
}

export class Session {
  #running = new Map<string, Running>();
  #pairs: Pair[] = [];
  #pairsMade = 0;
  #readers = new Set<FifoReader>();
  #next = 0;
  #lost: HarborError | undefined;
  #asking: ReturnType<typeof setTimeout> | undefined;
  #askMs = FIRST_ASK_MS;
  #half = "";

  constructor(private readonly started: Started, private readonly deps: SessionDeps) {
    started.ended.then(() => this.lose("its first process ended"));
  }

  /** What PID 1 said, from the moment it is ready. */
  hear(text: string): void {
    const lines = (this.#half + text).split("\n");
    this.#half = lines.pop()!.slice(0, LONGEST_LINE);
    for (const line of lines) {
      const [kind, id = "", value = ""] = line.split(" ");
      const one = this.#running.get(id);
      if (one === undefined) continue;
      if (kind === "S") {
        one.innerPid = Number(value);
        one.started?.(hostPid(this.deps.init, one.innerPid));
      } else if (kind === "X") one.status = Number(value);
      else if (kind === "F") one.failure = value;
      one.changed();
    }
  }

  /** Marks the sandbox as gone: everybody who waits on it is told. */
  lose(why: string): void {
    this.#lost ??= new HarborError("sandbox.lost", `The sandbox is gone: ${why}`);
    clearTimeout(this.#asking);
    for (const one of this.#running.values()) one.changed();
  }

  get lost(): HarborError | undefined {
    return this.#lost;
  }

  /** Lets the sandbox outlive this process until its own time is up. */
  keep(): void {
    this.#say("K");
  }

  /** Runs one command to its end. Throws "sandbox.lost", "sandbox.failed", or the signal's reason. */
  async run(command: SessionCommand, signal: AbortSignal): Promise<SessionResult> {
    signal.throwIfAborted();
    if (this.#lost !== undefined) throw this.#lost;
    const pair = await this.#takePair();
    const id = `${++this.#next}-${Math.random().toString(36).slice(2, 10)}`;
    const files = launcher({
      id,
      run: command.run,
      env: { ...command.env, [EXEC_ID]: id },
      cwd: command.cwd,
      account: command.account,
      tools: this.deps.tools,
      ...(this.deps.capDrop !== undefined && { capDrop: this.deps.capDrop }),
      ...pair,
    });
    const path = join(this.deps.control, id);
    const one: Running = {
      id,
      innerPid: undefined,
      since: bootTicks(),
      status: undefined,
      failure: undefined,
      openPipes: 2,
      changed: () => {},
      ...(command.onStart !== undefined && {
        started: (pid: number | undefined) => pid !== undefined && command.onStart!(pid),
      }),
    };
    const out = new HeadTail(command.keepBytes);
    const err = new HeadTail(command.keepBytes);
    let listening = true;
    let received = 0;
    const listen = (stream: "stdout" | "stderr", to: HeadTail) => {
      const reader = readFifo(join(this.deps.control, pair[stream]), (chunk) => {
        if (!listening) return;
        received += chunk.length;
        command.onOutput?.(chunk, stream);
        to.push(chunk);
      });
      this.#readers.add(reader);
      reader.ended.then(() => {
        this.#readers.delete(reader);
        one.openPipes--;
        if (one.openPipes === 0 && one.status === undefined) this.#ask();
        one.changed();
      });
      return reader;
    };
    let ended: SessionResult["ended"] = "exit";
    try {
      writeFileSync(path, files.launcher, { mode: 0o600 });
      if (files.script !== undefined) writeFileSync(`${path}.script`, files.script, { mode: 0o600 });
      this.#running.set(id, one);
      const readers = [listen("stdout", out), listen("stderr", err)];
      const closed = Promise.all(readers.map((reader) => reader.ended));
      this.#say(`E ${id}`);
      this.#askMs = FIRST_ASK_MS;
      this.#askLater();
      const overAt = this.deps.clock.ticks() + command.deadlineMs;
      const wait = await this.#wait(one, overAt, signal);
      if (wait !== "exit") {
        ended = "deadline";
        await this.#end(one, command.purpose === "agent" && wait === "deadline");
      }
      signal.throwIfAborted();
      if (one.failure !== undefined) this.#refuse(one, command, readers);
      // Services of agents and solutions go on; what others leave behind ends with them.
      const survives = command.purpose === "agent" || command.purpose === "oracle";
      if (wait === "exit" && !survives && this.#mayHaveLeft()) await this.#end(one, false);
      if (one.openPipes > 0) await quiet(this.deps.clock, closed, () => received);
      closed.then(() => this.#pairs.push(pair));
    } finally {
      listening = false;
      this.#running.delete(id);
      rmSync(path, { force: true });
      if (files.script !== undefined) rmSync(`${path}.script`, { force: true });
    }
    if (this.#lost !== undefined && one.status === undefined) throw this.#lost;
    return {
      ended,
      exitCode: ended === "deadline" ? 124 : one.status ?? 137,
      stdout: out.text(),
      stderr: err.text(),
      droppedBytes: out.droppedBytes + err.droppedBytes,
    };
  }

  /** Last of all: stops reading. */
  close(): void {
    clearTimeout(this.#asking);
    for (const reader of this.#readers) reader.close();
  }

  /** Whether every pipe has ended: the control folder may serve another sandbox. */
  get idle(): boolean {
    return this.#readers.size === 0;
  }

  /** All processes of the sandbox but PID 1, as this machine counts them. */
  processes(): number[] {
    return descendants(this.deps.init).map((one) => one.pid);
  }

  #wait(one: Running, overAt: number, signal: AbortSignal): Promise<"exit" | "deadline" | "aborted"> {
    return new Promise((resolve) => {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const done = (how: "exit" | "deadline" | "aborted") => {
        clearTimeout(timer);
        signal.removeEventListener("abort", onAbort);
        one.changed = () => {};
        resolve(how);
      };
      const onAbort = () => done("aborted");
      const arm = () => {
        const left = overAt - this.deps.clock.ticks();
        if (left <= 0) return done("deadline");
        if (Number.isFinite(left)) timer = setTimeout(arm, Math.min(left, 2 ** 30));
      };
      one.changed = () => {
        if (one.status !== undefined || one.failure !== undefined || this.#lost !== undefined) done("exit");
      };
      signal.addEventListener("abort", onAbort, { once: true });
      arm();
      one.changed();
    });
  }

  /** Ends all processes of a command. A sandbox in which they do not die is ended itself. */
  async #end(one: Running, groupOnly: boolean): Promise<void> {
    const over = this.deps.clock.ticks() + DYING_MS;
    // A command that was only just asked for must have begun before it can be ended.
    const begun = () => one.innerPid !== undefined || one.status !== undefined || one.failure !== undefined;
    while (!begun() && this.#lost === undefined && this.deps.clock.ticks() < over) await this.deps.clock.sleep(2);
    const leader = one.innerPid === undefined ? undefined : hostPid(this.deps.init, one.innerPid);
    for (let pauseMs = 1; this.#lost === undefined; pauseMs = Math.min(50, pauseMs * 2)) {
      const target = {
        execId: one.id,
        leader: leader ?? -1,
        since: one.since,
        groupOnly: groupOnly && leader !== undefined,
      };
      const members = membersOf(target, suspectsOf(this.deps.init));
      killAll(members);
      if (members.length === 0) break;
      if (this.deps.clock.ticks() > over) {
        killAll([this.deps.init]);
        this.lose("its processes did not die");
        break;
      }
      await this.deps.clock.sleep(pauseMs);
    }
    this.#ask();
  }

  /** Whether orphans exist: PID 1 has children besides the commands that run now. One small file, where the kernel has it. */
  #mayHaveLeft(): boolean {
    try {
      const children = readFileSync(`/proc/${this.deps.init}/task/${this.deps.init}/children`, "latin1").trim();
      return children !== "" &&
        children.split(" ").length > [...this.#running.values()].filter((one) => one.status === undefined).length;
    } catch {
      return true;
    }
  }

  /** The launcher could not start the command. */
  #refuse(one: Running, command: SessionCommand, readers: FifoReader[]): never {
    for (const reader of readers) reader.close();
    if (one.failure === "cwd") {
      throw new HarborError("sandbox.failed", `Cannot run a command in ${command.cwd}: no such folder in the sandbox`);
    }
    const what = one.failure === "shell" ? "/bin/bash and /bin/sh do" : `${this.deps.tools.setpriv[0]} does`;
    throw (this.#lost ??= new HarborError("sandbox.lost", `The sandbox is broken: ${what} not run in it any more`));
  }

  #ask(): void {
    this.#say("?");
  }

  #askLater(): void {
    clearTimeout(this.#asking);
    if (this.#running.size === 0 || this.#lost !== undefined) return;
    this.#asking = setTimeout(() => {
      this.#ask();
      this.#askMs = Math.min(LAST_ASK_MS, this.#askMs * 1.5);
      this.#askLater();
    }, this.#askMs);
  }

  #say(line: string): void {
    if (this.#lost === undefined) this.started.stdin.write(line + "\n");
  }

  async #takePair(): Promise<Pair> {
    const free = this.#pairs.pop();
    if (free !== undefined) return free;
    const first = this.#pairsMade;
    this.#pairsMade += 16;
    const numbers = Array.from({ length: 16 }, (_, at) => first + at);
    const names = numbers.flatMap((number) => [`${number}o`, `${number}e`]);
    const made = await this.deps.runner.run([
      "mkfifo",
      "-m",
      "600",
      ...names.map((name) => join(this.deps.control, name)),
    ]);
    if (made.exitCode !== 0) {
      throw new HarborError("sandbox.failed", `Cannot make pipes for a command: ${made.stderr.trim()}`);
    }
    for (const number of numbers) this.#pairs.push({ stdout: `${number}o`, stderr: `${number}e` });
    return this.#pairs.pop()!;
  }

  /** Pipes that already exist in the control folder. */
  adopt(pairs: readonly Pair[]): void {
    this.#pairs.push(...pairs);
    this.#pairsMade = Math.max(this.#pairsMade, pairs.length);
  }
}

/** Waits until the pipes close, or until nothing has come through them for a moment. */
async function quiet(clock: Clock, closed: Promise<unknown>, bytes: () => number): Promise<void> {
  let over = false;
  closed.then(() => (over = true));
  for (let before = -1; !over && before !== bytes();) {
    before = bytes();
    await Promise.race([closed, clock.sleep(HELD_PIPE_MS)]);
  }
}

/** Now, in the ticks of ProcessFacts.start (USER_HZ is 100 on every Linux), rounded down. */
function bootTicks(): number {
  return Math.floor(Number.parseFloat(readFileSync("/proc/uptime", "latin1")) * 100);
}
