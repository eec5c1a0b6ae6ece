/**
 * dataset.toml (task-format §4): `[gym]` is ours and strict, its unknown keys are refused because their author wrote
 * them for this loader; all other tables are Harbor's and stay free.
 */
import { z } from "zod";
import { Environment } from "../task/schema.ts";

const multiplier = z.number().positive().optional();

export const Defaults = z.strictObject({
  /** Scales every agent and verifier timeout; not collect hooks, not health checks. */
  timeout_multiplier: multiplier,
  /** Scales cpus, memory_mb and storage_mb, rounded up. */
  resource_multiplier: multiplier,
  /** Rollouts per task of an evaluation; no part of any digest. */
  num_repeats: z.int().min(1).optional(),
});
export type Defaults = z.infer<typeof Defaults>;

/** Settable from here: the rest of [verifier] is the task's own (task-format §13 #13). */
const VerifierOverride = z.strictObject({
  timeout_sec: z.number().positive().optional(),
  /** Files below /logs/verifier that survive the emptying before the tests. */
  inputs: z.array(z.string()).optional(),
  env: z.record(z.string(), z.string()).optional(),
  user: z.union([z.string(), z.int()]).optional(),
});

export const Override = z.strictObject({
  environment: Environment.optional(),
  verifier: VerifierOverride.optional(),
});
export type Override = z.infer<typeof Override>;

export const Gym = z.strictObject({
  /** Hub reference a committed entry is pulled from. */
  source: z.string().optional(),
  license: z.string().optional(),
  type: z.string().optional(),
  /** Harnesses admitted; an empty list admits the oracle alone. */
  allowed_agents: z.array(z.string()).optional(),
  domain: z.string().optional(),
  verified: z.boolean().optional(),
  defaults: Defaults.optional(),
  tasks: z.record(z.string(), Override).optional(),
});
export type Gym = z.infer<typeof Gym>;

/** What NeMo Gym's catalog knows; others are warned about (task-format §13 #14). */
export const LICENSES = [
  "Apache 2.0",
  "MIT",
  "GNU General Public License v3.0",
  "Creative Commons Attribution 4.0 International",
  "Creative Commons Attribution-ShareAlike 4.0 International",
  "TBD",
  "NVIDIA Internal Use Only, Do Not Distribute",
];
export const TYPES = ["example", "train", "validation"];
