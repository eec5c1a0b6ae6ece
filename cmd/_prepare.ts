/** What prepare asks of a command: where configurations are read, who builds, what is written where. */
import type { Context } from "../lib/context.ts";
import type { StartOf } from "../lib/episode/images.ts";
import type { Emit } from "../lib/events.ts";
import { imageNeedOf } from "../lib/images/plan.ts";
import { prepareTasks } from "../lib/images/prepare.ts";
import type { SandboxProvider } from "../lib/sandbox/provider.ts";
import type { Task } from "../lib/task/task.ts";

/** `host` applies a Dockerfile to this machine's own root and needs no image. */
export async function prepareFor(
  provider: SandboxProvider,
  tasks: readonly Task[],
  ctx: Context,
  emit: Emit,
  signal: AbortSignal,
): Promise<StartOf> {
  if (provider.name === "host") return (task) => ({ need: imageNeedOf(task), finish: (image) => image });
  const local = provider.local?.bind(provider);
  const { starts } = await prepareTasks(tasks, {
    platform: "linux/amd64",
    clock: ctx.clock,
    emit,
    ...(local !== undefined && { local }),
    async fetch(reference, asking) {
      const need = {
        taskId: reference,
        source: { kind: "named", reference },
        network: "public",
        limits: {},
        users: [],
      };
      await provider.prepare(need as Parameters<typeof provider.prepare>[0], asking, emit);
      return await local?.(reference, asking);
    },
  }, signal);
  return (task) => starts.get(task.id)!;
}
