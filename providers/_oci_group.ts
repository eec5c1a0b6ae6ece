/**
 * The services of a Compose task as containers: one network and the named volumes, every sidecar with its own program as
 * its first process, and the agent's sandbox like any other, on that network. All of it carries the owner's labels.
 */
import { existsSync, mkdirSync } from "node:fs";
import { HarborError } from "../lib/errors.ts";
import type { Gate } from "../lib/runtime/pool.ts";
import { randomWord } from "../lib/runtime/random.ts";
import { decisiveLine, engineFailure } from "../lib/sandbox/failure.ts";
import type { Group, GroupSpec, MemberSpec, Service, ServiceSpec } from "../lib/sandbox/group.ts";
import { LABEL, labelsOf } from "../lib/sandbox/owner.ts";
import type { Sandbox, SandboxSpec } from "../lib/sandbox/provider.ts";
import { refuseVariables } from "../lib/sandbox/variables.ts";
import { removeArgv } from "./_oci_argv.ts";
import type { SandboxDeps } from "./_oci_deps.ts";
import { ownLimits } from "./_oci_diagnose.ts";
import type { EngineFacts } from "./_oci_engine.ts";
import { passEnvironment } from "./_oci_env.ts";
import { type Attachment, labelFlags, memberFlags, networkFlags, serviceArgv, stopArgv } from "./_oci_group_argv.ts";
import type { ImageHandle } from "./_oci_image.ts";
import { heldLimits } from "./_oci_limits.ts";
import { makeNetwork, makeVolume } from "./_oci_networks.ts";
import type { EngineOptions } from "./_oci_options.ts";
import { Reaper } from "./_oci_reaper.ts";
import type { OciSandbox } from "./_oci_sandbox.ts";
import { OciService } from "./_oci_service.ts";
import { AGAIN_MS, STARTS } from "./_oci_start.ts";
import { removeThings } from "./_oci_things.ts";

const GROUP_LABEL = `${LABEL}.group`;
const START_MS = 180_000;
const REMOVE_MS = 60_000;
/** The longest that an author's stop_grace_period holds up the end of an episode. */
const MOST_GRACE_MS = 10_000;

export interface GroupDeps extends SandboxDeps {
  facts: EngineFacts;
  options: EngineOptions;
  offline: boolean;
  /** One network at a time within this process; the lock between processes is polled, and slower. */
  networks: Gate;
  /** Opens an ordinary sandbox with these flags instead of its network. */
  open(spec: SandboxSpec, member: readonly string[], name: string, signal: AbortSignal): Promise<OciSandbox>;
}

/** Makes the network and the volumes; leaves nothing where one of them cannot be made. Throws "sandbox.failed". */
export async function openGroup(deps: GroupDeps, spec: GroupSpec, signal: AbortSignal): Promise<Group> {
  const group = new OciGroup(deps, spec);
  try {
    await group.begin(signal);
    return group;
  } catch (error) {
    await group[Symbol.asyncDispose]();
    throw error;
  }
}

class OciGroup implements Group {
  /** Names are never used again: an engine may hold on to one for a while (F11). */
  readonly #name: string;
  readonly #labels: Record<string, string>;
  #attachment: Attachment | undefined;
  #reaper: Reaper | undefined;
  readonly #volumes: string[] = [];
  /** Containers in the order of their start. */
  readonly #started: { service: string; container: string; graceMs: number; main?: OciSandbox }[] = [];
  #disposed: Promise<void> | undefined;

  constructor(private readonly deps: GroupDeps, private readonly spec: GroupSpec) {
    const { owner, episode } = spec;
    this.#name = plain(`gym-harbor-${owner.run}-${episode}-${randomWord(4)}`);
    this.#labels = this.#labelsOf("group");
  }

  /** By its label the reaper knows what belongs together. */
  #labelsOf(role: string): Record<string, string> {
    return { ...labelsOf(this.spec.owner, this.spec.episode, role), [GROUP_LABEL]: this.#name };
  }

