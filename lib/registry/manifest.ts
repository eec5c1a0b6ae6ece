/** Manifests and indexes as registries send them, and which of an index's images is ours (spec §5.2). Pure. */
import { z } from "zod";
import { HarborError } from "../errors.ts";
import { platformOf } from "../images/config.ts";
import { type Descriptor, MEDIA } from "./registry.ts";

const DescriptorShape = z.looseObject({
  mediaType: z.string(),
  digest: z.string().regex(/^sha256:[0-9a-f]{64}$/, "is not sha256: and 64 hex digits"),
  size: z.int().nonnegative(),
});

const EntryShape = DescriptorShape.extend({
  platform: z.looseObject({ os: z.string(), architecture: z.string(), variant: z.string().optional() }).nullish(),
  annotations: z.record(z.string(), z.string()).nullish(),
});
export type IndexEntry = z.infer<typeof EntryShape>;

const ManifestShape = z.looseObject({ config: DescriptorShape, layers: z.array(DescriptorShape) });
const IndexShape = z.looseObject({ manifests: z.array(EntryShape) });

export type Document =
  | { kind: "index"; mediaType: string; entries: IndexEntry[] }
  | { kind: "manifest"; mediaType: string; config: Descriptor; layers: Descriptor[] };

/** What is asked for, in the order of our liking. */
export const ACCEPT = [MEDIA.ociIndex, MEDIA.dockerList, MEDIA.ociManifest, MEDIA.dockerManifest].join(", ");

/** Reads a manifest or an index. Throws HarborError "image.failed" that says what it is instead. */
export function readDocument(bytes: Uint8Array, contentType: string): Document {
  const said = contentType.split(";")[0]!.trim().toLowerCase();
  const value = parsed(bytes, said);
  if (value.schemaVersion === 1 || /manifest\.v1\+(?:json|prettyjws)$/.test(said) && said.includes("docker")) {
    refuse("it is a manifest of schema 1, which registries gave up in 2019", "push the image again with a newer tool");
  }
  const isIndex = Array.isArray(value.manifests);
  // A document that can be read both ways means different images to different readers (CVE-2021-41190).
  if (isIndex && (value.config !== undefined || value.layers !== undefined)) {
    refuse("its manifest claims to be an index as well");
  }
  const mediaType = typeof value.mediaType === "string" ? value.mediaType : knownType(said) ?? guessed(isIndex);
  if (isIndex) {
    const entries = shaped(IndexShape, value, "index").manifests;
    return { kind: "index", mediaType, entries };
  }
  const { config, layers } = shaped(ManifestShape, value, "manifest");
  if (config.mediaType !== MEDIA.ociConfig && config.mediaType !== MEDIA.dockerConfig) {
    refuse(`it is not a container image: its configuration is of type ${JSON.stringify(config.mediaType)}`);
  }
  return { kind: "manifest", mediaType, config: bare(config), layers: layers.map(bare) };
}

const bare = ({ mediaType, digest, size }: Descriptor): Descriptor => ({ mediaType, digest, size });

const knownType = (said: string): string | undefined =>
  Object.values(MEDIA).includes(said as typeof MEDIA.ociIndex) ? said : undefined;

const guessed = (isIndex: boolean): string => (isIndex ? MEDIA.ociIndex : MEDIA.ociManifest);

function parsed(bytes: Uint8Array, said: string): Record<string, unknown> {
  const text = new TextDecoder().decode(bytes);
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // named below
  }
  if (/html/.test(said) || /^\s*<(?:!doctype|html)/i.test(text)) {
    return refuse(
      "the registry answered with a web page instead of a manifest",
      "a login page or a proxy (HTTPS_PROXY) answers in its place; or this address is no registry",
    );
  }
  return refuse(`the registry answered with something that is no manifest (${said || "no content type"})`);
}

function shaped<T>(shape: z.ZodType<T>, value: unknown, what: string): T {
  const read = shape.safeParse(value);
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  return refuse(`its ${what} cannot be read: ${issue!.path.join(".") || what}: ${issue!.message}`);
}

function refuse(message: string, hint?: string): never {
  throw new HarborError("image.failed", message, hint === undefined ? {} : { hint });
}

/** Which variant to take when none is asked for, best first; "" is none. Others follow in the index's order. */
const VARIANTS: Record<string, readonly string[]> = { arm64: ["v8", ""], arm: ["v7", "", "v6", "v5"] };

/**
 * The entry for `platform` (`os/arch[/variant]`). Attestations and entries of no platform are not images. Throws
 * "image.failed" `the image index has no <platform> manifest`.
 */
export function chosenEntry(entries: readonly IndexEntry[], platform: string): IndexEntry {
  const [os = "", architecture = "", variant] = platform.split("/");
  const wanted = platformOf({ os, architecture });
  const images = entries.filter((entry) => !isAttestation(entry));
  const fitting = images.filter((entry) => entry.platform && platformOf(entry.platform) === wanted);
  const liking = [...variant === undefined ? [] : [variant], ...VARIANTS[wanted.split("/")[1]!] ?? [""]];
  for (const liked of liking) {
    const found = fitting.find((entry) => variantOf(entry) === liked);
    if (found !== undefined) return found;
  }
  if (fitting[0] !== undefined) return fitting[0];
  // An index of a single image that does not say its platform: the configuration will.
  const [only, ...more] = images;
  if (only !== undefined && more.length === 0 && !only.platform) return only;
  const there = [...new Set(images.flatMap(({ platform }) => (platform ? [platformOf(platform)] : [])))];
  return refuse(
    `the image index has no ${platform} manifest`,
    there.length === 0 ? "it holds no image at all" : `it has ${there.join(", ")}; builds.platform chooses`,
  );
}

/** armhf is arm of variant 7 under another name. */
const variantOf = ({ platform }: IndexEntry): string =>
  platform?.variant ?? (platform?.architecture === "armhf" ? "v7" : "");

function isAttestation({ platform, annotations }: IndexEntry): boolean {
  return annotations?.["vnd.docker.reference.type"] === "attestation-manifest" ||
    platform?.os === "unknown" || platform?.architecture === "unknown";
}

/** Layers whose publisher does not let registries hand them on: nothing we may carry. */
export function isForeign({ mediaType }: Descriptor): boolean {
  return /foreign|nondistributable/.test(mediaType);
}
