import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import process from "node:process";
import { shimFiles } from "../../../lib/verifier/python.ts";

function pythonMissing(): string | false {
  try {
    execFileSync("python3", ["-c", "pass"]);
    return false;
  } catch {
    return "no python3 on this machine";
  }
}

/** Lays the shim out in a folder and runs the runner as the shim would. */
function grade(source: string, facts: { response?: unknown; taskData?: Record<string, unknown> } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "gh-python-"));
  try {
    const files = shimFiles({
      source,
      path: "verifier.py",
      taskData: facts.taskData ?? {},
      response: facts.response ?? null,
    }, folder);
    for (const [path, { data }] of Object.entries(files)) {
      mkdirSync(dirname(join(folder, path)), { recursive: true });
      writeFileSync(join(folder, path), data);
    }
    const run = spawnSync("python3", [
      "-B",
      join(folder, ".ng/run_verifier.py"),
      "--verifier",
      join(folder, "verifier.py"),
      "--workspace",
      "/ws",
    ], {
      env: { PATH: process.env.PATH, GYM_VERIFIER_LOGS: join(folder, "logs") },
      encoding: "utf8",
    });
    const read = (name: string) => {
      try {
        return readFileSync(join(folder, "logs", name), "utf8").trim();
      } catch {
        return null;
      }
    };
    return { code: run.status, text: read("reward.txt"), json: read("reward.json"), stderr: run.stderr };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const response = {
  output: [{ type: "message", role: "assistant", content: [{ type: "output_text", text: "It is 42." }] }],
};
const scored: [string, string, { text?: string; json?: string }][] = [
  ["a number", "def verify():\n    return 0.5\n", { text: "0.5" }],
  ["an async verify", "async def verify(workspace):\n    return 1 if str(workspace) == '/ws' else 0\n", { text: "1" }],
  ["a dict of metrics", "def verify(state):\n    return {'reward': 1, 'steps': 3.5}\n", {
    json: '{"reward": 1, "steps": 3.5}',
  }],
  ["arguments by position", "def verify(workspace, /):\n    return len(workspace.parts)\n", { text: "2" }],
  [
    "task fields without reserved ones",
    "def verify(task_data):\n    return {'reward': task_data['n'], 'keys': len(task_data)}\n",
    {
      json: '{"reward": 7, "keys": 1}',
    },
  ],
  [
    "the helper package and the response",
    "from nemo_gym.verifiers import last_number, response_text\ndef verify(response):\n    return last_number(response_text(response))\n",
    {
      text: "42.0",
    },
  ],
];
for (const [what, source, wanted] of scored) {
  test(`a Python verifier may use ${what}`, { skip: pythonMissing() }, () => {
    const graded = grade(source, { response, taskData: { n: 7, _ng_digest: "x" } });
    assert.deepEqual({ text: graded.text, json: graded.json }, { text: null, json: null, ...wanted }, graded.stderr);
  });
}

const refused: [string, string, RegExp][] = [
  ["raises", "def verify():\n    raise ValueError('no such file')\n", /Traceback[^]*ValueError: no such file/],
  ["returns text", "def verify():\n    return 'x'\n", /not a finite number/],
  [
    "requires a response where there is none",
    "def verify(response):\n    return 1\n",
    /requires response, and there is none/,
  ],
  ["asks for an unknown argument", "def verify(answer):\n    return 1\n", /asks for 'answer'/],
  [
    "imports a helper that is not there",
    "from nemo_gym.verifiers import judge\ndef verify():\n    return 1\n",
    /judge/,
  ],
  ["defines no verify", "x = 1\n", /defines no function verify/],
];
for (const [what, source, message] of refused) {
  test(`a Python verifier that ${what} writes no reward`, { skip: pythonMissing() }, () => {
    const graded = grade(source);
    assert.notEqual(graded.code, 0);
    assert.deepEqual([graded.text, graded.json], [null, null]);
    assert.match(graded.stderr, message);
  });
}

test("the shim names the versions it found when no Python is new enough, and exits 127", () => {
  const folder = mkdtempSync(join(tmpdir(), "gh-python-"));
  try {
    const { data } = shimFiles({ source: "", path: "verifier.py", taskData: {}, response: null }, "/ws")["test.sh"]!;
    writeFileSync(join(folder, "test.sh"), String(data).replaceAll(/ \/usr\S*python3/g, ""));
    const shim = () => spawnSync("/bin/sh", [join(folder, "test.sh")], { env: { PATH: folder }, encoding: "utf8" });
    const none = shim();
    assert.deepEqual([none.status, none.stderr], [
      127,
      "verifier.py needs Python 3.8 or newer; the image has no python3\n",
    ]);
    writeFileSync(join(folder, "python3"), "#!/bin/sh\necho 3.6\nexit 1\n", { mode: 0o755 });
    const old = shim();
    assert.deepEqual([old.status, old.stderr], [127, "verifier.py needs Python 3.8 or newer; the image has 3.6\n"]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
