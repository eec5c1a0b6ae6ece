import { test } from "node:test";
import assert from "node:assert/strict";
import { readCompose } from "../../../lib/compose/mod.ts";
import { HarborError } from "../../../lib/errors.ts";
import type { Event } from "../../../lib/events.ts";
import { buildOptions } from "../../../lib/images/options.ts";
import { imageName } from "../../../lib/images/plan.ts";
import { type PrepareDeps, prepareTasks } from "../../../lib/images/prepare.ts";
import { Records } from "../../../lib/images/record_files.ts";
import type { Start } from "../../../lib/images/start.ts";
import { systemClock as clock } from "../../../lib/runtime/clock.ts";
import type { LocalImage, PreparedImage } from "../../../lib/sandbox/provider.ts";
import { loadTask } from "../../../lib/task/load.ts";
import type { Task } from "../../../lib/task/task.ts";
import { FakeBuilder } from "../../support/fake_builder.ts";
import { type Files, TempFolder, writeFiles } from "../../support/tasks.ts";

const never = new AbortController().signal;
const HASH = "0123456789abcdef0123456789abcdef";

/** Tasks of one dataset below `folder`, as the loader reads them. */
function tasksOf(folder: TempFolder, tasks: Record<string, Files>): Task[] {
  return Object.entries(tasks).map(([id, files]) => {
    writeFiles(folder.join(id), {
      "task.toml": "[environment]\n",
      "instruction.md": "do it\n",
      "tests/test.sh": "#!/bin/sh\n",
      ...files,
    });
    const { task, errors } = loadTask(folder.join(id));
    assert.ok(task !== null, JSON.stringify(errors));
    return task;
  });
}

/** A machine that has `debian:12` and `db:1`, a builder that can all, and nothing else. */
function depsOf(folder: TempFolder, options: object = {}, builder = new FakeBuilder()) {
  const events: Event[] = [];
  const asked: string[] = [];
  const emit = (event: Event) => void events.push(event);
  const deps: PrepareDeps = {
    clock,
    emit,
    options: buildOptions({ ...options }, {}),
    mayBuild: true,
    records: new Records(folder.path, { clock, emit }),
    local(reference) {
      asked.push(reference);
      const known: LocalImage = {
        configDigest: `sha256:${"c".repeat(64)}`,
        repoDigests: [`docker.io/library/${reference.split(":")[0]}@sha256:${"d".repeat(64)}`],
        config: { Env: ["BASE=1"], WorkingDir: "/base", User: "base" },
        platform: "linux/amd64",
      };
      return Promise.resolve(["debian:12", "db:1"].includes(reference) ? known : undefined);
    },
    present: (reference) => builder.has(reference),
    builder: () => Promise.resolve(builder),
    lockPath: (hash) => folder.join(".locks", `build-${hash}.lock`),
    logFile: (name) => folder.join("builds", name),
    inlineFile: (name) => folder.join(`${name}.Dockerfile`),
    compose: (task) =>
      readCompose({
        task,
        taskImage: imageName(task.contextHash!),
        hostEnv: {},
        overlays: [],
        platform: "linux/amd64",
      }),
  };
  return Object.assign(deps, { events, asked, builderOf: builder });
}

const image: PreparedImage = { reference: "r", workdir: "/", env: {}, user: "", entrypoint: ["/e"], notes: [] };
const PIN = `library/debian@sha256:${"d".repeat(64)}`;

