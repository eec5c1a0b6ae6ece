/**
 * Heredocs of a Dockerfile in a form for builders that have none (buildah before 1.33, podman before 4.7, docker's classic
 * builder), or whose own do not work everywhere (buildah keeps them in files beside its storage: #6331, Lustre). What
 * comes out does what BuildKit does (frontend/dockerfile 1.4: dispatchRun, dispatchCopy), and every instruction stays on
 * its line, so that the builder's messages hold for the file as written. Pure.
 *
 * `RUN <<EOF` becomes the same script as an argument of the same shell, in exec form, the lines of its JSON continued. A
 * script with `#!` is written to a temp file and handed to its interpreter, as the kernel does. `COPY <<EOF` becomes a
 * COPY out of a small image of generated files, which the caller builds first: put into the context, a `COPY . .` would
 * take them along.
 */
import { HarborError } from "../errors.ts";
import { shellQuote } from "../runtime/runner.ts";
import { heredocWords, type Instruction, parseDockerfile, splitWords } from "../task/dockerfile.ts";
import { expandText } from "../task/dockerfile_expand.ts";
import { type BuildSettings, type Stage, type StageInstruction, stagesOf } from "../task/dockerfile_stages.ts";

export interface Rewritten {
  text: string;
  /** What the image of generated files must hold, at absolute paths. */
  files: { path: string; data: string; mode: number }[];
  /** What was done, a line each, for the build's log. */
  notes: string[];
  /**
   * Images whose environment is needed to expand a heredoc and was not given: `text` is of use once `baseEnv` knows
   * them.
   */
  unknown: string[];
}

/** Whether a Dockerfile has any. */
export const usesHeredocs = (text: string): boolean =>
  text.includes("<<") && parseDockerfile(text).instructions.some(({ heredocs }) => heredocs.length > 0);

export interface RewriteSettings extends BuildSettings {
  /** Name of the image of generated files. */
  filesImage: string;
}

/** Throws HarborError "task.unsupported" for what only BuildKit can do. */
export function rewriteHeredocs(text: string, settings: RewriteSettings): Rewritten {
  const { stages, escape } = stagesOf(text, settings);
  const lines = text.split("\n");
  const result: Rewritten = { text, files: [], notes: [], unknown: [] };
  const unknown = new Set<string>();
  for (const [index, stage] of stages.entries()) {
    for (const one of stage.instructions) {
      const { instruction } = one;
      if (instruction.heredocs.length === 0) continue;
      const { line, endLine } = instruction;
      const written = rewritten(one, escape, settings.filesImage, result, (name) => {
        const base = rootOf(stages, index);
        if (base !== undefined && settings.baseEnv?.(base) === undefined && /^\p{L}|^_/u.test(name)) unknown.add(base);
      });
      const padding = Array.from({ length: endLine - line + 1 - written.length }, () => "");
      lines.splice(line - 1, endLine - line + 1, ...written, ...padding);
    }
  }
  return { ...result, text: lines.join("\n"), unknown: [...unknown] };
}

/** The image below a stage, through the stages that it begins from. */
function rootOf(stages: readonly Stage[], index: number): string | undefined {
  const { base } = stages[index]!;
  if (base.kind === "stage") return rootOf(stages, base.index);
  return base.kind === "image" ? base.reference : undefined;
}

const DEFAULT_SHELL = ["/bin/sh", "-c"];

function rewritten(
  { instruction, variables, shell = DEFAULT_SHELL }: StageInstruction,
  escape: string,
  filesImage: string,
  result: Rewritten,
  unset: (name: string) => void,
): string[] {
  const { name, line } = instruction;
  if (name === "RUN") {
    result.notes.push(`line ${line}: the heredoc of RUN is given to ${shell[0]} as an argument`);
    return runLines(instruction, shell, escape, "");
  }
  if (name === "ONBUILD") {
    const trigger = triggerOf(instruction);
    if (trigger.name !== "RUN") {
      throw new HarborError("task.unsupported", `line ${line}: ONBUILD ${trigger.name} with a heredoc needs BuildKit`, {
        hint: "build it by docker with the buildx plugin, or copy a file of the context",
      });
    }
    result.notes.push(`line ${line}: the heredoc of ONBUILD RUN is given to ${shell[0]} as an argument`);
    return runLines(trigger, shell, escape, "ONBUILD ");
  }
  result.notes.push(`line ${line}: the heredoc of ${name} is copied from a generated file`);
  return copyLines(instruction, variables, escape, filesImage, result, unset);
}

/** What an ONBUILD holds back, as an instruction of its own. */
function triggerOf({ rest, heredocs }: Instruction): Instruction {
  const bodies = heredocs.map(({ content, name }) => `${content}${name}\n`).join("");
  return parseDockerfile(`${rest}\n${bodies}`, { directives: false }).instructions[0]!;
}

