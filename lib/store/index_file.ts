/**
 * `index.json` of an OCI image layout, as pure data. Entries of other tools and keys that we do not know stay as they
 * are; ours carry all names of an image, since a layout has room for one (`org.opencontainers.image.ref.name`).
 */
import { z } from "zod";
import { canonical, parseReference, type Reference } from "../images/reference.ts";
import type { Descriptor } from "../registry/registry.ts";
import { MEDIA } from "../registry/registry.ts";

const REF_NAME = "org.opencontainers.image.ref.name";
/** containerd's and Docker's own spelling of the whole name. */
const CONTAINERD_NAME = "io.containerd.image.name";
/** Names apart by blanks, which no name has. */
const NAMES = "io.gym-harbor.names";
/** Digest of the index by which a registry named the image. */
const INDEX = "io.gym-harbor.index";

export const IndexEntry = z.looseObject({
  mediaType: z.string(),
  digest: z.string().regex(/^sha256:[0-9a-f]{64}$/),
  size: z.number().int().nonnegative(),
  annotations: z.record(z.string(), z.string()).optional(),
  platform: z.looseObject({ os: z.string(), architecture: z.string() }).optional(),
});
export type IndexEntry = z.infer<typeof IndexEntry>;

/** Also the shape of an index blob. */
export const IndexFile = z.looseObject({
  schemaVersion: z.literal(2),
  mediaType: z.string().optional(),
  manifests: z.array(IndexEntry),
});
export type IndexFile = z.infer<typeof IndexFile>;

export const emptyIndex = (): IndexFile => ({ schemaVersion: 2, mediaType: MEDIA.ociIndex, manifests: [] });

/** Names under which an entry says that it is found; none for an entry that has only a digest. */
export function namesOf({ annotations = {} }: IndexEntry): string[] {
  const ours = annotations[NAMES];
  if (ours !== undefined) return ours.split(" ").filter((name) => name !== "");
  const name = annotations[CONTAINERD_NAME] ?? annotations[REF_NAME];
  return name === undefined ? [] : [nameKey(name)];
}

/** Digest of the index that named the image, where that is known. */
export const indexDigestOf = (entry: IndexEntry): string | undefined => entry.annotations?.[INDEX];

/** What two spellings of one name have in common. `hb__…` names stay as they are, also below podman's `localhost/`. */
export function nameKey(name: string): string {
  const built = /^(?:(?:localhost|docker\.io\/library)\/)?(hb__[0-9a-f]+)(?::latest)?$/.exec(name)?.[1];
  if (built !== undefined) return built;
  const reference = parsed(name);
  return reference === undefined ? name : canonical(reference);
}

/** The digest that a reference names: `sha256:…` alone, or behind an `@`. */
export function digestIn(reference: string): { digest: string; alone: boolean } | undefined {
  const alone = /^(?:sha256:)?([0-9a-f]{64})$/.exec(reference)?.[1];
  if (alone !== undefined) return { digest: `sha256:${alone}`, alone: true };
  const digest = /@(sha256:[0-9a-f]{64})$/.exec(reference)?.[1];
  return digest === undefined ? undefined : { digest, alone: false };
}

function parsed(name: string): Reference | undefined {
  try {
    return parseReference(name);
  } catch {
    return undefined;
  }
}

export interface Naming {
  manifest: Descriptor;
  indexDigest?: string;
  /** `os/arch`. */
  platform: string;
  names: string[];
}

/**
 * The index with the image in it: its names are added to those it has, and taken off other images of that platform that
 * are ours (the last name wins). Ours stay sorted by digest behind what others wrote.
 */
export function withImage(
  index: IndexFile,
  image: Naming,
  platformOf: (entry: IndexEntry) => string | undefined,
): IndexFile {
  const names = image.names.map(nameKey);
  const foreign = index.manifests.filter((entry) => !isOurs(entry));
  const ours = index.manifests.filter(isOurs);
  const known = ours.find(({ digest }) => digest === image.manifest.digest);
  const others = ours.filter((entry) => entry !== known).map((entry) =>
    platformOf(entry) === image.platform
      ? renamed(entry, namesOf(entry).filter((name) => !names.includes(name)))
      : entry
  );
  const all = [...new Set([...(known === undefined ? [] : namesOf(known)), ...names])].sort();
  const [os = "", architecture = ""] = image.platform.split("/");
  const indexDigest = image.indexDigest ?? (known && indexDigestOf(known));
  const entry = renamed({
    ...known,
    ...image.manifest,
    annotations: { ...known?.annotations, ...(indexDigest !== undefined && { [INDEX]: indexDigest }) },
    platform: { ...known?.platform, os, architecture },
  }, all);
  return { ...index, manifests: [...foreign, ...[...others, entry].sort((a, b) => a.digest < b.digest ? -1 : 1)] };
}

/** The index without these manifests of ours, and without these names. */
export function withoutImages(index: IndexFile, digests: ReadonlySet<string>): IndexFile {
  return { ...index, manifests: index.manifests.filter((entry) => !isOurs(entry) || !digests.has(entry.digest)) };
}

/** Whether the entry was written by this program. */
export const isOurs = (entry: IndexEntry): boolean => entry.annotations?.[NAMES] !== undefined;

function renamed(entry: IndexEntry, names: readonly string[]): IndexEntry {
  const { [REF_NAME]: _, ...others } = entry.annotations ?? {};
  const shown = names.find((name) => !name.includes("@")) ?? names[0];
  const annotations = { ...others, ...(shown !== undefined && { [REF_NAME]: shown }), [NAMES]: names.join(" ") };
  return { ...entry, annotations: Object.fromEntries(Object.entries(annotations).sort(([a], [b]) => a < b ? -1 : 1)) };
}
