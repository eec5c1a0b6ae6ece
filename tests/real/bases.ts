/**
 * The base images that real tasks name in FROM, as stand-ins made of Debian packages: made where an engine lacks them,
 * and taken from there into a store of our own.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { runCli } from "../support/cli.ts";
import { dataPath } from "../support/kit.ts";
import type { Truth } from "./truth.ts";

/** Name as the tasks of `folder` write it → the kind of stand-in (`python311`, `golang@/go`). */
export function basesOf(folder: string, truths: readonly Truth[]): Map<string, string> {
  const bases = new Map<string, string>();
  for (const truth of truths) {
    if (truth.base_kind === null || truth.base === null) continue;
    const dockerfile = join(folder, truth.path, "environment", "Dockerfile");
    const written = existsSync(dockerfile)
      ? /^\s*FROM\s+(?:--\S+\s+)*(\S+)/im.exec(readFileSync(dockerfile, "utf8"))?.[1]
      : truth.base;
    if (written !== undefined) bases.set(written, truth.base_kind);
  }
  return bases;
}

/** Makes those of `bases` that the engine lacks. */
export function makeBases(engine: "docker" | "podman", bases: ReadonlyMap<string, string>): void {
  const lacking = [...bases].filter(([image]) => spawnSync(engine, ["image", "inspect", image]).status !== 0);
  if (lacking.length === 0) return;
  const script = dataPath("kit", "make-public-bases.sh");
  assert.ok(script !== undefined, "GYM_HARBOR_DATA has no kit/make-public-bases.sh");
  const folder = process.env.REAL_BASES ?? join(tmpdir(), "gym-harbor-bases");
  const named = lacking.flatMap(([image, kind]) => ["--alias", `${image}=${kind}`]);
  const kinds = [...new Set(lacking.map(([, kind]) => kind.split("@")[0]!))].join(" ");
  const made = spawnSync("bash", [script, folder, "--tool", engine, "--only", kinds, ...named], { encoding: "utf8" });
  assert.equal(made.status, 0, `${script}: ${made.stderr}`);
}

/** Whether the registry that stands for Docker Hub has the image `name`. */
export async function hasInMirror(mirror: string, name: string): Promise<boolean> {
  const [path, tag] = name.split(":");
  if (path!.includes("/")) return false;
  const headers = {
    accept: "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json",
  };
  const reply = await fetch(`${mirror}/v2/library/${path}/manifests/${tag ?? "latest"}`, { method: "HEAD", headers });
  return reply.ok;
}

/** Takes `names` from the engine into the store, those that it has excepted. */
export async function importBases(engine: "docker" | "podman", names: readonly string[], store: string): Promise<void> {
  const here = (await runCli(["images", "list", "--image-store", store, "--json"])).stdout;
  for (const name of names.filter((one) => !here.includes(`${one}"`))) {
    const source = `${engine}:${name}`;
    const taken = await runCli(["images", "import", source, "--name", name, "--image-store", store, "--quiet"], {
      timeoutMs: 600_000,
    });
    assert.equal(taken.code, 0, `${source}: ${taken.stderr}`);
  }
}
