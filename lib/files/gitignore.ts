/**
 * Patterns of `.gitignore` and `.harborignore` as Harbor 0.25 reads them. Its package hash is part of a task's identity,
 * so its reading decides where it differs from git's, and a gitignore library would not do: a `.gitignore` re-includes
 * files below an excluded folder, `a/*` there leaves what lies deeper, a byte order mark belongs to the pattern,
 * lines end as Python's do, a lone backslash is an error. Found by running Harbor 0.25.0 and pathspec 1.1.1.
 */
import { HarborError } from "../errors.ts";

/**
 * `git` decides about the path of a file, `harbor` about one entry at a time (a folder's path has a slash behind it),
 * since a folder that is out hides what lies below. Where nothing closes a `[`, `git` takes it literally and `harbor`
 * drops the pattern.
 */
export type Dialect = "git" | "harbor";

export interface Pattern {
  /** `!` in front: takes back what an earlier pattern excluded. */
  readonly negative: boolean;
  /** Matches a path by its own name or by a folder above it; the latter in the group `folder`, for `harbor`. */
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

/**
 * What the last pattern that matches says: excluded, taken back, or nothing (undefined). For `harbor` a match up to a
 * folder's slash, also the entry's own, weighs less than one of the whole path, whatever their order.
 */
export function verdictOn(patterns: readonly Pattern[], path: string): boolean | undefined {
  let verdict: boolean | undefined;
  let whole = false;
  for (const { negative, regex } of patterns) {
    const match = regex.exec(path);
    if (match === null) continue;
    const isWhole = match.groups?.folder === undefined;
    if (whole && !isWhole) continue;
    verdict = !negative;
    whole = isWhole;
  }
  return verdict;
}

const ALL = /^/;

/** The slash behind a folder; where it ends a match, `harbor` must know. */
const slash = (dialect: Dialect): string => dialect === "git" ? "/" : "(?<folder>/)";

function parseLine(line: string, dialect: Dialect): Pattern | undefined {
  let text = line.endsWith("\\ ") ? line : line.trimEnd();
  if (text === "" || text.startsWith("#")) return undefined;
  const negative = text.startsWith("!");
  if (negative) text = text.slice(1);
  if (text === "") throw new Error("nothing after !");
  if (text === "/" && dialect === "git") return { negative, regex: ALL };
  if (text === "/") return negative ? { negative, regex: new RegExp(slash(dialect)) } : undefined;

  const segments = text.split("/");
  const folderOnly = segments.length > 1 && segments.at(-1) === "";
  if (folderOnly) segments.pop();
  // Without a slash, save at the end, it matches at any depth.
  const anywhere = segments.length === 1 || segments.find((segment) => segment !== "") === "**";
  if (segments[0] === "" && segments.length > 1) segments.shift();
  while (segments[0] === "**") segments.shift();
  const below = segments.at(-1) === "**";
  while (segments.at(-1) === "**") segments.pop();
  if (anywhere && segments.length === 1 && segments[0] === "*") {
    if (below) return { negative, regex: /\// };
    segments.pop();
  }
  if (segments.length === 0) return { negative, regex: folderOnly ? new RegExp(slash(dialect)) : ALL };

  const writer = new RegexWriter(dialect);
  const groups = splitAt(segments, "**").map((group) => group.map((segment) => writer.segment(segment)).join("/"));
  if (writer.dropped) return undefined;
  const source = writer.path(groups, anywhere);
  return { negative, regex: new RegExp(source + endSource(dialect, below, folderOnly, segments.at(-1) === "*"), "u") };
}

function splitAt(segments: readonly string[], separator: string): string[][] {
  const groups: string[][] = [[]];
  for (const segment of segments) segment === separator ? groups.push([]) : groups.at(-1)!.push(segment);
  return groups.filter((group) => group.length > 0);
}

function endSource(dialect: Dialect, below: boolean, folderOnly: boolean, lastIsStar: boolean): string {
  if (below) return "/";
  if (folderOnly) return slash(dialect);
  return dialect === "git" && lastIsStar ? "$" : `(?:${slash(dialect)}|$)`;
}

/**
 * Writes patterns as regular expressions that a hostile one cannot make slow: what follows a star is taken where it
 * first occurs and not given back, which for such patterns finds every match. A look-ahead with a back reference does
 * not give back in JavaScript.
 */
class RegexWriter {
  /** A `[` that nothing closes was met where that drops the pattern. */
  dropped = false;
  #held = 0;

  constructor(readonly dialect: Dialect) {}

  /** Groups of folders with any number of folders between them, and before them where it may begin anywhere. */
  path(groups: readonly string[], anywhere: boolean): string {
    const parts = groups.map((group, index) => {
      if (index === 0 && !anywhere) return group;
      if (index === groups.length - 1) return `(?:[^\\n]+/)?${group}`;
      return this.#hold(`(?:[^\\n]+?/)??${group}(?=/)`);
    });
    return `^${parts.join("/")}`;
  }

  /** One folder or file name. Throws for a backslash with nothing behind it. */
  segment(text: string): string {
    if (this.dropped) return "";
    if (text === "*") return "[^/]+";
    const pieces = [""];
    for (let at = 0; at < text.length; at++) {
      const letter = text[at]!;
      if (letter === "*") {
        if (text[at - 1] !== "*" || pieces.length === 1) pieces.push("");
        continue;
      }
      let piece: string;
      if (letter === "?") piece = "[^/]";
      else if (letter === "[") {
        const found = classAt(text, at);
        if (found === undefined && this.dialect === "harbor") {
          this.dropped = true;
          return "";
        }
        piece = found?.source ?? "\\[";
        at = found?.end ?? at;
      } else if (letter === "\\") {
        if (++at === text.length) throw new Error("nothing after the backslash");
        piece = literal(text[at]!);
      } else piece = literal(letter);
      pieces[pieces.length - 1] += piece;
    }
    const [first, ...more] = pieces;
    const last = more.pop();
    const held = more.map((piece) => this.#hold(`[^/]*?${piece}`));
    return first + held.join("") + (last === undefined ? "" : `[^/]*${last}`);
  }

  #hold(source: string): string {
    const name = `h${this.#held++}`;
    return `(?=(?<${name}>${source}))\\k<${name}>`;
  }
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
