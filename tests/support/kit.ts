/**
 * Which sandboxes this machine can offer to the tests. Engines are used where they run already (`DOCKER_HOST`,
 * `CONTAINERS_CONF`); `tests/support/with-engines.sh COMMAND…` starts them, makes the images that tests use, and ends
 * what it started.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { IMAGE, IMAGE_WITHOUT_BASH } from "./tasks.ts";

export type SandboxName = "docker" | "podman" | "namespace" | "host";

/** Folder of vectors, real tasks and kit scripts, laid out like the project's shared data; undefined when not given. */
export const DATA: string | undefined = process.env.GYM_HARBOR_DATA;

/** A file of that folder, or undefined. */
export function dataPath(...parts: string[]): string | undefined {
  if (DATA === undefined) return undefined;
  const path = join(DATA, ...parts);
  return existsSync(path) ? path : undefined;
}

const answers = new Map<SandboxName, string | null>();

/** Why this sandbox cannot be used by tests here; null when it can. Asked once per process. */
export function missing(sandbox: SandboxName): string | null {
  let answer = answers.get(sandbox);
  if (answer === undefined) {
    answer = sandbox === "host" || sandbox === "namespace" ? missingNamespaces(sandbox) : missingEngine(sandbox);
    answers.set(sandbox, answer);
  }
  return answer;
}

function missingNamespaces(sandbox: SandboxName): string | null {
  const tried = spawnSync("unshare", ["--user", "--map-root-user", "--mount", "--pid", "--fork", "true"]);
  return tried.status === 0 ? null : `${sandbox}: unshare does not work here: ${tried.stderr ?? tried.error}`.trim();
}

function missingEngine(engine: "docker" | "podman"): string | null {
  const hint = "start it by tests/support/with-engines.sh";
  const alive = spawnSync(engine, ["version"], { timeout: 20_000 });
  if (alive.error !== undefined) return `${engine}: not installed`;
  if (alive.status !== 0) return `${engine}: does not answer; ${hint}`;
  for (const image of [IMAGE, IMAGE_WITHOUT_BASH]) {
    const there = spawnSync(engine, ["image", "inspect", image], { timeout: 20_000 });
    if (there.status !== 0) return `${engine}: image ${image} is not there; ${hint}`;
  }
  return null;
}

/** The sandboxes to test on: `GYM_HARBOR_TEST_SANDBOXES=host,docker` narrows them. */
export function sandboxes<Name extends SandboxName = "host" | "docker" | "podman">(
  wanted: readonly Name[] = ["host", "docker", "podman"] as Name[],
): Name[] {
  const only = process.env.GYM_HARBOR_TEST_SANDBOXES?.split(",");
  return wanted.filter((name) => only === undefined || only.includes(name));
}

/**
 * A test that needs `sandbox`. Where that is missing it is skipped with the reason; in CI (`CI=true`) a missing
 * sandbox fails, so that nobody takes an empty run for a good one.
 */
export function sandboxTest(sandbox: SandboxName, name: string, body: () => void | Promise<void>): void {
  if (sandboxes([sandbox]).length === 0) return;
  needing(missing(sandbox), `${name} [${sandbox}]`, body);
}

/** A test with a need that may be missing (`why` says so, or is null). */
export function needing(why: string | null, name: string, body: () => void | Promise<void>): void {
  if (why === null) test(name, body);
  else if (process.env.CI === "true") test(name, () => Promise.reject(new Error(`needed in CI, but ${why}`)));
  else test(name, { skip: why }, () => undefined);
}

/** `null` when this process is root. */
export function needsRoot(): string | null {
  return process.getuid?.() === 0 ? null : "needs root";
}
