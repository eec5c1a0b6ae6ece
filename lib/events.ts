/**
 * The one typed stream in which a run tells what happens. Screen, log and (later) --json-events are readers of it;
 * nothing below `cmd/` prints in any other way.
 */
export type Phase = "seeding" | "agent" | "verifying" | "cleaning";

/** How far an image is on its way: compressed bytes so far and in all, what was there before counted in. */
export interface Transfer {
  image: string;
  bytes: number;
  total: number;
  state: "begun" | "going" | "done";
}

export type Event =
  | { kind: "note"; text: string }
  | { kind: "warning"; text: string; task?: string }
  /** A failed episode's sandbox stays (--keep-failed); `enter` is the command that opens it. */
  | { kind: "kept"; task: string; enter: string }
  | { kind: "prepare"; step: "load" | "image"; task?: string; text: string; done: number; total: number }
  /** An image on its way into our store, or out of it to a registry. */
  | { kind: "pull" } & Transfer
  | { kind: "push" } & Transfer
  | { kind: "build-output"; image: string; text: string }
  | { kind: "run-started"; episodes: number; tasks: number; concurrency: number; sandbox: string }
  | { kind: "phase"; episode: string; task: string; phase: Phase; at: number }
  | {
    kind: "finished";
    episode: string;
    task: string;
    outcome: "scored" | "masked" | "failed" | "cancelled";
    reward: number | null;
    failureKind: string | null;
    reason: string | null;
    durationMs: number;
    /** Where the verifier's files are, when there are any. */
    logs: string | null;
  };

export type Emit = (event: Event) => void;
