/**
 * Grades the state an agent left (episodes §3.5, shared mode): hooks, an emptied stage, the verifier's files, the
 * transcript, `test.sh` under its deadline, its logs brought out, a verdict. One call into the sandbox does it all,
 * because a call costs 100 to 250 ms.
 *
 * Only the end of the whole run or of the episode's budget is thrown; whatever else happens is a verdict.
 */
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { withEvidence } from "../sandbox/evidence.ts";
import { errno, HarborError, isDiskFull, messageOf } from "../errors.ts";
import { beginning, ending } from "../excerpt.ts";
import { headOfFile, tailOfFile } from "../files/ends.ts";
import { unwritable } from "../files/unwritable.ts";
import type { Redactor } from "../rollouts/redact.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Service } from "../sandbox/group.ts";
import type { ExecResult, HostTree, Running, Sandbox } from "../sandbox/provider.ts";
import type { CollectHook, Grader } from "../task/task.ts";
import { type PythonVerifier, shimFiles } from "./python.ts";
import { type Reading, readRewards, REWARD_FILES, REWARD_MAX_BYTES, type RewardName } from "./reward.ts";
import { couldNotStart, launchText, scriptFacts } from "./script.ts";
import { AGENT_LOGS, emptyText, TESTS, VERIFIER_LOGS } from "./stage.ts";
import { type Facts, judge, type Verdict } from "./verdict.ts";

export interface VerifierRequest {
  grader: Grader;
  /** Folder of the task's tests as they were when planned; null without one. */
  testsFolder: string | null;
  taskData: Record<string, unknown>;
  hooks: readonly CollectHook[];
  /** Files below /logs/verifier that survive the emptying. */
  inputs: readonly string[];
  /** User of test.sh, resolved: never undefined, so that the agent's user is not inherited. */
  user: string;
  env: Record<string, string>;
  timeoutSec: number;
  /** What is left of the episode's budget, in milliseconds. */
  leftMs: number;
  /** The transcript, an ATIF document, and the response it was made from. */
  trajectory: Record<string, unknown>;
  response: unknown;
  /** The image's ENTRYPOINT, when one was started. */
  entrypoint: Running | null;
  /** Sidecars of a Compose task, for hooks of their own. */
  services: ReadonlyMap<string, Pick<Service, "exec">>;
}

export interface VerifierDeps {
  clock: Clock;
  /** Folder that gets one `session-<id>/` per verification; made when missing. */
  logsRoot: string;
  /** The id: unique below `logsRoot`. */
  sessionId: string;
  redactor: Redactor;
}

export interface Verification extends Verdict {
  /** Null when test.sh never ran. */
  verifier_mode: "shared" | null;
  /** Hooks to download, one decimal. */
  verifier_seconds: number | null;
  verifier_return_code: number | null;
  /** Absolute; null when it could not be made. */
  verifier_logs_dir: string | null;
}

const STDOUT = "test-stdout.txt";
const LIMITS = { maxEntries: 100_000, maxBytes: 512 * 1024 * 1024 };
const TAIL_BYTES = 64 * 1024;
const ENTRYPOINT_BYTES = 1024 * 1024;
const HOOK_GRACE_MS = 30_000;

/**
 * Grades once and returns the verdict with its log folder. Throws the signal's reason, and "store.unwritable" when this
 * machine's disk is full.
 */
