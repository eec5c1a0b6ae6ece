/** Pulls by an engine's own client: once per image for all who wait, and no more of a registry that has said stop. */
import { HarborError } from "../lib/errors.ts";
import { parseReference } from "../lib/images/reference.ts";
import type { RegistrySettings } from "../lib/registry/settings.ts";
import { Shared } from "../lib/runtime/pool.ts";
import type { RunResult } from "../lib/runtime/runner.ts";
import { decisiveLine, type EngineFailure, engineFailure } from "../lib/sandbox/failure.ts";
import { fullReference, pullArgv } from "./_oci_argv.ts";
import type { SandboxDeps } from "./_oci_deps.ts";
import { registriesEnv } from "./_registries_conf.ts";

const PULL_MS = 1_800_000;
/** Waits between tries of what may pass by itself. Engines do not tell what a registry's Retry-After said. */
const PAUSES_MS = [2_000, 8_000];

export class Pulls {
  readonly #running = new Shared<void>();
  /** By registry: what it said when it refused further requests. */
  readonly #limited = new Map<string, string>();

  /** `platform`: `os/arch` where it is not the engine's own. */
  constructor(
    private readonly deps: SandboxDeps,
    private readonly platform: string | undefined,
    private readonly registries: RegistrySettings,
  ) {}

  /** Throws "image.failed" with the engine's words and what to do. */
  get(reference: string, signal: AbortSignal): Promise<void> {
    return this.#running.get(reference, () => this.#pull(reference, signal));
  }

  async #pull(reference: string, signal: AbortSignal): Promise<void> {
    const { program, runner, gate, clock, scratch } = this.deps;
    const { host } = parseReference(reference);
    // docker speaks plain HTTP to loopback by itself; its daemon's configuration says the rest.
    const conf = program.engine === "podman" ? registriesEnv(scratch, this.deps.env, this.registries) : {};
    const env = { ...this.deps.env, ...conf };
    if (program.engine === "docker" && this.registries.has(host)) {
      throw refused(reference, {
        kind: "unreachable",
        line: `what registries.${host} says is unknown to docker's daemon`,
      });
    }
    const full = program.engine === "podman" ? fullReference(reference) : reference;
    for (let attempt = 0;; attempt++) {
      const limited = this.#limited.get(host);
      if (limited !== undefined) throw refused(reference, { kind: "rate-limited", line: limited });
      const pulled = await gate.hold(() =>
        runner.run(pullArgv(program, full, this.platform), { env, signal, deadlineMs: PULL_MS })
      );
      signal.throwIfAborted();
      if (pulled.ended === "exit" && pulled.exitCode === 0) return;
      const failure = failureOf(pulled);
      const pause = PAUSES_MS[attempt];
      if (pause === undefined || !mayPass(failure.kind)) {
        if (failure.kind === "rate-limited") this.#limited.set(host, failure.line);
        throw refused(reference, failure);
      }
      await clock.sleep(pause, signal);
    }
  }
}

type PullFailure = Pick<EngineFailure, "line"> & { kind: EngineFailure["kind"] | undefined };

function failureOf({ ended, stderr }: RunResult): PullFailure {
  if (ended === "deadline") return { kind: undefined, line: `the pull did not end within ${PULL_MS / 1000} s` };
  return engineFailure(stderr) ?? { kind: undefined, line: decisiveLine(stderr) };
}

const mayPass = (kind: PullFailure["kind"]): boolean => kind === "rate-limited" || kind === "busy";

function refused(reference: string, { kind, line }: PullFailure): HarborError {
  return new HarborError("image.failed", `Image ${reference} is not on this machine and cannot be pulled: ${line}`, {
    hint: hintFor(kind, reference),
    details: { reference, kind: kind ?? null },
  });
}

function hintFor(kind: PullFailure["kind"], reference: string): string {
  const { host } = parseReference(reference);
  switch (kind) {
    case "rate-limited":
      return `log in to ${host}, or wait: it limits pulls by address; gym-harbor images pull keeps them for all later runs`;
    case "image-denied":
    case "no-image":
      return `check the name, or log in if ${host} hides it (docker login, podman login); a local image must be tagged ${reference}`;
    case "unreachable":
      return `no way to ${host} from here: bring it with gym-harbor bundle import, or docker load or podman load, and run again`;
    case "disk-full":
      return "make room where the engine keeps its images, or let it use a larger disk";
    case "uid-range":
      return "see gym-harbor doctor: its user needs a larger range in /etc/subuid and /etc/subgid";
    default:
      return "pull it by hand to see all that the engine says";
  }
}
