/**
 * A harness: something that works on a task in a sandbox. It returns an AgentOutcome and knows nothing about rows,
 * scores or files of the run. The oracle and nop need no model; harnesses that do get it through `ModelAccess`.
 */
import type { Sandbox } from "../sandbox/provider.ts";

/** One instruction to work on; a multi-step episode has several. */
export interface Turn {
  instruction: string;
  /** Reference solution; only the oracle gets one. */
  solution:
    | { kind: "solve.sh"; folder: string; env: Record<string, string> }
    | { kind: "answer.md"; path: string }
    | null;
  /** Agent limit after multipliers, in milliseconds. */
  timeoutMs: number;
  /** User of the agent's commands; undefined means the sandbox's default. */
  user: string | undefined;
}

/** Where a harness sends its model calls; null for the oracle and nop. */
export interface ModelAccess {
  baseUrl: string;
  token: string;
  model: string;
}

/** A Responses API response object, as far as rows need it. */
export interface ModelResponse {
  id: string;
  object: "response";
  created_at: number;
  model: string;
  status: "completed" | "incomplete" | "failed";
  output: Record<string, unknown>[];
  parallel_tool_calls: boolean;
  tool_choice: string;
  tools: unknown[];
  usage: {
    input_tokens: number;
    input_tokens_details: { cached_tokens: number };
    output_tokens: number;
    output_tokens_details: { reasoning_tokens: number };
    total_tokens: number;
  } | null;
  metadata: Record<string, string>;
  incomplete_details: unknown;
  error: unknown;
}

export interface AgentOutcome {
  response: ModelResponse;
  /** The agent's own limit ended it; the state it left is graded all the same. */
  timedOut: boolean;
  /** Worth telling on the screen and in the row's sandbox notes. */
  notes: string[];
}

export interface Agent {
  /** Instance name, as `agent_ref` and file names carry it (`harbor_oracle`, `nop`). */
  readonly name: string;
  readonly about: string;
  /** Whether tasks without a reference solution are left out as `unvalidated`. */
  readonly needsSolution: boolean;
  run(turn: Turn, box: Sandbox, model: ModelAccess | null, signal: AbortSignal): Promise<AgentOutcome>;
}
