/**
 * What a Dockerfile amounts to (task-format §6.3): a base image whose settings can be read off (**pull**), the same
 * plus `RUN` lines that can be replayed in a sandbox (**overlay**), or something only a builder can do (**build**),
 * with the first instruction that makes it so.
 */
import { posix } from "node:path";
import { shellQuote } from "../runtime/runner.ts";
import { heredocWords, type Instruction, parseDockerfile, splitWords } from "./dockerfile.ts";

/** One thing a pull or overlay Dockerfile does, in file order; words are not expanded yet. */
export type Change =
  | { kind: "workdir"; word: string }
  | { kind: "user"; word: string }
  | { kind: "env"; pairs: [name: string, word: string][] }
  | { kind: "run"; command: string; line: number }
  | { kind: "entrypoint-cleared" };

export type DockerfileMode =
  | { mode: "pull" | "overlay"; image: string; changes: Change[] }
  | { mode: "build"; reason: string; line?: number };

/** Reads the mode off a Dockerfile's text. Directives such as `# escape=` count as comments here. */
export function classifyDockerfile(text: string): DockerfileMode {
  const { instructions } = parseDockerfile(text, { directives: false });
  let image: string | undefined;
  const changes: Change[] = [];
  for (const instruction of instructions) {
    const { name, line } = instruction;
    try {
      if (image === undefined) {
        if (name !== "FROM") throw new NeedsBuild(`${name} before FROM`);
        image = baseImage(instruction);
      } else {
        const change = changeOf(instruction);
        if (change !== undefined) changes.push(change);
      }
    } catch (reason) {
      if (!(reason instanceof NeedsBuild)) throw reason;
      return { mode: "build", reason: reason.message, line };
    }
  }
  if (image === undefined) return { mode: "build", reason: "no FROM instruction" };
  return { mode: changes.some((one) => one.kind === "run") ? "overlay" : "pull", image, changes };
}

class NeedsBuild extends Error {}

function baseImage({ args }: Instruction): string {
  const [image, ...rest] = splitWords(args).filter((word) => !word.startsWith("--"));
  if (image === undefined) throw new NeedsBuild("FROM without an image");
  if (image.includes("$")) throw new NeedsBuild(`FROM ${image} (ARG-templated image)`);
  const named = rest.length === 2 && rest[0]!.toUpperCase() === "AS";
  if (rest.length > 0 && !named) throw new NeedsBuild(`FROM ${args}`);
  return image;
}

function changeOf(instruction: Instruction): Change | undefined {
  const { name, args } = instruction;
  switch (name) {
    case "FROM":
      throw new NeedsBuild("a second FROM (multi-stage build)");
    case "RUN":
      return { kind: "run", command: runCommand(instruction), line: instruction.line };
    case "WORKDIR":
    case "USER":
      if (args === "") throw new NeedsBuild(`${name} with no argument`);
      checkWord(args);
      return { kind: name === "USER" ? "user" : "workdir", word: args };
    case "ENV":
      return { kind: "env", pairs: envPairs(args) };
    case "LABEL":
      return undefined;
    case "CMD":
    case "ENTRYPOINT":
      if (!isEmptyList(args)) throw new NeedsBuild(name);
      return name === "ENTRYPOINT" ? { kind: "entrypoint-cleared" } : undefined;
    default:
      throw new NeedsBuild(name);
  }
}

function runCommand({ args }: Instruction): string {
  const flag = /^--[^\s=]*/.exec(args);
  if (flag !== null) throw new NeedsBuild(`RUN ${flag[0]} (BuildKit flags)`);
  if (args === "") throw new NeedsBuild("RUN with no command");
  const list = jsonList(args);
  if (list !== undefined) {
    if (list.length === 0 || !list.every((one) => typeof one === "string")) throw new NeedsBuild(`RUN ${args}`);
    return (list as string[]).map(shellQuote).join(" ");
  }
  if (heredocWords(args).length > 0) throw new NeedsBuild("RUN with a heredoc (<<EOF)");
  return args;
}

function envPairs(args: string): [string, string][] {
  if (args === "") throw new NeedsBuild("ENV with no arguments");
  const words = splitWords(args);
  if (words[0]!.includes("=")) {
    return words.map((word): [string, string] => {
      const at = word.indexOf("=");
      if (at <= 0) throw new NeedsBuild(`ENV ${word} (not KEY=value)`);
      checkWord(word);
      return [word.slice(0, at), word.slice(at + 1)];
    });
  }
  const match = /^(\S+)\s+([\s\S]+)$/.exec(args);
  if (match === null) throw new NeedsBuild(`ENV ${args} must have two arguments`);
  checkWord(match[2]!);
  return [[match[1]!, match[2]!]];
}

/** Expands against nothing, for the fault alone: an unsupported form is one whatever the variables are. */
function checkWord(word: string): void {
  expandWord(word, {});
}

