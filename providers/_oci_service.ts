/**
 * A sidecar: its image's own program as its first process, so nothing of ours runs in it until somebody asks. An image
 * without a shell serves as well; then a probe is a program of it and nothing else.
 */
import { createWriteStream } from "node:fs";
import { once } from "node:events";
import { archiveOf } from "../lib/files/tar.ts";
import { HarborError } from "../lib/errors.ts";
import { HeadTail } from "../lib/runtime/head_tail.ts";
import { decisiveLine, engineFailure } from "../lib/sandbox/failure.ts";
import type { Service, ServiceSpec, ServiceState } from "../lib/sandbox/group.ts";
import type { Command, DownloadReport, ExecResult } from "../lib/sandbox/provider.ts";
import { execArgv, stateArgv } from "./_oci_argv.ts";
import type { SandboxDeps } from "./_oci_deps.ts";
import { killByExec } from "./_oci_end.ts";
import { type ExecEnding, runExec } from "./_oci_exec.ts";
import { logsArgv, plainExecArgv, waitArgv } from "./_oci_group_argv.ts";
import { newExecId } from "./_oci_sandbox.ts";
import { execScript, shellCanExport } from "./_oci_scripts.ts";
import { bringByCopy, copyIn } from "./_oci_transfer.ts";
import { lost, notStarted } from "./_oci_verdict.ts";

const ANSWER_MS = 30_000;
const LOG_MS = 120_000;
const KEEP_BYTES = 1024 * 1024;
/** Lines that are asked for where only the end is wanted. */
const TAIL_LINES = 2_000;

export class OciService implements Service {
  readonly name: string;
  /** Whether its image lacks what our launcher needs; known after the first try. */
  #hasNoShell = false;

  constructor(
    /** The container's name. */
    readonly id: string,
    private readonly spec: Pick<ServiceSpec, "service" | "workdir" | "user" | "image">,
    private readonly deps: SandboxDeps,
  ) {
    this.name = spec.service;
  }

  async state(signal: AbortSignal): Promise<ServiceState> {
    const { program, runner, env, gate } = this.deps;
    const told = await gate.hold(() =>
      runner.run(stateArgv(program, this.id), { env, signal, deadlineMs: ANSWER_MS, keepBytes: 4 << 20 })
    );
    signal.throwIfAborted();
    const state = stateOf(told.stdout);
    if (state !== undefined) return state;
    if (engineFailure(told.stderr)?.kind === "no-container") return { state: "ended", exitCode: null };
    const why = engineFailure(told.stderr)?.line ?? decisiveLine(told.stderr);
    throw new HarborError("sandbox.failed", `${program.path} does not say how service ${this.name} is: ${why}`);
  }

  async ended(signal: AbortSignal): Promise<{ exitCode: number | null }> {
    const { program, runner, env } = this.deps;
    const told = await runner.run(waitArgv(program, this.id), { env, signal, graceMs: 0 });
    signal.throwIfAborted();
    const code = told.stdout.trim();
    return { exitCode: told.exitCode === 0 && /^\d+$/.test(code) ? Number(code) : null };
  }

  async exec(command: Command, signal: AbortSignal): Promise<ExecResult> {
    const started = this.deps.clock.ticks();
    if (command.unpack?.length) await copyIn(this.deps, this.id, await archiveOf(command.unpack), signal);
    if (command.before !== undefined) await this.#before(command.before, signal);
    const out = new HeadTail(command.keepBytes ?? KEEP_BYTES);
    const err = new HeadTail(command.keepBytes ?? KEEP_BYTES);
    const ended = await this.#run(command, out, err, signal);
    const brought: DownloadReport[] = [];
    for (const one of command.bring ?? []) brought.push(await bringByCopy(this.deps, this.id, one, signal));
    return {
      ...ended,
      durationMs: ended.durationMs ?? this.deps.clock.ticks() - started,
      stdout: out.text(),
      stderr: err.text(),
      droppedBytes: out.droppedBytes + err.droppedBytes,
      collected: Object.fromEntries((command.collect ?? []).map(({ path }) => [path, NOT_COLLECTED])),
      brought,
      oomKilled: null,
    };
  }