test("prepareTasks() gives every kind of image its start", async () => {
  using folder = new TempFolder("prepare");
  const tasks = tasksOf(folder, {
    prebuilt: { "task.toml": '[environment]\ndocker_image = "mine:1"\n' },
    pull: { "environment/Dockerfile": "FROM debian:12\nENV A=$BASE\nWORKDIR app\nUSER me\nENTRYPOINT []\n" },
    overlay: { "environment/Dockerfile": "FROM debian:12\nRUN one\nENV A=2\nRUN two\n" },
    build: { "environment/Dockerfile": "FROM debian:12\nCOPY . /x\n" },
    none: {},
  });
  const deps = depsOf(folder);
  const { images, refused, failures, done } = await prepareTasks(tasks, deps, never);
  assert.deepEqual([refused, failures], [{}, []]);
  const start = (id: string) => images.get(id)!.get("main") as Start;
  const source = (id: string) => start(id).need().source as { kind: string; reference?: string; aliases?: string[] };

  assert.deepEqual(source("prebuilt"), { kind: "named", reference: "mine:1" });
  assert.deepEqual([source("pull").reference, source("pull").aliases], [PIN, ["debian:12"]]);
  const pull = start("pull").finish(image);
  assert.deepEqual(
    [pull.env.A, pull.declared, pull.workdir, pull.user, pull.entrypoint, pull.overlay],
    ["1", { A: "1" }, "/base/app", "me", [], undefined],
  );
  const overlay = start("overlay").finish(image);
  assert.deepEqual(overlay.overlay?.map(({ command, env }) => [command, env.A]), [["one", undefined], ["two", "2"]]);
  assert.deepEqual(overlay.entrypoint, ["/e"]);
  assert.match(source("build").reference!, /^hb__[0-9a-f]{32}$/);
  assert.deepEqual(source("none"), { kind: "none" });
  assert.deepEqual(deps.asked.filter((one) => one === "debian:12").length, 1, "one base is asked for once");
  assert.deepEqual(done.map(({ how, tasks: of }) => [how, of.length]).sort(), [["built", 1], ["prebuilt", 1], [
    "read",
    2,
  ]]);

  const again = depsOf(folder, {}, deps.builderOf);
  const second = await prepareTasks(tasks, again, never);
  assert.deepEqual(again.asked, [], "what is recorded is asked of nobody");
  assert.deepEqual(second.done.map(({ how }) => how).sort(), ["built before", "prebuilt", "recorded"]);
});

const beside: [string, string, object, string][] = [
  ["settings of a Dockerfile from that very image", "FROM debian:12\nENV A=1\n", {}, "base"],
  ["a Dockerfile from another image", "FROM other:1\nENV A=1\n", {}, "prebuilt"],
  ["a Dockerfile that runs something", "FROM debian:12\nRUN x\n", {}, "prebuilt"],
  ["a Dockerfile that needs a builder", "FROM debian:12\nCOPY a /a\n", {}, "prebuilt"],
  ["builds.force", "FROM debian:12\nENV A=1\n", { force: true }, "build"],
];
for (const [name, dockerfile, options, kind] of beside) {
  test(`E6: docker_image beside ${name}`, async () => {
    using folder = new TempFolder("prepare");
    const tasks = tasksOf(folder, {
      t: { "task.toml": '[environment]\ndocker_image = "debian:12"\n', "environment/Dockerfile": dockerfile },
    });
    const deps = depsOf(folder, options);
    const { images } = await prepareTasks(tasks, deps, never);
    const { source } = (images.get("t")!.get("main") as Start).need();
    const { reference } = source as { reference: string };
    const got = reference.startsWith("hb__") ? "build" : reference === PIN ? "base" : "prebuilt";
    assert.equal(got, kind);
    const entry = Object.values(deps.records.built)[0] as { forced_tasks: string[] } | undefined;
    assert.deepEqual(entry?.forced_tasks, kind === "build" ? ["t"] : undefined);
  });
}

test("RUN lines that fetch are built for a task without a network, and replayed for any other", async () => {
  using folder = new TempFolder("prepare");
  const off = '[environment]\nnetwork_mode = "no-network"\n';
  const tasks = tasksOf(folder, {
    fetches: {
      "task.toml": off,
      "environment/Dockerfile": "FROM debian:12\nRUN apt-get update && apt-get install -y jq\n",
    },
    quiet: { "task.toml": off, "environment/Dockerfile": "FROM debian:12\nRUN mkdir -p /app\n" },
    online: { "environment/Dockerfile": "FROM debian:12\nRUN apt-get install -y jq\n" },
  });
  const { images } = await prepareTasks(tasks, depsOf(folder), never);
  const isBuilt = (id: string) => (images.get(id)!.get("main") as Start).reference!.startsWith("hb__");
  assert.deepEqual(tasks.map(({ id }) => isBuilt(id)), [true, false, false]);
});

