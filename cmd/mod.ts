/**
 * The command table and the way from an argv to an exit code. Commands load lazily, so `--version`, which scripts poll and
 * which is small enough to be here from the start, costs no parser.
 *
 * A command module exports `parse(argv) → Options` (pure, by parseWith of _options.ts) and `run(options, ctx) → exit
 * code`. A new command is that file, its line in COMMANDS and a golden file of its help. The first words of the command
 * line name a command in any of its spellings; `-v`, `-q` and `--json` may stand before it.
 */
import type { Context } from "../lib/context.ts";
import { EXIT, exitCodeOf, HarborError, isAbort } from "../lib/errors.ts";
import { programName } from "../lib/runtime/self.ts";
import { groupHelp, HelpShown, programHelp, spellings } from "./_help.ts";
import { LATER_COMMANDS } from "./_later.ts";
import * as version from "./version.ts";

export interface CommandModule<O> {
  parse(argv: string[]): O;
  run(options: O, ctx: Context): Promise<number>;
}

export interface Entry {
  /** The words that name it (`validate`, `sandbox gc`). */
  name: string;
  /** Other spellings (`dataset validate`). */
  aliases: string[];
  /** Positional words as help shows them (`PATH…`). */
  words?: string;
  about: string;
  /** Heading in the program's help. */
  section: string;
  /** Absent: part of the contract, not in this version. */
  load?: () => Promise<CommandModule<unknown>>;
  /** Not shown in help. */
  hidden?: boolean;
  /** Without `load`: will not come either. */
  never?: boolean;
}

// deno-lint-ignore no-explicit-any -- a table of modules with different options: parse and run of one entry agree
const lazy = (load: () => Promise<CommandModule<any>>): () => Promise<CommandModule<unknown>> => load;

const TASKS = "Run tasks";
const LOOK = "Look at tasks, start nothing";
const WRITE = "Write tasks";
const CARRY = "Carry tasks and images to where there is no network";
const IMAGES = "Images";
const MACHINE = "This machine";

