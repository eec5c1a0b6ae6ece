/** Starts a sandbox, from an empty folder to the first command it may take. */
import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { HarborError } from "../lib/errors.ts";
import type { Clock } from "../lib/runtime/clock.ts";
import type { Runner, Started } from "../lib/runtime/runner.ts";
import { startTime } from "../lib/sandbox/owner.ts";
import type { Network, ProviderName, SandboxSpec } from "../lib/sandbox/provider.ts";
import { groupName, type Groups, makeGroups, removeGroups } from "./_namespace_limits.ts";
import { type Machine, PATH, USER_NAMESPACE } from "./_namespace_machine.ts";
import { joinArgv, type Network as HeldNetwork } from "./_namespace_networks.ts";
import { NamespaceSandbox } from "./_namespace_sandbox.ts";
import { note } from "./_namespace_state.ts";
import { type Confined, type Entry, initProgram } from "./_namespace_init.ts";
import type { MountPlan, Storage } from "./_namespace_mounts.ts";
import { Session } from "./_namespace_session.ts";
import type { Tools } from "./_namespace_tools.ts";

/** What a sandbox sees as its root folder, made in its own folder: where `host` and `namespace` differ. */
export interface Rootfs {
  storage: Storage;
  /** How the sandbox's first process runs programs of ours inside. */
  tools: Tools;
  entry: Entry;
  /** The shell that a person gets who enters it. */
  shell: string;
  /** Name of the machine inside; undefined keeps this machine's. */
  hostname?: string;
  /** Environment of every command, below the image's. */
  env?: Readonly<Record<string, string>>;
  /** For messages: what a sandbox starts on. */
  on: string;
  /** What is not as the task asked. */
  notes: readonly string[];
  /** Makes folders and the fstab in `base`. */
  layOut(base: string, control: string): MountPlan;
  /** Right after the start, before anything of a task runs; `root` shows the sandbox's root folder. */
  started?(root: string): void;
}

/** What sandboxes of one provider share. Folders are absolute. */
export interface Household {
  /** Control folders whose named pipes are ready for another sandbox. */
  controls: string[];
  /** Makes an empty control folder. */
  makeControl(): string;
  /** Takes a sandbox's folder out of the way now and removes it in its own time. */
  discard(base: string): Promise<void>;
}

/** Lends network namespaces. */
export interface Lender {
  take(): Promise<HeldNetwork>;
  give(network: HeldNetwork): void;
}

export interface OpenRequest {
  provider: ProviderName;
  spec: SandboxSpec;
  machine: Machine;
  rootfs: Rootfs;
  network: Network;
  /** Lends it a network; undefined where it makes its own or shares this machine's. */
  lender: Lender | undefined;
  /** Names besides this machine's own that are reached without the proxy. */
  direct?: readonly string[];
  confined?: Confined;
  /** Folder of this sandbox on this machine, empty. */
  base: string;
  household: Household;
  id: string;
  maxProcesses: number;
  runner: Runner;
  clock: Clock;
}

const PIPES = Array.from({ length: 8 }, (_, at) => ({ stdout: `${at}o`, stderr: `${at}e` }));

/** Starts a sandbox. Leaves nothing behind when it throws "sandbox.failed". */
export async function openSandbox(request: OpenRequest, signal: AbortSignal): Promise<NamespaceSandbox> {
  const { spec, base, runner } = request;
  const held = await request.lender?.take();
  const known = request.household.controls.pop();
  const control = known ?? request.household.makeControl();
  const groups = makeGroups(groupName(spec.owner, basename(base)), spec.limits, request.maxProcesses);
  let started: Started | undefined;
  try {
    const plan = request.rootfs.layOut(base, control);
    const argv = startArgv(request, known === undefined ? control : undefined, held, groups);
    note(base, {
      id: request.id,
      owner: spec.owner,
      groups: groups.folders,
      created: new Date().toISOString(),
    });
    started = await runner.start(argv, { cwd: base, env: { PATH } });
    const box = await connect(request, plan, control, started, groups, held, signal);
    try {
      await box.seed(signal);
    } catch (error) {
      await box[Symbol.asyncDispose]();
      throw error;
    }
    return box;
  } catch (error) {
    started?.kill("SIGKILL");
    await started?.ended;
    await removeGroups(groups.folders, request.clock);
    if (held !== undefined) request.lender!.give(held);
    await request.household.discard(base);
    throw error;
  }
}

