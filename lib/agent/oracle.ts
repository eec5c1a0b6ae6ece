/**
 * The harness that runs a task's reference solution (episodes §9): `solve.sh` in the working directory as the agent's
 * user, or the text of `answer.md` as the answer. A solution that fails is still verified and scored; only a sandbox
 * that is gone is thrown.
 */
import { readFile } from "node:fs/promises";
import { HarborError } from "../errors.ts";
import { headOfFile } from "../files/ends.ts";
import type { Clock } from "../runtime/clock.ts";
import type { ExecResult, Sandbox } from "../sandbox/provider.ts";
import { couldNotStart, launchText, scriptFacts } from "../verifier/script.ts";
import type { Agent, AgentOutcome, Turn } from "./agent.ts";
import { plainResponse } from "./response.ts";

/** Longest time a solution gets, whatever the agent's limit says (episodes §9). */
const LONGEST_MS = 3600_000;
const OUTPUT = "/logs/agent/solve-stdout.txt";
/** Bytes of output that are brought back; the answer is its last 4,000 characters. */
const TAIL_BYTES = 16_000;
const ANSWER_CHARACTERS = 4000;

type Solved = "solved" | "failed" | "unvalidated";

export const oracle = (clock: Clock): Agent => ({
  name: "harbor_oracle",
  about: "runs each task's reference solution",
  needsSolution: true,
  async run(turn, box, _model, signal): Promise<AgentOutcome> {
    const end = (oracle: Solved, text: string, more: Record<string, string> = {}, notes: string[] = []) => ({
      response: plainResponse({
        id: "resp_oracle",
        model: "oracle",
        createdAt: clock.now(),
        text,
        metadata: { oracle, ...more },
      }),
      timedOut: more.oracle_error_type === "timeout",
      notes,
    });
    if (turn.solution === null) return end("unvalidated", "");
    if (turn.solution.kind === "answer.md") return end("solved", await readFile(turn.solution.path, "utf8"));
    let result: ExecResult;
    const limitMs = Math.min(turn.timeoutMs, LONGEST_MS);
    try {
      result = await solve(turn.solution, turn, limitMs, box, signal);
    } catch (error) {
      if (!(error instanceof HarborError) || error.code !== "transfer.failed") throw error;
      return end("failed", error.message, { oracle_error_type: "transfer" }, [
        `solution not uploaded: ${error.message}`,
      ]);
    }
    const refused = couldNotStart(result.stdout);
    if (refused !== null) {
      return end("failed", refused, { oracle_return_code: String(result.exitCode), oracle_error_type: "start" }, [
        refused,
      ]);
    }
    if (result.ended === "deadline") {
      const text = await outputSoFar(box, signal);
      const note = `solve.sh ran past ${limitMs / 1000} s and was ended; the state it left is graded`;
      return end("failed", last(text), { oracle_error_type: "timeout" }, [note]);
    }
    const code = result.exitCode;
    const memory = result.oomKilled === true ? ["out of memory: the kernel killed a process of solve.sh"] : [];
    const notes = code === 0 ? memory : [`solve.sh exited with ${code}`, ...memory];
    return end(code === 0 ? "solved" : "failed", last(result.stdout), { oracle_return_code: String(code) }, notes);
  },
});

async function solve(
  solution: { folder: string; env: Record<string, string> },
  turn: Turn,
  deadlineMs: number,
  box: Sandbox,
  signal: AbortSignal,
): Promise<ExecResult> {
  const head = await headOfFile(`${solution.folder}/solve.sh`, 4096);
  // A shell of its own runs the script, so that what it prints and its exit code come back after the output's tail.
  const script = `(
${launchText("/solution/solve.sh", OUTPUT, scriptFacts(head))})
code=$?
tail -c ${TAIL_BYTES} ${OUTPUT} 2>/dev/null
exit $code
`;
  return await box.exec({
    run: { script },
    purpose: "oracle",
    user: turn.user,
    env: solution.env,
    deadlineMs,
    unpack: [{ from: solution.folder, to: "/solution", executable: ["solve.sh"] }],
  }, signal);
}

/** What a solution printed until its limit ended it (field case B3). */
async function outputSoFar(box: Sandbox, signal: AbortSignal): Promise<string> {
  const script = `tail -c ${TAIL_BYTES} ${OUTPUT} 2>/dev/null`;
  const tail = await box.exec({ run: { script }, purpose: "server", user: "root", deadlineMs: 10_000 }, signal);
  return tail.stdout;
}

const last = (text: string): string => Array.from(text).slice(-ANSWER_CHARACTERS).join("");
