/** Compose files for tests: written into a task folder, read, and resolved against images that a test makes up. */
import { type ComposePlan, type ComposeReading, type ComposeRequest, readCompose } from "../../lib/compose/mod.ts";
import type { ImageConfig } from "../../lib/images/config.ts";
import type { PreparedImage, SandboxProvider } from "../../lib/sandbox/provider.ts";
import { type Files, writeTree } from "./tree.ts";

export interface ComposeCase {
  /** environment/docker-compose.yaml. */
  file: string;
  /** Other files of the task folder. */
  files?: Files;
  hostEnv?: Record<string, string>;
  /** `[environment]`. */
  environment?: Record<string, unknown>;
  /** Texts of overlays, in order. */
  overlays?: string[];
  lacks?: SandboxProvider["groupLacks"];
  sandbox?: ComposeRequest["sandbox"];
  hooks?: string[];
  /** Whether environment/Dockerfile is there. Default: yes. */
  dockerfile?: boolean;
}

export const TASK_IMAGE = "hb__0123456789abcdef0123456789abcdef";

export function readCase(given: ComposeCase | string): ComposeReading {
  const one = typeof given === "string" ? { file: given } : given;
  const { dockerfile = true } = one;
  using tree = writeTree({
    "environment/docker-compose.yaml": one.file,
    ...(dockerfile && { "environment/Dockerfile": "FROM debian:12\n" }),
    ...Object.fromEntries((one.overlays ?? []).map((text, index) => [`overlay-${index}.yaml`, text])),
    ...one.files,
  });
  const service = (name: string) => ({ command: "true", service: name, timeout_sec: 1 });
  return readCompose({
    task: {
      id: "task",
      folder: tree.path,
      environment: { env: {}, ...one.environment } as ComposeRequest["task"]["environment"],
      image: { mode: "compose", uploads: false, ...(dockerfile && { dockerfile: tree.at("environment/Dockerfile") }) },
      verifier: { collect: (one.hooks ?? []).map(service) } as unknown as ComposeRequest["task"]["verifier"],
      artifacts: [],
    },
    taskImage: TASK_IMAGE,
    hostEnv: one.hostEnv ?? {},
    overlays: (one.overlays ?? []).map((_, index) => tree.at(`overlay-${index}.yaml`)),
    platform: "linux/amd64",
    ...(one.sandbox && { sandbox: one.sandbox }),
    ...(one.lacks && { sandbox: { name: "namespace", openGroup: () => Promise.reject(), groupLacks: one.lacks } }),
  });
}

/** The plan of a case that is accepted. */
export function planCase(given: ComposeCase | string): ComposePlan {
  const reading = readCase(given);
  if (!reading.ok) throw new Error(reading.reason);
  return reading.plan;
}

/** The reason of a case that is refused, without its beginning. */
export function reasonCase(given: ComposeCase | string): string {
  const reading = readCase(given);
  return reading.ok ? "accepted" : reading.reason.replace(/^Compose file was refused: /, "");
}

/** A `sidecar` beside main, with these keys (YAML in flow or indented by four). */
export const sidecar = (keys: string): string =>
  `services:\n  web:\n    image: debian:12\n${keys.replace(/^(?=.)/gm, "    ")}\n`;

export const imageWith = (config: ImageConfig = {}): PreparedImage => ({
  reference: "debian:12",
  workdir: config.WorkingDir ?? "/",
  env: {},
  user: config.User ?? "",
  entrypoint: config.Entrypoint ?? [],
  config,
  notes: [],
});
