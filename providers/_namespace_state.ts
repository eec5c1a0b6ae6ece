/**
 * What a sandbox leaves on this machine's disk while it lives: its folder with a file that says whose it is, so that a
 * later start finds and ends what a killed run left.
 */
import { chmodSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../lib/runtime/clock.ts";
import type { Runner } from "../lib/runtime/runner.ts";
import { type Owner, startTime } from "../lib/sandbox/owner.ts";
import { type Machine, PATH, USER_NAMESPACE } from "./_namespace_machine.ts";
import { killAll } from "./_namespace_tree.ts";

/** Folders of providers below a run's scratch folder: two of one run must not meet. */
const FOLDER = /^(host|namespace|apptainer|enroot)-[a-z0-9]{8}$/;
/** Folder of sandboxes in it. */
export const BOXES = "boxes";

/** File in a sandbox's folder that says what it is, for `list` and `sweep`. */
export const STATE = "sandbox.json";

export interface SandboxState {
  id: string;
  owner: Owner;
  /** PID 1 as this machine counts it, with its start time; absent until it runs. */
  init?: { pid: number; start: string };
  /** Control groups to remove. */
  groups: string[];
  created: string;
}

export function note(base: string, state: SandboxState): void {
  writeFileSync(join(base, STATE), JSON.stringify(state));
}

/** Removes a sandbox's folder; what other ids than ours wrote there goes from inside a user namespace. */
export async function removeBase(base: string, machine: Pick<Machine, "ids">, runner: Runner): Promise<void> {
  try {
    unlockWork(base);
    await rm(base, { recursive: true, force: true });
  } catch {
    const options = { env: { PATH }, deadlineMs: 60_000 };
    if (machine.ids === "ranges") {
      await runner.run(["unshare", ...USER_NAMESPACE.ranges, "rm", "-rf", "--", base], options);
    } else {
      await runner.run(["chmod", "-R", "u+rwX", base], options);
      await rm(base, { recursive: true, force: true });
    }
  }
}

/** The same without giving way, as far as our own id may. */
export function removeBaseNow(base: string): void {
  try {
    unlockWork(base);
    rmSync(base, { recursive: true, force: true });
  } catch {
    // goes with the run's scratch folder
  }
}

/** Overlays make `work` with mode 000 (6.18): a plain owner cannot even list it. */
function unlockWork(base: string): void {
  const works = join(base, "tree/wk");
  if (!existsSync(works)) return;
  for (const name of readdirSync(works)) {
    const work = join(works, name, "work");
    if (existsSync(work)) chmodSync(work, 0o700);
  }
}

/** Folders of all sandboxes below a run's scratch folder, of one provider or of all. */
export function boxesIn(run: string, provider?: string): string[] {
  return namesIn(run).filter((name) => provider === undefined || provider === FOLDER.exec(name)?.[1])
    .filter((name) => FOLDER.test(name)).map((name) => join(run, name, BOXES))
    .flatMap((boxes) => namesIn(boxes).map((name) => join(boxes, name)));
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** Undefined for a folder that never became a sandbox: it goes with its run's scratch folder. */
export function stateOf(base: string): SandboxState | undefined {
  try {
    return JSON.parse(readFileSync(join(base, STATE), "utf8")) as SandboxState;
  } catch {
    return undefined;
  }
}

/** Kills what runs in a sandbox, when its first process is still the one that was noted. Returns whether it was. */
export function killState({ init }: SandboxState): boolean {
  if (init === undefined || init.start === "" || startTime(init.pid) !== init.start) return false;
  killAll([init.pid]);
  return true;
}

export async function endState(state: SandboxState, clock: Clock): Promise<void> {
  for (let tries = 0; killState(state) && tries < 200; tries++) await clock.sleep(10);
}
