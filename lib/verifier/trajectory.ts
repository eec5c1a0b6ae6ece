/**
 * The transcript as an ATIF v1.7 document (episodes §8.4): what was asked and what a Responses API response holds.
 * Pure, and it never fails on an odd item: what fits nowhere is kept under `extra`. No token ids: the verifier's copy
 * lies where the agent's processes could read it.
 */
import type { ModelResponse } from "../agent/agent.ts";

export interface TranscriptParts {
  /** Capture key, `0-0` or `0-0-a1`. */
  captureKey: string;
  rolloutId: string;
  attempt: number;
  agent: { name: string; version: string };
  instruction: string;
  askedAt: Date;
  response: ModelResponse;
}

type Item = Record<string, unknown>;

interface AgentStep {
  step_id: number;
  source: "agent";
  message: string;
  model_name: string;
  reasoning_content?: string;
  tool_calls?: { tool_call_id: string; function_name: string; arguments: object; extra?: Item }[];
  observation?: { results: { source_call_id?: string; content: string }[] };
  extra?: Item;
}
interface OtherStep {
  step_id: number;
  source: "user" | "system";
  message: string;
  timestamp?: string;
}

/** The document; it passes `atifProblems`. */
export function trajectoryOf(parts: TranscriptParts): Record<string, unknown> {
  const { response } = parts;
  const first: OtherStep = {
    step_id: 1,
    source: "user",
    message: parts.instruction,
    timestamp: parts.askedAt.toISOString(),
  };
  const steps: (AgentStep | OtherStep)[] = [first];
  let open: AgentStep | undefined;
  const agentStep = (fresh: boolean): AgentStep => {
    if (open === undefined || fresh) {
      open = { step_id: steps.length + 1, source: "agent", message: "", model_name: response.model };
      steps.push(open);
    }
    return open;
  };
  for (const item of response.output) {
    if (item.type === "reasoning") {
      const step = agentStep(open?.observation !== undefined);
      step.reasoning_content = joined(step.reasoning_content, reasoningText(item));
    } else if (item.type === "message" && item.role !== "assistant" && open !== undefined) {
      // A harness that feeds output back as the user's words (Terminus): the observation of the step before.
      (open.observation ??= { results: [] }).results.push({ content: textOf(item.content) });
    } else if (item.type === "message" && item.role !== "assistant") {
      const source = item.role === "system" || item.role === "developer" ? "system" : "user";
      steps.push({ step_id: steps.length + 1, source, message: textOf(item.content) });
    } else if (item.type === "message") {
      const step = agentStep(open?.observation !== undefined || (open?.message ?? "") !== "");
      step.message = joined(step.message, textOf(item.content)) ?? "";
    } else if (item.type === "function_call") {
      const step = agentStep(open?.observation !== undefined);
      (step.tool_calls ??= []).push(toolCall(item));
    } else if (item.type === "function_call_output") {
      const step = agentStep(false);
      const id = String(item.call_id ?? "");
      const known = step.tool_calls?.some((call) => call.tool_call_id === id);
      const content = typeof item.output === "string" ? item.output : textOf(item.output);
      (step.observation ??= { results: [] }).results.push(known ? { source_call_id: id, content } : { content });
    } else {
      const step = agentStep(false);
      ((step.extra ??= { items: [] }).items as Item[]).push(item);
    }
  }
  const usage = response.usage;
  return {
    schema_version: "ATIF-v1.7",
    session_id: parts.captureKey,
    trajectory_id: parts.captureKey,
    agent: { ...parts.agent, model_name: response.model },
    steps,
    final_metrics: {
      ...(usage === null ? {} : {
        total_prompt_tokens: usage.input_tokens,
        total_completion_tokens: usage.output_tokens,
      }),
      total_steps: steps.length,
    },
    extra: { gym_harbor: { episode_id: { rollout_id: parts.rolloutId, attempt: parts.attempt } } },
  };
}

function toolCall(item: Item): NonNullable<AgentStep["tool_calls"]>[number] {
  const named = { tool_call_id: String(item.call_id ?? item.id ?? ""), function_name: String(item.name ?? "") };
  try {
    const value: unknown = JSON.parse(String(item.arguments));
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return { ...named, arguments: value };
  } catch {
    // not JSON: kept as it came
  }
  return { ...named, arguments: {}, extra: { raw_arguments: item.arguments } };
}

const reasoningText = (item: Item): string => [textOf(item.summary), textOf(item.content)].filter(Boolean).join("\n");

/** The text of a string or of a list of parts; other parts have none. */
function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.flatMap((part: Item | null) => (typeof part?.text === "string" ? [part.text] : [])).join("\n");
}

const joined = (before: string | undefined, more: string): string | undefined =>
  [before, more].filter(Boolean).join("\n") || undefined;
