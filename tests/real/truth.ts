/**
 * What a real task must give, by the ground truth that was made with plain engine commands (truth.jsonl beside the task
 * folders). Pure: one row of the truth in, the verdict to expect out.
 */
/** One row of truth.jsonl; only what is used here. */
export interface Truth {
  path: string;
  base: string | null;
  base_kind: string | null;
  build: "ok" | "fail" | "prebuilt";
  reward: Record<string, number> | null;
  score: number | null;
  nop_reward: Record<string, number> | null;
  host_ok: boolean | null;
  /** Once the image is built, solution and tests give the reward without any network. */
  offline: boolean;
  features: string[];
}

export type Expected =
  /** A scored row with this reward; `rewards` where the truth has the whole map. */
  | { kind: "scored"; reward: number; rewards: Record<string, number> | null }
  /** Scored 0 with a reason: the tests left no usable reward. */
  | { kind: "no-reward" }
  /** A failure row of the seed stage: the image cannot be had. */
  | { kind: "build-fails" }
  /** Left out, named as not in this version. */
  | { kind: "not-built"; feature: string };

/** Features whose tasks this version loads but does not run, and the word by which they are left out. */
const NOT_BUILT: Record<string, string> = { "network=allowlist": "allowlist", "phase-network": "network" };

/** Whether the row is of the kinds that this version runs: one step, verified in the same sandbox. */
export function isSingleShared(truth: Truth): boolean {
  return !truth.features.includes("multi-step") && !truth.features.includes("separate-verifier");
}

/** Whether the task must be solved where there is no network, once its image is built. */
export function isOfOfflineSet(truth: Truth): boolean {
  return truth.offline && truth.score === 1;
}

/** One way of validating a task, and what it must give on any sandbox. */
export interface Way {
  /** Path of the task, and what is special. */
  name: string;
  args: string[];
  expected: Expected;
}

/**
 * The truth built every Dockerfile. Where a docker_image stands beside one, the format starts that image, which no
 * machine without its registry has; the Dockerfile is built under builds.force.
 */
export function waysOf(truth: Truth): Way[] {
  const { path } = truth;
  const expected = expectedOf(truth);
  if (!truth.features.includes("docker_image+Dockerfile")) return [{ name: path, args: [], expected }];
  return [
    { name: path, args: [], expected: { kind: "build-fails" } },
    { name: `${path} with builds.force`, args: ["++builds.force=true"], expected },
  ];
}

/** What the task must give when its Dockerfile, or without one its docker_image, is what it starts from. */
function expectedOf(truth: Truth): Expected {
  for (const [feature, name] of Object.entries(NOT_BUILT)) {
    if (truth.features.includes(feature)) return { kind: "not-built", feature: name };
  }
  if (truth.build === "fail") return { kind: "build-fails" };
  if (truth.score === null) return { kind: "no-reward" };
  return { kind: "scored", reward: truth.score, rewards: truth.reward };
}
