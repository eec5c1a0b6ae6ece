/** Options and the parser that all commands share. commander gives help, did-you-mean and the texts in one place. */
import { Command, CommanderError } from "commander";
import type { z } from "zod";
import { HarborError } from "../lib/errors.ts";

/** Thrown by `-h`: not an error, but the end of the command. */
export class HelpShown extends Error {
  constructor(readonly text: string) {
    super("help");
  }
}

/**
 * Parses `argv` (the words after the command's name) into finished options: commander reads, zod checks. Throws
 * HarborError "usage" with commander's did-you-mean, or HelpShown for -h. Positional arguments arrive under the names
 * they have in `.argument()`, dashes turned into camelCase.
 */
export function parseWith<S extends z.ZodType>(
  argv: readonly string[],
  schema: S,
  describe: (command: Command) => Command,
): z.infer<S> {
  const printed: string[] = [];
  const command = describe(
    new Command().exitOverride().showSuggestionAfterError(true).helpOption("-h, --help", "print this"),
  )
    .configureOutput({ writeOut: (text) => void printed.push(text), writeErr: (text) => void printed.push(text) })
    .configureHelp({ helpWidth: 100 });
  try {
    command.parse([...argv], { from: "user" });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) throw new HelpShown(printed.join(""));
    const [message, ...more] = error.message.replace(/^error: /, "").split("\n");
    throw new HarborError("usage", message!, { hint: more.join(" ") || `see gym-harbor ${command.name()} -h` });
  }
  const named: Record<string, unknown> = { ...command.opts() };
  command.registeredArguments.forEach((argument, index) => {
    const value = command.processedArgs[index];
    if (value !== undefined) named[camel(argument.name())] = value;
  });
  const checked = schema.safeParse(named);
  if (checked.success) return checked.data;
  const issue = checked.error.issues[0]!;
  throw new HarborError("usage", `--${dashed(issue.path.join("."))}: ${issue.message}`, {
    hint: `see gym-harbor ${command.name()} -h`,
  });
}

const camel = (name: string): string => name.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
const dashed = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
