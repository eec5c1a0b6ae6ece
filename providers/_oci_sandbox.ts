/**
 * A container as a Sandbox: the line to its control shell for everything of ours, one exec of the engine per command of
 * the task, and evidence when it is gone.
 */
import { type Archive, archiveOf, unpackInto } from "../lib/files/tar.ts";
import type { Emit } from "../lib/events.ts";
import { HarborError, messageOf } from "../lib/errors.ts";
import { HeadTail } from "../lib/runtime/head_tail.ts";
import type { Clock } from "../lib/runtime/clock.ts";
import type { Gate } from "../lib/runtime/pool.ts";
import type { Runner } from "../lib/runtime/runner.ts";
import { decisiveLine, engineFailure } from "../lib/sandbox/failure.ts";
import type {
  Alive,
  Collected,
  Command,
  DownloadLimits,
  DownloadReport,
  ExecResult,
  Network,
  Running,
  Sandbox,
  SandboxSpec,
} from "../lib/sandbox/provider.ts";
import { copyInArgv, copyOutArgv, execArgv, oomEventsArgv, type Program, removeArgv, stateArgv } from "./_oci_argv.ts";
import { type Control, LineEnded, LineStuck } from "./_oci_control.ts";
import { type ExecEnding, type Launched, runExec } from "./_oci_exec.ts";
import {
  beforeScript,
  bringScript,
  collectScript,
  execScript,
  killScript,
  loneKillScript,
  shellCanExport,
} from "./_oci_scripts.ts";

export interface SandboxDeps {
  program: Program;
  runner: Runner;
  gate: Gate;
  clock: Clock;
  env: Readonly<Record<string, string | undefined>>;
  emit: Emit;
}

/** What the setup told about the image. */
export interface Tools {
  /** Absolute path of bash, or "" where there is none. */
  bash: string;
  tar: boolean;
  workdir: string;
  oomKills: number | null;
}

export interface OciSandboxFacts {
  name: string;
  spec: SandboxSpec;
  tools: Tools;
  notes: readonly string[];
  limits: "enforced" | "partly" | "none";
  network: Network;
}

const ANSWER_MS = 20_000;
const BEFORE_MS = 600_000;
const COLLECT_MS = 60_000;
const BRING_MS = 600_000;
const END_MS = 10_000;
const REMOVE_MS = 30_000;
const KEEP_BYTES = 1024 * 1024;
/** Linux refuses to start a program with one longer string (MAX_ARG_STRLEN, 32 pages). */
const LONGEST_VARIABLE = 131_071;

export class OciSandbox implements Sandbox {
  readonly id: string;
  readonly enterArgv: readonly string[];
  readonly workdir: string;
  readonly notes: readonly string[];
  readonly limits: "enforced" | "partly" | "none";
  readonly network: Network;
  #oomKills: number | null;
  #kept = false;
  #disposed: Promise<void> | undefined;

  constructor(
    private readonly facts: OciSandboxFacts,
    private readonly control: Control,
    private readonly deps: SandboxDeps,
  ) {
    const { name, tools } = facts;
    this.id = name;
    this.enterArgv = [deps.program.path, "exec", "-it", name, tools.bash || "/bin/sh"];
    this.workdir = tools.workdir;
    this.notes = facts.notes;
    this.limits = facts.limits;
    this.network = facts.network;
    this.#oomKills = tools.oomKills;
  }

