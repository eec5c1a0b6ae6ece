/**
 * What a single-stage Dockerfile amounts to with this machine as its base: steps to apply and the settings they end
 * with. Pure but for the build context, which is listed to resolve COPY. What cannot be honoured here refuses the task
 * by its instruction and line: nothing is skipped in silence.
 */
import { lstatSync, readFileSync, statSync } from "node:fs";
import { basename, join, posix } from "node:path";
import { HarborError, messageOf } from "../lib/errors.ts";
import { walkTree } from "../lib/files/tree.ts";
import { type Instruction, parseDockerfile, splitWords } from "../lib/task/dockerfile.ts";
import { expandWord } from "../lib/task/dockerfile_mode.ts";
import { PATH } from "./_namespace_machine.ts";
import { withoutInstalls } from "./_host_installs.ts";

export type Step =
  | { kind: "folder"; path: string }
  | { kind: "copy"; line: number; files: CopiedFile[]; owner?: string; mode?: string; extract: boolean }
  | { kind: "run"; line: number; argv: string[]; env: Record<string, string>; cwd: string; user: string };

export interface CopiedFile {
  /** Absolute path in the sandbox. */
  to: string;
  /** Absolute path on this machine, or the bytes of a heredoc. */
  from: { path: string; kind: "file" | "link" | "folder" } | { data: string };
}

export interface HostPlan {
  steps: Step[];
  workdir: string;
  env: Record<string, string>;
  user: string;
  entrypoint: string[];
  notes: string[];
}

export interface PlanRequest {
  taskId: string;
  text: string;
  /** Absolute folder of the build context. */
  context: string;
  run: "all" | "no-install" | "skip";
}

/** Throws "task.unsupported" naming the instruction, "image.failed" for a source that is not in the context. */
export function planDockerfile(request: PlanRequest): HostPlan {
  return new Planner(request).plan();
}

const IGNORED = new Set(["LABEL", "EXPOSE", "CMD", "STOPSIGNAL", "MAINTAINER", "ONBUILD"]);

class Planner {
  readonly #steps: Step[] = [];
  readonly #notes: string[] = [];
  #env: Record<string, string> = { PATH };
  /** Build arguments, which RUN sees and the image does not keep. */
  #args: Record<string, string> = {};
  #workdir = "/";
  #user = "";
  #shell = ["/bin/sh", "-c"];
  #entrypoint: string[] = [];
  #context: Context;
  /** Folders that the steps so far make. */
  readonly #folders = new Set<string>(["/"]);

  constructor(private readonly request: PlanRequest) {
    this.#context = new Context(request.context);
  }

