/**
 * Images as files to carry: one docker-archive each, for `docker load` and `podman load` as well as for us, and map.json
 * with all their names, which an archive cannot hold (pins, digests).
 */
import {
  createReadStream,
  createWriteStream,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { z } from "zod";
import { HarborError, isDiskFull } from "../errors.ts";
import { writeAtomic } from "../files/atomic.ts";
import { reasonOf } from "../files/reason.ts";
import { isPinned } from "../images/reference.ts";
import { importArchive } from "./archive_in.ts";
import { dockerArchive } from "./archive_out.ts";
import { hexOf } from "./blobs.ts";
import type { ImageStore, StoredImage } from "./store.ts";

export const MAP = "map.json";

const CarriedImage = z.looseObject({
  /** Name of the archive in the folder. */
  file: z.string().regex(/^[^/\0]+\.tar$/),
  /** Everything it was found by. */
  names: z.array(z.string()),
  /** Hex. */
  config_digest: z.string().regex(/^[0-9a-f]{64}$/),
  platform: z.string(),
  size_bytes: z.number(),
});
export type CarriedImage = z.infer<typeof CarriedImage>;

const CarriedMap = z.looseObject({ schema_version: z.literal(1), images: z.array(CarriedImage) });

/** Writes what the folder does not have yet; the same images give the same bytes. Throws "image.failed", "store.unwritable". */
export async function* saveImages(
  images: readonly StoredImage[],
  store: ImageStore,
  folder: string,
  signal: AbortSignal,
): AsyncGenerator<CarriedImage> {
  try {
    mkdirSync(folder, { recursive: true });
    const known = existsSync(join(folder, MAP)) ? readMap(folder).images : [];
    const map = new Map(known.map((one) => [one.config_digest, one]));
    for (const image of images) {
      const hex = hexOf(image.config.digest);
      const file = fileName(image);
      const path = join(folder, file);
      if (!existsSync(path)) await write(image, store, path, signal);
      const names = [...new Set([...map.get(hex)?.names ?? [], ...image.names])].sort();
      const carried = { file, names, config_digest: hex, platform: image.platform, size_bytes: statSync(path).size };
      map.set(hex, carried);
      const sorted = [...map.values()].sort((a, b) => a.file < b.file ? -1 : 1);
      await writeAtomic(join(folder, MAP), JSON.stringify({ schema_version: 1, images: sorted }, null, 2) + "\n");
      yield carried;
    }
  } catch (cause) {
    if (cause instanceof HarborError || signal.aborted) throw cause;
    throw new HarborError("store.unwritable", `Cannot write ${folder}: ${reasonOf(cause)}`, {
      cause,
      hint: isDiskFull(cause)
        ? "free some space, or choose another disk; what is whole stays"
        : "choose a folder that can be written",
    });
  }
}

/** Names that an engine can give an image: with a tag, without a digest. */
const tagsOf = ({ names }: StoredImage): string[] => names.filter((name) => !isPinned(name));

function fileName(image: StoredImage): string {
  const name = tagsOf(image)[0] ?? "image";
  const slug = name.replace(/^docker\.io\/(library\/)?/, "").replace(/[^A-Za-z0-9._-]+/g, "-").slice(0, 80);
  return `${slug}-${hexOf(image.config.digest).slice(0, 12)}.tar`;
}

async function write(image: StoredImage, store: ImageStore, path: string, signal: AbortSignal): Promise<void> {
  const temp = `${path}.${crypto.randomUUID().slice(0, 8)}.tmp`;
  try {
    const archive = Readable.from(dockerArchive([{ image, tags: tagsOf(image) }], store));
    await pipeline(archive, createWriteStream(temp, { flush: true }), { signal });
    renameSync(temp, path);
  } finally {
    rmSync(temp, { force: true });
  }
}

/** Takes all images of a folder of saveImages() in, under all their names. Throws "image.failed", "usage". */
export async function* loadImages(folder: string, store: ImageStore, signal: AbortSignal): AsyncGenerator<StoredImage> {
  for (const { file, names, config_digest, platform } of readMap(folder).images) {
    const here = await store.find(`sha256:${config_digest}`, platform);
    if (here !== undefined && names.every((name) => here.names.includes(name))) {
      yield here;
      continue;
    }
    const path = join(folder, file);
    if (!existsSync(path)) {
      throw new HarborError("image.failed", `${join(folder, MAP)} names ${file}, which is not there`);
    }
    const source = createReadStream(path, { highWaterMark: 1 << 20 });
    const [image] = await importArchive(source, store, { what: path, names }, signal);
    if (hexOf(image!.config.digest) !== config_digest) {
      throw new HarborError(
        "image.failed",
        `${path} holds the image ${hexOf(image!.config.digest)}, ${MAP} says ${config_digest}`,
        {
          hint: "copy the folder again from where it was saved",
        },
      );
    }
    yield image!;
  }
}

function readMap(folder: string): z.infer<typeof CarriedMap> {
  const path = join(folder, MAP);
  try {
    return CarriedMap.parse(JSON.parse(readFileSync(path, "utf8")));
  } catch (cause) {
    throw new HarborError("usage", `${path} is not a list of saved images: ${reasonOf(cause).split("\n", 1)[0]}`, {
      cause,
      hint: "name a folder that 'images save' wrote; single archives come in with images import",
    });
  }
}
