/**
 * A Runner that follows a script: replies in order, and both an unscripted call and an unused reply fail the test.
 * For decisions about programs; what a real engine does is for tests/live/.
 */
import assert from "node:assert/strict";
import type { Runner, RunOptions, RunResult } from "../../lib/runtime/runner.ts";

export interface Call {
  argv: string[];
  options: RunOptions;
}

export class FakeRunner implements Runner, Disposable {
  readonly calls: Call[] = [];
  #script: { argv: RegExp; reply: Partial<RunResult> | Error }[] = [];

  /** The next call must match; it gets this reply (by default: exit 0, no output), or this error is thrown. */
  expect(argv: RegExp, reply: Partial<RunResult> | Error = {}): this {
    this.#script.push({ argv, reply });
    return this;
  }

  // deno-lint-ignore require-await -- a Runner answers with a promise, also when it throws
  async run(argv: readonly string[], options: RunOptions = {}): Promise<RunResult> {
    this.calls.push({ argv: [...argv], options });
    const next = this.#script.shift();
    assert.ok(next !== undefined, `an unscripted call: ${argv.join(" ")}`);
    assert.match(argv.join(" "), next.argv);
    if (next.reply instanceof Error) throw next.reply;
    return { ended: "exit", exitCode: 0, stdout: "", stderr: "", droppedBytes: 0, ...next.reply };
  }

  start(argv: readonly string[]): never {
    throw new Error(`FakeRunner starts nothing: ${argv.join(" ")}`);
  }

  [Symbol.dispose](): void {
    assert.deepEqual(this.#script.map(({ argv }) => String(argv)), [], "replies that nobody asked for");
  }
}