  plan(): HostPlan {
    let from = 0;
    for (const instruction of parseDockerfile(this.request.text).instructions) {
      if (instruction.name === "FROM") {
        if (++from > 1) this.#refuse(instruction, "a build of several stages");
        this.#notes.push(`image: FROM ${instruction.rest.split(/\s+/)[0]} is not used, this machine is the base`);
        continue;
      }
      if (from === 0 && instruction.name !== "ARG") this.#refuse(instruction, "an instruction before FROM");
      this.#take(instruction);
    }
    if (from === 0) throw new HarborError("task.unsupported", `${this.request.taskId}: its Dockerfile has no FROM`);
    return {
      steps: this.#steps,
      workdir: this.#workdir,
      env: without(this.#env, PATH),
      user: this.#user,
      entrypoint: this.#entrypoint,
      notes: this.#notes,
    };
  }

  #take(one: Instruction): void {
    if (IGNORED.has(one.name)) return;
    switch (one.name) {
      case "ARG":
        for (const word of splitWords(one.rest)) {
          const at = word.indexOf("=");
          const name = at < 0 ? word : word.slice(0, at);
          if (at >= 0) this.#args[name] = this.#expand(one, word.slice(at + 1));
        }
        return;
      case "ENV":
        for (const [name, word] of this.#pairs(one)) this.#env[name] = this.#expand(one, word);
        return;
      case "WORKDIR":
        this.#workdir = posix.resolve(this.#workdir, this.#expand(one, one.rest)).replace(/(.)\/$/, "$1");
        return this.#makeFolder(this.#workdir);
      case "USER":
        return void (this.#user = this.#expand(one, one.rest));
      case "SHELL":
        if (one.json === undefined) this.#refuse(one, "SHELL that is no JSON list");
        return void (this.#shell = one.json!);
      case "ENTRYPOINT":
        return void (this.#entrypoint = one.json ?? (one.rest === "" ? [] : [...this.#shell, one.rest]));
      case "VOLUME":
        for (const path of one.json ?? splitWords(one.rest)) {
          this.#makeFolder(posix.resolve(this.#workdir, this.#expand(one, path)));
        }
        return;
      case "HEALTHCHECK":
        return void (one.rest.toUpperCase() !== "NONE" && this.#notes.push("image: HEALTHCHECK is not run"));
      case "COPY":
      case "ADD":
        return this.#copy(one);
      case "RUN":
        return this.#run(one);
      default:
        this.#refuse(one, `the instruction ${one.name}`);
    }
  }

  #makeFolder(path: string): void {
    this.#knowFolder(path);
    this.#steps.push({ kind: "folder", path });
  }

  #knowFolder(path: string): void {
    for (let at = path; at !== "/"; at = posix.dirname(at)) this.#folders.add(at);
  }

  /** Whether a folder stands there before this step, as far as can be said without running anything. */
  #isFolder(path: string): boolean {
    return this.#folders.has(path) || /^\/(root|home|tmp|run|mnt|srv)$/.test(path) ||
      (/^\/(bin|etc|lib|lib64|opt|sbin|usr|var)(\/|$)/.test(path) &&
        statSync(path, { throwIfNoEntry: false })?.isDirectory() === true);
  }

  #pairs(one: Instruction): [string, string][] {
    const words = splitWords(one.rest);
    if (words[0]?.includes("=") !== true) {
      const match = /^(\S+)\s+([\s\S]+)$/.exec(one.rest);
      if (match === null) this.#refuse(one, "ENV without a value");
      return [[match![1]!, match![2]!]];
    }
    return words.map((word): [string, string] => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)]);
  }

  #run(one: Instruction): void {
    for (const flag of one.flags) {
      // A cache or tmpfs only saves work; a bind or secret brings files that are not there otherwise.
      if (!/^--mount=.*type=(cache|tmpfs)\b/.test(flag) && !/^--network=default$/.test(flag)) {
        this.#refuse(one, `RUN ${flag}`);
      }
    }
    if (this.request.run === "skip") {
      return void this.#notes.push(`image: RUN of line ${one.line} is left out (sandbox.host.run=skip)`);
    }
    let argv: string[];
    if (one.json !== undefined) {
      argv = one.json;
      const asWords = argv.join(" ");
      if (this.request.run === "no-install" && withoutInstalls(asWords).rest === "") {
        return this.#leftOut(one, [asWords]);
      }
    } else {
      let command = scriptOf(one);
      if (this.request.run === "no-install" && !command.startsWith("#!")) {
        const judged = withoutInstalls(command);
        if (judged.left.length > 0) this.#leftOut(one, judged.left);
        if (judged.rest === "") return;
        command = judged.rest;
      }
      argv = command.startsWith("#!") ? shebang(command) : [...this.#shell, command];
    }
    this.#steps.push({
      kind: "run",
      line: one.line,
      argv,
      env: { ...this.#args, ...this.#env },
      cwd: this.#workdir,
      user: this.#user,
    });
  }

  #leftOut(one: Instruction, commands: string[]): void {
    this.#notes.push(`image: line ${one.line} installs, left out: ${commands.join("; ")}`);
  }

  #copy(one: Instruction): void {
    let owner: string | undefined;
    let mode: string | undefined;
    for (const flag of one.flags) {
      const [name, value = ""] = [flag.split("=")[0]!, flag.slice(flag.indexOf("=") + 1)];
      if (name === "--chown") owner = this.#expand(one, value);
      else if (name === "--chmod") mode = this.#expand(one, value);
      else if (name !== "--link") this.#refuse(one, `${one.name} ${flag}`);
    }
    const words = (one.json ?? splitWords(one.rest)).map((word) => (one.json ? word : this.#expand(one, word)));
    const target = words.pop();
    if (target === undefined || words.length === 0) this.#refuse(one, `${one.name} without source and target`);
    const to = posix.resolve(this.#workdir, target!);
    const files: CopiedFile[] = [];
    const heredocs = [...one.heredocs];
    const matched: string[] = [];
    for (const word of words) {
      if (word.startsWith("<<")) {
        const heredoc = heredocs.shift();
        if (heredoc === undefined) this.#refuse(one, "a heredoc without an end");
        const data = heredoc!.expand ? this.#expandText(heredoc!.content) : heredoc!.content;
        const path = target!.endsWith("/") || words.length > 1 ? posix.join(to, heredoc!.name) : to;
        files.push({ to: path, from: { data } });
        continue;
      }
      if (/^(https?|ftp|git|ssh):|^git@/.test(word)) this.#refuse(one, `${one.name} of an address (${word})`);
      const found = this.#context.match(word);
      if (found.length === 0) {
        throw new HarborError(
          "image.failed",
          `${this.request.taskId}: line ${one.line} of the Dockerfile copies ${word}, which is not in ${this.request.context}`,
          {
            hint: "sources are relative to the build context; .dockerignore may leave them out",
          },
        );
      }
      matched.push(...found);
    }
    const there = this.#isFolder(to);
    const intoFolder = there || target!.endsWith("/") || words.length > 1 || matched.length > 1;
    for (const path of matched) files.push(...this.#context.copy(path, to, intoFolder));
    // The mode of a folder that was there before is its own.
    const copied = files.filter((file) => !(there && file.to === to));
    for (const file of copied) {
      const isFolder = "kind" in file.from && file.from.kind === "folder";
      this.#knowFolder(isFolder ? file.to : posix.dirname(file.to));
    }
    const extract = one.name === "ADD" && matched.some((path) => /\.(tar|tar\.\w+|tgz|tbz2?|txz)$/.test(path));
    if (extract && matched.length > 1) this.#refuse(one, "ADD of several archives");
    this.#steps.push({
      kind: "copy",
      line: one.line,
      files: copied,
      extract,
      ...(owner !== undefined && { owner }),
      ...(mode !== undefined && { mode }),
    });
  }

  #variables(): Record<string, string> {
    return { ...this.#args, ...this.#env };
  }

  #expand(one: Instruction, word: string): string {
    try {
      return expandWord(word, this.#variables());
    } catch (cause) {
      this.#refuse(one, messageOf(cause));
    }
  }

  #expandText(text: string): string {
    const variables = this.#variables();
    return text.replace(
      /\\\$|\$\{(\w+)\}|\$(\w+)/g,
      (all, braced?: string, plain?: string) => all === "\\$" ? "$" : variables[braced ?? plain!] ?? "",
    );
  }

  #refuse(one: Instruction, what: string): never {
    throw new HarborError(
      "task.unsupported",
      `${this.request.taskId}: --sandbox host cannot apply line ${one.line} of the Dockerfile: ${what}`,
      { hint: "use --sandbox docker or podman for this task" },
    );
  }
}

