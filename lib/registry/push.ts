/**
 * An image to a registry (OCI distribution-spec, "Push"): blobs it has are passed over, the others go in one request
 * each, or in parts where a registry refuses that; the manifest comes last, so a push that ends early names nothing.
 */
import type { Reference } from "../images/reference.ts";
import { pool } from "../runtime/pool.ts";
import { type Endpoint, purposeOf, urlOf } from "./endpoints.ts";
import { registryError } from "./failure.ts";
import type { Descriptor, UploadImage } from "./registry.ts";
import type { Session } from "./session.ts";
import type { Answer, Request } from "./transport.ts";

interface Target {
  session: Session;
  endpoint: Endpoint;
  reference: Reference;
}

const BLOBS_AT_ONCE = 4;
/** Of a blob that goes in parts. */
const PART_BYTES = 8 * 2 ** 20;
/** Slower than this a connection counts as dead. */
const SLOWEST_BYTES_PER_SECOND = 64 * 1024;
/** How registries say that they do not take a blob in one request. */
const NOT_IN_ONE = new Set([400, 404, 405, 411, 413, 416, 501]);

/** Sends what the registry lacks. `onBlob` is told of each blob once it is there. Throws "image.failed". */
export async function pushTo(
  target: Target,
  image: UploadImage,
  signal: AbortSignal,
  onBlob: (blob: Descriptor) => void,
): Promise<void> {
  const { reference } = target;
  const { digest, mediaType } = image.manifest;
  if (reference.digest !== undefined && reference.digest !== digest) {
    throw registryError(`the image has digest ${digest}, not ${reference.digest}`, { host: reference.host });
  }
  const blobs = [...new Map(image.blobs.map((blob) => [blob.digest, blob])).values()];
  await pool(blobs, BLOBS_AT_ONCE, async (blob) => {
    if (!await isThere(target, blob, signal)) await upload(target, blob, await image.open(blob), signal);
    onBlob(blob);
  }, signal);
  signal.throwIfAborted();
  const answer = await ask(
    target,
    {
      method: "PUT",
      url: urlOf(target.endpoint, reference, `manifests/${reference.tag ?? digest}`),
      headers: { "content-type": mediaType },
      body: new Uint8Array(image.manifestBytes),
    },
    [200, 201, 202],
    signal,
  );
  const stored = answer.headers.get("docker-content-digest") ?? digest;
  if (stored !== digest) {
    throw registryError(`the registry stored the manifest as ${stored}, not ${digest}`, { host: reference.host });
  }
}

async function isThere(target: Target, { digest }: Descriptor, signal: AbortSignal): Promise<boolean> {
  const url = urlOf(target.endpoint, target.reference, `blobs/${digest}`);
  return (await ask(target, { method: "HEAD", url, headers: {} }, [200, 404, 405], signal)).status === 200;
}

async function upload(target: Target, { digest, size }: Descriptor, bytes: Blob, signal: AbortSignal): Promise<void> {
  if (bytes.size !== size) {
    throw registryError(`blob ${digest} has ${bytes.size} bytes here, not ${size}`, { host: target.reference.host });
  }
  const place = await begin(target, signal);
  if (place === undefined) return;
  const whole = await ask(target, sending("PUT", withDigest(place, digest), bytes), [201, 204, ...NOT_IN_ONE], signal);
  if (NOT_IN_ONE.has(whole.status)) await uploadInParts(target, digest, bytes, signal);
}

async function uploadInParts(target: Target, digest: string, bytes: Blob, signal: AbortSignal): Promise<void> {
  let place = await begin(target, signal);
  if (place === undefined) return;
  for (let at = 0; at < bytes.size; at += PART_BYTES) {
    const part = bytes.slice(at, at + PART_BYTES);
    const request = sending("PATCH", place, part);
    request.headers["content-range"] = `${at}-${at + part.size - 1}`;
    place = placeIn(target, await ask(target, request, [202, 204], signal), place);
  }
  await ask(target, sending("PUT", withDigest(place, digest), new Blob([])), [201, 204], signal);
}

/** Where to send a blob; undefined when the registry turns out to have it. */
async function begin(target: Target, signal: AbortSignal): Promise<URL | undefined> {
  const url = urlOf(target.endpoint, target.reference, "blobs/uploads/");
  const answer = await ask(target, { method: "POST", url, headers: { "content-length": "0" } }, [201, 202], signal);
  return answer.status === 201 ? undefined : placeIn(target, answer, url);
}

/** The `Location` of an answer: relative or absolute, on this registry or on its storage. */
function placeIn(target: Target, answer: Answer, asked: URL): URL {
  const url = URL.parse(answer.headers.get("location") ?? "", asked);
  if (url === null || !/^https?:$/.test(url.protocol) || !answer.headers.has("location")) {
    throw registryError(`${answer.host} does not say where an upload goes on`, { host: target.endpoint.host });
  }
  // A registry behind a proxy that speaks TLS for it may not know that it does.
  if (asked.protocol === "https:" && url.protocol === "http:" && url.hostname === asked.hostname) {
    return new URL(url.href.replace(/^http/, "https"));
  }
  if (asked.protocol === "https:" && url.protocol === "http:") {
    throw registryError(`${answer.host} sends an upload to ${url.host} without TLS: refused`, { host: answer.host });
  }
  return url;
}

function withDigest(place: URL, digest: string): URL {
  const url = new URL(place);
  url.searchParams.set("digest", digest);
  return url;
}

const sending = (method: "PUT" | "PATCH", url: URL, body: Blob): Request => ({
  method,
  url,
  headers: { "content-type": "application/octet-stream" },
  body,
  answerMs: 60_000 + (body.size / SLOWEST_BYTES_PER_SECOND) * 1000,
});

async function ask(target: Target, request: Request, statuses: number[], signal: AbortSignal): Promise<Answer> {
  using granted = await target.session.ask({
    request,
    purpose: purposeOf(target.endpoint, target.reference, "pull,push"),
    accept: (status) => statuses.includes(status),
  }, signal);
  await granted.answer.discard();
  return granted.answer;
}
