/**
 * A container as a Sandbox: the line to its control shell for everything of ours, one exec of the engine per command of
 * the task, and evidence when it is gone.
 */
import { type Archive, archiveOf } from "../lib/files/tar.ts";
import { HarborError } from "../lib/errors.ts";
import { HeadTail } from "../lib/runtime/head_tail.ts";
import { decisiveLine } from "../lib/sandbox/failure.ts";
import type {
  Alive,
  Command,
  DownloadLimits,
  DownloadReport,
  ExecResult,
  Network,
  Running,
  Sandbox,
  SandboxSpec,
} from "../lib/sandbox/provider.ts";
import { type Control, LineEnded, LineStuck } from "./_oci_control.ts";
import type { BoxDeps } from "./_oci_deps.ts";
import { End } from "./_oci_end.ts";
import { type ExecEnding, type Launched, runExec } from "./_oci_exec.ts";
import { execScript } from "./_oci_scripts.ts";
import { BEFORE_MS, Transfer } from "./_oci_transfer.ts";
import { asRoot, lost, notStarted, oddVariables } from "./_oci_verdict.ts";

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
  limits: Sandbox["limits"];
  network: Network;
}

const PING_MS = 5_000;
const KEEP_BYTES = 1024 * 1024;

export class OciSandbox implements Sandbox {
  readonly id: string;
  readonly enterArgv: readonly string[];
  readonly workdir: string;
  readonly notes: readonly string[];
  readonly limits: Sandbox["limits"];
  readonly network: Network;
  readonly #transfer: Transfer;
  readonly #end: End;
  #kept = false;
  #disposed: Promise<void> | undefined;

  constructor(
    private readonly facts: OciSandboxFacts,
    private readonly control: Control,
    private readonly deps: BoxDeps,
  ) {
    const { name, tools } = facts;
    this.id = name;
    this.enterArgv = deps.client.enter(name, tools.bash || "/bin/sh");
    this.workdir = tools.workdir;
    this.notes = facts.notes;
    this.limits = facts.limits;
    this.network = facts.network;
    this.#transfer = new Transfer(name, tools.tar, tools.oomKills, control, deps);
    this.#end = new End(name, control, deps);
  }

  exec(command: Command, signal: AbortSignal): Promise<ExecResult> {
    return this.#guarded(async () => {
      signal.throwIfAborted();
      const started = this.deps.clock.ticks();
      const user = this.#userOf(command);
      const archive = command.unpack?.length ? await archiveOf(command.unpack) : undefined;
      if (command.before !== undefined || archive !== undefined) {
        await this.#transfer.before(command.before, archive, signal);
      }
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
      const { collected, oomKilled } = await this.#transfer.collect(command.collect ?? [], signal);
      const brought: DownloadReport[] = [];
      for (const { from, to, limits } of command.bring ?? []) {
        brought.push(await this.#transfer.bring(from, to, limits, signal));
      }
      return {
        ...finished,
        stdout: out.text(),
        stderr: err.text(),
        droppedBytes: out.droppedBytes + err.droppedBytes,
        durationMs: finished.durationMs ?? this.deps.clock.ticks() - started,
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
      if (early !== undefined) await this.#finished(early, command, user);
      return {
        wait: () => ended.then(() => ({ exitCode: exitCode ?? 137 }), () => ({ exitCode: 137 })),
        tail: (bytes) => Promise.resolve(lastBytes(output.text(), bytes)),
        poll: () => Promise.resolve(exitCode),
        kill: () => this.#guarded(() => this.#end.stop(launched, id, true, user)),
      };
    });
  }

