/**
 * `bundle.json`: what a bundle folder holds. A bundle is a dataset and every image that its tasks start, in one folder
 * that is carried to a machine without a network:
 *
 *     DIR/dataset/NAME/   task folders byte for byte, dataset.toml, manifest.toml, the record files
 *     DIR/images/oci/     an OCI image layout with shared blobs: a read-only store (lib/store)
 *     DIR/gym-harbor      the program itself, when asked for
 *     DIR/bundle.json     this file
 *     DIR/SHA256SUMS      every other file, as `sha256sum -c` reads it; written last
 *
 * It holds no times and no names of machines: exporting the same twice gives the same bytes.
 */
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { errno, HarborError } from "../errors.ts";
import { reasonOf } from "../files/reason.ts";
import { ImageConfig } from "../images/config.ts";

export const SCHEMA_VERSION = 1;

/** Places inside a bundle folder. */
export const PLACES = {
  index: "bundle.json",
  sums: "SHA256SUMS",
  dataset: "dataset",
  images: "images/oci",
  binary: "gym-harbor",
  /** Names what is being exported, from the first byte to the last; a finished bundle has none. */
  unfinished: "EXPORT-UNFINISHED.json",
} as const;

/** Stays below the folder it is joined to, whoever wrote it. */
const relative = z.string().refine(
  (path) => path !== "" && !path.startsWith("/") && path.split("/").every((part) => !["", ".", ".."].includes(part)),
  "must be a path that stays inside",
);
const hex64 = z.string().regex(/^[0-9a-f]{64}$/);
const digest = z.string().regex(/^sha256:[0-9a-f]{64}$/);

export const BundleImage = z.strictObject({
  /** First 16 hex digits of the configuration's digest. */
  id: z.string().regex(/^[0-9a-f]{16}$/),
  /** Every spelling that must resolve to it: as written, pinned, `hb__<hash>`, pushed name. */
  refs: z.array(z.string()).min(1),
  /** The tag that an import gives it in an engine. */
  alias: z.string(),
  /** Of the multi-platform index that a tag named, where there was one. */
  index_digest: digest.optional(),
  manifest_digest: digest,
  config_digest: digest,
  /** Lowest first. */
  diff_ids: z.array(digest),
  os: z.string(),
  architecture: z.string(),
  /** Bytes of its manifest, configuration and compressed layers; shared ones count in each image. */
  size_bytes: z.number().int().nonnegative(),
  config: ImageConfig,
});
export type BundleImage = z.infer<typeof BundleImage>;

const BundleTask = z.strictObject({
  /** POSIX path below the dataset's folder. */
  path: relative,
  /** Digest of its folder, which `manifest.toml` has too; null for a task whose files cannot be hashed. */
  folder_digest: hex64.nullable(),
  /** What its rows carry; null for a task that does not load. */
  digest: hex64.nullable(),
  /** Ids of the images it starts. */
  images: z.array(z.string()),
});

export const NeedsNetwork = z.strictObject({
  task: z.string(),
  /** Relative to the task's folder. */
  file: z.string(),
  /** 1-based. */
  line: z.number().int().positive(),
  why: z.string(),
});
export type NeedsNetwork = z.infer<typeof NeedsNetwork>;

const BundleDataset = z.strictObject({
  /** Folder below `dataset/`. */
  folder: relative,
  /** What was exported: the whole folder, or one task of it under its own name. */
  kind: z.enum(["dataset", "task"]),
  /** Name for results and rows. */
  taskset: z.string(),
  /** `local`, or what the manifest of a fetched dataset says. */
  source: z.string(),
  ref: z.string().optional(),
  /** Of the dataset it was taken from, as a whole, also where only some of its tasks were taken. */
  digest: hex64,
  dataset_toml_digest: hex64.optional(),
  dataset_files_digest: hex64.optional(),
  /** Folder digests of the tasks that were not taken, sorted: with the tasks here they make `digest`. */
  left_out: z.array(hex64),
  /** What a copy through a file system without modes, links or empty folders loses, by path below the folder. */
  executable: z.array(z.string()),
  links: z.record(z.string(), z.string()),
  empty_folders: z.array(z.string()),
});

