/**
 * The RUN lines of an overlay Dockerfile, applied in the sandbox at seed (task-format §6.4): in order, each with the
 * user, folder and environment that stand at its place, all within one budget.
 *
 * Until they are through, the sandbox works as root in `/`: the Dockerfile's last WORKDIR and USER may be what a line
 * makes (`useradd -m app`), and a folder that is there too early is not the one it would make.
 */
import { HarborError, messageOf } from "../errors.ts";
import { beginning, ending } from "../excerpt.ts";
import { shellQuote } from "../runtime/runner.ts";
import { withEvidence } from "../sandbox/evidence.ts";
import { MovedSandbox } from "../sandbox/moved.ts";
import type { OverlayLine, Sandbox, SandboxSpec } from "../sandbox/provider.ts";
import { EpisodeFailure, toFailure } from "./failures.ts";
import type { Attempt } from "./run.ts";

/** What the sandbox of an overlay is opened with. */
export const BEFORE_OVERLAY: Pick<SandboxSpec, "workdir" | "user"> = { workdir: "/", user: "root" };

/** Characters of a line and of its output that a message shows. */
const SHOWN_COMMAND = 200;
const SHOWN_OUTPUT = 1200;
/** Folders and look-ups of our own. */
const OWN_STEP_MS = 60_000;

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/**
 * Applies the overlay and returns the sandbox as the task is to see it: in its working directory, as its user. Throws
 * EpisodeFailure (seed): terminal for a line that fails or takes too long, retriable for a sandbox that fails.
 */
export async function applyOverlay(attempt: Attempt, spec: SandboxSpec, signal: AbortSignal): Promise<Sandbox> {
  const { image, box, plan: { task } } = attempt;
  if (image.overlay === undefined) return box;
  const lines = new Lines(attempt, Object.keys(spec.env), signal);
  for (const [index, line] of image.overlay.entries()) await lines.apply(line, index, image.overlay.length);
  const user = task.agent.user ?? (image.user || "root");
  const workdir = task.environment.workdir ?? image.workdir;
  return new MovedSandbox(box, user, await lines.ready(workdir, user));
}

class Lines {
  readonly #started: number;
  readonly #made = new Set<string>();
  readonly #names = new Map<string, string>();

  constructor(
    private readonly attempt: Attempt,
    private readonly created: readonly string[],
    private readonly signal: AbortSignal,
  ) {
    this.#started = attempt.deps.clock.ticks();
  }

  get #budgetSec(): number {
    return this.attempt.plan.task.environment.build_timeout_sec;
  }

  async apply(line: OverlayLine, index: number, of: number): Promise<void> {
    const { box, deps: { clock } } = this.attempt;
    const which = `RUN line ${index + 1}/${of} '${beginning(line.command, SHOWN_COMMAND)}'`;
    const leftMs = this.#budgetSec * 1000 - (clock.ticks() - this.#started);
    if (leftMs <= 0) throw this.#failed(`${which}: build_timeout_sec=${this.#budgetSec} is used up`);
    try {
      const user = await this.#userOf(line);
      await this.#makeFolder(line.workdir, user);
      const ran = await box.exec({
        run: { argv: ["/bin/sh", "-c", lineText(line, this.created)] },
        purpose: "server",
        cwd: "/",
        user,
        deadlineMs: leftMs,
      }, this.signal);
      if (ran.ended === "deadline") {
        throw this.#failed(
          `${which} exceeded [environment].build_timeout_sec=${this.#budgetSec}`,
          ran.stderr || ran.stdout,
        );
      }
      if (ran.exitCode !== 0) {
        throw this.#failed(`${which} exited ${ran.exitCode}`, `${ran.stdout}\n${ran.stderr}`);
      }
    } catch (error) {
      throw await this.#providerFailed(which, error);
    }
  }

  /** The task's working directory, made where no line made it; the folder as the sandbox sees it. */
  async ready(workdir: string, user: string): Promise<string> {
    try {
      const made = await this.#asRoot(
        `${folderText(workdir, user)} && cd ${shellQuote(workdir)} && pwd -P`,
      );
      return made.trim() || workdir;
    } catch (error) {
      throw await this.#providerFailed(`its working directory ${workdir}`, error);
    }
  }

  async #makeFolder(workdir: string, user: string): Promise<void> {
    const key = `${user}\0${workdir}`;
    if (workdir === "/" || this.#made.has(key)) return;
    await this.#asRoot(folderText(workdir, user));
    this.#made.add(key);
  }

  /** A user by number is looked up once, since lines before may have made it. */
  async #userOf({ user }: OverlayLine): Promise<string> {
    if (user === "" || /^(?:0|root)(?::(?:0|root))?$/.test(user)) return "root";
    if (!/^\d+$/.test(user)) return user;
    const known = this.#names.get(user);
    if (known !== undefined) return known;
    const found = await this.#asRoot(
      `{ getent passwd ${user} 2>/dev/null || grep '^[^:]*:[^:]*:${user}:' /etc/passwd; } | cut -d: -f1`,
    );
    const name = found.split("\n")[0]!.trim();
    if (name === "") throw this.#failed(`USER ${user} names no user in ${this.attempt.image.reference}`);
    this.#names.set(user, name);
    return name;
  }

  async #asRoot(script: string): Promise<string> {
    const ran = await this.attempt.box.exec({
      run: { argv: ["/bin/sh", "-c", script] },
      purpose: "server",
      cwd: "/",
      user: "root",
      deadlineMs: OWN_STEP_MS,
    }, this.signal);
    if (ran.ended === "exit" && ran.exitCode === 0) return ran.stdout;
    throw this.#failed(`'${script}' ${ran.ended === "exit" ? `exited ${ran.exitCode}` : "did not end"}`, ran.stderr);
  }

  #failed(what: string, output = ""): EpisodeFailure {
    const tail = ending(output.trim(), SHOWN_OUTPUT);
    const message = `Dockerfile overlay failed for '${this.attempt.plan.task.id}': ${what}${tail && `: ${tail}`}`;
    return new EpisodeFailure(message, { stage: "seed", kind: null, terminal: true });
  }

  async #providerFailed(which: string, thrown: unknown): Promise<unknown> {
    if (thrown instanceof EpisodeFailure || !(thrown instanceof HarborError)) return thrown;
    const error = await withEvidence(thrown, this.attempt.box);
    const { kind, terminal } = toFailure(error, "seed").facts;
    const message = `Dockerfile overlay failed for '${this.attempt.plan.task.id}': ${which} could not run in the ` +
      `sandbox: ${kind === null ? "" : `${kind}: `}${messageOf(error)}`;
    return new EpisodeFailure(message, { stage: "seed", kind, terminal, cause: error });
  }
}

/** A folder as WORKDIR makes it: root's, or the user's where it was not there. */
function folderText(workdir: string, user: string): string {
  const folder = shellQuote(workdir);
  return user === "root"
    ? `mkdir -p ${folder}`
    : `test -d ${folder} || (mkdir -p ${folder} && chown ${shellQuote(user)} ${folder})`;
}

/** One shell line that has exactly the environment of its place in the Dockerfile. Pure. */
export function lineText(line: OverlayLine, created: readonly string[]): string {
  const later = created.filter((name) => NAME.test(name) && !Object.hasOwn(line.env, name));
  return [
    ...later.map((name) => `unset ${name};`),
    ...Object.entries(line.env).filter(([name]) => NAME.test(name))
      .map(([name, value]) => `export ${name}=${shellQuote(value)};`),
    `cd ${shellQuote(line.workdir)} || exit 1;`,
    line.command,
  ].join(" ");
}
