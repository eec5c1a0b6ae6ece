/**
 * What a stage of a Dockerfile amounts to on a base: steps to apply in a sandbox and the settings that they end with. Pure
 * but for the build context, which is listed to resolve COPY. What cannot be honoured refuses the task by its
 * instruction and line: nothing is skipped in silence.
 */
import { posix } from "node:path";
import { HarborError, messageOf } from "../lib/errors.ts";
import { type Instruction, splitWords } from "../lib/task/dockerfile.ts";
import { expandText } from "../lib/task/dockerfile_expand.ts";
import type { Stage, StageInstruction } from "../lib/task/dockerfile_stages.ts";
import { type BuildContext, type ContextSource } from "./_build_context.ts";

export type Step =
  | { kind: "folder"; path: string; user: string }
  | CopyStep
  | StageCopyStep
  | {
    kind: "run";
    line: number;
    argv: string[];
    env: Record<string, string>;
    cwd: string;
    user: string;
    caches: string[];
  };

export interface CopyStep {
  kind: "copy";
  line: number;
  sources: (ContextSource | { kind: "data"; name: string; data: string })[];
  /** Absolute path in the sandbox. */
  target: string;
  /** Whether the target is a folder by how it is written; otherwise a folder that stands there makes it one. */
  intoFolder: boolean;
  owner?: string;
  mode?: string;
  /** ADD of an archive: it is unpacked where it lands. */
  extract: boolean;
}

/** COPY --from: what another stage or image holds. */
export interface StageCopyStep {
  kind: "stage-copy";
  line: number;
  /** As written: a stage's name or number, or an image. */
  from: string;
  /** Absolute paths there, patterns allowed. */
  paths: string[];
  target: string;
  intoFolder: boolean;
  owner?: string;
  mode?: string;
}

/** What instructions set; a field that none sets is undefined. */
export interface Settings {
  workdir: string;
  /** ENV of this stage alone, over the base's. */
  env: Record<string, string>;
  user: string;
  entrypoint?: string[];
  cmd?: string[];
  shell?: string[];
  labels: Record<string, string>;
  exposed: string[];
  volumes: string[];
  /** As the image's configuration spells it. */
  healthcheck?: Record<string, unknown>;
  stopSignal?: string;
  onBuild: string[];
}

export interface StagePlan {
  steps: Step[];
  settings: Settings;
}

export interface StageRequest {
  taskId: string;
  /** Sandbox that applies it, for refusals. */
  on: string;
  stage: Stage;
  escape: string;
  context: BuildContext;
  /** What the base says. */
  base: { workdir: string; user: string; env: Readonly<Record<string, string>>; shell?: readonly string[] };
  /** Takes parts out of a RUN line; undefined when nothing is left to run. Default: all of it runs. */
  judgeRun?: (command: string, one: Instruction) => string | undefined;
  /** Whether COPY --from and FROM of another stage can be had. */
  stages: boolean;
}

/** Throws "task.unsupported" naming the instruction, "image.failed" for a source that is not in the context. */
export function planStage(request: StageRequest): StagePlan {
  return new Planner(request).plan();
}

const IGNORED = new Set(["MAINTAINER"]);

class Planner {
  readonly #steps: Step[] = [];
  readonly #settings: Settings;
  #at!: StageInstruction;

  constructor(private readonly request: StageRequest) {
    const { workdir, user } = request.base;
    this.#settings = { workdir, user, env: {}, labels: {}, exposed: [], volumes: [], onBuild: [] };
  }

