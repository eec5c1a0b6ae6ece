/** `dataset init`: a new dataset with one task that loads and validates as it is. */
import { chmod, lstat, mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join, relative, resolve } from "node:path";
import { z } from "zod";
import type { Context } from "../../lib/context.ts";
import { datasetFiles, DEFAULT_IMAGE, parseDatasetName, type ScaffoldFile } from "../../lib/dataset/scaffold.ts";
import { errno, EXIT, HarborError } from "../../lib/errors.ts";
import { reasonOf } from "../../lib/files/reason.ts";
import { programName } from "../../lib/runtime/self.ts";
import { parseWith } from "../_options.ts";

const Options = z.strictObject({
  name: z.string(),
  image: z.string().default(DEFAULT_IMAGE),
  parameterized: z.boolean().default(false),
  json: z.boolean().default(false),
  quiet: z.boolean().default(false),
  verbose: z.boolean().default(false),
});
export type Options = z.infer<typeof Options>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    command.name("dataset init")
      .description("Writes a new dataset with one task into a folder of that name, below the working directory.")
      .argument("<name>", "NAME or ORG/NAME; the folder is NAME")
      .option("--image <image>", "image the task starts from", DEFAULT_IMAGE)
      .addOption(command.createOption("--parameterized", "a template and rows").hideHelp())
      .option("--json", "what was written, as one JSON object")
      .option("-q, --quiet", "no notes, only results")
      .addOption(command.createOption("-v, --verbose", "starts no programs").hideHelp()));

export async function run(options: Options, ctx: Context): Promise<number> {
  if (options.parameterized) {
    throw new HarborError("not-built", "--parameterized is not in this version", {
      hint: `${programName} dataset init ${options.name} writes a plain dataset`,
    });
  }
  const name = parseDatasetName(options.name);
  const files = datasetFiles(name, options.image);
  const folder = resolve(ctx.cwd, name.name);
  await write(folder, files);
  const shown = relative(ctx.cwd, folder);
  ctx.out(
    options.json
      ? JSON.stringify({ path: shown, name: `${name.org}/${name.name}`, files: files.map(({ path }) => path) })
      : shown,
  );
  if (!options.quiet && !options.json) {
    for (const { path } of files) ctx.note(`  ${join(shown, path)}`);
    ctx.note(`next: ${programName} validate ${shown}`);
    ctx.note(`without a container engine: ${programName} validate ${shown} --sandbox host`);
  }
  return EXIT.ok;
}

/** All files or none: they are written beside the folder and moved into place. */
async function write(folder: string, files: readonly ScaffoldFile[]): Promise<void> {
  const exists = () => new HarborError("usage", `${folder} already exists`, { hint: "choose another name" });
  if (await lstat(folder).catch(() => undefined) !== undefined) throw exists();
  let staging: string | undefined;
  try {
    staging = await mkdtemp(join(dirname(folder), ".gym-harbor-init-"));
    for (const { path, text, executable } of files) {
      const at = join(staging, path);
      await mkdir(path.endsWith("/") ? at : dirname(at), { recursive: true });
      if (path.endsWith("/")) continue;
      await writeFile(at, text);
      if (executable) await chmod(at, 0o755);
    }
    await chmod(staging, 0o755);
    await rename(staging, folder);
  } catch (cause) {
    if (staging !== undefined) await rm(staging, { recursive: true, force: true });
    if (["EEXIST", "ENOTEMPTY", "ENOTDIR"].includes(errno(cause) ?? "")) throw exists();
    if (errno(cause) === "ENAMETOOLONG") {
      throw new HarborError("usage", `${folder}: the name is too long`, { cause, hint: "choose a shorter one" });
    }
    throw new HarborError("store.unwritable", `Cannot write ${folder}: ${reasonOf(cause)}`, {
      cause,
      hint: "go to a folder that you may write to",
    });
  }
}