export const COMMANDS: Entry[] = [
  {
    name: "validate",
    aliases: ["dataset validate"],
    words: "PATH",
    about: "grade each task's reference solution",
    section: TASKS,
    load: lazy(() => import("./validate.ts")),
  },
  {
    name: "run",
    aliases: ["eval run"],
    words: "PATH",
    about: "let an agent work on tasks",
    section: TASKS,
    load: lazy(() => import("./run.ts")),
  },
  {
    name: "check",
    aliases: ["dataset check"],
    words: "PATH…",
    about: "say which tasks load, and why not",
    section: LOOK,
    load: lazy(() => import("./check.ts")),
  },
  {
    name: "digest",
    aliases: [],
    words: "PATH…",
    about: "identity of tasks and datasets",
    section: LOOK,
    load: lazy(() => import("./digest.ts")),
  },
  {
    name: "task schema",
    aliases: [],
    about: "JSON Schema of task.toml",
    section: LOOK,
    load: lazy(() => import("./task.ts")),
  },
  {
    name: "dataset init",
    aliases: [],
    words: "NAME",
    about: "a new dataset with one task",
    section: WRITE,
    load: lazy(() => import("./dataset/init.ts")),
  },
  {
    name: "bundle export",
    aliases: [],
    words: "PATH",
    about: "a dataset and its images, in one folder",
    section: CARRY,
    load: lazy(() => import("./bundle/export.ts")),
  },
  {
    name: "bundle verify",
    aliases: [],
    words: "DIR",
    about: "whether a bundle arrived as it was written",
    section: CARRY,
    load: lazy(() => import("./bundle/verify.ts")),
  },
  {
    name: "bundle import",
    aliases: [],
    words: "DIR",
    about: "take the images of a bundle over",
    section: CARRY,
    load: lazy(() => import("./bundle/import.ts")),
  },
  {
    name: "bundle push",
    aliases: [],
    words: "DIR",
    about: "send the images of a bundle to a registry",
    section: CARRY,
    load: lazy(() => import("./bundle/push.ts")),
  },
  {
    name: "dataset prepare",
    aliases: [],
    words: "PATH",
    about: "build and record every image a dataset needs",
    section: TASKS,
    load: lazy(() => import("./dataset/prepare.ts")),
  },
  {
    name: "images list",
    aliases: [],
    words: "[TARGET]",
    about: "our own images, or those of a dataset and which are here",
    section: IMAGES,
    load: lazy(() => import("./images/list.ts")),
  },
  {
    name: "images pull",
    aliases: [],
    words: "REF…",
    about: "fetch images into our own store",
    section: IMAGES,
    load: lazy(() => import("./images/pull.ts")),
  },
  {
    name: "images import",
    aliases: [],
    words: "SOURCE",
    about: "take images from archives, folders or engines",
    section: IMAGES,
    load: lazy(() => import("./images/import.ts")),
  },
  {
    name: "images save",
    aliases: [],
    words: "REF…",
    about: "images as archives to carry",
    section: IMAGES,
    load: lazy(() => import("./images/save.ts")),
  },
  {
    name: "images load",
    aliases: [],
    words: "FOLDER",
    about: "take in what images save wrote",
    section: IMAGES,
    load: lazy(() => import("./images/load.ts")),
  },
  {
    name: "images gc",
    aliases: [],
    about: "make room among images and unpacked layers",
    section: IMAGES,
    load: lazy(() => import("./images/gc.ts")),
  },
  {
    name: "images tree",
    aliases: [],
    words: "REF",
    about: "layers of an image, and what shares them",
    section: IMAGES,
    load: lazy(() => import("./images/tree.ts")),
  },
  {
    name: "doctor",
    aliases: [],
    about: "which sandboxes work here, and what mends the others",
    section: MACHINE,
    load: lazy(() => import("./doctor.ts")),
  },
  {
    name: "sandbox list",
    aliases: [],
    about: "sandboxes that runs of ours hold or left",
    section: MACHINE,
    load: lazy(async () => (await import("./sandbox.ts")).sandboxList),
  },
  {
    name: "sandbox gc",
    aliases: [],
    about: "remove what dead runs left",
    section: MACHINE,
    load: lazy(async () => (await import("./sandbox.ts")).sandboxGc),
  },
  {
    name: "list agents",
    aliases: [],
    about: "agents that --agent takes",
    section: MACHINE,
    load: lazy(async () => (await import("./list.ts")).listAgents),
  },
  {
    name: "list sandboxes",
    aliases: [],
    about: "sandboxes that --sandbox takes",
    section: MACHINE,
    load: lazy(async () => (await import("./list.ts")).listSandboxes),
  },
  {
    name: "version",
    aliases: ["--version", "-V"],
    about: "print the version",
    section: MACHINE,
    load: lazy(() => Promise.resolve(version)),
  },
  {
    name: "relay",
    aliases: [],
    about: "the inner end of a sandbox's way out",
    section: MACHINE,
    load: lazy(() => import("./relay.ts")),
    hidden: true,
  },
  {
    name: "unpack-layer",
    aliases: [],
    about: "a layer unpacked with the ids of a user namespace",
    section: MACHINE,
    load: lazy(() => import("./unpack_layer.ts")),
    hidden: true,
  },
  {
    name: "context-hash",
    aliases: [],
    about: "the hash of one build context",
    section: MACHINE,
    load: lazy(() => import("./context_hash.ts")),
    hidden: true,
  },
  ...LATER_COMMANDS,
];

/** Runs one command line. Never throws: what went wrong is printed and becomes the exit code. */
export async function main(argv: readonly string[], ctx: Context): Promise<number> {
  try {
    const { entry, rest } = await find(argv, COMMANDS);
    const module = await entry.load!();
    return await module.run(module.parse(rest), ctx);
  } catch (error) {
    return report(error, ctx, argv.includes("--json"));
  }
}

