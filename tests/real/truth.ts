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

/** Where the truth was made in another way than the format says. */
const OTHERWISE: Record<string, Expected> = {
  // The truth built the Dockerfile; the format starts the docker_image beside it, which no machine without ghcr.io has.
  "open-thoughts__OpenThoughts-Agent/regex-log": { kind: "build-fails" },
};

/** Whether the row is of the kinds that this version runs: one step, verified in the same sandbox. */
export function isSingleShared(truth: Truth): boolean {
  return !truth.features.includes("multi-step") && !truth.features.includes("separate-verifier");
}

/** Whether the task must be solved where there is no network, once its image is built. */
export function isOfOfflineSet(truth: Truth): boolean {
  return truth.offline && truth.score === 1;
}

/** What validating the task must give, on any sandbox. */
export function expectedOf(truth: Truth): Expected {
  for (const [feature, name] of Object.entries(NOT_BUILT)) {
    if (truth.features.includes(feature)) return { kind: "not-built", feature: name };
  }
  const otherwise = OTHERWISE[truth.path];
  if (otherwise !== undefined) return otherwise;
  if (truth.build === "fail") return { kind: "build-fails" };
  if (truth.score === null) return { kind: "no-reward" };
  return { kind: "scored", reward: truth.score, rewards: truth.reward };
}
