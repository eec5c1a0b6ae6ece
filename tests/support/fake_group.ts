/**
 * A group without sandboxes: every service does what the test's table says, and what was asked stands in `log` in order.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { HarborError } from "../../lib/errors.ts";
import type { Group, GroupSpec, MemberSpec, Service, ServiceSpec, ServiceState } from "../../lib/sandbox/group.ts";
import type { Command, ExecResult, Sandbox, SandboxSpec } from "../../lib/sandbox/provider.ts";

/** How one service behaves. */
export interface Behaviour {
  /** Thrown by startService(). */
  refuses?: HarborError;
  /** Exit codes of the probes in order, the last one repeated. Default: healthy. */
  probes?: number[];
  /** Resolves when the process ends; absent: it runs on. */
  ends?: Promise<{ exitCode: number | null }>;
  state?: ServiceState;
  output?: string;
  /** Answers a hook. */
  hook?: Partial<ExecResult>;
}

export class FakeGroup implements Group {
  readonly log: string[] = [];
  readonly specs = new Map<string, ServiceSpec>();
  opened: GroupSpec | undefined;
  main: { spec: SandboxSpec; member: MemberSpec } | undefined;
  #box: Sandbox | undefined;

  constructor(
    private readonly behaviours: Record<string, Behaviour> = {},
    private readonly openSandbox: (spec: SandboxSpec, signal: AbortSignal) => Promise<Sandbox> = () =>
      Promise.resolve(nothing()),
  ) {}

  open = (spec: GroupSpec): Promise<Group> => {
    this.opened = spec;
    this.log.push("open");
    return Promise.resolve(this);
  };

  startService(spec: ServiceSpec, signal: AbortSignal): Promise<Service> {
    signal.throwIfAborted();
    const behaviour = this.behaviours[spec.service] ?? {};
    this.log.push(`start ${spec.service}`);
    this.specs.set(spec.service, spec);
    if (behaviour.refuses !== undefined) return Promise.reject(behaviour.refuses);
    return Promise.resolve(new FakeService(spec.service, behaviour, this.log));
  }

  async openMain(spec: SandboxSpec, member: MemberSpec, signal: AbortSignal): Promise<Sandbox> {
    this.log.push("start main");
    this.main = { spec, member };
    return this.#box = await this.openSandbox(spec, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.log.push("dispose");
    await this.#box?.[Symbol.asyncDispose]();
  }
}

class FakeService implements Service {
  #probes: number[];

  constructor(readonly name: string, private readonly behaviour: Behaviour, private readonly log: string[]) {
    this.#probes = [...behaviour.probes ?? [0]];
  }

  state(): Promise<ServiceState> {
    return Promise.resolve(this.behaviour.state ?? { state: "running" });
  }

  ended(signal: AbortSignal): Promise<{ exitCode: number | null }> {
    const aborted = new Promise<never>((_, reject) =>
      signal.addEventListener("abort", () => reject(signal.reason), { once: true })
    );
    return Promise.race([this.behaviour.ends ?? aborted, aborted]);
  }

  exec(command: Command, signal: AbortSignal): Promise<ExecResult> {
    signal.throwIfAborted();
    const isProbe = command.purpose === "server";
    const words = "argv" in command.run ? command.run.argv : [command.run.script];
    this.log.push(`${isProbe ? "probe" : "hook"} ${this.name}: ${words.join(" ")}`);
    const exitCode = !isProbe ? 0 : this.#probes.length > 1 ? this.#probes.shift()! : this.#probes[0]!;
    return Promise.resolve({
      ended: "exit",
      exitCode,
      stdout: "",
      stderr: exitCode === 0 ? "" : "no answer",
      droppedBytes: 0,
      durationMs: 1,
      collected: {},
      brought: [],
      oomKilled: null,
      ...(isProbe ? {} : this.behaviour.hook),
    });
  }

  tail(bytes: number): Promise<string> {
    return Promise.resolve((this.behaviour.output ?? "").slice(-bytes));
  }

  saveLog(path: string): Promise<void> {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, this.behaviour.output ?? "");
    return Promise.resolve();
  }
}

/** A sandbox for tests that look at the others. */
const nothing = (): Sandbox => ({ [Symbol.asyncDispose]: () => Promise.resolve() }) as unknown as Sandbox;
