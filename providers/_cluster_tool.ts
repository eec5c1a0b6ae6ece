/** What differs between the container tools of clusters; apptainer.ts and enroot.ts fill it in. */
import type { Missing } from "../lib/sandbox/provider.ts";
import type { BoxClient } from "./_oci_client.ts";

export interface ToolFacts {
  version: string;
  /** Program that is started; absolute where it was looked for. */
  path: string;
  /** Which users commands can run as, and why not others. */
  users: "any" | "own-id-only";
  usersReason: string;
  gpus: boolean;
  /** Worth knowing, each with what mends it. */
  faults: Missing[];
}

/** One sandbox, settled before anything is started. */
export interface Place {
  id: string;
  /** Its folder on a local disk, empty. */
  base: string;
  /** The image's file. */
  image: string;
  network: boolean;
  gpu: boolean;
  /** It ends by itself after this, where the tool lets it. */
  ttlSeconds: number;
}

export interface ClusterTool {
  readonly name: "apptainer" | "enroot";
  /** Of its image files. */
  readonly suffix: "sif" | "sqsh";
  /** Folders of the cache that may hold image files, by the tool's own variables. */
  readonly cacheVariable: string;
  /** Client processes at work on a start at the same time. */
  readonly concurrency: number;
  facts(signal: AbortSignal): Promise<ToolFacts>;
  /** Variables for every call about a sandbox. */
  env(base: string, gpu: boolean): Record<string, string>;
  /** Makes `to` out of a folder that holds the image's root. */
  squash(facts: ToolFacts, tree: string, to: string): string[];
  /** Tries whether a sandbox without a network can be had; undefined where there is none ever. */
  probeNoNetwork?(facts: ToolFacts, image: string): string[];
  /** Starts it, step by step; what a step says is in its `log` where it has one. */
  begin(facts: ToolFacts, place: Place): { argv: string[]; log?: string }[];
  /** Attaches us to a control shell inside. */
  control(facts: ToolFacts, place: Place, pid: number): string[];
  /** Tells what runs; read by `pid`. */
  list(facts: ToolFacts, id: string): string[];
  pid(stdout: string, id: string): number | undefined;
  client(facts: ToolFacts, place: Pick<Place, "id">, pid: number): BoxClient;
  /** Takes it away, also when nobody knows any more what of it there is. */
  remove(path: string, id: string): string[];
}