function runLines({ rest, flags, heredocs }: Instruction, shell: readonly string[], escape: string, before: string) {
  const [first] = heredocs as [Instruction["heredocs"][number]];
  const alone = heredocs.length === 1 && splitWords(rest, escape, { shell: true }).length === 1;
  const script = !alone
    ? [rest, ...heredocs.map(({ content, name }) => content + name)].join("\n")
    : first.content.startsWith("#!")
    ? interpreted(first.content, first.name)
    : first.content;
  // A script of its own may be for any program; the shell that hands it over need not be the one that SHELL names.
  const words = alone && first.content.startsWith("#!") ? DEFAULT_SHELL : shell;
  const json = [...words, script].map((word) => jsonText(word, escape)).join(", ");
  return `${[`${before}RUN`, ...flags].join(" ")} [${json}]`.split("\n");
}

/**
 * A JSON string that a Dockerfile parser reads whole: a line of the text on a line of the file, none of which begins
 * with `#` or is blank (both would be dropped) or ends in a backslash of its own.
 */
function jsonText(text: string, escape: string): string {
  const lines = text.split("\n").map((line) => {
    const inner = JSON.stringify(line).slice(1, -1).replaceAll("\\\\", "\\u005c");
    return escape === "`" ? inner.replaceAll("`", "\\u0060") : inner;
  });
  return `"${lines.join(`${escape}\n\\n`)}"`;
}

/** A `#!` script in the hands of its interpreter: program, at most one argument, and the file (execve(2)). */
function interpreted(content: string, name: string): string {
  const [, program = "", argument = ""] = /^#![ \t]*([^ \t\n]*)[ \t]*(.*)/.exec(content)!;
  const given = argument.trimEnd();
  const file = `"$d"/${shellQuote(name)}`;
  return [
    `d=$(mktemp -d) || { d=/.heredoc && mkdir "$d"; } || exit 1`,
    `printf %s ${shellQuote(content)} >${file} && chmod 755 ${file} || exit 1`,
    [shellQuote(program), ...(given === "" ? [] : [shellQuote(given)]), file].join(" "),
    `s=$?; rm -rf "$d"; exit $s`,
  ].join("; "); // on no more lines than the heredoc had
}

function copyLines(
  { name, line, rest, flags, heredocs }: Instruction,
  variables: Readonly<Record<string, string>>,
  escape: string,
  filesImage: string,
  result: Rewritten,
  unset: (name: string) => void,
): string[] {
  const words = splitWords(rest, escape);
  const target = words.at(-1)!;
  const isHeredoc = (word: string) => heredocWords(word, escape).length > 0;
  const others = words.slice(0, -1).filter((word) => !isHeredoc(word));
  // `--link` only changes how layers are kept; the mode of a generated file is its own.
  const own = flags.filter((flag) => /^--(chown|chmod)=/.test(flag));
  const mode = own.map((flag) => modeOf(flag, variables, escape)).find((found) => found !== undefined);
  const kept = own.filter((flag) => mode === undefined || !flag.startsWith("--chmod="));
  const paths = heredocs.map((heredoc, index) => {
    if (!/^[\w.-]+$/.test(heredoc.name)) {
      throw new HarborError("task.unsupported", `line ${line}: a heredoc named ${heredoc.name} needs BuildKit`, {
        hint: "name it with letters, digits, . _ and - alone",
      });
    }
    const path = `/${line}-${index}/${heredoc.name}`;
    const data = heredoc.expand
      ? expandText(heredoc.content, variables, { escape, quotes: false, unset })
      : heredoc.content;
    result.files.push({ path, data, mode: mode ?? 0o644 });
    return path;
  });
  return [
    ...(others.length === 0 ? [] : [[name, ...flags, ...others, target].join(" ")]),
    ["COPY", `--from=${filesImage}`, ...kept, ...paths, target].join(" "),
  ];
}

function modeOf(flag: string, variables: Readonly<Record<string, string>>, escape: string): number | undefined {
  if (!flag.startsWith("--chmod=")) return undefined;
  const word = expandText(flag.slice("--chmod=".length), variables, { escape });
  return /^[0-7]{3,4}$/.test(word) ? parseInt(word, 8) : undefined;
}

/**
 * The text without its `# syntax=` directive, on the same lines, for a builder that cannot fetch another frontend; the
 * other directives stay directives.
 */
export function withoutSyntaxDirective(text: string): string {
  const lines = text.split("\n");
  const end = lines.findIndex((line) => !/^#\s*[a-zA-Z][a-zA-Z0-9]*\s*=/.test(line.trim()));
  const directives = lines.slice(0, end < 0 ? lines.length : end);
  const isSyntax = (line: string) => /^#\s*syntax\s*=/i.test(line.trim());
  if (!directives.some(isSyntax)) return text;
  const others = directives.filter((line) => !isSyntax(line));
  return [...others, ...directives.filter(isSyntax).map(() => "#"), ...lines.slice(directives.length)].join("\n");
}
