/** `unpack_trees.ts STORE NAME UNPACK_DIR MAP`: prints the folders of an image's layers; a process of its own, to be killed. */
import process from "node:process";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { layerTrees } from "../../lib/unpack/trees.ts";
import { never, testStore } from "./images.ts";

const [folder, name, unpackDir, map] = process.argv.slice(2) as [string, string, string, string];
const store = testStore(folder, true);
const image = (await store.find(name, "linux/amd64"))!;
const deps = { unpackDir, clock: systemClock, runner: systemRunner() };
process.stdout.write(JSON.stringify((await layerTrees(image, store, map, deps, never)).folders));
