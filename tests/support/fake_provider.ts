/**
 * A sandbox provider without sandboxes: every command is answered by a script of the test, files "written" in the
 * sandbox land where a real provider would bring them. It records what it was asked, so a test can tell what reached
 * whom and in which order.
 */
import { Buffer } from "node:buffer";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { HarborError } from "../../lib/errors.ts";
import type {
  Alive,
  Collected,
  Command,
  Diagnosis,
  ExecResult,
  ImageNeed,
  PreparedImage,
  Running,
  Sandbox,
  SandboxProvider,
  SandboxSpec,
} from "../../lib/sandbox/provider.ts";

/** How one command ends. `files`: relative path below /logs/verifier → content. */
export interface Answer {
  ended?: "exit" | "deadline";
  exitCode?: number;
  stdout?: string;
  stderr?: string;
  oomKilled?: boolean | null;
  files?: Record<string, string>;
  /** Instead of a file's content: why the provider did not read it. */
  refused?: Record<string, string>;
  throws?: Error;
  /** Waits until the signal aborts or this is settled. */
  until?: Promise<unknown>;
}

export type Answers = Partial<Record<Command["purpose"], Answer | ((command: Command) => Answer)>>;

export interface FakeOptions {
  answers?: Answers;
  image?: Partial<PreparedImage>;
  /** Thrown by prepare() for this task's id. */
  prepareFails?: Record<string, Error>;
  openFails?: Error;
  alive?: Alive;
  /** Of the ENTRYPOINT: its exit code at each poll, the last one repeated; null means it runs. */
  entrypoint?: (number | null)[];
  disposeFails?: Error;
}

export const PASS: Answers = { verifier: { files: { "reward.txt": "1\n", "test-stdout.txt": "all good\n" } } };

export class FakeProvider implements SandboxProvider {
  readonly name = "docker";
  readonly log: string[] = [];
  readonly specs: SandboxSpec[] = [];
  readonly commands: Command[] = [];
  readonly prepared: ImageNeed[] = [];
  open_ = 0;
  mostOpen = 0;
  kept = 0;
  swept: string[] = [];

  constructor(readonly options: FakeOptions = {}) {}

  diagnose(): Promise<Diagnosis> {
    return Promise.resolve({ name: this.name, usable: true, missing: [], capabilities: null });
  }

  prepare(need: ImageNeed): Promise<PreparedImage> {
    this.prepared.push(need);
    const failure = this.options.prepareFails?.[need.taskId];
    if (failure !== undefined) return Promise.reject(failure);
    const reference = need.source.kind === "named" ? need.source.reference : "hb__fake";
    return Promise.resolve({
      reference,
      workdir: "/app",
      env: {},
      user: "",
      entrypoint: [],
      notes: [],
      ...this.options.image,
    });
  }

  open(spec: SandboxSpec, signal: AbortSignal): Promise<Sandbox> {
    signal.throwIfAborted();
    this.specs.push(spec);
    this.log.push(`open ${spec.episode}`);
    if (this.options.openFails !== undefined) return Promise.reject(this.options.openFails);
    this.mostOpen = Math.max(this.mostOpen, ++this.open_);
    return Promise.resolve(new FakeSandbox(this, spec));
  }

  list = () => Promise.resolve([]);
  sweep = () => Promise.resolve({ removed: [], failed: [] });
  sweepNow(run: string): void {
    this.swept.push(run);
  }
}

class FakeSandbox implements Sandbox {
  readonly limits = "enforced";
  readonly network: Sandbox["network"];
  readonly notes: readonly string[];
  readonly workdir: string;
  #gone = false;

  constructor(private readonly provider: FakeProvider, private readonly spec: SandboxSpec) {
    this.network = spec.network;
    this.notes = spec.image.notes;
    this.workdir = spec.workdir ?? spec.image.workdir;
  }

  get id(): string {
    return `fake-${this.spec.episode}`;
  }
  get enterArgv(): readonly string[] {
    return ["docker", "exec", "-it", this.id, "bash"];
  }

  async exec(command: Command, signal: AbortSignal): Promise<ExecResult> {
    signal.throwIfAborted();
    this.provider.commands.push(command);
    this.provider.log.push(`${command.purpose} ${this.spec.episode}`);
    const given = this.provider.options.answers?.[command.purpose] ?? PASS[command.purpose] ?? {};
    const answer = typeof given === "function" ? given(command) : given;
    if (answer.until !== undefined) await orAborted(answer.until, signal);
    if (answer.throws !== undefined) throw answer.throws;
    for (const { to } of command.bring ?? []) {
      for (const [path, content] of Object.entries(answer.files ?? {})) {
        mkdirSync(dirname(join(to, path)), { recursive: true });
        writeFileSync(join(to, path), content);
      }
    }
    return {
      ended: answer.ended ?? "exit",
      exitCode: answer.exitCode ?? 0,
      stdout: answer.stdout ?? "",
      stderr: answer.stderr ?? "",
      droppedBytes: 0,
      durationMs: 1,
      collected: Object.fromEntries((command.collect ?? []).map(({ path }) => [path, collected(path, answer)])),
      brought: (command.bring ?? []).map(() => ({ files: 0, bytes: 0, refused: [] })),
      oomKilled: answer.oomKilled ?? null,
    };
  }

  spawn(): Promise<Running> {
    this.provider.log.push(`spawn ${this.spec.episode}`);
    const codes = [...this.provider.options.entrypoint ?? [null]];
    const poll = () => Promise.resolve((codes.length > 1 ? codes.shift() : codes[0])!);
    return Promise.resolve({
      wait: () => new Promise(() => {}),
      tail: () => Promise.resolve("entrypoint says hello\n"),
      poll,
      kill: () => Promise.resolve(),
    });
  }

  download = () => Promise.resolve({ files: 0, bytes: 0, refused: [] });
  read = () => Promise.reject(new HarborError("transfer.failed", "the fake reads nothing"));
  alive = () => Promise.resolve(this.provider.options.alive ?? { state: "running" as const });
  keep(): void {
    this.provider.kept++;
  }

  [Symbol.asyncDispose](): Promise<void> {
    if (this.#gone) return Promise.resolve();
    this.#gone = true;
    this.provider.open_--;
    this.provider.log.push(`close ${this.spec.episode}`);
    const failure = this.provider.options.disposeFails;
    return failure === undefined ? Promise.resolve() : Promise.reject(failure);
  }
}

function collected(path: string, answer: Answer): Collected {
  const name = path.slice(path.lastIndexOf("/") + 1);
  const reason = answer.refused?.[name];
  if (reason !== undefined) return { kind: "refused", reason };
  const content = answer.files?.[name];
  return content === undefined ? { kind: "absent" } : { kind: "file", data: Buffer.from(content) };
}

function orAborted(promise: Promise<unknown>, signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    promise.then(resolve, reject);
  });
}
