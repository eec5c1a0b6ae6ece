/**
 * The stages of a Dockerfile that is built whole: what each begins from, and which variables its instructions see
 * (docs.docker.com/reference/dockerfile: FROM, ARG, ENV; BuildKit 0.13). Pure; never throws for a file that a builder
 * would refuse: what cannot be said is left out.
 */
import { HarborError } from "../errors.ts";
import { type Instruction, parseDockerfile, splitWords } from "./dockerfile.ts";
import { expandText } from "./dockerfile_expand.ts";

export interface BuildSettings {
  /** Build arguments (`--build-arg`). */
  args?: Readonly<Record<string, string>>;
  /** `os/arch[/variant]` that is built for. Default `linux/amd64`. */
  platform?: string;
  /** Environment that a base image brings, by its reference as written; unknown ones bring nothing. */
  baseEnv?: (reference: string) => Readonly<Record<string, string>> | undefined;
}

export type StageBase =
  | { kind: "image"; reference: string }
  | { kind: "stage"; index: number }
  /** `FROM scratch`. */
  | { kind: "nothing" }
  /** FROM without an image, or with one that cannot be expanded. */
  | { kind: "unknown"; why: string };

export interface Stage {
  /** Lower case; undefined without `AS`. */
  name?: string;
  from: Instruction;
  base: StageBase;
  /** `--platform` of the FROM, expanded. */
  platform?: string;
  instructions: StageInstruction[];
}

/** An instruction with the variables that its words expand against. */
export interface StageInstruction {
  instruction: Instruction;
  /** What ENV and ARG set before this instruction, the last of them for a name they share, as BuildKit has it. */
  variables: Readonly<Record<string, string>>;
  /** SHELL in effect; undefined: the base image's own. */
  shell?: readonly string[];
}

export interface StagedDockerfile {
  escape: string;
  stages: Stage[];
  /** Arguments declared before the first FROM. */
  globalArgs: Record<string, string>;
}

interface State {
  variables: Record<string, string>;
  shell?: readonly string[];
}

export function stagesOf(text: string, settings: BuildSettings = {}): StagedDockerfile {
  const { instructions, escape } = parseDockerfile(text);
  const given = settings.args ?? {};
  const platformArgs = argsOfPlatform(settings.platform ?? "linux/amd64");
  const globalArgs: Record<string, string> = {};
  const stages: Stage[] = [];
  const ends: State[] = [];
  let state: State | undefined;

  const expanded = (word: string, variables: Readonly<Record<string, string>>) => quietly(word, variables, escape);

  for (const instruction of instructions) {
    if (instruction.name === "FROM") {
      if (state !== undefined) ends.push(state);
      const stage = stageOf(instruction, { ...platformArgs, ...globalArgs }, stages, escape);
      stages.push(stage);
      state = begin(stage.base, ends, settings);
      continue;
    }
    if (state === undefined) {
      if (instruction.name !== "ARG") continue;
      for (const [name, word] of argPairs(instruction, escape)) {
        const value = Object.hasOwn(given, name)
          ? given[name]
          : word === undefined
          ? undefined
          : expanded(word, { ...platformArgs, ...globalArgs });
        if (value !== undefined) globalArgs[name] = value;
      }
      continue;
    }
    const variables = { ...state.variables };
    stages.at(-1)!.instructions.push({
      instruction,
      variables,
      ...(state.shell !== undefined && { shell: state.shell }),
    });
    switch (instruction.name) {
      case "ARG":
        for (const [name, word] of argPairs(instruction, escape)) {
          const value = Object.hasOwn(given, name)
            ? given[name]
            : word !== undefined
            ? expanded(word, state.variables)
            : globalArgs[name] ?? platformArgs[name];
          if (value !== undefined) state.variables[name] = value;
        }
        break;
      case "ENV":
        for (const [name, word] of envPairs(instruction, escape)) {
          state.variables[expanded(name, variables)] = expanded(word, variables);
        }
        break;
      case "SHELL":
        if (instruction.json !== undefined) state.shell = instruction.json;
    }
  }
  return { escape, stages, globalArgs };
}

/**
 * Every image that a build has to have at hand: bases of the stages that `target` (default: the last) needs, and what
 * COPY --from and RUN --mount=from= name beside stages. As written, once each, in order of appearance.
 */
export function baseImages(text: string, settings: BuildSettings & { target?: string } = {}): string[] {
  const { stages, escape } = stagesOf(text, settings);
  const target = settings.target?.toLowerCase();
  const last = target === undefined
    ? stages.length - 1
    : stages.findIndex(({ name }, index) => name === target || String(index) === target);
  const images: { line: number; reference: string }[] = [];
  const needed = new Set<number>();
  const need = (index: number): void => {
    const stage = stages[index];
    if (stage === undefined || needed.has(index)) return;
    needed.add(index);
    const { base, from, instructions } = stage;
    if (base.kind === "image") images.push({ line: from.line, reference: base.reference });
    if (base.kind === "stage") need(base.index);
    for (const { instruction, variables } of instructions) {
      for (const source of sourcesOf(instruction)) {
        const word = quietly(source, variables, escape);
        const other = stageIndex(word, stages.slice(0, index));
        if (other !== undefined) need(other);
        else if (word !== "" && word !== "scratch" && word !== "context") {
          images.push({ line: instruction.line, reference: word });
        }
      }
    }
  };
  need(last);
  return [...new Set(images.sort((a, b) => a.line - b.line).map(({ reference }) => reference))];
}

