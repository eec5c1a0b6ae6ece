/**
 * Patterns of `.gitignore` and `.harborignore` as Harbor 0.25 reads them. Its package hash is part of a task's identity,
 * so its reading decides where it differs from git's, and a gitignore library would not do: a `.gitignore` re-includes
 * files below an excluded folder, `a/*` there leaves what lies deeper, a byte order mark belongs to the pattern,
 * lines end as Python's do, a lone backslash is an error. Found by running Harbor 0.25.0 and pathspec 1.1.1.
 */
import { HarborError } from "../errors.ts";

/**
 * `git` decides about the path of a file, by itself or by a folder above it. `harbor` decides about one entry (a
 * folder's path has a slash behind it), since a folder that is out hides what lies below; and it drops a pattern with
 * a `[` that nothing closes, where `git` takes the bracket literally.
 */
export type Dialect = "git" | "harbor";

export interface Pattern {
  /** `!` in front: takes back what an earlier pattern excluded. */
  readonly negative: boolean;
  readonly regex: RegExp;
}

// deno-lint-ignore no-control-regex -- the line ends of Python's str.splitlines
const LINE_END = /\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]/;

/** Reads the text of a file; `file` is how an error names it. Throws HarborError "task.invalid" with file and line. */
export function parsePatterns(text: string, dialect: Dialect, file: string): Pattern[] {
  return text.split(LINE_END).flatMap((line, index) => {
    try {
      return parseLine(line, dialect) ?? [];
    } catch (cause) {
      throw new HarborError("task.invalid", `${file}:${index + 1}: '${line}' is no ignore pattern`, {
        cause,
        hint: "a pattern follows the rules of gitignore; write \\\\ for a backslash",
        details: { file, line: index + 1 },
      });
    }
  });
}

/** What the last pattern that matches says: excluded, taken back, or nothing (undefined). */
export function verdictOn(patterns: readonly Pattern[], path: string): boolean | undefined {
  const last = patterns.findLast(({ regex }) => regex.test(path));
  return last === undefined ? undefined : !last.negative;
}

const ALL = /^/;

function parseLine(line: string, dialect: Dialect): Pattern | undefined {
  let text = line.endsWith("\\ ") ? line : line.trimEnd();
  if (text === "" || text.startsWith("#")) return undefined;
  const negative = text.startsWith("!");
  if (negative) text = text.slice(1);
  if (text === "") throw new Error("nothing after !");
  if (text === "/" && dialect === "git") return { negative, regex: ALL };
  if (text === "/") return negative ? { negative, regex: /\/$/ } : undefined;

  const segments = text.split("/");
  const folderOnly = segments.length > 1 && segments.at(-1) === "";
  if (folderOnly) segments.pop();
  // Without a slash, save at the end, it matches at any depth.
  const anywhere = segments.length === 1 || segments.find((segment) => segment !== "") === "**";
  if (segments[0] === "" && segments.length > 1) segments.shift();
  while (segments[0] === "**") segments.shift();
  const below = segments.at(-1) === "**";
  while (segments.at(-1) === "**") segments.pop();
  if (anywhere && segments.length === 1 && segments[0] === "*") segments.pop();
  if (segments.length === 0) return { negative, regex: folderOnly ? (dialect === "git" ? /\// : /\/$/) : ALL };

  let source = anywhere ? "^(?:[^\\n]+/)?" : "^";
  for (const [index, segment] of segments.entries()) {
    if (segment === "**") continue;
    source += segments[index - 1] === "**" ? "/(?:[^\\n]+/)?" : index > 0 ? "/" : "";
    const found = segmentSource(segment, dialect);
    if (found === undefined) return undefined;
    source += found;
  }
  return { negative, regex: new RegExp(source + endSource(dialect, below, folderOnly, segments.at(-1) === "*"), "u") };
}

function endSource(dialect: Dialect, below: boolean, folderOnly: boolean, lastIsStar: boolean): string {
  if (below) return "/";
  if (dialect === "harbor") return folderOnly ? "/$" : "/?$";
  if (folderOnly) return "/";
  return lastIsStar ? "$" : "(?:/|$)";
}

/** Undefined for a pattern that is to be dropped. Throws for a backslash with nothing behind it. */
function segmentSource(segment: string, dialect: Dialect): string | undefined {
  if (segment === "*") return "[^/]+";
  let source = "";
  for (let at = 0; at < segment.length; at++) {
    const letter = segment[at]!;
    if (letter === "*") source += "[^/]*";
    else if (letter === "?") source += "[^/]";
    else if (letter === "[") {
      const found = classAt(segment, at);
      if (found === undefined && dialect === "harbor") return undefined;
      source += found?.source ?? "\\[";
      at = found?.end ?? at;
    } else if (letter === "\\") {
      if (++at === segment.length) throw new Error("nothing after the backslash");
      source += literal(segment[at]!);
    } else source += literal(letter);
  }
  return source;
}

/** `[a-z]`, `[!a]`, `[]a]`: no escapes inside, and undefined when nothing closes it. */
function classAt(segment: string, open: number): { source: string; end: number } | undefined {
  const negated = segment[open + 1] === "!" || segment[open + 1] === "^";
  const first = open + (negated ? 2 : 1);
  const end = segment.indexOf("]", first + 1);
  if (end === -1) return undefined;
  const members = segment.slice(first, end).replace(/[\\\]^[]/g, "\\$&");
  return { source: `[${negated ? "^" : ""}${members}]`, end };
}

const literal = (letter: string): string => /[\\^$.*+?()[\]{}|/]/.test(letter) ? `\\${letter}` : letter;
