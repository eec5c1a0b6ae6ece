/** What a command knows about images: how they are built, our own store, the registries, and whether to ask them. */
import { join } from "node:path";
import type { BundlePlace } from "../lib/bundle/locate.ts";
import { PLACES } from "../lib/bundle/schema.ts";
import type { Context } from "../lib/context.ts";
import type { Emit } from "../lib/events.ts";
import { type BuildOptions, buildOptions, platformOfOptions } from "../lib/images/options.ts";
import { openRegistry } from "../lib/registry/mod.ts";
import type { Registry } from "../lib/registry/registry.ts";
import type { RegistrySettings } from "../lib/registry/settings.ts";
import { storeFolder } from "../lib/store/folder.ts";
import { LayeredStore } from "../lib/store/layered.ts";
import { openStore } from "../lib/store/layout.ts";
import type { ImageStore } from "../lib/store/store.ts";
import type { Overrides } from "./_overrides.ts";
import { type ImageOptions, isOffline } from "./_run_options.ts";

export interface ImageSetup {
  builds: BuildOptions;
  /** `os/arch`. */
  platform: string;
  offline: boolean;
  registries: RegistrySettings;
  /** Throws when asked for anything under --offline. */
  registry: Registry;
  /** What is here without an engine: our own store, below the images of a bundle that is run. */
  store: ImageStore;
  /** Our own store alone: an engine gets the images of a bundle by an import, which checks them. */
  ownStore: ImageStore;
  /** --unpack-dir. */
  unpackDir: string | undefined;
  /** The bundle that is run: its images come before those of our own store. */
  bundle: BundlePlace | undefined;
}

/** Asks nothing and makes nothing. Throws HarborError "usage" for a setting that cannot be. */
export function imageSetup(
  options: ImageOptions & { verbose: boolean },
  overrides: Pick<Overrides, "builds" | "registries">,
  { env, runner, clock, note }: Context,
  emit: Emit,
  bundle?: BundlePlace,
): ImageSetup {
  const carried = bundle && { platform: bundle.index.platform, force: bundle.index.baked };
  const builds = buildOptions({ ...carried, ...overrides.builds }, env);
  const offline = isOffline(options, env);
  const { registries } = overrides;
  const ownStore = openStore(storeFolder(env, options.imageStore), { clock });
  return {
    builds,
    platform: platformOfOptions(builds),
    offline,
    registries,
    registry: openRegistry({
      runner,
      clock,
      env,
      emit,
      settings: registries,
      offline,
      ...(options.verbose && { trace: note }),
    }),
    store: storeOf(ownStore, clock, bundle),
    ownStore,
    unpackDir: options.unpackDir,
    bundle,
  };
}

/** What a bundle carries is read where it lies, over our own. */
function storeOf(own: ImageStore, clock: Context["clock"], bundle: BundlePlace | undefined): ImageStore {
  if (bundle === undefined) return own;
  return new LayeredStore([openStore(join(bundle.folder, PLACES.images), { clock, readOnly: true })], own);
}