test("separate verifiers and Compose services have their images planned, built and recorded", async () => {
  using folder = new TempFolder("prepare");
  const tasks = tasksOf(folder, {
    separate: {
      "task.toml":
        '[environment]\ndocker_image = "mine:1"\n[verifier]\nenvironment_mode = "separate"\n[verifier.environment]\n',
      "tests/Dockerfile": "FROM debian:12\nCOPY test.sh /tests/\n",
    },
    compose: {
      "environment/Dockerfile": "FROM debian:12\nCOPY app /app\n",
      "environment/app": "x",
      "environment/docker-compose.yaml":
        "services:\n  main:\n    depends_on: [db, api]\n  db:\n    image: db:1\n  api:\n    build: .\n    command: [serve]\n",
    },
  });
  const deps = depsOf(folder);
  const { images, refused, compose } = await prepareTasks(tasks, deps, never);
  assert.deepEqual(refused, {});
  const roles = (id: string) =>
    Object.fromEntries(Array.from(images.get(id)!, ([role, start]) => [role, (start as Start).reference]));
  const verifier = roles("separate").verifier!;
  assert.equal(roles("separate").main, "mine:1");
  assert.match(verifier, /^hb__/);
  assert.equal((deps.records.built[verifier.slice(4)] as { context: string }).context, "tests");
  const main = roles("compose").main!;
  assert.deepEqual(roles("compose"), {
    main,
    "service:db": `library/db@sha256:${"d".repeat(64)}`,
    "service:api": `${main}__api`,
  });
  assert.deepEqual((deps.records.built[main.slice(4)] as { services: unknown }).services, {
    main,
    api: `${main}__api`,
  });
  assert.deepEqual(compose.get("compose")!.services.map(({ name }) => name).sort(), ["api", "db", "main"]);
});

test("a Compose file that is refused leaves its task out with service and key, and the others go on", async () => {
  using folder = new TempFolder("prepare");
  const tasks = tasksOf(folder, {
    bad: {
      "environment/Dockerfile": "FROM debian:12\n",
      "environment/docker-compose.yaml": "services:\n  main: {}\n  db:\n    image: db:1\n    network_mode: host\n",
    },
    good: { "environment/Dockerfile": "FROM debian:12\n" },
  });
  const { images, refused } = await prepareTasks(tasks, depsOf(folder), never);
  assert.match(refused.bad!, /db.*network_mode/);
  assert.deepEqual([...images.keys()], ["good"]);
});

test("A13: a name that no image can have leaves out its own task alone, before anybody is asked", async () => {
  using folder = new TempFolder("prepare");
  const tasks = tasksOf(folder, {
    bad: { "task.toml": '[environment]\ndocker_image = "r.local/Bad:1"\n' },
    base: { "environment/Dockerfile": "FROM r.local/Bad:1\n" },
    good: { "environment/Dockerfile": "FROM debian:12\n" },
  });
  const { images, refused } = await prepareTasks(tasks, depsOf(folder), never);
  for (const id of ["bad", "base"]) assert.match(refused[id]!, /'r\.local\/Bad:1' is not an image reference: 'Bad'/);
  assert.deepEqual([...images.keys()], ["good"]);
});

test("a base that nobody has and a build that fails are their tasks' failures, by name", async () => {
  using folder = new TempFolder("prepare");
  const tasks = tasksOf(folder, {
    base: { "environment/Dockerfile": "FROM nowhere:1\nENV A=1\n" },
    build: { "environment/Dockerfile": "FROM debian:12\nCOPY . /x\n" },
    good: { "environment/Dockerfile": "FROM debian:12\n" },
  });
  const name = imageName(tasks[1]!.contextHash!);
  const failure = new HarborError("image.failed", "image build failed (exit 1)");
  const { images, failures } = await prepareTasks(
    tasks,
    depsOf(folder, {}, new FakeBuilder({ fails: { [name]: failure } })),
    never,
  );
  assert.deepEqual(failures.map(({ kind, name: what, tasks: of }) => [kind, what, of]), [
    ["build", name, ["build"]],
    ["configuration", "nowhere:1", ["base"]],
  ]);
  assert.match(
    (images.get("base")!.get("main") as HarborError).message,
    /^Could not record the configuration of base image nowhere:1: /,
  );
  assert.equal(images.get("build")!.get("main"), failure);
  assert.equal((images.get("good")!.get("main") as Start).reference, PIN);
});

test("5,000 tasks that share 40 contexts need 40 builds", async () => {
  using folder = new TempFolder("prepare");
  const base = tasksOf(folder, {
    t: { "environment/Dockerfile": "FROM debian:12\nCOPY a /a\n", "environment/a": "x" },
  })[0]!;
  const tasks = Array.from({ length: 5000 }, (_, index) => ({
    ...base,
    id: `t${index}`,
    contextHash: HASH.slice(0, 30) + String(index % 40).padStart(2, "0"),
  }));
  const deps = depsOf(folder);
  const { images } = await prepareTasks(tasks, deps, never);
  assert.deepEqual([deps.builderOf.requests.length, images.size], [40, 5000]);
});
