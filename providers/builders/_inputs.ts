/**
 * What a build reads, where a tool can read it: a context on a network file system is copied to a disk of this machine
 * (spec/images-and-sandboxes §8.1), heredocs are rewritten for a builder without them. Name and hash of the image stay
 * those of the task's own files.
 */
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import type { Space } from "../../lib/files/disk.ts";
import { rewriteHeredocs, usesHeredocs, withoutSyntaxDirective } from "../../lib/images/heredoc.ts";
import { envOf, type ImageConfig } from "../../lib/images/config.ts";
import { HarborError } from "../../lib/errors.ts";
import type { BuildRequest } from "../../lib/images/builder.ts";

export interface InputWork {
  /** The build's own folder. */
  folder: string;
  space: (folder: string) => Space | undefined;
  /** Copies a tree as it is: modes, links, names that are not UTF-8. */
  copyTree: (from: string, to: string) => Promise<void>;
  say: (line: string) => void;
}

export interface Inputs {
  context: string;
  dockerfile: string;
}

/** Where a context lies decides whether it is copied first. Pure. */
export const mustBeStaged = (space: Space | undefined): boolean => space?.network !== undefined;

/** The context as the tool may read it. */
export async function stagedContext({ context, dockerfile }: BuildRequest, work: InputWork): Promise<Inputs> {
  const space = work.space(context);
  if (!mustBeStaged(space)) return { context, dockerfile };
  const staged = join(work.folder, "context");
  work.say(`${context} lies on ${space!.network}: it is copied to ${staged} first`);
  await work.copyTree(context, staged);
  const inside = relative(context, dockerfile);
  return { context: staged, dockerfile: inside.startsWith("..") ? dockerfile : join(staged, inside) };
}

export interface RewriteWork extends InputWork {
  args: Readonly<Record<string, string>>;
  platform: string;
  /** Configuration of an image that the Dockerfile begins from, pulled when it is not here. */
  configOf: (reference: string) => Promise<ImageConfig>;
  /** Builds the image of generated files from a folder; its Dockerfile is the one in it. */
  makeFiles: (name: string, folder: string) => Promise<void>;
}

/** The same build without a heredoc, unless they may stay, and without a frontend to fetch, unless that may stay. */
export async function withoutHeredocs(
  inputs: Inputs,
  work: RewriteWork,
  { keepSyntax, keepHeredocs = false }: { keepSyntax: boolean; keepHeredocs?: boolean },
): Promise<Inputs> {
  const written = dockerfileText(inputs.dockerfile);
  const text = keepSyntax ? written : withoutSyntaxDirective(written);
  if (keepHeredocs || !usesHeredocs(text)) {
    return { ...inputs, dockerfile: placed(inputs.dockerfile, text, work.folder) };
  }
  const filesImage = `localhost/gym-harbor-heredocs:${crypto.randomUUID()}`;
  const environments = new Map<string, Record<string, string>>();
  const rewrite = () =>
    rewriteHeredocs(text, {
      args: work.args,
      platform: work.platform,
      baseEnv: (reference) => environments.get(reference),
      filesImage,
    });
  let result = rewrite();
  for (const reference of result.unknown) environments.set(reference, envOf(await work.configOf(reference)));
  if (result.unknown.length > 0) result = rewrite();
  for (const note of result.notes) work.say(`${basename(inputs.dockerfile)} ${note}`);
  if (result.files.length > 0) {
    const folder = join(work.folder, "heredocs");
    mkdirSync(folder);
    writeFileSync(join(folder, "Dockerfile"), "FROM scratch\nCOPY files /\n");
    for (const { path, data, mode } of result.files) {
      const file = join(folder, "files", path);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, data);
      chmodSync(file, mode);
    }
    await work.makeFiles(filesImage, folder);
  }
  return { ...inputs, dockerfile: placed(inputs.dockerfile, result.text, work.folder) };
}

/** Beside the context, under its own name, with the ignore file that belongs to it. */
function placed(original: string, text: string, folder: string): string {
  const place = join(folder, "rewritten");
  mkdirSync(place, { recursive: true });
  const dockerfile = join(place, basename(original));
  writeFileSync(dockerfile, text);
  for (const suffix of [".dockerignore", ".containerignore"]) {
    if (existsSync(original + suffix)) copyFileSync(original + suffix, dockerfile + suffix);
  }
  return dockerfile;
}

/** Text of a Dockerfile. Throws "image.failed" when it is gone. */
export function dockerfileText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw new HarborError("image.failed", `Cannot read ${path}`, { cause });
  }
}

/** Whether the file asks for a frontend of its own. */
export const namesFrontend = (text: string): boolean => withoutSyntaxDirective(text) !== text;

/** Whether the builder failed for want of the frontend that `# syntax=` names, which lies in a registry. */
export const lacksFrontend = (output: string): boolean =>
  /resolve image config for \S*docker\/dockerfile|failed to solve with frontend gateway|frontend.*(docker|moby)\/dockerfile/i
    .test(output);