  download(from: string, to: string, limits: DownloadLimits, signal: AbortSignal): Promise<DownloadReport> {
    return this.#guarded(async () => {
      await this.#ping(PING_MS); // a folder may take minutes: a stopped shell must not
      return await this.#transfer.bring(from, to, limits, signal);
    });
  }

  read(path: string, maxBytes: number): Promise<Uint8Array> {
    return this.#guarded(async () => {
      const { collected } = await this.#transfer.collect([{ path, maxBytes }]);
      const found = collected[path]!;
      if (found.kind === "file") return found.data;
      const why = found.kind === "absent" ? "it is not there" : found.reason;
      throw new HarborError("transfer.failed", `Cannot read ${path} in ${this.id}: ${why}`);
    });
  }

  async alive(): Promise<Alive> {
    try {
      await this.#ping(PING_MS);
      return { state: "running" };
    } catch {
      return await this.#end.evidence();
    }
  }

  keep(): void {
    this.#kept = true;
  }

  /** Whether it is left running when disposed. */
  get kept(): boolean {
    return this.#kept;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#disposed ??= this.#kept ? this.#end.letGo(this.facts.spec.ttlMs) : this.#end.end();
  }

  #ping(deadlineMs: number): Promise<void> {
    return this.control.ask((n) => `gym_say ${n} here\n`, "here", { onMarker: () => {} }, deadlineMs);
  }

  // --- how a command runs ---

  #userOf(command: Pick<Command, "user">): string | undefined {
    return asRoot(command.user ?? this.facts.spec.user ?? this.facts.spec.image.user);
  }

  /** The archive alone: where the command runs as another user, or the image has no tar. */
  async #upload(archive: Archive, signal: AbortSignal): Promise<void> {
    if (!this.facts.tools.tar) return await this.#transfer.copyIn(archive, signal);
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
    const { client } = this.deps;
    const id = more.id ?? newExecId();
    const env = { ...this.facts.spec.env, ...command?.env };
    const byClient = oddVariables(env, this.facts.tools.bash !== "");
    const sweep = command !== undefined && !survives(command.purpose);
    // A reference solution past its limit is over with all it started; only an agent works on through its services.
    const wide = command !== undefined && command.purpose !== "agent";
    return await runExec(this.deps, {
      argv: client.exec({
        name: this.id,
        user,
        archive: more.archive !== undefined,
        envNames: byClient,
        shell: byClient.length > 0 ? this.facts.tools.bash : "/bin/sh",
      }),
      env: { ...this.deps.env, ...client.carried(Object.fromEntries(byClient.map((name) => [name, env[name]!]))) },
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
      stop: (launched) => this.#end.stop(launched, id, wide, user),
      onLaunched: more.onLaunched,
    });
  }

  /** The ending as a result, or the error that it stands for. */
  async #finished(
    ending: ExecEnding,
    command: Pick<Command, "cwd"> | undefined,
    user: string | undefined,
  ): Promise<{ ended: "exit" | "deadline"; exitCode: number; durationMs: number | undefined }> {
    const { id, deps, workdir } = this;
    const attempted = { id, engine: deps.client.name, cwd: command?.cwd ?? workdir, user };
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
        if (alive.state === "gone") throw lost(this.id, alive);
        return { ended: "exit", exitCode: ending.exitCode, durationMs: ending.durationMs };
      }
      case "cwd":
        throw notStarted(ending, attempted);
      case "refused": {
        const alive = await this.#settled();
        if (alive.state === "gone") throw lost(this.id, alive);
        throw notStarted(ending, attempted);
      }
    }
  }

  /** A client may learn of the end of a sandbox a moment before the line does. */
  async #settled(): Promise<Alive> {
    const alive = await this.alive();
    if (alive.state === "gone") return alive;
    await this.deps.clock.sleep(100);
    return await this.alive();
  }

  /** Turns the end of the line into "sandbox.lost" with evidence. */
  async #guarded<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof LineEnded) {
        const alive = await this.#end.evidence();
        throw lost(
          this.id,
          alive.state === "gone" ? alive : { state: "gone", oomKilled: null, exitCode: null, text: "its line ended" },
        );
      }
      if (error instanceof LineStuck) {
        throw new HarborError("sandbox.lost", `Sandbox ${this.id} does not answer`, { cause: error });
      }
      throw error;
    }
  }
}

/** Background services of an agent or the reference solution are part of what is graded. */
const survives = (purpose: Command["purpose"]): boolean => purpose === "agent" || purpose === "oracle";

export const newExecId = (): string => crypto.randomUUID().replaceAll("-", "").slice(0, 16);

const lastBytes = (text: string, bytes: number): string => {
  const all = new TextEncoder().encode(text);
  return new TextDecoder().decode(all.subarray(Math.max(0, all.length - bytes)));
};