  exec(command: Command, signal: AbortSignal): Promise<ExecResult> {
    return this.#guarded(async () => {
      signal.throwIfAborted();
      const started = performance.now();
      const user = this.#userOf(command);
      const archive = command.unpack?.length ? await archiveOf(command.unpack) : undefined;
      if (command.before !== undefined || archive !== undefined) await this.#before(command.before, archive, signal);
      const together = archive !== undefined && user === undefined && this.facts.tools.tar;
      if (archive !== undefined && !together) await this.#upload(archive, signal);
      const out = new HeadTail(command.keepBytes ?? KEEP_BYTES);
      const err = new HeadTail(command.keepBytes ?? KEEP_BYTES);
      const ending = await this.#run(command, user, out, err, {
        archive: together ? archive : undefined,
        deadlineMs: command.deadlineMs,
        signal,
      });
      const finished = await this.#finished(ending, command, user);
      const { collected, oomKilled } = await this.#collect(command.collect ?? [], signal);
      const brought: DownloadReport[] = [];
      for (const { from, to, limits } of command.bring ?? []) brought.push(await this.#bring(from, to, limits, signal));
      return {
        ...finished,
        stdout: out.text(),
        stderr: err.text(),
        droppedBytes: out.droppedBytes + err.droppedBytes,
        durationMs: finished.durationMs ?? performance.now() - started,
        collected,
        brought,
        oomKilled,
      };
    });
  }

  spawn(command: Omit<Command, "unpack" | "collect" | "before" | "deadlineMs">): Promise<Running> {
    return this.#guarded(async () => {
      const user = this.#userOf(command);
      const output = new HeadTail(command.keepBytes ?? KEEP_BYTES);
      let launched: Launched | undefined;
      const id = newExecId();
      let begin = () => {};
      const begun = new Promise<void>((resolve) => begin = resolve);
      let exitCode: number | null = null;
      const ended = this.#run(command, user, output, output, {
        deadlineMs: Infinity,
        id,
        onLaunched: (at) => (launched = at, begin()),
      }).then((ending) => {
        if (ending.kind === "refused" || ending.kind === "cwd") return ending;
        exitCode = "exitCode" in ending ? ending.exitCode : 137;
      });
      const early = await Promise.race([begun, ended]);
      if (early !== undefined) throw this.#notStarted(early, command, user);
      return {
        wait: () => ended.then(() => ({ exitCode: exitCode ?? 137 }), () => ({ exitCode: 137 })),
        tail: (bytes) => Promise.resolve(lastBytes(output.text(), bytes)),
        poll: () => Promise.resolve(exitCode),
        kill: () => this.#guarded(() => this.#stop(launched, id, true, user)),
      };
    });
  }

  download(from: string, to: string, limits: DownloadLimits, signal: AbortSignal): Promise<DownloadReport> {
    return this.#guarded(async () => {
      await this.#ping(ANSWER_MS); // a folder may take minutes: a stopped shell must not
      return await this.#bring(from, to, limits, signal);
    });
  }

  read(path: string, maxBytes: number): Promise<Uint8Array> {
    return this.#guarded(async () => {
      const { collected } = await this.#collect([{ path, maxBytes }]);
      const found = collected[path]!;
      if (found.kind === "file") return found.data;
      const why = found.kind === "absent" ? "it is not there" : found.reason;
      throw new HarborError("transfer.failed", `Cannot read ${path} in ${this.id}: ${why}`);
    });
  }

  async alive(): Promise<Alive> {
    try {
      await this.#ping(5_000);
      return { state: "running" };
    } catch {
      return await this.#evidence();
    }
  }

  keep(): void {
    this.#kept = true;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#disposed ??= this.#kept ? this.#letGo() : this.#end();
  }

  #ping(deadlineMs: number): Promise<void> {
    return this.control.ask((n) => `gym_say ${n} here\n`, "here", { onMarker: () => {} }, deadlineMs);
  }

  // --- how a command runs ---

  #userOf(command: Pick<Command, "user">): string | undefined {
    return asRoot(command.user ?? this.facts.spec.user ?? this.facts.spec.image.user);
  }

  async #before(script: string | undefined, archive: Archive | undefined, signal: AbortSignal): Promise<void> {
    const said = new HeadTail(16 * 1024);
    const codes: Record<string, number> = {};
    await this.control.ask(
      (n) => beforeScript(n, script, archive?.folders ?? []),
      "folders",
      { onMarker: ([verb, code]) => codes[verb!] = Number(code), onData: (chunk) => said.push(chunk) },
      BEFORE_MS,
      signal,
    );
    if (codes.script !== 0) {
      throw new HarborError(
        "sandbox.failed",
        `A step before the command failed with exit code ${codes.script} in ${this.id}: ${decisiveLine(said.text())}`,
      );
    }
    if (codes.folders !== 0) {
      throw new HarborError(
        "transfer.failed",
        `Cannot make the folders for an upload in ${this.id}: ${decisiveLine(said.text())}`,
      );
    }
  }

  /** The archive alone: where the command runs as another user, or the image has no tar. */
  async #upload(archive: Archive, signal: AbortSignal): Promise<void> {
    const { program, runner, env, gate } = this.deps;
    if (!this.facts.tools.tar) {
      const argv = copyInArgv(program, this.id);
      const copied = await gate.hold(() =>
        runner.run(argv, { env, signal, deadlineMs: BEFORE_MS, stdin: (to) => archive.writeTo(to) })
      );
      signal.throwIfAborted();
      if (copied.exitCode === 0) return;
      throw new HarborError(
        "transfer.failed",
        `Cannot upload to ${this.id} (its image has no tar, ${program.path} cp failed): ${decisiveLine(copied.stderr)}`,
      );
    }
    const [out, err] = [new HeadTail(16 * 1024), new HeadTail(16 * 1024)];
    const ending = await this.#run(undefined, undefined, out, err, { archive, deadlineMs: BEFORE_MS, signal });
    await this.#finished(ending, undefined, undefined);
  }

  async #run(
    command: Pick<Command, "run" | "purpose" | "cwd" | "env"> | undefined,
    user: string | undefined,
    out: HeadTail,
    err: HeadTail,
    more: {
      archive?: Archive;
      deadlineMs: number;
      signal?: AbortSignal;
      id?: string;
      onLaunched?: (launched: Launched) => void;
    },
  ): Promise<ExecEnding> {
    const { program, runner, gate } = this.deps;
    const id = more.id ?? newExecId();
    const env = { ...this.facts.spec.env, ...command?.env };
    checkVariables(env);
    const sweep = command !== undefined && !survives(command.purpose);
    // A reference solution past its limit is over with all it started; only an agent works on through its services.
    const wide = command !== undefined && command.purpose !== "agent";
    const byClient = Object.keys(env).filter((name) => !shellCanExport(name));
    if (byClient.length > 0 && this.facts.tools.bash === "") {
      throw new HarborError(
        "sandbox.failed",
        `Environment variable ${byClient[0]} cannot be set: the image has no bash, and its sh passes on no such name`,
      );
    }
    return await runExec(runner, gate, {
      argv: execArgv(program, {
        name: this.id,
        user,
        archive: more.archive !== undefined,
        envNames: byClient,
        shell: byClient.length > 0 ? this.facts.tools.bash : "/bin/sh",
      }),
      env: { ...this.deps.env, ...Object.fromEntries(byClient.map((name) => [name, env[name]])) },
      program: execScript({
        id,
        archive: more.archive !== undefined,
        command: command && {
          run: command.run,
          cwd: command.cwd ?? this.workdir,
          env,
          shell: this.facts.tools.bash || "/bin/sh",
          sweep,
        },
      }),
      archive: more.archive,
      deadlineMs: more.deadlineMs,
      out,
      err,
      signal: more.signal,
      stop: (launched) => this.#stop(launched, id, wide, user),
      onLaunched: more.onLaunched,
    });
  }

  /** The ending as a result, or the error that it stands for. */
  async #finished(
    ending: ExecEnding,
    command: Pick<Command, "cwd"> | undefined,
    user: string | undefined,
  ): Promise<{ ended: "exit" | "deadline"; exitCode: number; durationMs: number | undefined }> {
    switch (ending.kind) {
      case "exit":
        return { ended: "exit", exitCode: ending.exitCode, durationMs: ending.durationMs };
      case "deadline":
        return { ended: "deadline", exitCode: 137, durationMs: ending.durationMs };
      case "unpack":
        throw new HarborError("transfer.failed", `Cannot unpack an upload in ${this.id}: ${decisiveLine(ending.text)}`);
      case "vanished": {
        // The launcher was killed with its command, or the sandbox ended under both.
        const alive = await this.#settled();
        if (alive.state === "gone") throw this.#lost(alive);
        return { ended: "exit", exitCode: ending.exitCode, durationMs: ending.durationMs };
      }
      case "cwd":
        throw this.#notStarted(ending, command, user);
      case "refused": {
        const alive = await this.#settled();
        if (alive.state === "gone") throw this.#lost(alive);
        throw this.#notStarted(ending, command, user);
      }
    }
  }

  #notStarted(
    ending: Extract<ExecEnding, { kind: "refused" | "cwd" }>,
    command: Pick<Command, "cwd"> | undefined,
    user: string | undefined,
  ): HarborError {
    if (ending.kind === "cwd") {
      return new HarborError(
        "sandbox.failed",
        `Cannot run a command in ${this.id}: working directory ${
          command?.cwd ?? this.workdir
        } is not there or may not be entered`,
      );
    }
    const failure = engineFailure(ending.text);
    if (failure?.kind === "no-user") {
      return new HarborError(
        "sandbox.failed",
        `Cannot run a command in ${this.id}: user ${user} is not in its image (${failure.line})`,
        {
          hint: "name a user of the image's /etc/passwd, or a number",
        },
      );
    }
    if (failure?.kind === "processes-full" || failure?.kind === "no-program" || failure?.kind === "not-executable") {
      const why = failure.kind === "processes-full"
        ? "its process table is full"
        : "its /bin/sh cannot be started any more";
      return new HarborError("sandbox.lost", `Sandbox ${this.id} takes no more commands: ${why} (${failure.line})`);
    }
    const what = ending.stalled
      ? `${this.deps.program.path} did not start it in time`
      : failure?.line ?? decisiveLine(ending.text);
    return new HarborError(
      "sandbox.failed",
      `Cannot run a command in ${this.id}: ${what} (exit code ${ending.exitCode})`,
    );
  }

  /** Makes everything of an exec dead, by the line, else by a second exec, else by ending the sandbox. */
  async #stop(launched: Launched | undefined, id: string, wide: boolean, user: string | undefined): Promise<void> {
    if (launched === undefined) return;
    const request = { ...launched, id, wide };
    let left = await this.#killByLine(request).catch((error) => {
      if (error instanceof LineEnded) return [];
      return this.#killByExec(request, undefined);
    });
    // Root without CAP_SYS_PTRACE cannot see whose environment carries the id among another user's processes.
    if (wide && user !== undefined) left = await this.#killByExec(request, user).catch(() => left);
    for (const pause of [50, 200, 500, 1000, 2000]) {
      if (left.length === 0) return;
      await this.deps.clock.sleep(pause);
      left = await this.#killByLine(request).catch(() => []);
    }
    if (left.length === 0) return;
    await this.#remove();
    throw new HarborError(
      "sandbox.lost",
      `Sandbox ${this.id} was removed: processes ${left.join(", ")} of a command could not be ended`,
    );
  }

  async #killByLine(request: Launched & { id: string; wide: boolean }): Promise<string[]> {
    let left: string[] = [];
    const onMarker = ([, ...pids]: string[]) => left = pids.filter((pid) => pid !== "");
    await this.control.ask((n) => killScript(n, request), "killed", { onMarker }, ANSWER_MS);
    return left;
  }

  async #killByExec(request: Launched & { id: string; wide: boolean }, user: string | undefined): Promise<string[]> {
    const { program, runner, env } = this.deps;
    const argv = execArgv(program, { name: this.id, user, archive: false, envNames: [], shell: "/bin/sh" });
    const killed = await runner.run(argv, {
      env,
      stdin: `kill\n${loneKillScript(request)}`,
      deadlineMs: ANSWER_MS,
      graceMs: 0,
    });
    const answer = /\nkill killed(.*)\n/.exec(killed.stdout);
    if (answer !== null) return answer[1]!.split(" ").filter((pid) => pid !== "");
    await this.#remove();
    throw new HarborError(
      "sandbox.lost",
      `Sandbox ${this.id} was removed: a command could not be ended at its limit (${decisiveLine(killed.stderr)})`,
    );
  }

  // --- what comes back ---

  async #collect(
    files: readonly { path: string; maxBytes: number }[],
    signal?: AbortSignal,
  ): Promise<{ collected: Record<string, Collected>; oomKilled: boolean | null }> {
    const collected: Record<string, Collected> = {};
    const chunksOf = new Map<string, Uint8Array[]>();
    let oomKills: number | null = null;
    let chunks: Uint8Array[] | undefined;
    const onMarker = ([verb, index, ...reason]: string[]) => {
      chunks = undefined;
      const path = files[Number(index)]?.path;
      if (verb === "oom") oomKills = index ? Number(index) : null;
      else if (path === undefined) return;
      else if (verb === "absent") collected[path] = { kind: "absent" };
      else if (verb === "refused") collected[path] = { kind: "refused", reason: reason.join(" ") };
      else if (verb === "file") chunksOf.set(path, chunks = []);
    };
    await this.control.ask(
      (n) => collectScript(n, files),
      "collected",
      { onMarker, onData: (chunk) => chunks?.push(chunk) },
      COLLECT_MS,
      signal,
    );
    for (const { path, maxBytes } of files) {
      const came = chunksOf.get(path);
      if (came === undefined) {
        collected[path] ??= { kind: "refused", reason: "it could not be read" };
        continue;
      }
      const data = joined(came);
      collected[path] = data.length > maxBytes
        ? { kind: "refused", reason: `larger than ${maxBytes} bytes` }
        : { kind: "file", data };
    }
    const before = this.#oomKills;
    this.#oomKills = oomKills;
    return { collected, oomKilled: oomKills === null || before === null ? null : oomKills > before };
  }

  async #bring(from: string, to: string, limits: DownloadLimits, signal: AbortSignal): Promise<DownloadReport> {
    if (!this.facts.tools.tar) return await this.#bringByCopy(from, to, limits, signal);
    const report: DownloadReport = { files: 0, bytes: 0, refused: [] };
    // A header, padding and a long name for every entry, beside the bytes that are wanted.
    const most = limits.maxBytes + limits.maxEntries * 3072 + 20_480;
    const bytes = new ByteQueue(() => this.control.pause(), () => this.control.resume());
    let unpacked: Promise<DownloadReport> | undefined;
    const onMarker = ([verb, ...reason]: string[]) => {
      if (verb === "tar") (unpacked = unpackInto(bytes, to, limits)).catch(() => {}); // awaited once all has come
      if (verb === "refused") report.refused.push({ path: ".", reason: reason.join(" ") });
      if (verb === "sent") bytes.end();
    };
    await this.control.ask(
      (n) => bringScript(n, from, most),
      "sent",
      { onMarker, onData: (chunk) => bytes.push(chunk) },
      BRING_MS,
      signal,
    ).catch((error) => {
      bytes.fail(error);
      throw error;
    });
    return await unpacked ?? report;
  }

  async #bringByCopy(from: string, to: string, limits: DownloadLimits, signal: AbortSignal): Promise<DownloadReport> {
    const { program, runner, env, gate } = this.deps;
    return await gate.hold(async () => {
      const client = await runner.start(copyOutArgv(program, this.id, from), { env });
      const onAbort = () => client.kill("SIGKILL");
      signal.addEventListener("abort", onAbort, { once: true });
      const said = new HeadTail(16 * 1024);
      client.stderr.on("data", (chunk) => said.push(chunk));
      client.stdin.end();
      try {
        const last = from.replace(/\/+$/, "").split("/").at(-1) ?? "";
        const report = await unpackInto(client.stdout, to, limits, `${last}/`);
        const { exitCode } = await client.ended;
        signal.throwIfAborted();
        if (exitCode === 0 || /no such|not found|could not find/i.test(said.text())) return report;
        throw new HarborError(
          "transfer.failed",
          `Cannot bring ${from} out of ${this.id}: ${decisiveLine(said.text())}`,
        );
      } finally {
        signal.removeEventListener("abort", onAbort);
      }
    });
  }

  // --- how it ends ---

  /** A client may learn of the end of a sandbox a moment before the line does. */
  async #settled(): Promise<Alive> {
    const alive = await this.alive();
    if (alive.state === "gone") return alive;
    await this.deps.clock.sleep(100);
    return await this.alive();
  }

  async #evidence(): Promise<Alive> {
    const { program, runner, env, gate } = this.deps;
    if (!this.control.over) {
      const told = await gate.hold(() =>
        runner.run(stateArgv(program, this.id), { env, deadlineMs: ANSWER_MS, graceMs: 0 })
      );
      if (isRunning(told.stdout)) return { state: "running" };
      const text = engineFailure(told.stderr)?.line ?? decisiveLine(told.stderr);
      return { state: "gone", oomKilled: null, exitCode: null, text };
    }
    // The attached client ends with the exit code of the sandbox's first process.
    const exitCode = await this.control.ended;
    const oomKilled = exitCode === 137 ? await this.#oomEvent() : false;
    return { state: "gone", oomKilled, exitCode, text: decisiveLine(this.control.errors) };
  }

  /** What the engine itself saw: docker tells of OOM kills, podman 4.3 does not. */
  async #oomEvent(): Promise<true | null> {
    const { program, runner, env } = this.deps;
    const argv = oomEventsArgv(program, this.id);
    if (argv === undefined) return null;
    const told = await runner.run(argv, { env, deadlineMs: ANSWER_MS, graceMs: 0 });
    return /\boom\b/.test(told.stdout) ? true : null;
  }

  #lost(alive: Extract<Alive, { state: "gone" }>): HarborError {
    const how = alive.oomKilled === true
      ? "the kernel ended it for want of memory"
      : alive.exitCode === null
      ? `it is not there any more (${alive.text})`
      : `its first process ended with exit code ${alive.exitCode}`;
    return new HarborError("sandbox.lost", `Sandbox ${this.id} is gone: ${how}`, { details: { ...alive } });
  }

  /** Turns the end of the line into "sandbox.lost" with evidence. */
  async #guarded<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof LineEnded) {
        const alive = await this.#evidence();
        throw this.#lost(
          alive.state === "gone" ? alive : { state: "gone", oomKilled: null, exitCode: null, text: "its line ended" },
        );
      }
      if (error instanceof LineStuck) {
        throw new HarborError("sandbox.lost", `Sandbox ${this.id} does not answer`, { cause: error });
      }
      throw error;
    }
  }

  async #letGo(): Promise<void> {
    this.control.letGo(Math.ceil(this.facts.spec.ttlMs / 1000));
    await this.deps.clock.sleep(200);
    this.control.leave();
  }

  /** The sandbox ends when its line does, and the engine removes it: no further call of the engine. */
  async #end(): Promise<void> {
    this.control.close();
    const late = new AbortController();
    const ended = await Promise.race([
      this.control.ended.then(() => true),
      this.deps.clock.sleep(END_MS, late.signal).then(() => false, () => false),
    ]);
    late.abort();
    if (!ended) await this.#remove();
  }

  async #remove(): Promise<void> {
    const { program, runner, env, emit, gate } = this.deps;
    let reason = "";
    for (let attempt = 0; attempt < 2; attempt++) {
      const removed = await gate.hold(() =>
        runner.run(removeArgv(program, [this.id]), { env, deadlineMs: REMOVE_MS, graceMs: 0 })
      )
        .catch((error) => ({ exitCode: 1, stderr: messageOf(error), ended: "exit" as const }));
      if (removed.exitCode === 0 || engineFailure(removed.stderr)?.kind === "no-container") return this.control.close();
      reason = removed.ended === "deadline"
        ? `${program.path} rm did not end within ${REMOVE_MS / 1000} s`
        : decisiveLine(removed.stderr);
    }
    this.control.close();
    emit({
      kind: "warning",
      text: `sandbox ${this.id} could not be removed: ${reason}; gym-harbor sandbox gc tries again`,
    });
  }
}