export const Bundle = z.strictObject({
  schema_version: z.literal(SCHEMA_VERSION),
  /** Version of gym-harbor that wrote it. */
  tool_version: z.string(),
  /** `os/arch` of every image. */
  platform: z.string(),
  dataset: BundleDataset,
  /** Its images hold what RUN lines of Dockerfiles do (`--bake`): a run starts those, as with builds.force. */
  baked: z.boolean(),
  tasks: z.record(z.string(), BundleTask),
  images: z.array(BundleImage),
  /** Lines of tasks that fetch something while they run: these tasks need a network whatever is carried. */
  needs_network: z.array(NeedsNetwork),
  /** Task id → why it cannot run from this bundle. */
  skipped: z.record(z.string(), z.string()),
});
export type Bundle = z.infer<typeof Bundle>;

/** Whether a folder is a bundle or the beginning of one. */
function looksLikeBundle(folder: string): boolean {
  return [PLACES.index, PLACES.unfinished].some((name) => isThere(join(folder, name)));
}

const isThere = (path: string): boolean => {
  try {
    return statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
  } catch {
    return false;
  }
};

/**
 * Reads the index of a finished bundle. Throws HarborError "bundle.invalid" naming the file: for a folder that is none,
 * an export that did not finish, a newer schema, and what does not parse.
 */
export function readBundle(folder: string): Bundle {
  const path = join(folder, PLACES.index);
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (cause) {
    if (errno(cause) === "ENOENT") throw unfinishedExport(folder);
    throw invalid(`Cannot read ${path}: ${reasonOf(cause)}`, undefined, cause);
  }
  if (!isThere(join(folder, PLACES.sums)) || isThere(join(folder, PLACES.unfinished))) throw unfinishedExport(folder);
  return parseBundle(text, path);
}

/** HarborError "bundle.invalid" for a folder that is half a bundle, or none. */
export function unfinishedExport(folder: string): HarborError {
  if (!looksLikeBundle(folder)) {
    return invalid(`${folder} is no bundle: it has no ${PLACES.index}`, "name the folder that 'bundle export' wrote");
  }
  return isThere(join(folder, PLACES.unfinished)) || !isThere(join(folder, PLACES.index))
    ? invalid(`${folder} is half a bundle: its export did not finish`, "run the same 'bundle export' again: it goes on")
    : invalid(`${folder} is half a bundle: it has no ${PLACES.sums}`, CARRY_AGAIN);
}

/** As readBundle(), from text. */
export function parseBundle(text: string, path: string): Bundle {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw invalid(`${path} is not JSON: ${(cause as Error).message}`, CARRY_AGAIN, cause);
  }
  const version = (value as { schema_version?: unknown } | null)?.schema_version;
  if (typeof version === "number" && version > SCHEMA_VERSION) {
    throw invalid(
      `${path} has schema_version ${version}, this gym-harbor reads ${SCHEMA_VERSION}`,
      "use the gym-harbor that wrote the bundle (bundle export --with-binary puts it inside), or a newer one",
    );
  }
  const parsed = Bundle.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  throw invalid(`${path}: ${issue.path.join(".") || "(whole file)"}: ${issue.message}`, CARRY_AGAIN);
}

/** The text of the file: keys as the schema orders them, two spaces, one line feed at the end. */
export const bundleText = (bundle: Bundle): string => JSON.stringify(Bundle.parse(bundle), null, 2) + "\n";

export const CARRY_AGAIN = "carry it over again; if it is broken there too, export it again";

const invalid = (message: string, hint?: string, cause?: unknown): HarborError =>
  new HarborError("bundle.invalid", message, { hint, cause });
