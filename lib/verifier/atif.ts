/**
 * Whether a document is a trajectory in the Agent Trajectory Interchange Format, v1.0 to v1.8 (episodes §8.4; verdicts
 * as Harbor 0.25.0 gives them). Pure. Unknown structural keys are refused; what is free goes into `extra`.
 */
import { z } from "zod";

const Extra = z.record(z.string(), z.unknown());
const Tokens = z.int();
const optional = <T extends z.ZodType>(schema: T) => schema.nullish();

const ImageSource = z.strictObject({
  media_type: z.enum(["image/jpeg", "image/png", "image/gif", "image/webp"]),
  path: z.string(),
});

const AUDIO = ["wav", "x-wav", "mpeg", "mp3", "flac", "ogg", "aac", "mp4", "webm", "aiff", "opus", "m4a"]
  .map((name) => `audio/${name}`);
const AudioSource = z.strictObject({
  media_type: z.string().refine((type) => AUDIO.includes(type.trim().toLowerCase()), "unknown audio type"),
  path: z.string(),
  duration_sec: optional(z.number().nonnegative()),
});

const ContentPart = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("text"), text: z.string(), source: z.null().optional() }),
  z.strictObject({ type: z.literal("image"), source: ImageSource, text: z.null().optional() }),
  z.strictObject({ type: z.literal("audio"), source: AudioSource, text: z.null().optional() }),
]);
const Content = z.union([z.string(), z.array(ContentPart)]);

const SubagentRef = z.strictObject({
  session_id: optional(z.string()),
  trajectory_id: optional(z.string()),
  trajectory_path: optional(z.string()),
  extra: optional(Extra),
}).refine(
  (ref) => ref.trajectory_id != null || ref.trajectory_path != null,
  "must name a trajectory_id or trajectory_path",
);

const Step = z.strictObject({
  step_id: z.int().min(1),
  timestamp: optional(z.string().refine(isIso8601, "not an ISO 8601 time")),
  source: z.enum(["system", "user", "agent"]),
  model_name: optional(z.string()),
  reasoning_effort: optional(z.union([z.string(), z.number()])),
  message: Content,
  reasoning_content: optional(z.string()),
  tool_calls: optional(z.array(z.strictObject({
    tool_call_id: z.string(),
    function_name: z.string(),
    arguments: z.record(z.string(), z.unknown()),
    extra: optional(Extra),
  }))),
  observation: optional(z.strictObject({
    results: z.array(z.strictObject({
      source_call_id: optional(z.string()),
      content: optional(Content),
      subagent_trajectory_ref: optional(z.array(SubagentRef)),
      extra: optional(Extra),
    })),
  })),
  metrics: optional(z.strictObject({
    prompt_tokens: optional(Tokens),
    completion_tokens: optional(Tokens),
    cached_tokens: optional(Tokens),
    cost_usd: optional(z.number()),
    prompt_token_ids: optional(z.array(z.int())),
    completion_token_ids: optional(z.array(z.int())),
    logprobs: optional(z.array(z.number())),
    extra: optional(Extra),
  })),
  llm_call_count: optional(z.int().min(0)),
  is_copied_context: optional(z.boolean()),
  extra: optional(Extra),
});
type Step = z.infer<typeof Step>;

const AGENT_ONLY = ["model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"] as const;

const Root = z.strictObject({
  schema_version: z.string().regex(/^ATIF-v1\.[0-8]$/, "must be ATIF-v1.0 to ATIF-v1.8"),
  session_id: optional(z.string()),
  trajectory_id: optional(z.string()),
  agent: z.strictObject({
    name: z.string(),
    version: z.string(),
    model_name: optional(z.string()),
    tool_definitions: optional(z.array(Extra)),
    extra: optional(Extra),
  }),
  steps: z.array(Step).min(1),
  notes: optional(z.string()),
  final_metrics: optional(z.strictObject({
    total_prompt_tokens: optional(Tokens),
    total_completion_tokens: optional(Tokens),
    total_cached_tokens: optional(Tokens),
    total_cost_usd: optional(z.number()),
    total_steps: optional(z.int().nonnegative()),
    extra: optional(Extra),
  })),
  continued_trajectory_ref: optional(z.string()),
  subagent_trajectories: optional(z.array(z.unknown())),
  extra: optional(Extra),
});

/** What is wrong with `document`, each as `path: problem`; empty for a valid trajectory. */
export function atifProblems(document: unknown): string[] {
  const parsed = Root.safeParse(document);
  if (!parsed.success) {
    return parsed.error.issues.map((issue) => `${issue.path.join(".") || "document"}: ${issue.message}`);
  }
  return [...parsed.data.steps.flatMap(stepProblems), ...subagentProblems(parsed.data.subagent_trajectories ?? [])];
}

function stepProblems(step: Step, index: number): string[] {
  const at = `steps.${index}`;
  const problems: string[] = [];
  if (step.step_id !== index + 1) problems.push(`${at}.step_id: ${step.step_id}, must be ${index + 1}`);
  if (step.source !== "agent") {
    for (const key of AGENT_ONLY) if (step[key] != null) problems.push(`${at}.${key}: only on steps of the agent`);
  }
  if (step.llm_call_count === 0) {
    for (const key of ["metrics", "reasoning_content"] as const) {
      if (step[key] != null) problems.push(`${at}.${key}: must be absent when llm_call_count is 0`);
    }
  }
  const calls = new Set(step.tool_calls?.map((call) => call.tool_call_id));
  for (const [number, result] of (step.observation?.results ?? []).entries()) {
    if (result.source_call_id != null && !calls.has(result.source_call_id)) {
      problems.push(`${at}.observation.results.${number}.source_call_id: names no call of this step`);
    }
  }
  return problems;
}

function subagentProblems(trajectories: unknown[]): string[] {
  const ids = trajectories.map((one) => (one as { trajectory_id?: unknown } | null)?.trajectory_id);
  return trajectories.flatMap((one, index) => {
    const at = `subagent_trajectories.${index}`;
    const inner = atifProblems(one).map((problem) => `${at}.${problem}`);
    if (typeof ids[index] !== "string") return [...inner, `${at}.trajectory_id: must be given`];
    return ids.indexOf(ids[index]) === index ? inner : [...inner, `${at}.trajectory_id: used twice`];
  });
}

/** A date, or a date and a time with an optional offset. */
function isIso8601(text: string): boolean {
  return /^\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?$/.test(text) &&
    !Number.isNaN(Date.parse(text.slice(0, 10)));
}
