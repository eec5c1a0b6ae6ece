/**
 * Whether sandboxes in namespaces work on this machine, and if not, which piece is missing and who must mend it. It starts
 * a sandbox for real and reads what failed; the settings of distributions that forbid user namespaces are known by name
 * (spec/decisions 30).
 */
import { existsSync, readFileSync } from "node:fs";
import process from "node:process";
import { HarborError, messageOf } from "../lib/errors.ts";
import { newRunId, thisOwner } from "../lib/sandbox/owner.ts";
import type { Runner } from "../lib/runtime/runner.ts";
import type {
  Capabilities,
  Diagnosis,
  Missing,
  Network,
  PreparedImage,
  ProviderName,
  Sandbox,
  SandboxSpec,
} from "../lib/sandbox/provider.ts";
import { groupName, makeGroups, removeGroupsNow } from "./_namespace_limits.ts";
import { type Machine, missingPrograms, PATH } from "./_namespace_machine.ts";
import type { Storage } from "./_namespace_mounts.ts";

const OTHER_WAYS = "or use --sandbox podman, docker or, where the site offers it, apptainer";
const ADMIN = "as administrator";

export interface Probe {
  /** Text of a file below /proc or /sys; undefined when it is not there. */
  read(path: string): string | undefined;
  exists(path: string): boolean;
  uid: number;
  user: string;
}

const HERE: Probe = {
  read: (path) => {
    try {
      return readFileSync(path, "latin1").trim();
    } catch {
      return undefined;
    }
  },
  exists: existsSync,
  uid: process.getuid?.() ?? 0,
  user: process.env.USER || String(process.getuid?.() ?? ""),
};

/** Settings that forbid what a start needs, worded with their mend. Pure over `probe`. */
function knownObstacles(probe: Probe): Missing[] {
  const found: Missing[] = [];
  const add = (what: string, fix: string) => void found.push({ what, fix });
  if (probe.read("/proc/sys/user/max_user_namespaces") === "0") {
    add(
      "user namespaces are switched off (user.max_user_namespaces = 0)",
      `${ADMIN}: sysctl -w user.max_user_namespaces=15000 (and in /etc/sysctl.d/), ${OTHER_WAYS}`,
    );
  }
  if (probe.read("/proc/sys/kernel/unprivileged_userns_clone") === "0") {
    add(
      "plain users may not make user namespaces (kernel.unprivileged_userns_clone = 0, older Debian)",
      `${ADMIN}: sysctl -w kernel.unprivileged_userns_clone=1, ${OTHER_WAYS}`,
    );
  }
  if (probe.read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") === "1") {
    add(
      "AppArmor takes the rights out of user namespaces (kernel.apparmor_restrict_unprivileged_userns = 1, Ubuntu 23.10 and newer)",
      `${ADMIN}: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with "userns," for this program, ${OTHER_WAYS}`,
    );
  }
  if (probe.exists("/.dockerenv") || probe.exists("/run/.containerenv")) {
    add(
      "this is a container without the right to mount",
      "start the container with --privileged, or with --security-opt seccomp=unconfined --security-opt apparmor=unconfined " +
        "--security-opt systempaths=unconfined --cap-add SYS_ADMIN, or run outside of it",
    );
  }
  return found;
}

/** The version of util-linux: 2.38 is what this was made with; 2.33 lacks `--map-users`, older ones `--pdeathsig`. */
function versionFault(version: string): Missing | undefined {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (major > 2 || (major === 2 && minor >= 38)) return undefined;
  const lacks = minor < 33 ? "setpriv --pdeathsig (2.33)" : "unshare --map-users=auto (2.38)";
  return {
    what: `util-linux ${version || "of unknown version"}: no ${lacks}`,
    fix: `${ADMIN}: install util-linux 2.38 or newer`,
  };
}

/** What differs between the providers that are diagnosed. */
export interface Trial {
  name: ProviderName;
  machine(): Promise<Machine>;
  /** Opens a sandbox; what it starts from costs nothing to have. */
  open(network: Network, setup: string): Promise<Sandbox>;
  /** Facts that do not stand in the way, asked after a sandbox was open. */
  notes(machine: Machine): Missing[];
  /** Besides what any such sandbox can. */
  capabilities: Pick<Capabilities, "build">;
  facts?(): string[];
}

/** What is written and seen by any sandbox that works; bash's own words alone, an image may have no programs. */
const PROOF = "echo x >/etc/gym-harbor-doctor && [ -e /proc/1/stat ] && : </dev/null";

