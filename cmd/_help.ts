/** Help of the program and of command groups, made from the command table; commands print their own (cmd/_options.ts). */
import { programName } from "../lib/runtime/self.ts";
import { versionFacts } from "../lib/runtime/version.ts";
import type { Entry } from "./mod.ts";

/** Thrown where help ends the command: asked for by `-h` (exit 0), or because nothing was asked for (exit 2). */
export class HelpShown extends Error {
  constructor(readonly text: string, readonly exit = 0) {
    super("help");
  }
}

const EXIT_CODES =
  "Exit codes: 0 done and good, 1 the work says no, 2 the command line is wrong, 3 this machine lacks\n" +
  "something, 130 or 143 interrupted.";

/** What a bare `gym-harbor`, `-h` and `help` print. */
export function programHelp(commands: readonly Entry[]): string {
  const sections = [...new Set(shown(commands).map((entry) => entry.section))];
  return [
    `gym-harbor ${versionFacts().version}: validates, checks and runs Harbor task folders, out of one file.`,
    "",
    `Usage: ${programName} COMMAND [OPTIONS]`,
    ...sections.flatMap((section) => ["", `${section}:`, ...lines(shown(commands, section))]),
    "",
    `'${programName} COMMAND -h' lists the options of a command. Two spellings are one command.`,
    EXIT_CODES,
  ].join("\n");
}

/** What a bare `gym-harbor dataset` and `dataset -h` print. */
export function groupHelp(group: string, commands: readonly Entry[]): string {
  const members = commands.flatMap((entry) => {
    const name = spellings(entry).find((one) => one.startsWith(`${group} `));
    return name === undefined ? [] : [{ ...entry, name, aliases: spellings(entry).filter((one) => one !== name) }];
  });
  const built = members.filter((entry) => entry.load !== undefined);
  const later = members.filter((entry) => entry.load === undefined).map((entry) => entry.name);
  return [
    `Usage: ${programName} ${group} COMMAND [OPTIONS]`,
    ...(built.length > 0 ? ["", "Commands:", ...lines(built)] : []),
    ...(later.length > 0 ? ["", ...wrapped(["Not in this version:", ...later.map((name) => `${name},`)])] : []),
  ].join("\n");
}

export const spellings = (entry: Entry): string[] => [entry.name, ...entry.aliases];

const shown = (commands: readonly Entry[], section?: string): Entry[] =>
  commands.filter((entry) =>
    entry.load !== undefined && !entry.hidden && (section === undefined || entry.section === section)
  );

function lines(entries: readonly Entry[]): string[] {
  const left = entries.map((entry) => [entry.name, entry.words].filter(Boolean).join(" "));
  const width = Math.max(24, ...left.map((text) => text.length));
  return entries.map((entry, index) => {
    const also = entry.aliases.length > 0 ? ` (also: ${entry.aliases.join(", ")})` : "";
    return `  ${left[index]!.padEnd(width)}  ${entry.about}${also}`;
  });
}

/** A list that ends in a full stop, broken between its words and names only. */
function wrapped(pieces: readonly string[], width = 98): string[] {
  const out: string[] = [];
  for (const piece of pieces) {
    const last = out.at(-1);
    if (last === undefined || last.length + 1 + piece.length > width) out.push(piece);
    else out[out.length - 1] = `${last} ${piece}`;
  }
  out[out.length - 1] = out.at(-1)!.replace(/,$/, ".");
  return out;
}
