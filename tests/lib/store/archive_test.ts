import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { HarborError } from "../../../lib/errors.ts";
import { importArchive } from "../../../lib/store/archive_in.ts";
import { dockerArchive } from "../../../lib/store/archive_out.ts";
import { bytesOf, jsonBytes, makeImage, never, putImage, sha256, testStore } from "../../support/images.ts";
import { type Line, tar } from "../../support/tar.ts";
import { TempFolder } from "../../support/tasks.ts";

const LAYER = tar(["file", "one", "1"]);
const SECOND = tar(["file", "two", "2"]);
const hex = (bytes: Uint8Array): string => sha256(bytes).slice(7);

async function* inPieces(bytes: Uint8Array, size = 1000): AsyncGenerator<Uint8Array> {
  await Promise.resolve();
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

const taken = (temp: TempFolder, archive: Uint8Array, names?: string[]) =>
  importArchive(inPieces(archive), testStore(temp.path), { what: "x.tar", names }, never);

/** As docker 20.10 saves: folders of ids, a link for a layer that comes twice, the manifest last. */
const IMAGE = makeImage([LAYER, SECOND, LAYER], { config: { Healthcheck: { Test: ["CMD", "true"] } } });
const CONFIG = `${hex(IMAGE.configBytes)}.json`;
const docker20 = (over: { manifest?: unknown; lines?: Line[] } = {}): Uint8Array =>
  tar(
    ["folder", "aa/"],
    ["file", "aa/layer.tar", LAYER],
    ["file", "aa/VERSION", "1.0"],
    ["file", "bb/layer.tar", SECOND],
    ["symlink", "cc/layer.tar", "../aa/layer.tar"],
    ...(over.lines ?? []),
    ["file", CONFIG, IMAGE.configBytes],
    [
      "file",
      "manifest.json",
      jsonBytes(
        over.manifest ??
          [{ Config: CONFIG, RepoTags: ["t:1"], Layers: ["aa/layer.tar", "bb/layer.tar", "cc/layer.tar"] }],
      ),
    ],
  );

const SHAPES: [name: string, archive: Uint8Array][] = [
  ["as docker 20.10 writes it", docker20()],
  ["with gzip around it", gzipSync(docker20())],
  ["with zstd around it", zstdCompressSync(docker20())],
];
for (const [name, archive] of SHAPES) {
  test(`importArchive() takes a docker-archive ${name}, its configuration byte for byte`, async () => {
    using temp = new TempFolder("archive");
    const [image, ...more] = await taken(temp, archive);
    assert.deepEqual(more, []);
    assert.equal(image!.config.digest, IMAGE.config.digest);
    assert.deepEqual(image!.names, ["docker.io/library/t:1"]);
    assert.deepEqual(image!.layers.map(({ digest }) => digest), [LAYER, SECOND, LAYER].map(sha256));
    assert.match(image!.manifest.mediaType, /docker/, "a health check is lost under OCI's type");
    assert.deepEqual(new Uint8Array(readFileSync(testStore(temp.path).blobPath(sha256(SECOND)))), SECOND);
    assert.deepEqual(readdirSync(temp.join(".partial")), []);
  });
}

test("importArchive() goes on with a configuration that another process began to write", async () => {
  using temp = new TempFolder("archive");
  const store = testStore(temp.path);
  mkdirSync(`${store.folder}/.partial`, { recursive: true });
  writeFileSync(`${store.folder}/.partial/${hex(IMAGE.configBytes)}.part`, IMAGE.configBytes.subarray(0, 10));
  const [image] = await taken(temp, docker20());
  assert.deepEqual(Buffer.from(store.readBlob(image!.config.digest)), Buffer.from(IMAGE.configBytes));
});

test("importArchive() takes an OCI layout as tar with manifests as they are, and docker's tags beside it", async () => {
  using temp = new TempFolder("archive");
  const plain = makeImage([LAYER]);
  const inner = jsonBytes({
    schemaVersion: 2,
    manifests: [
      { ...plain.manifest, platform: { os: "linux", architecture: "amd64" } },
      { ...plain.manifest, digest: `sha256:${"3".repeat(64)}`, platform: { os: "linux", architecture: "arm64" } },
    ],
  });
  const index = {
    schemaVersion: 2,
    manifests: [{
      mediaType: "application/vnd.oci.image.index.v1+json",
      digest: sha256(inner),
      size: inner.length,
      annotations: {
        "org.opencontainers.image.ref.name": "12",
        "io.containerd.image.name": "docker.io/library/debian:12",
      },
    }],
  };
  const [image] = await taken(
    temp,
    tar(
      ["file", `blobs/sha256/${hex(plain.layers[0]!.bytes)}`, plain.layers[0]!.bytes],
      ["file", `blobs/sha256/${hex(plain.configBytes)}`, plain.configBytes],
      ["file", `blobs/sha256/${hex(plain.manifestBytes)}`, plain.manifestBytes],
      ["file", `blobs/sha256/${hex(inner)}`, inner],
      ["file", "index.json", jsonBytes(index)],
      [
        "file",
        "manifest.json",
        jsonBytes([{ Config: `blobs/sha256/${hex(plain.configBytes)}`, RepoTags: ["extra:1"], Layers: [] }]),
      ],
      ["file", "oci-layout", `{"imageLayoutVersion":"1.0.0"}`],
    ),
  );
  assert.equal(image!.manifest.digest, plain.manifest.digest);
  assert.equal(image!.indexDigest, sha256(inner));
  assert.deepEqual(image!.names, ["docker.io/library/debian:12", "docker.io/library/extra:1"]);
});

test("a name that is given replaces those of the archive; with several images it is refused", async () => {
  using temp = new TempFolder("archive");
  const [image] = await taken(temp, docker20(), ["mine:2"]);
  assert.deepEqual(image!.names, ["docker.io/library/mine:2"]);
  const layers = ["aa/layer.tar", "bb/layer.tar", "aa/layer.tar"];
  const both = [{ Config: CONFIG, RepoTags: ["a:1"], Layers: layers }, {
    Config: CONFIG,
    RepoTags: ["b:1"],
    Layers: layers,
  }];
  await assert.rejects(taken(temp, docker20({ manifest: both }), ["mine:2"]), /it has 2 images \(a:1, b:1\)/);
  assert.equal((await taken(temp, docker20({ manifest: both }))).length, 2);
});

const layersOf = (...names: string[]) => [{ Config: CONFIG, RepoTags: null, Layers: names }];
const HOSTILE: [name: string, archive: () => Uint8Array, says: RegExp][] = [
  [
    "a name that leaves it",
    () => docker20({ lines: [["file", "../evil", "x"]] }),
    /'..\/evil' leads out of the archive/,
  ],
  ["an absolute name", () => docker20({ lines: [["file", "/etc/evil", "x"]] }), /leads out of the archive/],
  ["a device", () => docker20({ lines: [["device", "dev"]] }), /neither a file nor a folder nor a link/],
  [
    "a layer that is a link to this machine",
    () => docker20({ lines: [["symlink", "x", "/etc/passwd"]], manifest: layersOf("x", "x", "x") }),
    /'x' is a link out of the archive/,
  ],
  [
    "a layer that is a link above it",
    () => docker20({ lines: [["symlink", "d/x", "../../etc/passwd"]], manifest: layersOf("d/x", "d/x", "d/x") }),
    /link out of the archive/,
  ],
  [
    "links in a circle",
    () => docker20({ lines: [["symlink", "x", "y"], ["symlink", "y", "x"]], manifest: layersOf("x", "x", "x") }),
    /round in a circle/,
  ],
  [
    "a giant manifest",
    () => tar(["file", "manifest.json", new Uint8Array(9 << 20)]),
    /more than a description can have/,
  ],
  [
    "a missing layer",
    () => docker20({ manifest: layersOf("aa/layer.tar", "bb/layer.tar", "zz") }),
    /its layer 'zz' is missing/,
  ],
  [
    "too few layers",
    () => docker20({ manifest: layersOf("aa/layer.tar") }),
    /it has 1 layers, its configuration says 3/,
  ],
  [
    "another layer than the configuration names",
    () => docker20({ manifest: layersOf("aa/layer.tar", "aa/layer.tar", "aa/layer.tar") }),
    /layer 2 has the digest sha256:/,
  ],
  [
    "a configuration that is none",
    () => docker20({ manifest: [{ Config: "aa/VERSION", Layers: [] }] }),
    /not one of an image/,
  ],
  ["a manifest that is no list", () => docker20({ manifest: {} }), /not one of a docker-archive/],
  ["no manifest", () => tar(["file", "a", "x"]), /neither a manifest.json nor an OCI layout/],
  ["an HTML page", () => bytesOf("<html>".repeat(300)), /not a usable tar archive/],
  ["half of it", () => docker20().subarray(0, 2000), /cut off/],
  ["half of its gzip", () => gzipSync(docker20()).subarray(0, 300), /Cannot import x.tar/],
  ["a damaged blob in a layout", () =>
    tar(
      ["file", `blobs/sha256/${hex(IMAGE.manifestBytes)}`, jsonBytes({})],
      ["file", "index.json", jsonBytes({ schemaVersion: 2, manifests: [IMAGE.manifest] })],
      ["file", "oci-layout", "{}"],
    ), /is damaged: its bytes are sha256:/],
  ["a layout without a whole image", () =>
    tar(
      ["file", "index.json", jsonBytes({ schemaVersion: 2, manifests: [IMAGE.manifest] })],
      ["file", "oci-layout", "{}"],
    ), /no whole image/],
];
for (const [name, archive, says] of HOSTILE) {
  test(`an archive with ${name} is refused and names no image`, async () => {
    using temp = new TempFolder("archive");
    await assert.rejects(taken(temp, archive()), (error: unknown) => {
      assert.ok(error instanceof HarborError, String(error));
      assert.equal(error.code, "image.failed");
      assert.match(error.message, says);
      return true;
    });
    assert.deepEqual(await testStore(temp.path).list(), []);
    assert.deepEqual(readdirSync(temp.join(".partial")), []);
  });
}

async function bytesFrom(source: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const part of source) parts.push(part);
  return new Uint8Array(Buffer.concat(parts));
}