export async function diagnoseNamespaces(
  runner: Runner,
  signal: AbortSignal,
  depth: "quick" | "thorough",
  trial: Trial,
): Promise<Diagnosis> {
  const { name } = trial;
  const missing = missingPrograms().map((program): Missing => ({
    what: `${program} is not installed`,
    fix: `${ADMIN}: apt-get install util-linux mount bash coreutils (or the distribution's packages of these)`,
  }));
  if (process.platform !== "linux") missing.push({ what: "this is no Linux", fix: "use --sandbox docker" });
  if (missing.length > 0) return { name, usable: false, missing, capabilities: null };
  let old: Missing | undefined;
  let obstacles: Missing[] = [];
  try {
    const version = await utilLinuxVersion(runner);
    old = versionFault(version);
    const machine = await trial.machine();
    if (machine.mode === "user") obstacles = knownObstacles(HERE);
    // A quick look still starts one sandbox: it costs 50 ms and nothing else is a proof.
    for (const network of depth === "thorough" ? ["no-network", "public"] as const : ["no-network"] as const) {
      await (await trial.open(network, PROOF))[Symbol.asyncDispose]();
    }
    return {
      name,
      usable: true,
      missing: [...(old ? [old] : []), ...worthKnowing(machine), ...trial.notes(machine), SHARED_KERNEL],
      capabilities: { ...capabilitiesOf(machine, version), ...trial.capabilities },
      ...(depth === "thorough" && trial.facts !== undefined && { facts: trial.facts() }),
    };
  } catch (error) {
    signal.throwIfAborted();
    return { name, usable: false, missing: [...obstacles, ...(old ? [old] : []), faultOf(error)], capabilities: null };
  }
}

/** The specification of a sandbox that is opened to see whether it opens. */
export function trialSpec(image: PreparedImage, network: Network, setup: string): SandboxSpec {
  return {
    image,
    owner: thisOwner(newRunId()),
    episode: "doctor",
    role: "agent",
    env: {},
    workdir: undefined,
    user: undefined,
    network,
    limits: {},
    ttlMs: 60_000,
    readyTimeoutMs: 30_000,
    setup,
  };
}

function faultOf(error: unknown): Missing {
  const hint = error instanceof HarborError ? error.hint : undefined;
  const said = messageOf(error);
  if (/unshare failed: (Operation not permitted|No space left)/.test(said)) {
    return { what: `namespaces cannot be made here: ${said}`, fix: `${ADMIN}: allow user namespaces, ${OTHER_WAYS}` };
  }
  if (/mount.*(permission denied|not permitted)/i.test(said)) {
    return { what: `mounts are refused here: ${said}`, fix: `run outside of the container, ${OTHER_WAYS}` };
  }
  return { what: said, fix: hint ?? OTHER_WAYS.slice(3) };
}

/** Facts that do not stand in the way. */
function worthKnowing(machine: Machine): Missing[] {
  const notes: Missing[] = [];
  if (machine.ids === "own") {
    notes.push({
      what: `only one id inside: tasks that need another user are refused (${machine.idsReason})`,
      fix:
        `${ADMIN}: apt-get install uidmap && usermod --add-subuids 100000-165535 --add-subgids 100000-165535 ${HERE.user}`,
    });
  }
  if (machine.loopback === undefined) {
    notes.push({ what: "no program here brings up loopback", fix: `${ADMIN}: apt-get install iproute2` });
  }
  if (!limitsHold()) {
    notes.push({
      what: "no control group may be written: CPUs are held by affinity, memory is watched ten times a second",
      fix: `${ADMIN}: delegate cgroup v2 controllers to this user (systemd: Delegate=cpu memory pids)`,
    });
  }
  return notes;
}

const SHARED_KERNEL: Missing = {
  what: "it guards against accidents and ordinary agents, not against exploits of the kernel, which it shares",
  fix: "use --sandbox docker or podman on a machine of its own for agents you do not trust",
};

/** What is worth knowing about where sandboxes write. */
export function storageNotes(storage: Storage): Missing[] {
  switch (storage) {
    case "memory":
      return [{
        what: "what tasks write is kept in memory: the disk of TMPDIR cannot hold overlays",
        fix: "set TMPDIR to a local ext4 or xfs disk",
      }];
    case "read-only":
      return [{
        what: "this kernel refuses overlays: /usr and its like are read-only inside",
        fix: "a kernel of 5.11 or newer",
      }];
    case "disk":
      return [];
  }
}

function limitsHold(): boolean {
  const groups = makeGroups(groupName(thisOwner(newRunId()), "doctor"), { memoryMb: 64, cpus: 1 }, 64);
  try {
    return groups.holds.memory && groups.holds.cpu && groups.holds.pids;
  } finally {
    removeGroupsNow(groups.folders);
  }
}

function capabilitiesOf(machine: Machine, version: string): Capabilities {
  return {
    networks: ["public", ...(machine.loopback === undefined ? [] : ["no-network" as const]), "host"],
    limits: limitsHold() ? "enforced" : "watched",
    users: machine.ids === "own" ? "own-id-only" : "any",
    build: false,
    gpu: false,
    version: `util-linux ${version}`,
  };
}

async function utilLinuxVersion(runner: Runner): Promise<string> {
  const said = await runner.run(["unshare", "--version"], { env: { PATH }, deadlineMs: 5000 });
  return /(\d+\.\d+(\.\d+)?)/.exec(said.stdout)?.[1] ?? "";
}