function startArgv(
  request: OpenRequest,
  newControl: string | undefined,
  held: HeldNetwork | undefined,
  groups: Groups,
): string[] {
  const { machine, spec, base, rootfs } = request;
  const own = request.network === "no-network" && held === undefined;
  const init = initProgram({
    base,
    tools: rootfs.tools,
    entry: rootfs.entry,
    ...(rootfs.hostname !== undefined && { hostname: rootfs.hostname }),
    ...(own && { loopback: machine.loopback }),
    ...(rootfs.storage === "memory" && {
      memory: spec.limits.storageMb === undefined ? {} : { sizeKb: spec.limits.storageMb * 1024 },
    }),
    sharedNetwork: request.network === "host",
    ...(request.confined !== undefined && { confined: request.confined }),
    ...(spec.limits.cpus !== undefined && !groups.holds.cpu && { cpuList: pickCpus(spec.limits.cpus) }),
    ...(!groups.holds.pids && { maxProcesses: request.maxProcesses }),
    ownUserNamespace: machine.mode === "user",
    ttlSeconds: spec.ttlMs / 1000,
    pipes: newControl === undefined
      ? []
      : PIPES.flatMap(({ stdout, stderr }) => [join(newControl, stdout), join(newControl, stderr)]),
  });
  // A joined network brings its user namespace along.
  const user = machine.ids === "all" || held !== undefined ? [] : USER_NAMESPACE[machine.ids];
  return [
    ...(spec.keepable ? [] : [machine.programs.setpriv, "--pdeathsig", "KILL"]),
    ...(held === undefined ? [] : joinArgv(machine, held)),
    machine.programs.unshare,
    ...user,
    "--mount",
    "--pid",
    "--ipc",
    "--uts",
    ...(own ? ["--net"] : []),
    "--fork",
    "--kill-child",
    "--propagation",
    "private",
    "/bin/sh",
    "-c",
    init,
    "gym-harbor",
  ];
}

let nextCpu = 0;

/** As many CPUs as asked, of those we may use, each sandbox beginning where the last one ended; undefined for all. */
function pickCpus(cpus: number): string | undefined {
  const line = /^Cpus_allowed_list:\s*(.*)$/m.exec(readFileSync("/proc/self/status", "latin1"));
  const allowed = (line?.[1] ?? "").split(",").flatMap((range) => {
    const [first, last = first] = range.split("-").map(Number);
    return Array.from({ length: last! - first! + 1 }, (_, at) => first! + at);
  }).filter(Number.isInteger);
  const count = Math.max(1, Math.ceil(cpus));
  if (count >= allowed.length) return undefined;
  const first = nextCpu % allowed.length;
  nextCpu += count;
  return Array.from({ length: count }, (_, at) => allowed[(first + at) % allowed.length]).join(",");
}

async function connect(
  request: OpenRequest,
  plan: MountPlan,
  control: string,
  started: Started,
  groups: Groups,
  held: HeldNetwork | undefined,
  signal: AbortSignal,
): Promise<NamespaceSandbox> {
  const { spec, base } = request;
  let stderr = "";
  started.stderr.on("data", (chunk) => (stderr = (stderr + chunk).slice(-4000)));
  let init: number | undefined;
  let session: Session | undefined;
  let entering: Promise<void> | undefined;
  const ready = new Promise<"ready" | "ended" | "late" | "aborted">((resolve) => {
    let said = "";
    started.stdout.on("data", (chunk) => {
      if (session !== undefined) return session.hear(String(chunk));
      said += chunk;
      const match = /^P (\d+)\n(R\n)?/.exec(said);
      if (match === null) return;
      init = Number(match[1]);
      entering ??= groups.enter(init);
      entering.catch(() => {});
      if (match[2] === undefined) return;
      session = new Session(started, {
        runner: request.runner,
        clock: request.clock,
        control,
        tools: request.rootfs.tools,
        ...(request.confined !== undefined && { capDrop: request.confined.capDrop }),
        init,
      });
      session.adopt(PIPES);
      resolve("ready");
    });
    started.ended.then(() => resolve("ended"));
    const timer = setTimeout(() => resolve("late"), Math.min(spec.readyTimeoutMs, 2 ** 31 - 1));
    timer.unref?.();
    signal.addEventListener("abort", () => resolve("aborted"), { once: true });
    if (signal.aborted) resolve("aborted");
  });
  const how = await ready;
  if (how !== "ready") {
    signal.throwIfAborted();
    const why = how === "late"
      ? `not ready within ${spec.readyTimeoutMs} ms`
      : stderr.trim().split("\n")[0] || "its first process ended"; // one refused mount makes many lines
    throw new HarborError("sandbox.failed", `Cannot start a sandbox on ${request.rootfs.on}: ${why}`, {
      hint: "gym-harbor doctor tries it and names what is missing",
      details: { stderr },
    });
  }
  note(base, {
    id: request.id,
    owner: spec.owner,
    init: { pid: init!, start: startTime(init!) ?? "" },
    groups: groups.folders,
    created: new Date().toISOString(),
  });
  await entering; // no word of a task before its limits hold
  request.rootfs.started?.(`/proc/${init!}/root`);
  return new NamespaceSandbox(request, plan, control, started, session!, init!, groups, held);
}
