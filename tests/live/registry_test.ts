/** Our client against the real registry of Debian (`docker-registry`), open and with a password. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { pullImage } from "../../lib/images/pull.ts";
import { pushImage } from "../../lib/images/push.ts";
import { openRegistry } from "../../lib/registry/mod.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { openStore } from "../../lib/store/layout.ts";
import { needing } from "../support/kit.ts";
import { madeImage, sha256 } from "../support/odd_registry.ts";

const missing = spawnSync("docker-registry", ["--version"]).error === undefined
  ? null
  : "docker-registry: not installed";
const script = join(import.meta.dirname!, "../support/kit/start-registry.sh");
const LOGIN = { user: "anna", password: "correct:horse" };

interface Bench extends Disposable {
  host: string;
  folder: string;
  /** A client whose home folder has these files. */
  client: (home?: Record<string, unknown>) => ReturnType<typeof openRegistry>;
  warnings: string[];
}

function startRegistry(login?: typeof LOGIN): Bench {
  const folder = mkdtempSync(join(tmpdir(), "gym-harbor-registry-"));
  const env = { ...process.env, ...(login && { REGISTRY_USER: login.user, REGISTRY_PASS: login.password }) };
  const started = spawnSync("bash", [script, join(folder, "registry")], { env, encoding: "utf8" });
  assert.equal(started.status, 0, started.stderr);
  const warnings: string[] = [];
  return {
    host: /REGISTRY=(\S+)/.exec(readFileSync(join(folder, "registry", "env"), "utf8"))![1]!,
    folder,
    warnings,
    client: (auths = {}) => {
      const file = join(folder, `auth-${crypto.randomUUID()}.json`);
      writeFileSync(file, JSON.stringify({ auths }));
      return openRegistry({
        runner: systemRunner(),
        clock: systemClock,
        env: { REGISTRY_AUTH_FILE: file },
        emit: (event) => event.kind === "warning" && warnings.push(event.text),
      });
    },
    [Symbol.dispose]: () => {
      spawnSync("bash", [script, "--stop", join(folder, "registry")]);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

const signal = AbortSignal.timeout(120_000);
const platform = "linux/amd64";

/** An image in a store of its own, pushed and pulled into another one. */
async function thereAndBack(bench: Bench, registry: ReturnType<typeof openRegistry>): Promise<void> {
  const [from, to] = ["from", "to"].map((name) => openStore(join(bench.folder, name), { clock: systemClock }));
  const made = madeImage({ layers: ["one", "two ".repeat(100_000)] });
  const blobs = [new TextEncoder().encode(made.config), ...made.layers];
  for (const bytes of blobs) {
    const descriptor = { mediaType: "x", digest: sha256(bytes), size: bytes.length };
    await from!.take(descriptor, () => Promise.resolve(new Blob([bytes as BlobPart]).stream()), signal);
  }
  const manifest = { mediaType: JSON.parse(made.manifest).mediaType, digest: made.digest, size: made.manifest.length };
  const stored = await from!.add({ manifest, manifestBytes: new TextEncoder().encode(made.manifest) }, ["hb__0123"]);

  const reference = `${bench.host}/org/made:1`;
  const pin = await pushImage(stored, reference, { registry, store: from! }, signal, () => {});
  assert.equal(pin, `${bench.host}/org/made@${made.digest}`);
  const image = await pullImage(reference, { registry, store: to!, platform }, signal, () => {});
  assert.deepEqual(image.layers, stored.layers);
  for (const bytes of blobs) assert.deepEqual(new Uint8Array(readFileSync(to!.blobPath(sha256(bytes)))), bytes);
  await pushImage(image, pin, { registry, store: to! }, signal, () => {}); // again, by digest: nothing to send
}

needing(missing, "a real registry takes an image and gives it back, bytes and digests unchanged", async () => {
  using bench = startRegistry();
  await thereAndBack(bench, bench.client());
  await assert.rejects(
    pullImage(
      `${bench.host}/org/none:1`,
      {
        registry: bench.client(),
        store: openStore(join(bench.folder, "to"), { clock: systemClock }),
        platform,
      },
      signal,
      () => {},
    ),
    {
      message: new RegExp(
        `^Cannot pull ${bench.host}/org/none:1: registry returned HTTP 404 for /v2/org/none/manifests/1`,
      ),
    },
  );
});

needing(missing, "a real registry with a password takes the login of an auth file, and refuses others", async () => {
  using bench = startRegistry(LOGIN);
  const auth = (password: string) => ({ [bench.host]: { auth: btoa(`${LOGIN.user}:${password}`) } });
  await thereAndBack(bench, bench.client(auth(LOGIN.password)));
  const store = openStore(join(bench.folder, "to"), { clock: systemClock });
  const pull = (registry: ReturnType<typeof openRegistry>) =>
    pullImage(`${bench.host}/org/made:1`, { registry, store, platform }, signal, () => {});
  await assert.rejects(pull(bench.client(auth("wrong"))), /credentials were refused: registry returned HTTP 401/);
  await assert.rejects(pull(bench.client()), /HTTP 401 for \/v2\/org\/made\/manifests\/1 \(no login for .* is known\)/);
  assert.deepEqual(bench.warnings, []);
});
