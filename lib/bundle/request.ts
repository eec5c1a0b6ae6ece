/** What a bundle is made of, settled: an export asks nobody what belongs to it. */
import type { DatasetDigests } from "../digest/dataset.ts";
import type { Task } from "../task/task.ts";
import type { WantedImage } from "./images.ts";

export interface ExportTask {
  id: string;
  /** Absolute. */
  folder: string;
  /** POSIX path below the dataset's folder. */
  path: string;
  folderDigest: string | null;
  /** What its rows carry; null for a task that does not load. */
  digest: string | null;
  /** Null for a task that does not load. */
  task: Task | null;
  /** RUN lines of its Dockerfile are replayed at seed. */
  overlay: boolean;
  images: WantedImage[];
}

export interface ExportRequest {
  /** Absolute folder to write. */
  out: string;
  toolVersion: string;
  platform: string;
  dataset: {
    /** Absolute. */
    folder: string;
    kind: "dataset" | "task";
    taskset: string;
    source: string;
    ref?: string;
    digests: DatasetDigests;
    /** Folder digests of its tasks that are not in `tasks`. */
    leftOut: string[];
    /** Files of the dataset's folder that are written instead of what stands there, by name. */
    files: Record<string, string>;
  };
  tasks: ExportTask[];
  /** RUN lines were built into images. */
  baked: boolean;
  /** Task id → why it cannot run from the bundle. */
  skipped: Record<string, string>;
  /** The compiled program to put inside. */
  binary?: string;
}