const HELP = ["-h", "--help", "help"];
const MOVABLE = ["-v", "--verbose", "-q", "--quiet", "--json"];

/** The command that `argv` names and the words that are left for its parser. Throws help and usage errors. */
export async function find(argv: readonly string[], commands: readonly Entry[]): Promise<Required<Found>> {
  const start = argv.findIndex((word) => !MOVABLE.includes(word));
  const words = start < 0 ? [] : argv.slice(start);
  const moved = argv.slice(0, start < 0 ? argv.length : start);
  const [first, second] = words;
  if (first === undefined) throw new HelpShown(programHelp(commands), EXIT.usage);
  if (HELP.includes(first)) {
    const about = words.slice(1).filter((word) => !HELP.includes(word));
    if (about.length === 0) throw new HelpShown(programHelp(commands));
    return find([...about, "-h"], commands);
  }
  for (const take of [2, 1]) {
    const name = words.slice(0, take).join(" ");
    const entry = commands.find((one) => spellings(one).includes(name));
    if (entry === undefined || words.length < take) continue;
    if (entry.load === undefined) throw notBuilt(entry);
    return { entry, rest: [...words.slice(take), ...moved] };
  }
  const isGroup = commands.some((entry) => spellings(entry).some((name) => name.startsWith(`${first} `)));
  if (isGroup && second === undefined) throw new HelpShown(groupHelp(first, commands), EXIT.usage);
  if (isGroup && HELP.includes(second!)) throw new HelpShown(groupHelp(first, commands));
  throw await unknown(words, isGroup, commands);
}

interface Found {
  entry: Entry;
  rest: string[];
}

function notBuilt(entry: Entry): HarborError {
  return entry.never
    ? new HarborError("not-built", `'${entry.name}' is ${entry.about}, not of gym-harbor`, {
      hint: `${programName} -h lists the commands`,
    })
    : new HarborError("not-built", `'${entry.name}' (${entry.about}) is not in this version`, {
      hint: `${programName} -h lists what is`,
    });
}

async function unknown(words: readonly string[], isGroup: boolean, commands: readonly Entry[]): Promise<HarborError> {
  const { nearest } = await import("../lib/suggest.ts");
  const [first, second] = words as [string, string | undefined];
  const names = commands.filter((entry) => !entry.hidden).flatMap(spellings);
  const said = isGroup ? `${first} ${second}` : first;
  const kind = said.startsWith("-") ? "option" : "command";
  const near = nearest(said, [...names, ...HELP]) ??
    (second === undefined ? undefined : nearest(`${first} ${second}`, names));
  const hint = near !== undefined
    ? `did you mean '${programName} ${near}'?`
    : /[/.]/.test(first)
    ? `to try the tasks below it: ${programName} validate ${first}`
    : `${programName} ${isGroup ? `${first} ` : ""}-h lists the commands`;
  return new HarborError("usage", `unknown ${kind} '${said}'`, { hint });
}

function report(error: unknown, ctx: Context, json: boolean): number {
  if (error instanceof HelpShown) {
    ctx.out(error.text.trimEnd());
    return error.exit;
  }
  if (error instanceof HarborError) {
    if (json) {
      const { code, message, hint, details } = error;
      ctx.note(JSON.stringify({ error: { code, message, hint, details } }));
    } else {
      ctx.note(`error[${error.code}]: ${error.message}`);
      if (error.hint !== undefined) ctx.note(`hint: ${error.hint}`);
    }
    return exitCodeOf(error.code);
  }
  if (isAbort(error)) return EXIT.interrupted;
  ctx.note(`bug: ${error instanceof Error ? error.stack : error}`);
  ctx.note("hint: this is a fault of gym-harbor itself; please report it with the lines above");
  return EXIT.no;
}