function jsonList(args: string): unknown[] | undefined {
  if (!args.startsWith("[")) return undefined;
  try {
    const value: unknown = JSON.parse(args);
    return Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

const isEmptyList = (args: string): boolean => jsonList(args)?.length === 0;

type Variables = Readonly<Record<string, string>>;

/**
 * One Dockerfile word with quotes, escapes and variables resolved (task-format §6.3). Throws `unsupported variable
 * expansion` for `${…}` forms other than `:-`, `-`, `:+`, `+`; `unset` is told each name that has no value.
 */
export function expandWord(word: string, variables: Variables, unset: (name: string) => void = () => {}): string {
  const reader = { text: word, at: 0 };
  return expand(reader, word, variables, unset, "");
}

interface Reader {
  text: string;
  at: number;
}

function expand(
  reader: Reader,
  word: string,
  variables: Variables,
  unset: (name: string) => void,
  until: string,
): string {
  const { text } = reader;
  let result = "";
  while (reader.at < text.length) {
    const char = text[reader.at]!;
    if (char === until) return result;
    reader.at++;
    if (char === "'") {
      const end = text.indexOf("'", reader.at);
      result += text.slice(reader.at, end < 0 ? text.length : end);
      reader.at = end < 0 ? text.length : end + 1;
    } else if (char === '"') {
      while (reader.at < text.length && text[reader.at] !== '"') {
        const inner = text[reader.at++]!;
        if (inner === "\\" && '"$\\'.includes(text[reader.at] ?? " ")) result += text[reader.at++];
        else if (inner === "$") result += variable(reader, word, variables, unset);
        else result += inner;
      }
      reader.at++;
    } else if (char === "\\") {
      result += text[reader.at++] ?? "";
    } else if (char === "$") {
      result += variable(reader, word, variables, unset);
    } else {
      result += char;
    }
  }
  if (until !== "") throw unsupported(word);
  return result;
}

const unsupported = (word: string): NeedsBuild => new NeedsBuild(`unsupported variable expansion '${word}'`);

const NAME = /[A-Za-z_][A-Za-z0-9_]*/y;

function variable(reader: Reader, word: string, variables: Variables, unset: (name: string) => void): string {
  const braced = reader.text[reader.at] === "{";
  NAME.lastIndex = reader.at + (braced ? 1 : 0);
  const name = NAME.exec(reader.text)?.[0];
  if (name === undefined) {
    if (braced) throw unsupported(word);
    return "$";
  }
  reader.at = NAME.lastIndex;
  const value = Object.hasOwn(variables, name) ? variables[name] : undefined;
  const read = (): string => {
    if (value === undefined) unset(name);
    return value ?? "";
  };
  if (!braced) return read();
  const operator = /^(:?[-+])/.exec(reader.text.slice(reader.at, reader.at + 2))?.[0];
  if (operator === undefined) {
    if (reader.text[reader.at] !== "}") throw unsupported(word);
    reader.at++;
    return read();
  }
  reader.at += operator.length;
  const told = new Set<string>();
  const alternative = expand(reader, word, variables, (one) => told.add(one), "}");
  reader.at++;
  const present = value !== undefined && (operator.length === 1 || value !== "");
  if (value === undefined) unset(name);
  const useAlternative = operator.endsWith("-") ? !present : present;
  if (!useAlternative) return operator.endsWith("-") ? value! : "";
  told.forEach(unset);
  return alternative;
}

/** What a base image brings (its recorded configuration). */
export interface BaseState {
  env: Variables;
  workdir: string;
  user: string;
}

export interface ResolvedDockerfile {
  /** Only what the file declares, in order. */
  env: Record<string, string>;
  /** Undefined: the file does not say. */
  workdir?: string;
  /** Undefined: the file does not say; "" unsets it. */
  user?: string;
  entrypointCleared: boolean;
  /** Each RUN with the state in effect. */
  runs: { command: string; line: number; workdir: string; env: Record<string, string>; user: string }[];
  /** What the base's configuration would be needed for, when `base` was not given. */
  needsBase?: string;
}

/** Applies the changes of a pull or overlay Dockerfile to a base; without one, `needsBase` says what is missing. */
export function resolveDockerfile(changes: readonly Change[], base?: BaseState): ResolvedDockerfile {
  const state = {
    env: { ...base?.env } as Record<string, string>,
    workdir: base?.workdir ?? "/",
    user: base?.user ?? "",
  };
  const result: ResolvedDockerfile = { env: {}, entrypointCleared: false, runs: [] };
  const lacks = (why: string): void => {
    if (base === undefined) result.needsBase ??= why;
  };
  const expanded = (word: string): string =>
    expandWord(word, state.env, (name) => lacks(`$${name} is not set by the Dockerfile`));
  for (const change of changes) {
    switch (change.kind) {
      case "workdir": {
        const path = expanded(change.word);
        if (!path.startsWith("/") && result.workdir === undefined) lacks(`WORKDIR ${path} is relative`);
        state.workdir = result.workdir = posix.normalize(posix.join(path.startsWith("/") ? "/" : state.workdir, path))
          .replace(/(?<=.)\/$/, "");
        break;
      }
      case "user":
        state.user = result.user = expanded(change.word);
        break;
      case "env": {
        const pairs = change.pairs.map(([name, word]) => [expanded(name), expanded(word)] as const);
        for (const [name, value] of pairs) state.env[name] = result.env[name] = value;
        break;
      }
      case "entrypoint-cleared":
        result.entrypointCleared = true;
        break;
      case "run":
        lacks("a RUN needs its environment");
        result.runs.push({ ...state, env: { ...state.env }, command: change.command, line: change.line });
    }
  }
  return result;
}