  plan(): StagePlan {
    for (const one of this.request.stage.instructions) {
      this.#at = one;
      this.#take(one.instruction);
    }
    return { steps: this.#steps, settings: this.#settings };
  }

  #take(one: Instruction): void {
    if (IGNORED.has(one.name)) return;
    const settings = this.#settings;
    switch (one.name) {
      case "ARG":
        return; // its value is in the variables of what follows
      case "ENV":
        for (const [name, word] of this.#pairs(one)) settings.env[this.#expand(one, name)] = this.#expand(one, word);
        return;
      case "LABEL":
        for (const [name, word] of this.#pairs(one)) settings.labels[this.#expand(one, name)] = this.#expand(one, word);
        return;
      case "WORKDIR":
        settings.workdir = posix.resolve(settings.workdir, this.#expand(one, one.rest)).replace(/(.)\/$/, "$1");
        return void this.#steps.push({ kind: "folder", path: settings.workdir, user: settings.user });
      case "USER":
        return void (settings.user = this.#expand(one, one.rest));
      case "SHELL":
        if (one.json === undefined) this.#refuse(one, "SHELL that is no JSON list");
        return void (settings.shell = one.json!);
      case "ENTRYPOINT":
        settings.entrypoint = this.#command(one);
        settings.cmd ??= []; // a base's CMD was meant for its own ENTRYPOINT
        return;
      case "CMD":
        return void (settings.cmd = this.#command(one));
      case "EXPOSE":
        for (const word of splitWords(one.rest, this.request.escape)) {
          const port = this.#expand(one, word);
          settings.exposed.push(port.includes("/") ? port : `${port}/tcp`);
        }
        return;
      case "STOPSIGNAL":
        return void (settings.stopSignal = this.#expand(one, one.rest));
      case "ONBUILD":
        return void settings.onBuild.push(one.args);
      case "VOLUME":
        for (const path of one.json ?? splitWords(one.rest, this.request.escape)) {
          const full = posix.resolve(settings.workdir, this.#expand(one, path));
          settings.volumes.push(full);
          this.#steps.push({ kind: "folder", path: full, user: "" });
        }
        return;
      case "HEALTHCHECK":
        return void (settings.healthcheck = this.#healthcheck(one));
      case "COPY":
      case "ADD":
        return this.#copy(one);
      case "RUN":
        return this.#run(one);
      default:
        this.#refuse(one, `the instruction ${one.name}`);
    }
  }

  get #shell(): readonly string[] {
    return this.#at.shell ?? this.request.base.shell ?? ["/bin/sh", "-c"];
  }

  #command(one: Instruction): string[] {
    return one.json ?? (one.rest === "" ? [] : [...this.#shell, one.rest]);
  }

  #pairs(one: Instruction): [string, string][] {
    const words = splitWords(one.rest, this.request.escape);
    if (words[0]?.includes("=") !== true) {
      const match = /^(\S+)\s+([\s\S]+)$/.exec(one.rest);
      if (match === null) this.#refuse(one, `${one.name} without a value`);
      return [[match![1]!, match![2]!]];
    }
    return words.map((word): [string, string] => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)]);
  }

  /** `HEALTHCHECK [--interval=30s …] CMD …|NONE` as the configuration spells it (OCI image-spec, Docker's `Healthcheck`). */
  #healthcheck(one: Instruction): Record<string, unknown> {
    const [, kind = "", rest = ""] = /^(\S+)\s*([^]*)$/.exec(one.rest) ?? [];
    if (kind.toUpperCase() === "NONE") return { Test: ["NONE"] };
    if (kind.toUpperCase() !== "CMD" || rest === "") this.#refuse(one, "HEALTHCHECK without CMD");
    const json = jsonStrings(rest);
    const check: Record<string, unknown> = { Test: json === undefined ? ["CMD-SHELL", rest] : ["CMD", ...json] };
    const keys: Record<string, string> = {
      "--interval": "Interval",
      "--timeout": "Timeout",
      "--start-period": "StartPeriod",
      "--start-interval": "StartInterval",
    };
    for (const flag of one.flags) {
      const name = flag.split("=")[0]!;
      const value = this.#expand(one, flag.slice(name.length + 1));
      const key = keys[name];
      const nanoseconds = key === undefined ? undefined : durationNs(value);
      if (nanoseconds !== undefined) check[key!] = nanoseconds;
      else if (name === "--retries" && /^\d+$/.test(value)) check.Retries = Number(value);
      else this.#refuse(one, `HEALTHCHECK ${flag}`);
    }
    return check;
  }

  #run(one: Instruction): void {
    const caches: string[] = [];
    for (const flag of one.flags) {
      // A cache or tmpfs only saves work; a bind or secret brings files that are not there otherwise.
      const mount = /^--mount=(?=.*type=(?:cache|tmpfs)\b)(.*)$/.exec(flag)?.[1];
      const target = /(?:^|,)(?:target|dst|destination)=([^,]+)/.exec(mount ?? "")?.[1];
      if (target !== undefined) caches.push(posix.resolve(this.#settings.workdir, this.#expand(one, target)));
      else if (flag !== "--network=default") this.#refuse(one, `RUN ${flag}`);
    }
    const { judgeRun = (command: string) => command } = this.request;
    let argv: string[];
    if (one.json !== undefined) {
      if (judgeRun(one.json.join(" "), one) === undefined) return;
      argv = one.json;
    } else {
      const script = scriptOf(one);
      const command = script.startsWith("#!") ? script : judgeRun(script, one);
      if (command === undefined) return;
      argv = command.startsWith("#!") ? shebang(command) : [...this.#shell, command];
    }
    const { workdir, user } = this.#settings;
    this.#steps.push({
      kind: "run",
      line: one.line,
      argv,
      env: { ...this.#at.variables },
      cwd: workdir,
      user,
      caches,
    });
  }

  #copy(one: Instruction): void {
    const flags: { owner?: string; mode?: string; from?: string } = {};
    for (const flag of one.flags) {
      const name = flag.split("=")[0]!;
      const value = this.#expand(one, flag.slice(name.length + 1));
      if (name === "--chown") flags.owner = value;
      else if (name === "--chmod") flags.mode = value;
      else if (name === "--from" && one.name === "COPY" && this.request.stages) flags.from = value;
      else if (name !== "--link") this.#refuse(one, `${one.name} ${flag}`);
    }
    const { from, ...attributes } = flags;
    const written = one.json ?? splitWords(one.rest, this.request.escape);
    const words = written.map((word) => this.#expand(one, word));
    const target = words.pop();
    if (target === undefined || words.length === 0) this.#refuse(one, `${one.name} without source and target`);
    const to = posix.resolve(this.#settings.workdir, target!);
    const isFolder = target!.endsWith("/") || /(^|\/)\.{1,2}$/.test(target!);
    if (from !== undefined) {
      const paths = words.map((word) => posix.resolve("/", word));
      const intoFolder = isFolder || words.length > 1;
      this.#steps.push({ kind: "stage-copy", line: one.line, from, paths, target: to, intoFolder, ...attributes });
      return;
    }
    const sources: CopyStep["sources"] = [];
    const archives: string[] = [];
    const heredocs = [...one.heredocs];
    for (const word of words) {
      if (word.startsWith("<<")) {
        const heredoc = heredocs.shift();
        if (heredoc === undefined) this.#refuse(one, "a heredoc without an end");
        const { name, expand, content } = heredoc!;
        sources.push({ kind: "data", name, data: expand ? this.#expandHeredoc(one, content) : content });
        continue;
      }
      if (/^(https?|ftp|git|ssh):|^git@/.test(word)) this.#refuse(one, `${one.name} of an address (${word})`);
      const found = this.request.context.match(word);
      if (found.length === 0) {
        throw new HarborError(
          "image.failed",
          `${this.request.taskId}: line ${one.line} of the Dockerfile copies ${word}, which is not in ${this.request.context.folder}`,
          { hint: "sources are relative to the build context; .dockerignore may leave them out" },
        );
      }
      sources.push(...found.map((path) => this.request.context.source(path)));
      archives.push(...found.filter((path) => ARCHIVE.test(path)));
    }
    const extract = one.name === "ADD" && archives.length > 0;
    if (extract && sources.length > 1) this.#refuse(one, "ADD of an archive beside other sources");
    this.#steps.push({
      kind: "copy",
      line: one.line,
      sources,
      target: to,
      intoFolder: isFolder || words.length > 1 || sources.length > 1 || extract,
      extract,
      ...attributes,
    });
  }

  #expand(one: Instruction, word: string): string {
    try {
      return expandText(word, this.#at.variables, { escape: this.request.escape });
    } catch (cause) {
      this.#refuse(one, messageOf(cause));
    }
  }

  #expandHeredoc(one: Instruction, content: string): string {
    try {
      return expandText(content, this.#at.variables, { escape: this.request.escape, quotes: false });
    } catch (cause) {
      this.#refuse(one, messageOf(cause));
    }
  }

  #refuse(one: Instruction, what: string): never {
    throw unsupported(this.request, one.line, what);
  }
}

const ARCHIVE = /\.(tar|tar\.\w+|tgz|tbz2?|txz)$/;

/** The refusal of an instruction, by its line. */
export function unsupported(
  { taskId, on }: Pick<StageRequest, "taskId" | "on">,
  line: number,
  what: string,
): HarborError {
  return new HarborError("task.unsupported", `${taskId}: ${on} cannot apply line ${line} of the Dockerfile: ${what}`, {
    hint: "use --sandbox docker or podman for this task",
  });
}

/** A heredoc is the script itself, or stands on the command's input. */
function scriptOf(one: Instruction): string {
  const [first] = one.heredocs;
  if (first === undefined) return one.rest;
  if (/^<<-?["']?\w+["']?$/.test(one.rest.trim())) return first.content;
  return `${one.rest}\n${one.heredocs.map(({ content, name }) => `${content}${name}\n`).join("")}`;
}

function shebang(script: string): string[] {
  const [line = "", ...body] = script.split("\n");
  const [program = "/bin/sh", ...options] = line.slice(2).trim().split(/\s+/);
  return [program, ...options, "-c", body.join("\n")];
}

function jsonStrings(text: string): string[] | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) && value.every((one) => typeof one === "string") ? value : undefined;
  } catch {
    return undefined;
  }
}

const UNITS: Record<string, number> = { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9, m: 60e9, h: 3600e9 };

/** Go's durations (`1m30s`) in nanoseconds; undefined for anything else. */
function durationNs(text: string): number | undefined {
  if (!/^(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+$/.test(text)) return undefined;
  let sum = 0;
  for (const [, value, , unit] of text.matchAll(/(\d+(\.\d+)?)(ns|us|µs|ms|s|m|h)/g)) {
    sum += Number(value) * UNITS[unit!]!;
  }
  return Math.round(sum);
}
