/** `images list`: what our own store has, or what the tasks of a dataset need and which of it is there. */
import { z } from "zod";
import { bytesText } from "../../lib/bytes.ts";
import type { Context } from "../../lib/context.ts";
import { openDataset } from "../../lib/dataset/load.ts";
import { EXIT } from "../../lib/errors.ts";
import type { TaskImage } from "../../lib/images/plan.ts";
import { planTasks } from "../../lib/images/prepare.ts";
import { columns } from "../../lib/report/columns.ts";
import { usedAt } from "../../lib/store/gc.ts";
import type { LayoutStore } from "../../lib/store/layout.ts";
import type { StoredImage } from "../../lib/store/store.ts";
import { resolveTarget } from "../../lib/target/resolve.ts";
import type { Task } from "../../lib/task/task.ts";
import { composeReader } from "../_compose.ts";
import { parseWith } from "../_options.ts";
import {
  hex,
  imageJson,
  platformOf,
  PlatformOption,
  shownName,
  sizeOf,
  storeOf,
  StoreOptions,
  withPlatform,
  withStoreOptions,
} from "./_store.ts";

const Options = z.strictObject({ target: z.string().optional(), ...PlatformOption, ...StoreOptions });
export type Options = z.infer<typeof Options>;

export const parse = (argv: string[]): Options =>
  parseWith(argv, Options, (command) =>
    withStoreOptions(withPlatform(
      command.name("images list")
        .description(
          "Lists our own images; with a target the images that its tasks start from, which tasks use each, and " +
            "whether it is there. Exit 1: some are not.",
        )
        .argument("[target]", "a task folder, or a folder of task folders"),
    )));

export async function run(options: Options, ctx: Context): Promise<number> {
  const store = storeOf(options, ctx);
  if (options.target !== undefined) return await listOf(options.target, options, store, ctx);
  const images = (await store.list()).map((image) => ({ image, used: usedAt(store, image.manifest.digest) }));
  if (options.json) {
    for (const { image, used } of images) {
      ctx.out(JSON.stringify({ ...imageJson(image), used_at: new Date(used).toISOString() }));
    }
  } else if (images.length > 0) {
    const now = ctx.clock.now().getTime();
    const rows = images.map(({ image, used }) => [...cells(image), ago(now - used)]);
    for (const line of columns([["IMAGE", "ID", "PLATFORM", "LAYERS", "SIZE", "USED"], ...rows])) ctx.out(line);
  }
  for (const { names, manifestDigest, reason } of await store.faults()) {
    ctx.note(`warning: ${names[0] ?? manifestDigest} cannot be used: ${reason}`);
  }
  if (!options.quiet) ctx.note(summary(images.map(({ image }) => image), store));
  return EXIT.ok;
}

const cells = (image: StoredImage): string[] => [
  shownName(image),
  hex(image.config.digest).slice(0, 12),
  image.platform,
  String(image.layers.length),
  bytesText(sizeOf(image)),
];

function summary(images: readonly StoredImage[], { folder }: LayoutStore): string {
  if (images.length === 0) return `no images in ${folder}`;
  const blobs = new Map(
    images.flatMap(({ manifest, config, layers }) =>
      [manifest, config, ...layers].map(({ digest, size }) => [digest, size] as const)
    ),
  );
  const bytes = [...blobs.values()].reduce((sum, size) => sum + size, 0);
  return `${images.length} image${images.length === 1 ? "" : "s"}, ${
    bytesText(bytes)
  } with shared layers once, in ${folder}`;
}

const ago = (ms: number): string => {
  const [size, unit] = ms < 7_200_000 ? [60_000, "min"] : ms < 172_800_000 ? [3_600_000, "h"] : [86_400_000, "d"];
  return `${Math.max(0, Math.floor(ms / (size as number)))} ${unit}`;
};

/** An image that tasks start from. */
interface Needed {
  reference: string;
  how: "image" | "base" | "service" | "build";
  tasks: string[];
}

async function listOf(named: string, options: Options, store: LayoutStore, ctx: Context): Promise<number> {
  const platform = platformOf(options.platform, ctx.env);
  const dataset = openDataset(resolveTarget(named, ctx.cwd));
  const tasks: Task[] = [];
  const leftOut: Record<string, string> = {};
  for (const { id, task, errors } of dataset.tasks()) {
    if (task === null) leftOut[id] = errors[0]!.message;
    else tasks.push(task);
  }
  const compose = composeReader({ hostEnv: ctx.env, overlays: [], platform });
  const { planned, refused } = planTasks(tasks, { force: false }, compose);
  const needed = neededBy(planned);
  const rows: string[][] = [];
  let missing = 0;
  for (const one of needed) {
    const image = await store.find(one.reference, platform);
    if (image === undefined) missing++;
    if (options.json) {
      ctx.out(
        JSON.stringify({ ...one, in_store: image !== undefined, image: image === undefined ? null : imageJson(image) }),
      );
    }
    const size = image === undefined ? "not here" : bytesText(sizeOf(image));
    rows.push([one.reference, one.how, size, String(one.tasks.length), someOf(one.tasks)]);
  }
  if (!options.json && rows.length > 0) {
    for (const line of columns([["IMAGE", "AS", "SIZE", "TASKS", ""], ...rows])) ctx.out(line);
  }
  const unknown = Object.entries({ ...leftOut, ...refused });
  for (const [id, reason] of unknown) ctx.note(`warning: the images of ${id} are not known: ${reason}`);
  if (!options.quiet) {
    ctx.note(`${needed.length} images of ${tasks.length} tasks, ${missing} of them not in ${store.folder}`);
  }
  return missing === 0 && unknown.length === 0 ? EXIT.ok : EXIT.no;
}

/** By reference, in the order of the tasks. Pure. */
export function neededBy(planned: readonly { task: { id: string }; images: readonly TaskImage[] }[]): Needed[] {
  const needed = new Map<string, Needed>();
  for (const { task, images } of planned) {
    for (const { origin } of images) {
      if (origin.kind === "none") continue;
      const reference = origin.kind === "build" ? origin.build.name : origin.reference;
      const how = origin.kind === "prebuilt" ? "image" : origin.kind;
      const known = needed.get(reference) ?? { reference, how, tasks: [] };
      if (!known.tasks.includes(task.id)) known.tasks.push(task.id);
      needed.set(reference, known);
    }
  }
  return [...needed.values()];
}

const SHOWN_TASKS = 3;

const someOf = (tasks: readonly string[]): string =>
  tasks.slice(0, SHOWN_TASKS).join(", ") + (tasks.length > SHOWN_TASKS ? ", …" : "");
