/**
 * Registries over fetch, without any engine: images by reference for a platform, blobs from any offset. Every digest is
 * checked against its bytes (of blobs by who takes them in). Equal references are asked for once in the client's life.
 */
import { HarborError, messageOf } from "../errors.ts";
import type { Emit } from "../events.ts";
import { ImageFile, platformName, platformOf } from "../images/config.ts";
import { digestOf } from "../images/digest.ts";
import { canonical, pinnedTo, type Reference } from "../images/reference.ts";
import type { Clock } from "../runtime/clock.ts";
import { Shared } from "../runtime/pool.ts";
import type { Patience } from "./admission.ts";
import { blobStream } from "./blob.ts";
import type { FindCredential } from "./credentials.ts";
import { type Endpoint, endpointsOf, isPlain, purposeOf, urlOf } from "./endpoints.ts";
import { registryError } from "./failure.ts";
import { ACCEPT, chosenEntry, type Document, readDocument } from "./manifest.ts";
import { pushTo } from "./push.ts";
import type { Descriptor, Registry, RegistryWriter, RemoteImage, UploadImage } from "./registry.ts";
import { TRIES } from "./retry.ts";
import { Session } from "./session.ts";
import type { RegistrySettings } from "./settings.ts";

const MOST_MANIFEST_BYTES = 4 * 1024 * 1024;
const MOST_CONFIG_BYTES = 8 * 1024 * 1024;
/** An index may point to an index; nobody nests deeper on purpose. */
const MOST_INDEXES = 3;
/** Tries at a mirror: behind it stands the registry itself. */
const MIRROR_TRIES = 2;

export interface RegistryDeps {
  fetch: typeof fetch;
  clock: Clock;
  emit: Emit;
  settings: RegistrySettings;
  credentials: FindCredential;
  /** Nothing may be asked of any network: every call throws. */
  offline?: boolean;
  /** Sees one line per request, for --verbose; never a secret. */
  trace?: (line: string) => void;
  random?: () => number;
}

/** A manifest or an index whose bytes have the digest that was asked for or announced. */
interface Fetched {
  document: Document;
  bytes: Uint8Array;
  digest: string;
}

export class RegistryClient implements Registry, RegistryWriter {
  readonly #session: Session;
  readonly #images = new Shared<RemoteImage>();
  readonly #warned = new Set<string>();

  constructor(private readonly deps: RegistryDeps) {
    this.#session = new Session({ ...deps, plain: (host) => isPlain(host, deps.settings) });
  }

