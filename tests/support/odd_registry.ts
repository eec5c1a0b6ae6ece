/**
 * A registry in this process that answers as well or as badly as a test wants. It serves what was put into it; `odd`
 * sees every request first and may answer in its place.
 */
import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { gzipSync } from "node:zlib";
import { MEDIA } from "../../lib/registry/registry.ts";

export const sha256 = (bytes: Uint8Array | string): string =>
  `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

export interface Reply {
  status?: number;
  headers?: Record<string, string | undefined>;
  body?: string | Uint8Array;
  /** Ends the connection after so many bytes of the body. */
  breakAfter?: number;
}

export interface Seen {
  method: string;
  /** With its query. */
  path: string;
  headers: IncomingMessage["headers"];
  body: string;
}

/** An image as bytes: what a registry serves for it. */
export interface MadeImage {
  manifest: string;
  digest: string;
  config: string;
  layers: Uint8Array[];
  layerDigests: string[];
}

export function madeImage(given: {
  os?: string;
  architecture?: string;
  variant?: string;
  layers?: (string | Uint8Array)[];
  /** Put over the manifest's own fields. */
  manifest?: Record<string, unknown>;
  config?: Record<string, unknown>;
} = {}): MadeImage {
  const plain = (given.layers ?? ["a layer"]).map((
    one,
  ) => (typeof one === "string" ? new TextEncoder().encode(one) : one));
  const layers = plain.map((one) => new Uint8Array(gzipSync(one)));
  const config = JSON.stringify({
    os: given.os ?? "linux",
    architecture: given.architecture ?? "amd64",
    ...(given.variant !== undefined && { variant: given.variant }),
    config: { Env: ["PATH=/bin"], Cmd: ["sh"] },
    rootfs: { type: "layers", diff_ids: plain.map(sha256) },
    ...given.config,
  });
  const manifest = JSON.stringify({
    schemaVersion: 2,
    mediaType: MEDIA.ociManifest,
    config: { mediaType: MEDIA.ociConfig, digest: sha256(config), size: config.length },
    layers: layers.map((layer) => ({
      mediaType: "application/vnd.oci.image.layer.v1.tar+gzip",
      digest: sha256(layer),
      size: layer.length,
    })),
    ...given.manifest,
  });
  return { manifest, digest: sha256(manifest), config, layers, layerDigests: layers.map(sha256) };
}

/** An entry of an index. */
export const entryOf = (image: MadeImage, platform: Record<string, string> | undefined, more = {}) => ({
  mediaType: MEDIA.ociManifest,
  digest: image.digest,
  size: image.manifest.length,
  ...(platform !== undefined && { platform }),
  ...more,
});

export const madeIndex = (manifests: unknown[], more = {}): string =>
  JSON.stringify({ schemaVersion: 2, mediaType: MEDIA.ociIndex, manifests, ...more });

export class OddRegistry implements AsyncDisposable {
  readonly seen: Seen[] = [];
  /** Answers in place of the registry; undefined lets it answer itself. */
  odd: (seen: Seen) => Reply | undefined | Promise<Reply | undefined> = () => undefined;
  #files = new Map<string, { body: string | Uint8Array; type: string }>();
  #server = createServer((request, response) => void this.#serve(request, response));

  static async start(): Promise<OddRegistry> {
    const registry = new OddRegistry();
    await new Promise<void>((ready) => registry.#server.listen(0, "127.0.0.1", ready));
    return registry;
  }

  /** `127.0.0.1:<port>`. */
  get host(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Serves an image under a tag (if given) and its digest. */
  hold(repository: string, image: MadeImage, tag?: string): this {
    for (const name of [image.digest, ...(tag === undefined ? [] : [tag])]) {
      this.put(`/v2/${repository}/manifests/${name}`, image.manifest, MEDIA.ociManifest);
    }
    this.put(`/v2/${repository}/blobs/${sha256(image.config)}`, image.config);
    image.layers.forEach((layer, at) => this.put(`/v2/${repository}/blobs/${image.layerDigests[at]}`, layer));
    return this;
  }

  /** Serves an index under a tag and its digest. */
  holdIndex(repository: string, index: string, tag: string): this {
    for (const name of [sha256(index), tag]) this.put(`/v2/${repository}/manifests/${name}`, index, MEDIA.ociIndex);
    return this;
  }

  put(path: string, body: string | Uint8Array, type = "application/octet-stream"): this {
    this.#files.set(path, { body, type });
    return this;
  }

  /** `GET /path` of every request so far, without queries. */
  get asked(): string[] {
    return this.seen.map(({ method, path }) => `${method} ${path.split("?")[0]}`);
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const parts: Uint8Array[] = [];
    for await (const part of request) parts.push(part as Uint8Array);
    const seen: Seen = {
      method: request.method!,
      path: request.url!,
      headers: request.headers,
      body: new TextDecoder().decode(await new Blob(parts as BlobPart[]).arrayBuffer()),
    };
    this.seen.push(seen);
    const { status = 200, headers = {}, body = "", breakAfter } = await this.odd(seen) ?? this.#own(seen);
    const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
    response.writeHead(status, { "content-length": String(bytes.length), ...headers } as Record<string, string>);
    if (breakAfter === undefined) return void response.end(bytes);
    response.write(bytes.subarray(0, breakAfter), () => setTimeout(() => response.destroy(), 5));
  }

  #own({ path, headers }: Seen): Reply {
    const file = this.#files.get(path.split("?")[0]!);
    if (file === undefined) {
      return {
        status: 404,
        body: JSON.stringify({ errors: [{ code: "MANIFEST_UNKNOWN", message: "manifest unknown" }] }),
      };
    }
    const from = /^bytes=(\d+)-$/.exec(headers.range ?? "")?.[1];
    const whole = typeof file.body === "string" ? new TextEncoder().encode(file.body) : file.body;
    if (from === undefined) return { body: whole, headers: { "content-type": file.type } };
    const rest = whole.subarray(Number(from));
    return {
      status: 206,
      body: rest,
      headers: { "content-type": file.type, "content-range": `bytes ${from}-${whole.length - 1}/${whole.length}` },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((closed) => this.#server.close(() => closed()));
  }
}