for (
  const [name, compress] of [["gzip", gzipSync], ["zstd", zstdCompressSync], [
    "plain",
    (bytes: Uint8Array) => bytes,
  ]] as const
) {
  test(`dockerArchive() of ${name} layers gives equal bytes twice, and back in the same image`, async () => {
    using temp = new TempFolder("archive");
    const store = testStore(temp.join("from"));
    const image = await putImage(store, makeImage([LAYER, SECOND, LAYER], { compress }), ["t:1"]);
    const archive = await bytesFrom(dockerArchive([{ image, tags: ["t:1"] }, { image, tags: ["u:1"] }], store));
    assert.deepEqual(
      await bytesFrom(dockerArchive([{ image, tags: ["t:1"] }, { image, tags: ["u:1"] }], store)),
      archive,
    );
    const back = await importArchive(inPieces(archive), testStore(temp.join("to")), { what: "x" }, never);
    assert.equal(back[0]!.config.digest, image.config.digest);
    assert.deepEqual(back.map(({ names }) => names).at(-1), ["docker.io/library/t:1", "docker.io/library/u:1"]);
    const kept = name === "zstd" ? [LAYER, SECOND, LAYER].map(sha256) : image.layers.map(({ digest }) => digest);
    assert.deepEqual(
      back[0]!.layers.map(({ digest }) => digest),
      kept,
      "gzip as it is; zstd unpacked for docker 20.10",
    );
  });
}

test("dockerArchive() ends with an error where a layer is damaged or missing", async () => {
  using temp = new TempFolder("archive");
  const store = testStore(temp.path, true);
  const image = await putImage(testStore(temp.path), makeImage([LAYER]), ["t:1"]);
  const path = store.blobPath(image.layers[0]!.digest);
  const bytes = readFileSync(path);
  bytes[20]! ^= 1;
  writeFileSync(path, bytes);
  await assert.rejects(bytesFrom(dockerArchive([{ image, tags: [] }], store)), /is damaged/);
  await assert.rejects(bytesFrom(dockerArchive([{ image, tags: [] }], testStore(temp.path))), /is damaged/);
  await assert.rejects(bytesFrom(dockerArchive([{ image, tags: [] }], testStore(temp.path))), /is missing/);
});
