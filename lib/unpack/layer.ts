/** One layer of an image, from its blob to a folder that overlays can stand on, checked on the way. */
import { existsSync } from "node:fs";
import { errno, HarborError, isDiskFull } from "../errors.ts";
import { reasonOf } from "../files/reason.ts";
import type { Runner } from "../runtime/runner.ts";
import { digestOfFile } from "../store/blobs.ts";
import { absentBlob, damaged } from "../store/damage.ts";
import { unmasked } from "../runtime/umask.ts";
import type { StoredImage } from "../store/store.ts";
import { unpacked } from "./decompress.ts";
import { applyExtras, isEmpty } from "./extras.ts";
import type { OwnerMap } from "./owners.ts";
import { TarReader } from "./tar_reader.ts";
import { LayerWriter } from "./writer.ts";

/** A layer as it lies in a store. */
export type LayerBlob = Pick<StoredImage["layers"][number], "digest" | "diffId" | "size"> & {
  /** Absolute path of the blob. */
  path: string;
  /** Whether a damaged blob may be removed. */
  readOnly: boolean;
};

export interface UnpackOptions {
  owners: OwnerMap;
  runner: Runner;
  /** Whether a lower layer has this name (a byte string), for whiteouts. */
  below: (path: string) => boolean;
}

/** What was made of a layer. */
export interface Unpacked {
  entries: number;
  /** Bytes of files. */
  bytes: number;
  /** Device nodes left out; a sandbox has its own /dev. */
  devices: number;
  attributesLeftOut: number;
  /** Folders that hide all of lower layers, as byte strings. */
  opaque: string[];
  /** Whether what the layer becomes depends on those below: it has whiteouts. */
  hides: boolean;
}

/**
 * Unpacks one layer into `root`, an empty folder of ours. Throws "image.failed" for a blob whose bytes or whose unpacked
 * bytes have another digest, for entries that would leave the folder, and when the disk is full; "machine.lacks" when
 * this disk cannot hold whiteouts or attributes. What was written until then is the caller's to remove.
 */
export async function unpackLayer(
  layer: LayerBlob,
  root: string,
  { owners, runner, below }: UnpackOptions,
  signal: AbortSignal,
): Promise<Unpacked> {
  const what = `The layer ${layer.digest}`;
  const writer = new LayerWriter(root, { owners, what });
  await writeLayer(layer, writer, signal);
  const all = { whiteouts: 0 };
  const extras = writer.finishLayer((path) => (all.whiteouts++, below(path)));
  if (!isEmpty(extras)) await applyExtras(root, extras, { owners, runner, signal, what });
  unmasked(() => writer.settleFolders());
  return { ...countsOf(writer), opaque: extras.opaque, hides: all.whiteouts > 0 };
}

/**
 * Unpacks all layers, lowest first, into one folder, for disks that cannot hold whiteouts: what is hidden is removed.
 * Attributes are kept where the disk can.
 */
export async function unpackFlat(
  layers: readonly LayerBlob[],
  root: string,
  { owners, runner }: Pick<UnpackOptions, "owners" | "runner">,
  signal: AbortSignal,
): Promise<Unpacked> {
  const writer = new LayerWriter(root, { owners, flat: true, what: "The image" });
  for (const layer of layers) {
    await writeLayer(layer, writer, signal);
    const extras = writer.finishLayer(() => false);
    if (isEmpty(extras)) continue;
    try {
      await applyExtras(root, extras, { owners, runner, signal, what: `The layer ${layer.digest}` });
    } catch (error) {
      if (!(error instanceof HarborError) || error.code !== "machine.lacks" || isDiskFull(error)) throw error;
      writer.attributesLeftOut += extras.attributed.size + extras.fifos.length;
    }
  }
  unmasked(() => writer.settleFolders());
  return { ...countsOf(writer), opaque: [], hides: false };
}

const countsOf = ({ entries, bytes, devices, attributesLeftOut }: LayerWriter) => ({
  entries,
  bytes,
  devices,
  attributesLeftOut,
});

async function writeLayer(layer: LayerBlob, writer: LayerWriter, signal: AbortSignal): Promise<void> {
  const what = `The layer ${layer.digest}`;
  const reader = new TarReader(writer, what);
  try {
    const found = await unpacked(layer.path, (chunk) => unmasked(() => reader.push(chunk)), signal);
    if (found.blob !== layer.digest) throw damaged(layer.digest, found.blob, layer);
    if (found.diff !== layer.diffId) {
      const wrong = `its contents have the digest ${found.diff}, the image's configuration says ${layer.diffId}`;
      throw new HarborError("image.failed", `${what} cannot be used: ${wrong}`, {
        hint: "the image is inconsistent where it was published",
        details: { digest: layer.digest, found: found.diff, wanted: layer.diffId },
      });
    }
    reader.finish();
  } catch (cause) {
    if (signal.aborted) throw cause;
    throw await faultOf(layer, cause);
  } finally {
    writer.close();
  }
}

/** What is no archive, or no compressed data, is a damaged blob where its own digest says so. */
async function faultOf(layer: LayerBlob, cause: unknown): Promise<unknown> {
  if (errno(cause) === "ENOENT") return absentBlob(layer.digest, layer.path, cause);
  if (isDiskFull(cause) || !existsSync(layer.path)) return cause;
  const found = await digestOfFile(layer.path);
  if (found !== layer.digest) return damaged(layer.digest, found, layer);
  if (cause instanceof HarborError) return cause;
  return new HarborError("image.failed", `The layer ${layer.digest} cannot be unpacked: ${reasonOf(cause)}`, { cause });
}
