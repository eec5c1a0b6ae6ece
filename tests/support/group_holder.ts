/**
 * A process that holds groups, for tests of what happens between processes: `group_holder.ts ENGINE RUN SCRATCH COUNT`
 * opens COUNT groups at once, each with a sidecar, says so on stdout, and ends them when its stdin ends.
 */
import process from "node:process";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { thisOwner } from "../../lib/sandbox/owner.ts";
import { dockerProvider } from "../../providers/docker.ts";
import { podmanProvider } from "../../providers/podman.ts";
import { namedNeed } from "./engines.ts";

const [engine, run, scratch, count] = process.argv.slice(2) as [string, string, string, string];
const signal = AbortSignal.timeout(120_000);
const provider = (engine === "docker" ? dockerProvider : podmanProvider)({
  runner: systemRunner(),
  clock: systemClock,
  env: process.env,
  emit: () => {},
  scratch,
  options: {},
});
const image = await provider.prepare(namedNeed("gym-base:busybox"), signal, () => {});
const groups = await Promise.all(Array.from({ length: Number(count) }, async (_, index) => {
  const group = await provider.openGroup!({
    owner: thisOwner(run),
    episode: `held-${index}`,
    network: "public",
    volumes: ["data"],
    members: [{ service: "db", aliases: [] }],
  }, signal);
  await group.startService({
    service: "db",
    aliases: [],
    mounts: [],
    extraHosts: {},
    capAdd: [],
    capDrop: [],
    noNewPrivileges: false,
    ulimits: {},
    image,
    argv: ["/bin/sleep", "600"],
    env: {},
    limits: {},
    ttlMs: 600_000,
  }, signal);
  return group;
}));
console.log("open");
for await (const _ of process.stdin);
for (const group of groups) await group[Symbol.asyncDispose]();
