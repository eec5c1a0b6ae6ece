/** Opens two sandboxes, prints the pids of their first processes and waits to be killed. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { newRunId, thisOwner } from "../../lib/sandbox/owner.ts";
import { HostProvider } from "../../providers/host.ts";

const scratch = process.argv.at(-1)!;
const signal = AbortSignal.timeout(120_000);
const provider = new HostProvider({
  runner: systemRunner(),
  clock: systemClock,
  env: process.env,
  emit: () => {},
  scratch,
  options: {},
});
for (const network of ["public", "no-network"] as const) {
  const need = { taskId: "t", source: { kind: "none" as const }, network, limits: {}, users: [] };
  const box = await provider.open({
    image: await provider.prepare(need, signal, () => {}),
    owner: thisOwner(newRunId()),
    episode: network,
    role: "agent",
    env: {},
    workdir: undefined,
    user: undefined,
    network,
    limits: {},
    ttlMs: 600_000,
    readyTimeoutMs: 60_000,
  }, signal);
  await box.spawn({ run: { script: "trap '' TERM; sleep 600" }, purpose: "agent" });
}
const [folder] = readdirSync(scratch);
const boxes = join(scratch, folder!, "boxes");
console.log(
  readdirSync(boxes).map((name) => JSON.parse(readFileSync(join(boxes, name, "sandbox.json"), "utf8")).init.pid).join(
    " ",
  ),
);
await systemClock.sleep(600_000);