export async function verify(
  request: VerifierRequest,
  box: Sandbox,
  deps: VerifierDeps,
  signal: AbortSignal,
): Promise<Verification> {
  const started = deps.clock.ticks();
  const facts: Facts = {
    notStarted: null,
    reading: { kind: "absent" },
    timedOut: false,
    timeoutSec: request.timeoutSec,
    returnCode: null,
    oomKilled: null,
    output: "",
    carriageReturns: false,
  };
  const notes: string[] = [];
  let logs: string | null = null;
  let ran = false;
  try {
    logs = await sessionFolder(deps);
    for (const hook of request.hooks) notes.push(...await runHook(hook, box, request.services, signal));
    const entrypoint = await entrypointFault(request.entrypoint);
    const { trees, script, carriageReturns } = await stage(request, box.workdir, logs);
    const result = await box.exec({
      run: { script },
      purpose: "verifier",
      user: request.user,
      env: request.env,
      deadlineMs: Math.min(Math.max(1, Math.ceil(request.timeoutSec)) * 1000, request.leftMs),
      before: emptyText(request.inputs),
      unpack: trees,
      collect: REWARD_FILES.map((name) => ({ path: `${VERIFIER_LOGS}/${name}`, maxBytes: REWARD_MAX_BYTES })),
      bring: [{ from: VERIFIER_LOGS, to: logs, limits: LIMITS }],
    }, signal);
    ran = couldNotStart(result.stdout) === null;
    notes.push(...leftOut(result));
    await writeServerFiles(request, logs, facts);
    await deps.redactor.folder(logs);
    Object.assign(facts, {
      notStarted: couldNotStart(result.stdout),
      reading: rewardsOf(result),
      timedOut: result.ended === "deadline",
      returnCode: result.ended === "deadline" ? null : result.exitCode,
      oomKilled: result.oomKilled,
      output: await tailOf(join(logs, STDOUT)),
      carriageReturns,
    });
    const reason = entrypoint ?? await entrypointFault(request.entrypoint);
    if (reason !== null && facts.fault === undefined) facts.fault = { kind: "harbor:entrypoint_failed", reason };
  } catch (error) {
    signal.throwIfAborted();
    facts.fault = faultOf(await withEvidence(error, box));
  }
  const verdict = judge(facts);
  return {
    ...verdict,
    notes: [...notes, ...verdict.notes],
    verifier_mode: ran ? "shared" : null,
    verifier_seconds: Math.round((deps.clock.ticks() - started) / 100) / 10,
    verifier_return_code: facts.returnCode,
    verifier_logs_dir: logs,
  };
}

/** A fresh folder for one verification. Throws "store.unwritable", which becomes `persistence_failed`. */
async function sessionFolder(deps: VerifierDeps): Promise<string> {
  const folder = join(deps.logsRoot, `session-${deps.sessionId}`);
  try {
    await mkdir(deps.logsRoot, { recursive: true });
    await mkdir(folder);
    return folder;
  } catch (cause) {
    throw unwritable(`Cannot make the verifier's log folder ${folder}`, cause);
  }
}

/** A hook that fails is a note, never a failure (episodes §3.5). Sidecars have a `sh` at best. */
async function runHook(
  hook: CollectHook,
  box: Sandbox,
  services: VerifierRequest["services"],
  signal: AbortSignal,
): Promise<string[]> {
  const inMain = hook.service === "main";
  const what = `[[verifier.collect]] '${beginning(hook.command, 80)}'${inMain ? "" : ` in ${hook.service}`}`;
  const place = inMain ? box : services.get(hook.service);
  if (place === undefined) return [`${what}: there is no service ${hook.service}`];
  const deadlineMs = hook.timeout_sec * 1000 + HOOK_GRACE_MS;
  const run = inMain ? { script: hook.command } : { argv: ["sh", "-c", hook.command] };
  try {
    const result = await place.exec({ run, purpose: "verifier", user: hook.user, deadlineMs }, signal);
    if (result.ended === "deadline") return [`${what} ran past ${hook.timeout_sec} s`];
    return result.exitCode === 0 ? [] : [`${what} exited with ${result.exitCode}: ${ending(result.stderr, 200)}`];
  } catch (error) {
    signal.throwIfAborted();
    if (inMain || !(error instanceof HarborError)) throw error;
    return [`${what} could not run: ${messageOf(error)}`]; // a sidecar that is gone is no fault of the agent's sandbox
  }
}

interface Stage {
  trees: HostTree[];
  script: string;
  carriageReturns: boolean;
}

