/** Which of docker's builders this machine's clients can drive. */
import { existsSync } from "node:fs";
import { delimiter, isAbsolute, join } from "node:path";
import type { Runner } from "../../lib/runtime/runner.ts";
import type { DockerKind } from "./_argv.ts";

const ANSWER_MS = 20_000;

/**
 * buildx where its plugin is there; the BuildKit inside clients before 23, be it an older client further down PATH (a
 * distribution's beside a newer one without the plugin); else the classic builder.
 */
export async function dockerClient(
  { runner, env }: { runner: Runner; env: Readonly<Record<string, string | undefined>> },
  path: string,
): Promise<{ kind: DockerKind; path: string }> {
  const plugin = await runner.run([path, "buildx", "version"], { env, deadlineMs: ANSWER_MS });
  if (plugin.exitCode === 0 && /buildx/.test(plugin.stdout)) return { kind: "buildx", path };
  for (const client of [path, ...programsOnPath("docker", env.PATH)]) {
    const told = await runner.run([client, "--version"], { env, deadlineMs: ANSWER_MS });
    const major = Number(/version (\d+)\./.exec(told.stdout)?.[1] ?? 0);
    if (major > 18 && major < 23) return { kind: "buildkit", path: client };
  }
  return { kind: "classic", path };
}

/** Every place on PATH that holds the program, in order. */
export const programsOnPath = (program: string, path = ""): string[] =>
  path.split(delimiter).filter(isAbsolute).map((folder) => join(folder, program)).filter((one) => existsSync(one));
