import assert from "node:assert/strict";
import { test } from "node:test";
import { composeImages } from "../../../lib/images/compose.ts";
import type { Origin } from "../../../lib/images/plan.ts";
import type { Task } from "../../../lib/task/task.ts";
import { planCase } from "../../support/compose.ts";

const HASH = "0123456789abcdef0123456789abcdef";

function origins(
  file: string,
  dockerfile: string,
  environment: Partial<Task["environment"]> = {},
): Record<string, Origin> {
  const task = {
    id: "t",
    folder: "/task",
    contextHash: HASH,
    environment: { build_timeout_sec: 600, env: {}, ...environment },
    image: { mode: "compose", uploads: false },
  } as unknown as Task;
  const plan = planCase({ file, environment, files: { "environment/api/Dockerfile": "FROM debian:12\n" } });
  const options = {
    force: false,
    read: (
      path: string,
    ) => (path === "/task/environment/Dockerfile"
      ? dockerfile
      : path.endsWith("/api/Dockerfile")
      ? "FROM debian:12\n"
      : undefined),
    hash: () => HASH,
  };
  return Object.fromEntries(composeImages(task, plan, options).map(({ role, origin }) => [role, origin]));
}

test("composeImages() plans main as any task's image, a sidecar by name or as a build of its own", () => {
  const found = origins(
    "services: {main: {}, db: {image: 'postgres:16'}, api: {build: {context: ./api, target: run}}, twin: {build: ./api, image: x}, third: {image: x}}",
    "FROM debian:12\nRUN true\n",
  );
  assert.equal(found.main!.kind, "base");
  assert.deepEqual(found["service:db"], { kind: "service", reference: "postgres:16" });
  const api = found["service:api"]!;
  assert.ok(api.kind === "build");
  assert.deepEqual([api.build.name, api.build.target, api.build.service], [`hb__${HASH}__api`, "run", "api"]);
  const [twin, third] = [found["service:twin"]!, found["service:third"]!];
  assert.ok(twin.kind === "build" && third.kind === "build");
  assert.equal(third.build.name, twin.build.name, "an image that another service builds is built once");
});

test("composeImages() builds RUN lines of an image that a sidecar starts as well, and only then", () => {
  const shared = "services: {main: {}, twin: {image: '${MAIN_IMAGE_NAME}'}}";
  const rows: [file: string, dockerfile: string, wanted: string][] = [
    [shared, "FROM debian:12\nRUN true\n", "build"],
    [shared, "FROM debian:12\nENV A=1\n", "base"],
    [shared, "FROM debian:12\nCOPY a b\n", "build"],
    ["services: {main: {}, other: {image: 'debian:12'}}", "FROM debian:12\nRUN true\n", "base"],
  ];
  for (const [file, dockerfile, wanted] of rows) {
    const { main, "service:twin": twin } = origins(file, dockerfile);
    assert.equal(main!.kind, wanted, dockerfile);
    if (twin !== undefined) assert.deepEqual(twin, main, "both start one image");
    if (main?.kind === "build") assert.equal(main.build.forced, false);
  }
});
