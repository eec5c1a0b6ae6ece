/** Starts a sandbox on this machine's root, from an empty folder to the first command it may take. */
import { readFileSync, rmdirSync } from "node:fs";
import { basename, join } from "node:path";
import { HarborError } from "../lib/errors.ts";
import type { Started } from "../lib/runtime/runner.ts";
import { startTime } from "../lib/sandbox/owner.ts";
import { layOut, type OpenRequest } from "./_host_layout.ts";
import { groupName, type Groups, makeGroups, removeGroups } from "./_host_limits.ts";
import { PATH, USER_NAMESPACE } from "./_host_machine.ts";
import { joinArgv, type Network as HeldNetwork } from "./_host_networks.ts";
import { HostSandbox } from "./_host_sandbox.ts";
import { note } from "./_host_state.ts";
import { initProgram } from "./_namespace_init.ts";
import type { MountPlan } from "./_namespace_mounts.ts";
import { Session } from "./_namespace_session.ts";

const PIPES = Array.from({ length: 8 }, (_, at) => ({ stdout: `${at}o`, stderr: `${at}e` }));

/** Starts a sandbox. Leaves nothing behind when it throws "sandbox.failed". */
export async function openSandbox(request: OpenRequest, signal: AbortSignal): Promise<HostSandbox> {
  const { spec, base, runner } = request;
  const held = request.network === "public" ? await request.networks!.take() : undefined;
  const known = request.folders.controls.pop();
  const control = known ?? request.folders.makeControl();
  const groups = makeGroups(groupName(spec.owner, basename(base)), spec.limits, request.maxProcesses);
  let started: Started | undefined;
  try {
    const plan = layOut(request, control);
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
    if (held !== undefined) request.networks!.give(held);
    await request.folders.discard(base);
    throw error;
  }
}

function startArgv(
  request: OpenRequest,
  newControl: string | undefined,
  held: HeldNetwork | undefined,
  groups: Groups,
): string[] {
  const { machine, spec, base, way } = request;
  const own = request.network === "no-network";
  const init = initProgram({
    base,
    setpriv: machine.programs.setpriv,
    bash: machine.programs.bash,
    ...(own && { loopback: machine.loopback }),
    ...(way.storage === "memory" && {
      memory: spec.limits.storageMb === undefined ? {} : { sizeKb: spec.limits.storageMb * 1024 },
    }),
    sharedNetwork: request.network === "host",
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
): Promise<HostSandbox> {
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
        setpriv: request.machine.programs.setpriv,
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
      : stderr.trim() || "its first process ended";
    throw new HarborError("sandbox.failed", `Cannot start a sandbox on this machine's root: ${why}`, {
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
  rmdirSync(`/proc/${init!}/root/.old`); // nothing of a task runs yet
  return new HostSandbox(request, plan, control, started, session!, init!, groups, held);
}
