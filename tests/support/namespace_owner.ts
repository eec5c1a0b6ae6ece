/** Opens two sandboxes and a public group on layers, prints the pids of their first processes and waits to be killed. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { newRunId, thisOwner } from "../../lib/sandbox/owner.ts";
import { folderProvider, needOf } from "./layers.ts";

const [scratch, tree] = process.argv.slice(-2) as [string, string];
const signal = AbortSignal.timeout(120_000);
const deps = { runner: systemRunner(), clock: systemClock, env: process.env, emit: () => {}, scratch, options: {} };
const provider = folderProvider(deps, [{ name: "base", trees: [tree] }]);
const image = await provider.prepare(needOf("base"), signal, () => {});
const spec = {
  image,
  owner: thisOwner(newRunId()),
  role: "agent" as const,
  env: {},
  workdir: undefined,
  user: undefined,
  limits: {},
  ttlMs: 600_000,
  readyTimeoutMs: 60_000,
};
for (const network of ["public", "no-network"] as const) {
  const box = await provider.open({ ...spec, episode: network, network }, signal);
  await box.spawn({ run: { script: "trap '' TERM; sleep 600" }, purpose: "agent" });
}
const member = {
  aliases: [],
  mounts: [],
  extraHosts: {},
  capAdd: [],
  capDrop: [],
  noNewPrivileges: false,
  ulimits: {},
};
const members = ["main", "db"].map((service) => ({ service, aliases: [] }));
const group = await provider.openGroup(
  { owner: spec.owner, episode: "g", network: "public", members, volumes: [] },
  signal,
);
await group.startService({
  ...member,
  service: "db",
  image,
  argv: ["sleep", "600"],
  env: {},
  limits: {},
  ttlMs: 600_000,
}, signal);
await group.openMain({ ...spec, episode: "g", network: "public" }, { ...member, service: "main" }, signal);
const [folder] = readdirSync(scratch);
const boxes = join(scratch, folder!, "boxes");
const pids = readdirSync(boxes).map((name) =>
  JSON.parse(readFileSync(join(boxes, name, "sandbox.json"), "utf8")).init.pid
);
console.log(pids.join(" "));
await systemClock.sleep(600_000);
