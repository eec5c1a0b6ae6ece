/** Options that `validate`, `run` and `dataset prepare` share. */
import { availableParallelism } from "node:os";
import type { Command } from "commander";
import { z } from "zod";

const count = z.string().regex(/^[1-9]\d{0,5}$/, "must be a whole number from 1").transform(Number);

/** Where images come from and lie, and whether anything may be asked of a network. */
export const ImageOptions = {
  offline: z.boolean().default(false),
  imageStore: z.string().optional(),
  unpackDir: z.string().optional(),
};
export type ImageOptions = z.infer<z.ZodObject<typeof ImageOptions>>;

export const withImageOptions = (command: Command): Command =>
  command
    .option("--offline", "ask no network; every image must be here (also GYM_HARBOR_OFFLINE=1)")
    .option("--image-store <dir>", "our own images (default: gym-harbor/images in the user's cache)")
    .option("--unpack-dir <dir>", "where their layers are unpacked, on a disk of this machine");

/** `--offline`, or GYM_HARBOR_OFFLINE set to anything but 0, false or nothing. */
export const isOffline = (
  { offline }: Pick<ImageOptions, "offline">,
  env: Readonly<Record<string, string | undefined>>,
): boolean => offline || !["", "0", "false"].includes(env.GYM_HARBOR_OFFLINE ?? "");

/** What is prepared, and how it is told. */
export const PrepareOptions = z.strictObject({
  target: z.string(),
  overrides: z.array(z.string()).default([]),
  sandbox: z.string().default("auto"),
  onlyTasks: z.array(z.string()).default([]),
  excludeTasks: z.array(z.string()).default([]),
  skipUnloadable: z.boolean().default(false),
  output: z.string().optional(),
  ...ImageOptions,
  json: z.boolean().default(false),
  quiet: z.boolean().default(false),
  verbose: z.boolean().default(false),
});
export type PrepareOptions = z.infer<typeof PrepareOptions>;

export const RunOptions = PrepareOptions.extend({
  concurrency: count.default(() => Math.min(4, availableParallelism())),
  numRepeats: count.optional(),
  resume: z.boolean().default(false),
  keepFailed: z.boolean().default(false),
  allowUnsupportedPairing: z.boolean().default(false),
});
export type RunOptions = z.infer<typeof RunOptions>;

const collect = (value: string, before: string[] | undefined): string[] => [...before ?? [], value];

const withTarget = (command: Command): Command =>
  command
    .argument("<target>", "a task folder, or a folder of task folders")
    .argument("[overrides...]", "key=value, +key=value or ++key=value");

const withSelection = (command: Command): Command =>
  command
    .option("--sandbox <name>", "docker, podman, namespace, host, or auto: the first of them that works, never host")
    .option("--only-tasks <pattern>", "only tasks whose names match; may be repeated, or a,b", collect)
    .option("--exclude-tasks <pattern>", "leave out tasks whose names match", collect);

const withOutputs = (command: Command): Command =>
  command
    .option("-q, --quiet", "only results, warnings and errors")
    .option("-v, --verbose", "also phases, build output and every program that is started");

/** Adds the words and options to a command. */
export const withRunOptions = (command: Command): Command =>
  withOutputs(
    withImageOptions(
      withSelection(withTarget(command))
        .option("--skip-unloadable", "run what loads, leave out the rest")
        .option("--output <file.jsonl>", "rollouts file; the run's other files lie beside it")
        .option("--concurrency <n>", "episodes at a time (default: the CPUs, at most 4)")
        .option("--num-repeats <n>", "episodes per task")
        .option("--resume", "go on with the results that are there")
        .option("--keep-failed", "leave a failed episode's sandbox, print how to enter it")
        .option("--allow-unsupported-pairing", "run an agent that the dataset does not admit"),
    ).option("--json", "one JSON object a line instead of the table"),
  );

/** The same for a command that prepares and runs nothing. */
export const withPrepareOptions = (command: Command): Command =>
  withOutputs(
    withImageOptions(
      withSelection(withTarget(command))
        .option("--skip-unloadable", "prepare what loads, leave out the rest")
        .option("--output <file.jsonl>", "rollouts file of the run to come; the files of prepare lie beside it"),
    ).option("--json", "one JSON object a line for each image"),
  );