/** Background services of an agent or the reference solution are part of what is graded. */
const survives = (purpose: Command["purpose"]): boolean => purpose === "agent" || purpose === "oracle";

export const newExecId = (): string => crypto.randomUUID().replaceAll("-", "").slice(0, 16);

/** The user as the engine must hear it; undefined for root. */
export const asRoot = (user: string | undefined): string | undefined =>
  user === undefined || /^(root|0|root:root|0:0)?$/.test(user) ? undefined : user;

function checkVariables(env: Readonly<Record<string, string>>): void {
  for (const [name, value] of Object.entries(env)) {
    const bytes = new TextEncoder().encode(`${name}=${value}`).length;
    if (bytes > LONGEST_VARIABLE) {
      throw new HarborError(
        "sandbox.failed",
        `Environment variable ${name} has ${bytes} bytes; Linux starts no program with more than ${LONGEST_VARIABLE}`,
        {
          hint: "put the value into a file",
        },
      );
    }
    if (name === "" || /[=\0]/.test(name) || value.includes("\0")) {
      throw new HarborError(
        "sandbox.failed",
        `Environment variable ${JSON.stringify(name)} cannot be set: its name or value holds a NUL or '='`,
      );
    }
  }
}

function isRunning(inspected: string): boolean {
  try {
    return (JSON.parse(inspected) as { State?: { Running?: boolean } }[])[0]?.State?.Running === true;
  } catch {
    return false;
  }
}

function joined(chunks: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0));
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}

const lastBytes = (text: string, bytes: number): string => {
  const all = new TextEncoder().encode(text);
  return new TextDecoder().decode(all.subarray(Math.max(0, all.length - bytes)));
};

/** Bytes that arrive by events, read by iteration; asks its source to wait while more than 4 MiB lie unread. */
class ByteQueue implements AsyncIterable<Uint8Array> {
  #chunks: Uint8Array[] = [];
  #bytes = 0;
  #done = false;
  #error: unknown;
  #wake = () => {};

  constructor(private readonly pause: () => void, private readonly resume: () => void) {}

  push(chunk: Uint8Array): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes > 4 << 20) this.pause();
    this.#wake();
  }

  end(): void {
    this.#done = true;
    this.#wake();
  }

  fail(error: unknown): void {
    this.#error ??= error;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    for (;;) {
      const chunk = this.#chunks.shift();
      if (chunk !== undefined) {
        this.#bytes -= chunk.length;
        if (this.#bytes <= 4 << 20) this.resume();
        yield chunk;
      } else if (this.#error !== undefined) throw this.#error;
      else if (this.#done) return;
      else await new Promise<void>((wake) => this.#wake = wake);
    }
  }
}