  async #before(script: string, signal: AbortSignal): Promise<void> {
    const said = new HeadTail(16 * 1024);
    const command = { run: { script }, purpose: "server" as const, user: "root", deadlineMs: LOG_MS };
    const { exitCode } = await this.#run(command, said, said, signal);
    if (exitCode === 0) return;
    throw new HarborError(
      "sandbox.failed",
      `A step before the command failed with exit code ${exitCode} in service ${this.name}: ${
        decisiveLine(said.text())
      }`,
    );
  }

  async #run(command: Command, out: HeadTail, err: HeadTail, signal: AbortSignal): Promise<Ended> {
    if (this.#hasNoShell) return await this.#runPlain(command, out, err, signal);
    const ending = await this.#launch(command, out, err, signal);
    if (ending.kind === "exit") return { ended: "exit", exitCode: ending.exitCode, durationMs: ending.durationMs };
    if (ending.kind === "deadline") return { ended: "deadline", exitCode: 137, durationMs: ending.durationMs };
    const now = await this.state(signal);
    if (now.state === "ended") throw gone(this.id, now.exitCode);
    if (ending.kind === "vanished") {
      return { ended: "exit", exitCode: ending.exitCode, durationMs: ending.durationMs };
    }
    if (ending.kind === "refused" && lacksShell(ending.text)) {
      this.#hasNoShell = true;
      return await this.#runPlain(command, out, err, signal);
    }
    const attempted = { id: this.id, engine: this.deps.program.path, cwd: this.#cwd(command), user: command.user };
    throw notStarted(ending.kind === "unpack" ? { kind: "cwd" } : ending, attempted);
  }

  #launch(command: Command, out: HeadTail, err: HeadTail, signal: AbortSignal): Promise<ExecEnding> {
    const { deps, id } = this;
    const execId = newExecId();
    const user = engineUser(command.user);
    const odd = Object.entries(command.env ?? {}).filter(([name]) => !shellCanExport(name));
    return runExec(deps, {
      argv: execArgv(deps.program, {
        name: id,
        user,
        archive: false,
        envNames: odd.map(([name]) => name),
        shell: "/bin/sh",
      }),
      env: { ...deps.env, ...Object.fromEntries(odd) },
      program: execScript({
        id: execId,
        archive: false,
        command: { run: command.run, cwd: this.#cwd(command), env: command.env ?? {}, shell: "/bin/sh", sweep: true },
      }),
      deadlineMs: command.deadlineMs,
      out,
      err,
      signal,
      stop: async (launched) => {
        if (launched !== undefined) await killByExec(deps, id, { ...launched, id: execId, wide: true }, user ?? "0");
      },
    });
  }

  /** A program of an image without a shell. At the deadline only the engine's client is ended. */
  async #runPlain(command: Command, out: HeadTail, err: HeadTail, signal: AbortSignal): Promise<Ended> {
    const { program, runner, env, gate } = this.deps;
    if ("script" in command.run) {
      out.push(new TextEncoder().encode(""));
      err.push(new TextEncoder().encode("the image has no /bin/sh\n"));
      return { ended: "exit", exitCode: 127, durationMs: 0 };
    }
    const argv = plainExecArgv(program, this.id, {
      user: command.user === undefined ? undefined : engineUser(command.user) ?? "0",
      cwd: command.cwd,
      envNames: Object.keys(command.env ?? {}),
      argv: command.run.argv,
    });
    const ran = await gate.hold(() =>
      runner.run(argv, {
        env: { ...env, ...command.env },
        signal,
        deadlineMs: command.deadlineMs,
        graceMs: 0,
        onStdout: (chunk) => out.push(chunk),
        onStderr: (chunk) => err.push(chunk),
      })
    );
    signal.throwIfAborted();
    if (ran.ended === "deadline") return { ended: "deadline", exitCode: 137, durationMs: command.deadlineMs };
    return { ended: "exit", exitCode: ran.exitCode, durationMs: undefined };
  }

  #cwd(command: Pick<Command, "cwd">): string {
    return command.cwd ?? this.spec.workdir ?? (this.spec.image.workdir || "/");
  }

  /** Nothing where the engine does not tell: its own words are no output of the service. */
  async tail(bytes: number): Promise<string> {
    const kept = new HeadTail(2 * bytes);
    if (await this.#log((chunk) => kept.push(chunk), TAIL_LINES) !== undefined) return "";
    const all = new TextEncoder().encode(kept.text());
    return new TextDecoder().decode(all.subarray(Math.max(0, all.length - bytes)));
  }

  /** What does not fit is left out of the middle, and said there. Throws "transfer.failed" where the engine does not tell. */
  async saveLog(path: string, maxBytes: number): Promise<void> {
    const endBytes = Math.min(maxBytes, 1 << 20);
    const end = new HeadTail(endBytes);
    const headBytes = maxBytes - endBytes;
    const file = createWriteStream(path, { mode: 0o644 });
    try {
      let written = 0;
      const fault = await this.#log((chunk) => {
        const part = chunk.subarray(0, Math.max(0, headBytes - written));
        if (part.length > 0) file.write(part);
        written += part.length;
        if (part.length < chunk.length) end.push(chunk.subarray(part.length));
      });
      if (fault !== undefined) {
        throw new HarborError("transfer.failed", `The output of service ${this.name} cannot be had: ${fault}`);
      }
      file.write(end.text());
    } finally {
      file.end();
      await once(file, "close");
    }
  }

  /** Why the engine did not tell; undefined where it did. */
  async #log(onChunk: (chunk: Uint8Array) => void, lines?: number): Promise<string | undefined> {
    const { program, runner, env, gate } = this.deps;
    const told = await gate.hold(() =>
      runner.run(logsArgv(program, this.id, lines), {
        env,
        deadlineMs: LOG_MS,
        keepBytes: 4096,
        onStdout: onChunk,
        onStderr: onChunk,
      })
    );
    if (told.ended === "exit" && told.exitCode === 0) return undefined;
    if (told.ended === "deadline") return `no end within ${LOG_MS / 1000} s`;
    return engineFailure(told.stderr)?.line ?? decisiveLine(told.stderr);
  }
}

interface Ended {
  ended: "exit" | "deadline";
  exitCode: number;
  durationMs: number | undefined;
}

const NOT_COLLECTED = {
  kind: "refused" as const,
  reason: "small files are not collected from a sidecar: bring a folder",
};

/** As an engine takes it; undefined is the user that the service runs as. */
const engineUser = (user: string | undefined): string | undefined => user === "root" ? "0" : user;

const lacksShell = (text: string): boolean => {
  const kind = engineFailure(text)?.kind;
  return kind === "no-program" || kind === "not-executable";
};

const gone = (id: string, exitCode: number | null): HarborError =>
  lost(id, { state: "gone", oomKilled: null, exitCode, text: "it has ended" });

/** From `container inspect`; undefined when it does not say. */
function stateOf(inspected: string): ServiceState | undefined {
  try {
    const [one] = JSON.parse(inspected) as { State?: { Status?: string; Running?: boolean; ExitCode?: number } }[];
    if (one?.State === undefined) return undefined;
    const { Running, Status, ExitCode } = one.State;
    if (Running === true || Status === "created" || Status === "initialized") return { state: "running" };
    return { state: "ended", exitCode: ExitCode ?? null };
  } catch {
    return undefined;
  }
}
