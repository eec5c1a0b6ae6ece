import { test } from "node:test";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";
import process from "node:process";
import { selfArgv } from "../../../lib/runtime/self.ts";

const program = join(import.meta.dirname!, "..", "..", "support", "interruptible.ts");

/** Starts the program, sends each signal after the output that announces the state it is meant for. */
async function signalled(
  args: string[],
  steps: [after: string, signal: NodeJS.Signals][],
  shell = 'exec "$@"',
): Promise<{ code: number | null; signal: string | null; out: string; err: string }> {
  const argv = [...selfArgv([]).slice(0, -1), program, ...args];
  const child = spawn("sh", ["-c", shell, "sh", ...argv], { stdio: ["ignore", "pipe", "pipe"] });
  const said = { out: "", err: "" };
  child.stdout.on("data", (chunk) => {
    said.out += chunk;
    while (steps.length > 0 && said.out.includes(steps[0]![0])) process.kill(child.pid!, steps.shift()![1]); // child.kill() hides the exit code in Deno 2.9.6;
  });
  child.stderr.on("data", (chunk) => void (said.err += chunk));
  const killer = setTimeout(() => process.kill(child.pid!, "SIGKILL"), 30_000);
  const [code, signal] = await new Promise<[number | null, string | null]>((done) =>
    child.once("close", (code, signal) => done([code, signal]))
  );
  clearTimeout(killer);
  return { code, signal, ...said };
}

for (const [signal, exit] of [["SIGINT", 130], ["SIGTERM", 143], ["SIGHUP", 129]] as const) {
  test(`the first ${signal} aborts the work, which ends in order with exit ${exit}`, async () => {
    const { code, out } = await signalled([], [["ready", signal]]);
    assert.equal(out, `ready\naborted: interrupted by ${signal}\n`);
    assert.equal(code, exit);
  });
}

test("the second signal undoes what registered itself and leaves with the exit code of the first", async () => {
  const { code, out } = await signalled(["linger"], [["ready", "SIGINT"], ["aborted", "SIGTERM"]]);
  assert.equal(out, "ready\naborted: interrupted by SIGINT\nundone\n");
  assert.equal(code, 130);
});

for (const [how, says] of [["throw", /^bug: SyntaxError/], ["reject", /^bug: Error: nobody waits for this/]] as const) {
  test(`an error that nobody caught (${how}) undoes what registered itself and exits 1`, async () => {
    const { code, out, err } = await signalled([how], []);
    assert.equal(out.replace("ready\n", ""), "undone\n");
    assert.match(err, says);
    assert.equal(code, 1);
  });
}

test("SIGHUP stays ignored under nohup", async () => {
  const { code, out } = await signalled([], [["ready", "SIGHUP"], ["ready", "SIGTERM"]], `trap '' HUP; exec "$@"`);
  assert.equal(out, "ready\naborted: interrupted by SIGTERM\n");
  assert.equal(code, 143);
});

test("notes show control characters instead of sending them", async () => {
  const { err } = await signalled([], [["ready", "SIGINT"]]);
  assert.equal(err, "\\x1b]0;title\\x07\n");
});