  image(reference: Reference, platform: string, signal: AbortSignal): Promise<RemoteImage> {
    return this.#images.get(`${canonical(reference)} ${platform}`, async () => {
      this.#refuseOffline(reference);
      const patience: Patience = { waits: 0 };
      return await this.#read(reference, platform, patience, signal);
    });
  }

  // deno-lint-ignore require-await -- a promise, also when it throws
  async blob(
    reference: Reference,
    descriptor: Descriptor,
    from: { offset: number },
    signal: AbortSignal,
  ): Promise<AsyncIterable<Uint8Array>> {
    this.#refuseOffline(reference);
    const patience: Patience = { waits: 0 };
    const open = (offset: number) =>
      this.#anywhere(reference, signal, (endpoint, tries) =>
        this.#session.ask({
          request: {
            method: "GET",
            url: urlOf(endpoint, reference, `blobs/${descriptor.digest}`),
            headers: {
              accept: "application/octet-stream",
              "accept-encoding": "identity",
              ...(offset > 0 && { range: `bytes=${offset}-` }),
            },
          },
          purpose: purposeOf(endpoint, reference, "pull"),
          accept: (status) => status === 200 || (offset > 0 && (status === 206 || status === 416)),
          tries,
          patience,
        }, signal));
    return blobStream(
      { descriptor, offset: from.offset, open, clock: this.deps.clock, random: this.deps.random },
      signal,
    );
  }

  async push(
    reference: Reference,
    image: UploadImage,
    signal: AbortSignal,
    onBlob: (blob: Descriptor) => void = () => {},
  ): Promise<string> {
    this.#refuseOffline(reference);
    const endpoint = endpointsOf(reference.host, this.deps.settings).at(-1)!; // never to a mirror
    await pushTo({ session: this.#session, endpoint, reference }, image, signal, onBlob);
    return pinnedTo(reference, image.manifest.digest);
  }

  async #read(reference: Reference, platform: string, patience: Patience, signal: AbortSignal): Promise<RemoteImage> {
    const first = await this.#manifest(reference, reference.digest ?? reference.tag!, patience, signal);
    let { document, bytes, digest } = first;
    for (let depth = 0; document.kind === "index"; depth++) {
      if (depth >= MOST_INDEXES) throw new HarborError("image.failed", "its index points to indexes without end");
      const entry = chosenEntry(document.entries, platform);
      ({ document, bytes, digest } = await this.#manifest(reference, entry.digest, patience, signal));
    }
    const { config, layers, mediaType } = document;
    const configBytes = await this.#config(reference, config, signal);
    const file = fileOf(configBytes);
    const found = platformOf(file);
    if (found !== platformName(platform)) {
      throw new HarborError("image.failed", `${reference.written} resolved to ${found}, not ${platform}`, {
        hint: `builds.platform=${found} uses it on a machine of that kind`,
      });
    }
    if (file.rootfs.diff_ids.length !== layers.length) {
      throw new HarborError(
        "image.failed",
        `its configuration speaks of ${file.rootfs.diff_ids.length} layers, its manifest of ${layers.length}`,
      );
    }
    return {
      reference,
      pinned: reference.digest === undefined
        ? pinnedTo(reference, first.digest)
        : reference.written.replace(/^docker:\/\//, ""),
      ...(first.document.kind === "index" && { indexDigest: first.digest }),
      manifest: { mediaType, digest, size: bytes.length },
      manifestBytes: bytes,
      config,
      configBytes,
      layers,
      platform: found,
    };
  }

  #manifest(reference: Reference, name: string, patience: Patience, signal: AbortSignal): Promise<Fetched> {
    return this.#anywhere(reference, signal, async (endpoint, tries) => {
      using granted = await this.#session.ask({
        request: {
          method: "GET",
          url: urlOf(endpoint, reference, `manifests/${name}`),
          headers: { accept: ACCEPT },
        },
        purpose: purposeOf(endpoint, reference, "pull"),
        accept: (status) => status === 200,
        tries,
        patience,
      }, signal);
      const { answer } = granted;
      const bytes = await answer.bytes(MOST_MANIFEST_BYTES, "the manifest");
      const digest = digestOf(bytes);
      // What the bytes are is said first: of a web page nobody wants to know its digest.
      const document = readDocument(bytes, answer.headers.get("content-type") ?? "");
      const announced = answer.headers.get("docker-content-digest");
      for (const wanted of [name, announced]) {
        if (wanted?.startsWith("sha256:") && wanted !== digest) {
          throw registryError(`the manifest has digest ${digest}, not ${wanted}`, { host: endpoint.host });
        }
      }
      return { document, bytes, digest };
    });
  }

  async #config(reference: Reference, config: Descriptor, signal: AbortSignal): Promise<Uint8Array> {
    if (config.size > MOST_CONFIG_BYTES) {
      throw new HarborError(
        "image.failed",
        `its configuration has ${config.size} bytes, at most ${MOST_CONFIG_BYTES} fit`,
      );
    }
    const chunks: Uint8Array[] = [];
    for await (const chunk of await this.blob(reference, config, { offset: 0 }, signal)) chunks.push(chunk);
    const bytes = new Uint8Array(await new Blob(chunks as BlobPart[]).arrayBuffer());
    const digest = digestOf(bytes);
    if (digest !== config.digest) {
      throw registryError(`its configuration has digest ${digest}, not ${config.digest}`, { host: reference.host });
    }
    return bytes;
  }

  /** Asks the mirrors in their order, then the registry; the first that does it wins, the last one's error is thrown. */
  async #anywhere<T>(
    reference: Reference,
    signal: AbortSignal,
    step: (endpoint: Endpoint, tries: number) => Promise<T>,
  ): Promise<T> {
    const failures: string[] = [];
    for (const endpoint of endpointsOf(reference.host, this.deps.settings)) {
      try {
        return await step(endpoint, endpoint.mirror ? MIRROR_TRIES : TRIES);
      } catch (error) {
        signal.throwIfAborted();
        if (!endpoint.mirror) {
          if (failures.length === 0 || !(error instanceof HarborError)) throw error;
          throw new HarborError(error.code, `${error.message} (${failures.join("; ")})`, error);
        }
        failures.push(`mirror ${endpoint.host}: ${messageOf(error)}`);
        this.#warn(endpoint, messageOf(error));
      }
    }
    throw new Error("no endpoint"); // endpointsOf() is never empty
  }

  /** Once per mirror: a thousand images need not say that it lacks them. */
  #warn(endpoint: Endpoint, reason: string): void {
    if (this.#warned.has(endpoint.origin)) return;
    this.#warned.add(endpoint.origin);
    this.deps.emit({ kind: "warning", text: `mirror ${endpoint.host}: ${reason}; the next one is asked` });
  }

  #refuseOffline(reference: Reference): void {
    if (!this.deps.offline) return;
    throw new HarborError("image.failed", `Offline: ${reference.host} is not asked for ${reference.written}`, {
      hint: "carry the images in: gym-harbor bundle export where there is a network, gym-harbor bundle import here",
    });
  }
}

function fileOf(bytes: Uint8Array): ImageFile {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw new HarborError("image.failed", "its configuration is not JSON");
  }
  const read = ImageFile.safeParse(value);
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  throw new HarborError(
    "image.failed",
    `its configuration cannot be read: ${issue!.path.join(".")}: ${issue!.message}`,
  );
}
