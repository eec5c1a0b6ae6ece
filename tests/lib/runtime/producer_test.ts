import assert from "node:assert/strict";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { Producer } from "../../../lib/runtime/producer.ts";
import { systemRunner } from "../../../lib/runtime/runner.ts";

const sh = (script: string, signal = new AbortController().signal) =>
  Producer.start(systemRunner(), ["sh", "-c", script], signal);

test("a producer hands on its output and keeps its last words, letters that came in pieces included", async () => {
  using producer = await sh("echo data; printf 'caf\\303' >&2; sleep 0.05; printf '\\251' >&2; exit 3");
  assert.equal(await text(producer.stdout), "data\n");
  assert.equal((await producer.ended).exitCode, 3);
  assert.equal(producer.said, "café");
});

test("a producer ends with its reader, and with the signal", async () => {
  const left = await sh("exec sleep 60");
  left[Symbol.dispose]();
  assert.equal((await left.ended).signal, "SIGKILL");
  const abort = new AbortController();
  using cancelled = await sh("exec sleep 60", abort.signal);
  abort.abort();
  assert.equal((await cancelled.ended).signal, "SIGKILL");
});
