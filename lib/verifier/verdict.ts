/**
 * From what happened to a verdict: the first row of episodes §3.7 that matches. Pure.
 *
 * Once `test.sh` ran, the sample counts; only a failure of our own side masks it. The script's exit code is recorded
 * and never decides a reward.
 */
import { beginning, ending } from "../excerpt.ts";
import { type FailureKind, KINDS, REASON_LIMIT } from "../episode/failures.ts";
import type { Reading } from "./reward.ts";

export interface Facts {
  /** Our own side: the first of these that is set masks the row. */
  fault?: {
    kind: Extract<
      FailureKind,
      | "persistence_failed"
      | "provider_unavailable"
      | "provider_oom_killed"
      | "harbor:trajectory_export_failed"
      | "harbor:entrypoint_failed"
    >;
    reason: string;
  };
  /** Why test.sh was not started; null when it was. */
  notStarted: string | null;
  reading: Reading;
  /** The exec's limit fired. */
  timedOut: boolean;
  timeoutSec: number;
  returnCode: number | null;
  oomKilled: boolean | null;
  /** Last part of test-stdout.txt. */
  output: string;
  /** test.sh has CR LF line ends. */
  carriageReturns: boolean;
}

export interface Verdict {
  reward: number;
  rewards: Record<string, number> | null;
  mask_sample: boolean;
  failure_kind: FailureKind | null;
  failure_reason: string | null;
  /** What the reader of the row should know beside the verdict. */
  notes: string[];
}

const OUTPUT_LIMIT = 600;

/** The verdict; `failure_reason` is cut to what a row holds. */
export function judge(facts: Facts): Verdict {
  const read = facts.reading.kind === "reward" ? facts.reading : null;
  const known = facts.reading.kind === "absent" ? null : facts.reading.rewards;
  if (facts.fault !== undefined) return without(facts.fault.kind, facts.fault.reason, known);
  if (facts.notStarted !== null) return without("verifier_error", facts.notStarted, known);
  if (read !== null) {
    const notes = [...read.notes, ...(read.reward < 1 ? bootstrapNotes(facts.output) : [])];
    return {
      reward: read.reward,
      rewards: read.rewards,
      mask_sample: false,
      failure_kind: null,
      failure_reason: null,
      notes,
    };
  }
  if (facts.timedOut) {
    const problem = facts.reading.kind === "invalid" ? ` (${facts.reading.reason})` : "";
    return zero(
      "harbor:verifier_timeout",
      `test.sh ran past ${facts.timeoutSec} s and wrote no usable reward${problem}`,
      facts,
    );
  }
  if (facts.reading.kind === "invalid") return zero("harbor:invalid_reward", facts.reading.reason, facts);
  const code = facts.returnCode === null ? "" : `; test.sh exited with ${facts.returnCode}`;
  return zero("harbor:missing_reward", `no reward.json or reward.txt was written${code}`, facts);
}

/** No reward: masked or a scored zero, as the table of kinds has it. */
function without(kind: FailureKind, reason: string, rewards: Record<string, number> | null): Verdict {
  return {
    reward: 0,
    rewards,
    mask_sample: KINDS[kind].onResult === "masked",
    failure_kind: kind,
    failure_reason: beginning(reason, REASON_LIMIT),
    notes: [],
  };
}

function zero(kind: FailureKind, what: string, facts: Facts): Verdict {
  const causes = [
    ...(facts.oomKilled === true ? ["out of memory: the kernel killed a process of the tests"] : []),
    ...(facts.carriageReturns ? ["test.sh has CRLF line ends: convert it, for example with sed -i 's/\\r$//'"] : []),
  ];
  const tail = ending(facts.output.trimEnd(), OUTPUT_LIMIT);
  const head = [what, ...causes].join("; ");
  const reason = tail === "" ? head : `${head}\n${tail}`;
  const rewards = facts.reading.kind === "invalid" ? facts.reading.rewards : null;
  return { ...without(kind, reason, rewards), notes: bootstrapNotes(facts.output) };
}

/** Signs that a verifier could not fetch or find its own tools, so that its zero says nothing (field case A14). */
const BOOTSTRAP: readonly RegExp[] = [
  /^.*: (?:line \d+: )?\S+: command not found$/m,
  /^.*\b\S+: not found$/m,
  /Could not resolve host/,
  /Temporary failure (?:in name resolution|resolving)/,
  /\b(?:error|status|returned error):? 404\b|\b404\s+Not Found\b/i,
  /Failed to (?:connect|fetch)\b/,
  /No matching distribution found/,
  /Unable to locate package/,
];

function bootstrapNotes(output: string): string[] {
  for (const sign of BOOTSTRAP) {
    const line = sign.exec(output)?.[0];
    if (line !== undefined) {
      return [
        `verifier bootstrap failed? test.sh printed "${
          line.trim().slice(0, 160)
        }": it may grade nothing but a missing ` +
        `tool; put its tools into the image`,
      ];
    }
  }
  return [];
}