  async begin(signal: AbortSignal): Promise<void> {
    const { deps, spec } = this;
    mkdirSync(deps.scratch, { recursive: true, mode: 0o700 });
    this.#reaper = await Reaper.start(deps, `${GROUP_LABEL}=${this.#name}`);
    const { program, options, facts } = deps;
    const internal = spec.network === "no-network";
    const nameServer = program.engine === "docker" || (!internal && facts.nameServer);
    const network = { name: this.#name, labels: this.#labels, internal, nameServer };
    const members = Math.max(spec.members.length, 1);
    this.#attachment = { ...network, network: this.#name, subnet: "", members: spec.members };
    const subnet = await deps.networks.hold(() =>
      makeNetwork(deps, { ...network, members }, options.subnetPool, signal)
    );
    this.#attachment = { ...this.#attachment, subnet };
    for (const volume of spec.volumes) {
      const name = this.#volume(volume);
      this.#volumes.push(name);
      await makeVolume(deps, name, this.#labels);
    }
    signal.throwIfAborted();
  }

  #volume = (name: string): string => plain(`${this.#name}-${name}`);

  async startService(spec: ServiceSpec, signal: AbortSignal): Promise<Service> {
    signal.throwIfAborted();
    refuseVariables(spec.env);
    const { deps } = this;
    const { program, runner, env, gate, facts, options } = deps;
    const name = plain(`${this.#name}-${spec.service}`);
    this.#started.push({ service: spec.service, container: name, graceMs: spec.stopGraceMs ?? 0 });
    const start = () =>
      gate.hold(async () => {
        using passed = passEnvironment(spec.env, deps.scratch);
        const argv = serviceArgv(program, {
          name,
          labels: this.#labelsOf(plain(spec.service)),
          image: (spec.image.handle as ImageHandle).id,
          flags: this.#flags(spec),
          limits: heldLimits(spec.limits, program.engine, facts).limits,
          pids: facts.limits.pids ? options.pidsLimit : undefined,
          proxies: !deps.offline && this.spec.network !== "no-network",
          envFlags: passed.flags,
          spec,
        });
        // Not to be ended half-way: what the engine starts after our client is gone nobody would know of. conmon 2.1
        // leaves a file named "oom" where it was started.
        return await runner.run(argv, { env: { ...env, ...passed.client }, cwd: deps.scratch, deadlineMs: START_MS });
      });
    let started = await start();
    for (let attempt = 1; attempt < STARTS && engineFailure(started.stderr)?.kind === "busy"; attempt++) {
      await this.#remove(name);
      await deps.clock.sleep(AGAIN_MS, signal);
      started = await start();
    }
    if (started.ended !== "exit" || started.exitCode !== 0) throw notStarted(spec, program.path, started);
    signal.throwIfAborted();
    return new OciService(name, spec, deps);
  }

  async openMain(spec: SandboxSpec, member: MemberSpec, signal: AbortSignal): Promise<Sandbox> {
    const name = plain(`${this.#name}-${member.service}`);
    const label = labelFlags({ [GROUP_LABEL]: this.#name });
    // The harness itself writes into it: /logs, /tests, /solution.
    const flags = [...label, ...this.#flags({ ...member, readOnly: false })];
    const main = await this.deps.open(spec, flags, name, signal);
    this.#started.push({ service: member.service, container: name, graceMs: 0, main });
    return main;
  }

  #flags(member: MemberSpec): string[] {
    const { program } = this.deps;
    const lender = member.networkOf;
    const container = lender === undefined
      ? undefined
      : this.#started.find(({ service }) => service === lender)?.container;
    if (lender !== undefined && container === undefined) {
      throw new HarborError(
        "sandbox.failed",
        `Service ${member.service} shares the network of ${lender}, which has not started`,
      );
    }
    const absent = member.mounts.find((mount) => mount.kind === "bind" && !existsSync(mount.source));
    if (absent?.kind === "bind") { // docker would make it, as root
      throw new HarborError(
        "sandbox.failed",
        `Service ${member.service} cannot be started: its mount ${absent.source} is not there`,
      );
    }
    const machine = { selinux: existsSync("/sys/fs/selinux/enforce"), ownLimits: ownLimits() };
    return [
      ...networkFlags(program.engine, this.#attachment!, member, container),
      ...memberFlags(program.engine, member, this.#volume, machine),
    ];
  }

  /** Why it could not be removed; undefined when it is gone. */
  async #remove(container: string): Promise<string | undefined> {
    const { program, runner, env, gate } = this.deps;
    const removed = await gate.hold(() =>
      runner.run(removeArgv(program, [container]), { env, deadlineMs: REMOVE_MS, graceMs: 0 })
    );
    const failure = engineFailure(removed.stderr);
    if (removed.exitCode === 0 || failure?.kind === "no-container") return undefined;
    return failure?.line ?? decisiveLine(removed.stderr);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#disposed ??= this.#end().finally(() => this.#reaper?.dismiss());
  }

  /** A main that is kept keeps all the others. Never throws: what cannot be removed is told as a warning, and found again by `sandbox gc`. */
  async #end(): Promise<void> {
    const { deps } = this;
    const { program, runner, env, gate, emit } = deps;
    const left: { name: string; reason: string }[] = [];
    if (this.#started.some(({ main }) => main?.kept)) {
      for (const { main } of this.#started) await main?.[Symbol.asyncDispose]();
      return;
    }
    for (const { container, graceMs, main } of this.#started.toReversed()) {
      if (main !== undefined) {
        await main[Symbol.asyncDispose]();
        continue;
      }
      if (graceMs > 0) {
        const seconds = Math.ceil(Math.min(graceMs, MOST_GRACE_MS) / 1000);
        await gate.hold(() => runner.run(stopArgv(program, container, seconds), { env, deadlineMs: REMOVE_MS }));
      }
      const reason = await this.#remove(container);
      if (reason !== undefined) left.push({ name: container, reason });
    }
    left.push(...await removeThings(deps, "volume", this.#volumes));
    if (this.#attachment !== undefined) left.push(...await removeThings(deps, "network", [this.#name]));
    for (const { name, reason } of left) {
      emit({ kind: "warning", text: `${name} could not be removed: ${reason}; gym-harbor sandbox gc tries again` });
    }
  }
}

const plain = (name: string): string => name.replace(/[^A-Za-z0-9_.-]/g, "-");

function notStarted(
  spec: ServiceSpec,
  engine: string,
  { ended, exitCode, stderr }: { ended: string; exitCode: number; stderr: string },
): HarborError {
  const failure = engineFailure(stderr);
  const cannot = `Service ${spec.service} cannot be started from ${spec.image.reference}`;
  const details = { service: spec.service, kind: failure?.kind ?? null };
  if (ended === "deadline") {
    return new HarborError("sandbox.failed", `${cannot}: ${engine} did not do it within ${START_MS / 1000} s`, {
      details,
    });
  }
  switch (failure?.kind) {
    case "no-program":
    case "not-executable":
      return new HarborError(
        "sandbox.failed",
        `${cannot}: its program ${spec.argv[0]} cannot be run: ${failure.line}`,
        {
          hint: "see entrypoint and command of the service",
          details,
        },
      );
    case "no-image":
      return new HarborError("image.failed", `${cannot}: the image is gone since it was prepared`, {
        hint: "gym-harbor dataset prepare brings it again",
        details,
      });
    case "daemon-down":
    case "no-permission":
      return new HarborError("engine.missing", `${engine} does not answer: ${failure.line}`, {
        hint: "see gym-harbor doctor",
      });
    default:
      return new HarborError(
        "sandbox.failed",
        `${cannot}: ${failure?.line ?? decisiveLine(stderr)} (exit code ${exitCode})`,
        { details },
      );
  }
}
