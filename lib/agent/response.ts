/** Responses API objects for harnesses that ask no model. */
import type { ModelResponse } from "./agent.ts";

export interface PlainResponse {
  id: string;
  model: string;
  createdAt: Date;
  status?: ModelResponse["status"];
  /** One assistant message; "" leaves `output` empty. */
  text: string;
  metadata?: Record<string, string>;
}

/** A response of one assistant message and no usage. */
export function plainResponse(parts: PlainResponse): ModelResponse {
  return {
    id: parts.id,
    object: "response",
    created_at: Math.floor(parts.createdAt.getTime() / 1000),
    model: parts.model,
    status: parts.status ?? "completed",
    output: parts.text === "" ? [] : [{
      type: "message",
      id: `msg_${parts.id}`,
      role: "assistant",
      status: "completed",
      content: [{ type: "output_text", text: parts.text, annotations: [] }],
    }],
    parallel_tool_calls: false,
    tool_choice: "auto",
    tools: [],
    usage: {
      input_tokens: 0,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens: 0,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: 0,
    },
    metadata: parts.metadata ?? {},
    incomplete_details: null,
    error: null,
  };
}