/** What COPY --from=X and RUN --mount=…,from=X read. */
function sourcesOf({ name, flags }: Instruction): string[] {
  return flags.flatMap((flag) => {
    if (name === "COPY" || name === "ADD") return /^--from=(.*)$/.exec(flag)?.[1] ?? [];
    if (name === "RUN" && flag.startsWith("--mount=")) return /(?:^|[=,])from=([^,]*)/.exec(flag)?.[1] ?? [];
    return [];
  });
}

function stageIndex(word: string, earlier: readonly Stage[]): number | undefined {
  const lower = word.toLowerCase();
  const named = earlier.findLastIndex(({ name }) => name === lower);
  if (named >= 0) return named;
  return /^\d+$/.test(word) && Number(word) < earlier.length ? Number(word) : undefined;
}

function stageOf(
  from: Instruction,
  variables: Readonly<Record<string, string>>,
  earlier: readonly Stage[],
  escape: string,
): Stage {
  const words = splitWords(from.rest, escape);
  const named = words.length === 3 && words[1]!.toUpperCase() === "AS"
    ? quietly(words[2]!, variables, escape).toLowerCase()
    : undefined;
  const flag = from.flags.find((one) => one.startsWith("--platform="));
  const platform = flag === undefined ? "" : quietly(flag.slice("--platform=".length), variables, escape);
  return {
    from,
    ...(named !== undefined && { name: named }),
    ...(platform !== "" && { platform }),
    base: baseOf(words[0], variables, earlier, escape),
    instructions: [],
  };
}

function baseOf(
  word: string | undefined,
  variables: Readonly<Record<string, string>>,
  earlier: readonly Stage[],
  escape: string,
): StageBase {
  if (word === undefined) return { kind: "unknown", why: "FROM names no image" };
  let reference: string;
  try {
    reference = expandText(word, variables, { escape });
  } catch (error) {
    if (error instanceof HarborError) return { kind: "unknown", why: error.message };
    throw error;
  }
  if (reference === "") return { kind: "unknown", why: `FROM ${word} names no image: its arguments have no value` };
  if (reference === "scratch") return { kind: "nothing" };
  // A number is a stage to buildah; BuildKit looks for an image of that name, which nobody has.
  const index = stageIndex(reference, earlier);
  return index !== undefined ? { kind: "stage", index } : { kind: "image", reference };
}

function begin(base: StageBase, ends: readonly State[], { baseEnv }: BuildSettings): State {
  if (base.kind === "stage") {
    const from = ends[base.index]!;
    return { variables: { ...from.variables }, ...(from.shell && { shell: from.shell }) };
  }
  const env = base.kind === "image" ? baseEnv?.(base.reference) : undefined;
  return { variables: { ...env } };
}

/** A word that cannot be expanded stays as it is: its builder says why. */
function quietly(word: string, variables: Readonly<Record<string, string>>, escape: string): string {
  try {
    return expandText(word, variables, { escape });
  } catch (error) {
    if (error instanceof HarborError) return word;
    throw error;
  }
}

function argPairs({ rest }: Instruction, escape: string): [name: string, word: string | undefined][] {
  return splitWords(rest, escape).map((word) => {
    const at = word.indexOf("=");
    return at < 0 ? [word, undefined] : [word.slice(0, at), word.slice(at + 1)];
  });
}

function envPairs({ rest }: Instruction, escape: string): [name: string, word: string][] {
  const words = splitWords(rest, escape);
  if (words[0]?.includes("=") === true) {
    return words.filter((word) => word.includes("=")).map((word) => {
      const at = word.indexOf("=");
      return [word.slice(0, at), word.slice(at + 1)];
    });
  }
  const match = /^(\S+)\s+([\s\S]+)$/.exec(rest);
  return match === null ? [] : [[match[1]!, match[2]!]];
}

/** Arguments that BuildKit offers without being told (docs.docker.com/reference/dockerfile, "automatic platform ARGs"). */
function argsOfPlatform(platform: string): Record<string, string> {
  const [os = "", arch = "", variant = ""] = platform.split("/");
  const both = (prefix: string) => ({
    [`${prefix}PLATFORM`]: platform,
    [`${prefix}OS`]: os,
    [`${prefix}ARCH`]: arch,
    [`${prefix}VARIANT`]: variant,
  });
  return { ...both("TARGET"), ...both("BUILD") };
}