/** The verifier's files, the transcript, and the text that starts test.sh. */
async function stage(request: VerifierRequest, workspace: string, emptyFolder: string): Promise<Stage> {
  const trees: HostTree[] = [];
  let head = "#!/bin/sh\n";
  if (request.testsFolder !== null) trees.push({ from: request.testsFolder, to: TESTS, executable: ["test.sh"] });
  if (request.grader.kind === "test.sh") {
    head = await headOfFile(join(request.testsFolder!, "test.sh"), 4096);
  } else {
    const verifier: PythonVerifier = {
      source: await readFile(request.grader.verifier, "utf8"),
      path: request.grader.tests === null ? ".ng/dataset/verifier.py" : "verifier.py",
      taskData: request.taskData,
      response: request.response,
    };
    trees.push({ from: emptyFolder, to: TESTS, only: [], extra: shimFiles(verifier, workspace) });
  }
  const transcript = { "trajectory.json": { data: JSON.stringify(request.trajectory) } };
  trees.push({ from: emptyFolder, to: AGENT_LOGS, only: [], extra: transcript });
  const facts = scriptFacts(head);
  return {
    trees,
    script: launchText(`${TESTS}/test.sh`, `${VERIFIER_LOGS}/${STDOUT}`, facts),
    carriageReturns: facts.carriageReturns,
  };
}

/** What we write ourselves comes last and wins over the verifier's files of that name. */
async function writeServerFiles(request: VerifierRequest, logs: string, facts: Facts): Promise<void> {
  try {
    await replace(join(logs, "trajectory.json"), JSON.stringify(request.trajectory, null, 2) + "\n");
  } catch (error) {
    facts.fault = { kind: "harbor:trajectory_export_failed", reason: `transcript not written: ${messageOf(error)}` };
  }
  if (request.entrypoint !== null) {
    await replace(join(logs, "entrypoint-stdout.txt"), await request.entrypoint.tail(ENTRYPOINT_BYTES));
  }
}

async function replace(path: string, text: string): Promise<void> {
  await rm(path, { recursive: true, force: true }); // a link of the verifier's is not written through
  await writeFile(path, text, { flag: "wx" });
}

async function entrypointFault(entrypoint: Running | null): Promise<string | null> {
  const code = await entrypoint?.poll() ?? null;
  return code === null || code === 0 ? null : `the image's ENTRYPOINT exited with ${code}`;
}

function rewardsOf(result: ExecResult): Reading {
  const file = (name: RewardName) => result.collected[`${VERIFIER_LOGS}/${name}`] ?? { kind: "absent" as const };
  return readRewards({ "reward.json": file("reward.json"), "reward.txt": file("reward.txt") });
}

function leftOut(result: ExecResult): string[] {
  const refused = result.brought.flatMap((report) => report.refused);
  if (refused.length === 0) return [];
  const names = refused.slice(0, 3).map(({ path, reason }) => `${beginning(path, 200)} (${reason})`).join(", ");
  return [`left out of the verifier's logs: ${names}${refused.length > 3 ? ` and ${refused.length - 3} more` : ""}`];
}

/** A full disk of this machine is thrown: it ends the run, since nothing can be kept any more. */
function faultOf(error: unknown): NonNullable<Facts["fault"]> {
  const reason = messageOf(error);
  if (isDiskFull(error)) throw unwritable("Cannot keep the verifier's files", error);
  if (!(error instanceof HarborError)) {
    if (errno(error) === undefined) throw error; // a bug of ours
    return { kind: "persistence_failed", reason }; // this machine's files: disk full, say
  }
  if (error.code === "store.unwritable") return { kind: "persistence_failed", reason };
  if (error.code === "sandbox.lost" && error.details?.oomKilled === true) {
    return { kind: "provider_oom_killed", reason };
  }
  return { kind: "provider_unavailable", reason };
}

/** The last part of a log, decoded; "" when it is not there. */
const tailOf = (path: string): Promise<string> => tailOfFile(path, TAIL_BYTES).catch(() => "");
