/** A sidecar of a group in a sandbox of its own: its program is started there, and the sandbox ends with it. */
import { closeSync, existsSync, fstatSync, openSync, readSync, writeSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import process from "node:process";
import { Buffer } from "node:buffer";
import { errno, HarborError } from "../lib/errors.ts";
import type { Clock } from "../lib/runtime/clock.ts";
import type { Service, ServiceSpec, ServiceState } from "../lib/sandbox/group.ts";
import type { Command, ExecResult } from "../lib/sandbox/provider.ts";
import type { NamespaceSandbox } from "./_namespace_sandbox.ts";

/** A program that cannot be started says so within this. */
const FIRST_WORD_MS = 40;
/** The longest that an author's stop_grace_period holds up the end of an episode. */
const MOST_GRACE_MS = 10_000;
/** Of what a service prints; the rest is dropped and said. */
const MOST_LOG_BYTES = 256 * 2 ** 20;

export class LayersService implements Service {
  readonly name: string;
  readonly #log: number;
  #logged = 0;
  #pid: number | undefined;
  #state: ServiceState = { state: "running" };
  #over: Promise<{ exitCode: number | null }> | undefined;

  constructor(
    private readonly box: NamespaceSandbox,
    private readonly spec: ServiceSpec,
    private readonly shell: boolean,
    private readonly logFile: string,
    private readonly clock: Clock,
  ) {
    this.name = spec.service;
    this.#log = openSync(logFile, "w+", 0o600);
  }

  /** Resolves once its program has begun. Throws "sandbox.failed" with what it said. */
  async start(): Promise<void> {
    const { spec, box } = this;
    let begun: () => void = () => {};
    const first = new Promise<void>((resolve) => (begun = resolve));
    const running = await box.spawn({
      run: { argv: spec.argv },
      purpose: "server",
      onOutput: (chunk) => this.#write(chunk),
      onStart: (pid) => {
        this.#pid = pid;
        begun();
      },
    });
    this.#over = running.wait().then(async ({ exitCode }) => {
      const gone = box.lostNow;
      this.#state = { state: "ended", exitCode: gone ? null : exitCode };
      await box[Symbol.asyncDispose](); // as a container does with its first process
      return { exitCode: gone ? null : exitCode };
    });
    await Promise.race([first, this.#over]);
    await Promise.race([this.#over, this.clock.sleep(FIRST_WORD_MS)]);
    const now = this.#state;
    if (now.state === "running" || (now.exitCode !== 126 && now.exitCode !== 127)) return;
    const said = (await this.tail(500)).trim();
    if (!/not found|No such file|[Pp]ermission denied|cannot execute|Is a directory/.test(said)) return;
    throw new HarborError(
      "sandbox.failed",
      `Service ${this.name} cannot be started from ${spec.image.reference}: its program ${
        spec.argv[0]
      } cannot be run: ${said}`,
      { hint: "see entrypoint and command of the service", details: { service: this.name, kind: "no-program" } },
    );
  }

  state(): Promise<ServiceState> {
    return Promise.resolve(this.#state);
  }

  async ended(signal: AbortSignal): Promise<{ exitCode: number | null }> {
    let abort = () => {};
    const aborted = new Promise<never>((_, reject) => {
      abort = () => reject(signal.reason);
      signal.addEventListener("abort", abort, { once: true });
    });
    try {
      signal.throwIfAborted();
      return await Promise.race([this.#over!, aborted]);
    } finally {
      signal.removeEventListener("abort", abort);
    }
  }

  async exec(command: Command, signal: AbortSignal): Promise<ExecResult> {
    if (this.#state.state === "ended") {
      throw new HarborError("sandbox.lost", `Service ${this.name} has ended`, { details: { ...this.#state } });
    }
    if ("script" in command.run && !this.shell) {
      const nothing = { collected: {}, brought: [], oomKilled: null, droppedBytes: 0, durationMs: 0, stdout: "" };
      return { ...nothing, ended: "exit", exitCode: 127, stderr: "the image has no /bin/sh\n" };
    }
    return await this.box.exec(command, signal);
  }

  // deno-lint-ignore require-await -- answers with a promise, also when it throws
  async tail(bytes: number): Promise<string> {
    const from = Math.max(0, this.#logged - bytes);
    return this.#read(from, this.#logged - from).toString();
  }

  /** What does not fit is left out of the middle, and said there. */
  async saveLog(path: string, maxBytes: number): Promise<void> {
    if (this.#logged <= maxBytes) return await writeFile(path, this.#read(0, this.#logged), { mode: 0o644 });
    const end = Math.min(maxBytes, 1 << 20);
    const head = maxBytes - end;
    const left = `\n… ${this.#logged - maxBytes} bytes left out …\n`;
    const parts = [this.#read(0, head), Buffer.from(left), this.#read(this.#logged - end, end)];
    await writeFile(path, Buffer.concat(parts), { mode: 0o644 });
  }

  /** Asks it to end where its author gives it time to, then ends it. */
  async stop(): Promise<void> {
    const graceMs = Math.min(this.spec.stopGraceMs ?? 0, MOST_GRACE_MS);
    if (graceMs > 0 && this.#state.state === "running" && this.#pid !== undefined) {
      try {
        process.kill(this.#pid, signalOf(this.spec.stopSignal));
        await Promise.race([this.#over, this.clock.sleep(graceMs)]);
      } catch (error) {
        if (errno(error) === undefined) throw error; // gone meanwhile, or no such signal
      }
    }
    await this.box[Symbol.asyncDispose]();
    await this.#over;
  }

  /** After stop(): its output is not asked for any more. */
  close(): void {
    closeSync(this.#log);
  }

  #write(chunk: Uint8Array): void {
    if (this.#logged + chunk.length > MOST_LOG_BYTES) return;
    for (let at = 0; at < chunk.length;) {
      at += writeSync(this.#log, chunk, at, chunk.length - at, this.#logged + at);
    }
    this.#logged += chunk.length;
  }

  #read(from: number, length: number): Buffer {
    const file = existsSync(this.logFile) ? this.#log : undefined;
    if (file === undefined) return Buffer.alloc(0);
    const bytes = Buffer.alloc(Math.min(length, Math.max(0, fstatSync(file).size - from)));
    for (let at = 0; at < bytes.length;) at += readSync(file, bytes, at, bytes.length - at, from + at);
    return bytes;
  }
}

/** `SIGINT`, `INT` or `2`, as Compose takes them. */
function signalOf(name: string | undefined): NodeJS.Signals | number {
  if (name === undefined) return "SIGTERM";
  if (/^\d+$/.test(name)) return Number(name);
  return (name.startsWith("SIG") ? name : `SIG${name}`) as NodeJS.Signals;
}
