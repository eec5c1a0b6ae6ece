/** What a command knows about images: how they are built, our own store, the registries, and whether to ask them. */
import type { Context } from "../lib/context.ts";
import type { Emit } from "../lib/events.ts";
import { type BuildOptions, buildOptions, platformOfOptions } from "../lib/images/options.ts";
import { openRegistry } from "../lib/registry/mod.ts";
import type { Registry } from "../lib/registry/registry.ts";
import type { RegistrySettings } from "../lib/registry/settings.ts";
import { storeFolder } from "../lib/store/folder.ts";
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
  store: ImageStore;
  /** --unpack-dir. */
  unpackDir: string | undefined;
}

/** Asks nothing and makes nothing. Throws HarborError "usage" for a setting that cannot be. */
export function imageSetup(
  options: ImageOptions & { verbose: boolean },
  overrides: Pick<Overrides, "builds" | "registries">,
  { env, runner, clock, note }: Context,
  emit: Emit,
): ImageSetup {
  const builds = buildOptions(overrides.builds, env);
  const offline = isOffline(options, env);
  const { registries } = overrides;
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
    store: openStore(storeFolder(env, options.imageStore), { clock }),
    unpackDir: options.unpackDir,
  };
}