function without(env: Record<string, string>, path: string): Record<string, string> {
  const { PATH: own, ...rest } = env;
  return own === path ? rest : env;
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

/** The files of a build context, without what .dockerignore leaves out. */
class Context {
  #patterns: { test: RegExp; keep: boolean }[];

  constructor(private readonly folder: string) {
    let text = "";
    try {
      text = readFileSync(join(folder, ".dockerignore"), "utf8");
    } catch {
      // none
    }
    this.#patterns = text.split("\n").map((line) => line.trim()).filter((line) => line !== "" && !line.startsWith("#"))
      .map((line) => {
        const keep = line.startsWith("!");
        const pattern = posix.normalize(line.slice(keep ? 1 : 0).trim()).replace(/^\/+|\/+$/g, "");
        return { test: globExpression(pattern), keep };
      });
  }

  /** Docker's rule: the last matching pattern decides, and a pattern that matches a folder matches what is in it. */
  #left(path: string): boolean {
    let left = false;
    const parents = path.split("/").map((_, at, parts) => parts.slice(0, at + 1).join("/"));
    for (const { test, keep } of this.#patterns) if (parents.some((parent) => test.test(parent))) left = !keep;
    return left;
  }

  /** Context paths that a COPY source means; "" is the context itself. */
  match(source: string): string[] {
    const clean = posix.normalize(`/${source}`).replace(/^\/+|\/+$/g, "");
    if (clean === "") return [""];
    if (!/[*?[]/.test(clean)) return this.#exists(clean) && !this.#leftWholly(clean) ? [clean] : [];
    const test = globExpression(clean);
    const found: string[] = [];
    walkTree(this.folder, ({ path }) => void (test.test(path) && !this.#left(path) && found.push(path)));
    return found;
  }

  /** A folder that is left out may still hold exceptions. */
  #leftWholly(path: string): boolean {
    return this.#left(path) && !(this.#isFolder(path) && this.#patterns.some(({ keep }) => keep));
  }

  copy(source: string, to: string, intoFolder: boolean): CopiedFile[] {
    const full = join(this.folder, source);
    const at = (path: string) => join(this.folder, path);
    if (!this.#isFolder(source)) {
      const name = basename(source);
      return [{ to: intoFolder ? posix.join(to, name) : to, from: { path: full, kind: "file" } }];
    }
    const files: CopiedFile[] = [{ to, from: { path: full, kind: "folder" } }];
    walkTree(this.folder, ({ path, kind }) => {
      if (kind === "other" || this.#left(path)) return;
      const type = kind === "dir" ? "folder" : kind;
      files.push({ to: posix.join(to, posix.relative(source, path)), from: { path: at(path), kind: type } });
    }, source);
    return files;
  }

  #exists(path: string): boolean {
    return lstatSync(join(this.folder, path), { throwIfNoEntry: false }) !== undefined;
  }

  #isFolder(path: string): boolean {
    return statSync(join(this.folder, path), { throwIfNoEntry: false })?.isDirectory() === true;
  }
}

/** Go's filepath.Match with Docker's `**`: `*` and `?` stay within a name. */
function globExpression(pattern: string): RegExp {
  let source = "";
  for (let at = 0; at < pattern.length; at++) {
    const char = pattern[at]!;
    if (pattern.startsWith("**/", at)) {
      source += "(?:.*/)?";
      at += 2;
    } else if (pattern.startsWith("**", at)) {
      source += ".*";
      at++;
    } else if (char === "*") source += "[^/]*";
    else if (char === "?") source += "[^/]";
    else if (char === "[") {
      const end = pattern.indexOf("]", at + 1);
      if (end < 0) source += "\\[";
      else {
        source += pattern.slice(at, end + 1).replace(/^\[!/, "[^");
        at = end;
      }
    } else if (char === "\\") source += escaped(pattern[++at] ?? "");
    else source += escaped(char);
  }
  return new RegExp(`^${source}$`);
}

const escaped = (char: string): string => char.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
