/**
 * `--only-tasks` and `--exclude-tasks`: case-sensitive fnmatch patterns over task IDs (images-and-sandboxes §1.2).
 */
import { distance } from "fastest-levenshtein";
import { HarborError } from "../errors.ts";

export interface Selection {
  /** Patterns; each may be a comma-separated list. Empty: all tasks. */
  only?: readonly string[];
  /** Taken out after `only`. */
  exclude?: readonly string[];
}

const NEAR_NAMES = 5;

/**
 * The IDs that remain, in their order. Throws HarborError "usage" for a pattern that matches nothing, naming it and up
 * to five near names, and when nothing remains.
 */
export function selectTasks(ids: readonly string[], { only = [], exclude = [] }: Selection): string[] {
  const wanted = matchersOf(only, ids, "--only-tasks");
  const unwanted = matchersOf(exclude, ids, "--exclude-tasks");
  const kept = ids.filter((id) =>
    (wanted.length === 0 || wanted.some((matches) => matches(id))) && !unwanted.some((matches) => matches(id))
  );
  if (kept.length === 0 && ids.length > 0) {
    throw new HarborError("usage", `--exclude-tasks ${list(exclude).join(",")} leaves no task of ${ids.length}`, {
      hint: "exclude fewer",
    });
  }
  return kept;
}

type Matcher = (id: string) => boolean;

function matchersOf(patterns: readonly string[], ids: readonly string[], option: string): Matcher[] {
  return list(patterns).map((pattern) => {
    const matches = fnmatch(pattern);
    if (!ids.some(matches)) throw nothingMatches(pattern, ids, option);
    return matches;
  });
}

const list = (patterns: readonly string[]): string[] =>
  patterns.flatMap((one) => one.split(",")).map((one) => one.trim()).filter((one) => one !== "");

function nothingMatches(pattern: string, ids: readonly string[], option: string): HarborError {
  const near = nearNames(pattern, ids);
  return new HarborError("usage", `${option} '${pattern}' matches no task of ${ids.length}`, {
    hint: near.length === 0 ? "the dataset has no task" : `near names: ${near.join(", ")}`,
    details: { pattern, near },
  });
}

/** The nearest IDs, best first. */
function nearNames(word: string, ids: readonly string[], count = NEAR_NAMES): string[] {
  const bare = word.replace(/[*?[\]]/g, "").toLowerCase();
  const far = (id: string): number => {
    const lower = id.toLowerCase();
    return bare !== "" && lower.includes(bare) ? 0 : distance(bare, lower);
  };
  return ids.map((id) => ({ id, far: far(id) })).sort((a, b) => a.far - b.far).slice(0, count).map(({ id }) => id);
}

/** Python's fnmatchcase: `*`, `?`, `[seq]`, `[!seq]`; an unclosed `[` is a bracket. There is no escape. */
export function fnmatch(pattern: string): Matcher {
  let source = "";
  for (let at = 0; at < pattern.length; at++) {
    const char = pattern[at]!;
    if (char === "*") source += ".*";
    else if (char === "?") source += ".";
    else if (char === "[") {
      const close = closingBracket(pattern, at);
      if (close < 0) source += "\\[";
      else {
        source += characterClass(pattern.slice(at + 1, close));
        at = close;
      }
    } else source += char.replace(/[\\^$.*+?()[\]{}|/]/, "\\$&");
  }
  const expression = new RegExp(`^(?:${source})$`, "su");
  return (id) => expression.test(id);
}

/** A `]` right behind `[` or `[!` is a member. */
function closingBracket(pattern: string, open: number): number {
  const first = open + (pattern[open + 1] === "!" ? 2 : 1);
  return pattern.indexOf("]", first + (pattern[first] === "]" ? 1 : 0));
}

function characterClass(text: string): string {
  const negated = text.startsWith("!");
  const members = [...(negated ? text.slice(1) : text)];
  const quote = (char: string): string => char.replace(/[\\^\]\-[]/, "\\$&");
  let inside = "";
  for (let at = 0; at < members.length; at++) {
    const [from, dash, to] = [members[at]!, members[at + 1], members[at + 2]];
    if (dash === "-" && to !== undefined) {
      if (from.codePointAt(0)! <= to.codePointAt(0)!) inside += `${quote(from)}-${quote(to)}`;
      at += 2;
    } else inside += quote(from);
  }
  if (inside === "") return negated ? "." : "(?!)";
  return negated ? `[^${inside}]` : `[${inside}]`;
}
