import { test } from "node:test";
import assert from "node:assert/strict";
import { offlineRefusal, takeUpImages } from "../../../lib/episode/images.ts";
import { HarborError } from "../../../lib/errors.ts";
import type { Event } from "../../../lib/events.ts";
import type { Prepared, PreparedStart } from "../../../lib/images/prepare.ts";
import { systemClock as clock } from "../../../lib/runtime/clock.ts";
import { FakeProvider } from "../../support/fake_provider.ts";
import { plainTask } from "../../support/loaded_task.ts";
import { TempFolder } from "../../support/tasks.ts";

const start = (reference: string): PreparedStart => ({
  need: () => ({
    taskId: reference,
    source: { kind: "named", reference },
    network: "public",
    limits: {},
    users: [],
  }),
  finish: (image) => ({ ...image, notes: [...image.notes, "finished"] }),
  reference,
  names: [reference],
});

async function takeUp(
  roles: Record<string, PreparedStart>,
  more: Partial<Prepared> = {},
  provider = new FakeProvider(),
) {
  using folder = new TempFolder("images");
  const task = plainTask(folder.path, "t");
  const events: Event[] = [];
  const prepared: Prepared = {
    images: new Map([["t", new Map(Object.entries(roles))]]),
    compose: new Map(),
    refused: {},
    failures: [],
    done: [],
    ...more,
  };
  const emit = (event: Event) => void events.push(event);
  const images = await takeUpImages([task], prepared, provider, 2, { clock, emit }, new AbortController().signal);
  return { images, task, events, provider };
}

test("the agent's side is taken up and finished; a verifier's image waits for its time", async () => {
  const { images, task, provider } = await takeUp({
    main: start("main:1"),
    "service:db": start("db:1"),
    verifier: start("v:1"),
  });
  assert.deepEqual(images.references, ["db:1", "main:1"]);
  assert.deepEqual(images.of(task, "service:db").notes, ["finished"]);
  assert.deepEqual(provider.prepared.map(({ taskId }) => taskId), ["main:1", "db:1"]);
});

test("an image that this machine holds under another name is told by both", async () => {
  const carried = start("main:1");
  const alias = "localhost/gym-harbor/main:0123456789abcdef";
  const { images } = await takeUp({
    main: { ...carried, finish: (image) => ({ ...image, alias }) },
    "service:db": start("db:1"),
  });
  assert.deepEqual(images.aliases, { "main:1": alias });
});

test("a service whose image cannot be had fails the whole task, and is missing by its name", async () => {
  const absent = new HarborError("image.failed", "Image db:1 is nowhere", { details: { missing: "db:1" } });
  const { images, task } = await takeUp({ main: start("main:1"), "service:db": absent });
  assert.throws(() => images.of(task), absent);
  assert.deepEqual([images.missing, images.refused], [{ "db:1": "Image db:1 is nowhere" }, {}]);
});

test("what the sandbox cannot do leaves the task out; a failed build is told for skipped.json", async () => {
  const never = new HarborError("task.unsupported", "no GPU here");
  assert.deepEqual((await takeUp({ main: never })).images.refused, { t: "no GPU here" });
  const error = new HarborError("image.failed", "image build failed (exit 1)");
  const failures = [{ kind: "build" as const, name: "hb__1", tasks: ["t"], error }];
  assert.deepEqual((await takeUp({ main: error }, { failures })).images.unbuilt, { t: error.message });
});

test("the offline refusal counts and names every image, in order", () => {
  const { code, message } = offlineRefusal({ "z:1": "gone", "a:1": "gone" });
  assert.deepEqual([code, message], [
    "image.missing",
    "Offline: 2 image(s) are missing: a:1, z:1; run gym-harbor bundle import",
  ]);
});
