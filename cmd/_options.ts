/** Options and the parser that all commands share. commander gives help, did-you-mean and the texts in one place. */
import { Command, CommanderError } from "commander";
import type { z } from "zod";
import { EXIT, HarborError } from "../lib/errors.ts";
import { programName } from "../lib/runtime/self.ts";
import { HelpShown } from "./_help.ts";

export { HelpShown };

/**
 * Parses `argv` (the words after the command's name) into finished options: commander reads, zod checks. Throws
 * HarborError "usage" with commander's did-you-mean, or HelpShown for -h and for a bare command that needs words.
 * Positional arguments arrive under the names they have in `.argument()`, dashes turned into camelCase.
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
    .configureHelp({ helpWidth: 98 });
  const hint = `see ${programName} ${command.name()} -h`;
  command.name(`${programName} ${command.name()}`);
  command.description(command.description().replace(/(?<!\n)\n(?!\n)/g, " ")); // commander breaks the lines itself
  try {
    command.parse([...argv], { from: "user" });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) throw new HelpShown(printed.join(""));
    if (error.code === "commander.missingArgument" && argv.length === 0) {
      throw new HelpShown(command.helpInformation(), EXIT.usage);
    }
    const [message, ...more] = error.message.replace(/^error: /, "").split("\n");
    throw new HarborError("usage", message!, { hint: suggestion(more.join(" ")) ?? hint });
  }
  const named: Record<string, unknown> = { ...command.opts() };
  const positional = new Set<string>();
  command.registeredArguments.forEach((argument, index) => {
    positional.add(camel(argument.name()));
    const value = command.processedArgs[index];
    if (value !== undefined) named[camel(argument.name())] = value;
  });
  const checked = schema.safeParse(named);
  if (checked.success) return checked.data;
  const issue = checked.error.issues[0]!;
  const key = String(issue.path[0] ?? "");
  throw new HarborError("usage", `${positional.has(key) ? key : `--${dashed(key)}`}: ${issue.message}`, { hint });
}

/** commander says "(Did you mean --json?)". */
function suggestion(text: string): string | undefined {
  const said = /^\((D.*\?)\)$/.exec(text.trim())?.[1];
  return said === undefined ? undefined : said.charAt(0).toLowerCase() + said.slice(1);
}

const camel = (name: string): string => name.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
const dashed = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
