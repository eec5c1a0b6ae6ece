import { test } from "node:test";
import assert from "node:assert/strict";
import { HarborError } from "../../../lib/errors.ts";
import { lineText } from "../../../lib/episode/overlay.ts";
import { runEpisode } from "../../../lib/episode/run.ts";
import type { Command, OverlayLine } from "../../../lib/sandbox/provider.ts";
import { episodeDeps, planOf } from "../../support/episode.ts";
import { type Answer, FakeProvider, PASS } from "../../support/fake_provider.ts";
import { plainTask } from "../../support/loaded_task.ts";
import { TempFolder } from "../../support/tasks.ts";

const line = (command: string, more: Partial<OverlayLine> = {}): OverlayLine => ({
  command,
  line: 2,
  workdir: "/",
  env: { PATH: "/bin" },
  user: "",
  ...more,
});

test("lineText() has exactly the environment of its place, values quoted, later ones unset", () => {
  const text = lineText(
    line("echo $A > x", { env: { A: "it's $HOME", B: "" }, workdir: "/a b" }),
    ["A", "LATER", "odd.name"],
  );
  assert.equal(text, `unset LATER; export A='it'\\''s $HOME'; export B=''; cd '/a b' || exit 1; echo $A > x`);
});

const argvOf = ({ run }: Command): string => ("argv" in run ? run.argv.at(-1)! : run.script);

/** Runs an episode of a task with these lines; `answer` says how each command of ours ends. */
async function run(overlay: OverlayLine[], answer: (script: string) => Answer, more: { env?: object } = {}) {
  using folder = new TempFolder("overlay");
  const task = plainTask(folder.join("data"), "t", {
    environment: { build_timeout_sec: 600, os: "linux", env: { SECRET: "s" }, mcp_servers: [], ...more.env },
  });
  const provider = new FakeProvider({
    image: {
      reference: "base:1",
      ...(overlay.length > 0 && { overlay }),
      user: "app",
      workdir: "/home/app",
      declared: { LATER: "1" },
    },
    answers: { ...PASS, server: (command) => answer(argvOf(command)) },
  });
  const signal = new AbortController().signal;
  const outcome = await runEpisode(planOf(task), episodeDeps(provider, folder.path), signal);
  return { outcome, provider, scripts: provider.commands.filter(({ purpose }) => purpose === "server") };
}

test("RUN lines run in order as their users before the agent, which then finds the final folder and user", async () => {
  const { outcome, provider, scripts } = await run(
    [
      line("useradd -m app"),
      line("make", { user: "app", workdir: "/home/app" }),
      line("more", { user: "app", workdir: "/home/app" }),
    ],
    (script) => (script.includes("pwd -P") ? { stdout: "/home/app\n" } : {}),
  );
  assert.equal(outcome.kind, "result");
  assert.deepEqual(scripts.map((command) => [argvOf(command).split("; ").at(-1), command.user]), [
    ["useradd -m app", "root"],
    ["test -d /home/app || (mkdir -p /home/app && chown app /home/app)", "root"],
    ["make", "app"],
    ["more", "app"],
    ["test -d /home/app || (mkdir -p /home/app && chown app /home/app) && cd /home/app && pwd -P", "root"],
  ]);
  const [spec] = provider.specs;
  assert.deepEqual([spec!.workdir, spec!.user, spec!.env], ["/", "root", { LATER: "1", SECRET: "s" }]);
  assert.match(
    argvOf(scripts[0]!),
    /^unset LATER; unset SECRET; export PATH=/,
    "the task's own variables are not there yet",
  );
  const oracle = provider.commands.find(({ purpose }) => purpose === "oracle")!;
  assert.deepEqual([oracle.cwd, oracle.user], ["/home/app", "app"]);
});

test("a numeric USER is looked up once; one without a name is told by its number", async () => {
  const lines = [line("one", { user: "1000" }), line("two", { user: "1000" })];
  const named = await run(lines, (script) => (script.includes("getent") ? { stdout: "node\n" } : {}));
  assert.equal(named.scripts.filter((command) => argvOf(command).includes("getent passwd 1000")).length, 1);
  assert.deepEqual(named.scripts.filter(({ user }) => user === "node").length, 2);
  const { outcome } = await run(lines, () => ({}));
  assert.match(JSON.stringify(outcome.row), /USER 1000 names no user in base:1/);
});

const endings: [string, Answer, RegExp, { terminal: boolean }][] = [
  [
    "a line that fails",
    { exitCode: 100, stderr: "E: Unable to locate package x" },
    /Dockerfile overlay failed for 't': RUN line 2\/2 'bad' exited 100: E: Unable to locate package x/,
    { terminal: true },
  ],
  [
    "a line that never ends",
    { ended: "deadline" },
    /RUN line 2\/2 'bad' exceeded \[environment\]\.build_timeout_sec=600/,
    { terminal: true },
  ],
  [
    "a sandbox that fails",
    { throws: new HarborError("sandbox.failed", "engine says no") },
    /Dockerfile overlay failed for 't': RUN line 2\/2 'bad' could not run in the sandbox: provider_unavailable: engine says no/,
    { terminal: false },
  ],
];
for (const [name, answer, message, { terminal }] of endings) {
  test(`${name} is a ${terminal ? "terminal" : "retriable"} failure at seed, and no agent starts`, async () => {
    const { outcome, provider } = await run(
      [line("good"), line("bad")],
      (script) => (script.endsWith("; bad") ? answer : {}),
    );
    assert.equal(outcome.kind, "failure");
    const { row } = outcome as Extract<typeof outcome, { kind: "failure" }>;
    assert.match(row._ng_failure_message, message);
    assert.deepEqual([row._ng_failure_terminal, row._ng_failure_stage], [terminal, "seed"]);
    assert.equal(provider.commands.some(({ purpose }) => purpose === "oracle"), false);
  });
}

test("all lines share one budget, and the sandbox lives longer by it", async () => {
  const none = await run([], () => ({}), { env: { build_timeout_sec: 50 } });
  const { provider, scripts } = await run([line("one"), line("two")], () => ({}), { env: { build_timeout_sec: 50 } });
  const limits = scripts.slice(0, 2).map(({ deadlineMs }) => deadlineMs);
  assert.ok(limits[0]! <= 50_000 && limits[1]! <= limits[0]!, String(limits));
  assert.equal(provider.specs[0]!.ttlMs, none.provider.specs[0]!.ttlMs + 50_000);
});
