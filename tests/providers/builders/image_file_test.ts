import assert from "node:assert/strict";
import { test } from "node:test";
import { stagesOf } from "../../../lib/task/dockerfile_stages.ts";
import type { ImageConfig } from "../../../lib/images/config.ts";
import { BuildContext } from "../../../providers/_build_context.ts";
import { planStage } from "../../../providers/_build_plan.ts";
import { configWith, imageFile } from "../../../providers/builders/_image_file.ts";

const settingsOf = (lines: string, base: ImageConfig = {}) => {
  const { stages, escape } = stagesOf(`FROM b\n${lines}\n`);
  return planStage({
    taskId: "t",
    on: "here",
    stage: stages[0]!,
    escape,
    context: new BuildContext("/nowhere"),
    base: { workdir: base.WorkingDir || "/", user: base.User ?? "", env: {} },
    stages: true,
  }).settings;
};
const BASE: ImageConfig = {
  Env: ["PATH=/bin", "A=1"],
  Entrypoint: ["/entry"],
  Cmd: ["serve"],
  WorkingDir: "/srv",
  User: "app",
  Labels: { from: "base" },
};

const ROWS: [what: string, lines: string, wanted: Partial<ImageConfig>][] = [
  ["nothing keeps all", "", BASE],
  ["ENV replaces and adds in place", "ENV A=2 B=3", { Env: ["PATH=/bin", "A=2", "B=3"] }],
  ["an ENTRYPOINT takes the base's CMD away", 'ENTRYPOINT ["/mine"]', { Entrypoint: ["/mine"], Cmd: [] }],
  ["a CMD beside it stays, before or after", 'CMD ["x"]\nENTRYPOINT ["/mine"]', { Entrypoint: ["/mine"], Cmd: ["x"] }],
  ["shell form goes through SHELL", 'SHELL ["/bin/bash", "-c"]\nCMD echo hi', { Cmd: ["/bin/bash", "-c", "echo hi"] }],
  ["WORKDIR is relative to the base's", "WORKDIR app", { WorkingDir: "/srv/app" }],
  ["LABEL adds", 'LABEL a="b c"', { Labels: { from: "base", a: "b c" } }],
  ["EXPOSE and VOLUME are tables", "EXPOSE 80\nVOLUME /data", {
    ExposedPorts: { "80/tcp": {} },
    Volumes: { "/data": {} },
  }],
  [
    "HEALTHCHECK in nanoseconds",
    'HEALTHCHECK --interval=1m30s --timeout=500ms --retries=2 CMD ["check"]',
    { Healthcheck: { Test: ["CMD", "check"], Interval: 90e9, Timeout: 5e8, Retries: 2 } },
  ],
  ["HEALTHCHECK NONE", "HEALTHCHECK NONE", { Healthcheck: { Test: ["NONE"] } }],
  ["USER and STOPSIGNAL", "USER 1000:1000\nSTOPSIGNAL SIGINT", { User: "1000:1000", StopSignal: "SIGINT" }],
];
for (const [what, lines, wanted] of ROWS) {
  test(`configWith(): ${what}`, () => {
    const made = configWith(BASE, settingsOf(lines, BASE));
    for (const [key, value] of Object.entries(wanted)) assert.deepEqual(made[key], value, key);
  });
}

test("imageFile() lists the base's layers below the new ones, and one line of history for each", () => {
  const base = {
    os: "linux",
    architecture: "amd64",
    rootfs: { diff_ids: ["sha256:a"] },
    history: [{ created_by: "b" }],
  };
  const request = { base, config: {}, platform: "linux/x86_64", created: "2020-01-01T00:00:00Z", by: "us" };
  const made = imageFile({ ...request, diffIds: ["sha256:b", "sha256:c"] });
  assert.deepEqual(made.rootfs, { type: "layers", diff_ids: ["sha256:a", "sha256:b", "sha256:c"] });
  assert.equal((made.history as unknown[]).length, 3);
  const same = imageFile({ ...request, diffIds: [] });
  assert.equal((same.history as { empty_layer?: boolean }[])[1]!.empty_layer, true);
  assert.equal(made.architecture, "amd64");
});
