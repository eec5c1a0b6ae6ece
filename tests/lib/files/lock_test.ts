import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import process from "node:process";
import { test } from "node:test";
import { HarborError } from "../../../lib/errors.ts";
import { lockFile, type LockOptions } from "../../../lib/files/lock.ts";
import { systemClock } from "../../../lib/runtime/clock.ts";
import { runtimeName } from "../../../lib/runtime/self.ts";
import { startTime } from "../../../lib/sandbox/owner.ts";
import { TempFolder } from "../../support/tasks.ts";

/** How this runtime starts a script. */
const RUN = runtimeName === "deno" ? ["run", "-A", "--quiet", "--no-check"] : [];

const soon: LockOptions = { clock: systemClock, waitMs: 2_000 };
const now: LockOptions = { clock: systemClock, waitMs: 0 };

const holder = (facts: Record<string, unknown>) =>
  JSON.stringify({ host: hostname(), pid: process.pid, start: startTime(process.pid), token: "theirs", ...facts });

test("lockFile() names its holder in the file and removes it when disposed of, twice without harm", async () => {
  using temp = new TempFolder();
  const path = temp.join("run.lock");
  const lock = await lockFile(path, now);
  const written = JSON.parse(readFileSync(path, "utf8"));
  assert.equal(written.host, hostname());
  assert.equal(written.pid, process.pid);
  assert.equal(written.start, startTime(process.pid));
  lock[Symbol.dispose]();
  lock[Symbol.dispose]();
  assert.deepEqual(readdirSync(temp.path), []);
});

test("lockFile() waits no longer than told and names who holds it", async () => {
  using temp = new TempFolder();
  const path = temp.join("run.lock");
  using _first = await lockFile(path, now);
  const waits: string[] = [];
  const started = performance.now();
  await assert.rejects(
    lockFile(path, { ...soon, waitMs: 200, onWait: (who) => waits.push(who) }),
    (error: HarborError) => {
      assert.equal(error.code, "store.locked");
      assert.match(error.message, new RegExp(`process ${process.pid} on `));
      return true;
    },
  );
  assert.ok(performance.now() - started >= 190);
  assert.deepEqual(waits, [`process ${process.pid} on ${hostname()}`]);
});

test("lockFile() gets the lock once its holder lets go", async () => {
  using temp = new TempFolder();
  const path = temp.join("run.lock");
  const first = await lockFile(path, now);
  const second = lockFile(path, soon);
  await systemClock.sleep(50);
  first[Symbol.dispose]();
  using _held = await second;
  assert.ok(existsSync(path));
});

test("lockFile() stops waiting at an abort", async () => {
  using temp = new TempFolder();
  const path = temp.join("run.lock");
  using _first = await lockFile(path, now);
  await assert.rejects(lockFile(path, { ...soon, signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
});

test("lockFile() takes over at once from a process of this machine that was killed", async () => {
  using temp = new TempFolder();
  const path = temp.join("run.lock");
  const child: ChildProcess = spawn("sleep", ["60"]);
  writeFileSync(path, holder({ pid: child.pid, start: startTime(child.pid!) }));
  await assert.rejects(lockFile(path, now), { code: "store.locked" });
  child.kill("SIGKILL");
  await once(child, "exit");
  using _lock = await lockFile(path, now);
  assert.deepEqual(readdirSync(temp.path), ["run.lock"]);
});

test("lockFile() takes over when the pid was given to another process since", async () => {
  using temp = new TempFolder();
  const path = temp.join("run.lock");
  writeFileSync(path, holder({ start: "1" }));
  using _lock = await lockFile(path, now);
});

test("lockFile() leaves another machine's lock alone until its heartbeat has stopped", async () => {
  using temp = new TempFolder();
  const path = temp.join("run.lock");
  writeFileSync(path, holder({ host: "elsewhere" }));
  await assert.rejects(lockFile(path, now), /process \d+ on elsewhere holds it/);
  const hourAgo = new Date(Date.now() - 3_600_000);
  utimesSync(path, hourAgo, hourAgo);
  using _lock = await lockFile(path, now);
  assert.equal(JSON.parse(readFileSync(path, "utf8")).host, hostname());
});

test("lockFile() treats a file without a readable holder like another machine's lock", async () => {
  using temp = new TempFolder();
  const path = temp.join("run.lock");
  writeFileSync(path, "");
  await assert.rejects(lockFile(path, now), /an unnamed process holds it/);
  utimesSync(path, new Date(0), new Date(0));
  using _lock = await lockFile(path, now);
});

test("lockFile() outlives a takeover whose maker died", async () => {
  using temp = new TempFolder();
  const path = temp.join("run.lock");
  writeFileSync(path, holder({ start: "1" }));
  writeFileSync(`${path}.takeover`, holder({ start: "1", token: "guard" }));
  using _lock = await lockFile(path, soon);
  assert.deepEqual(readdirSync(temp.path), ["run.lock"]);
});

test("FileLock beats while it is held, and says so when it was taken over", async () => {
  using temp = new TempFolder();
  const path = temp.join("run.lock");
  using lock = await lockFile(path, { ...now, heartbeatMs: 20 });
  utimesSync(path, new Date(0), new Date(0));
  await systemClock.sleep(100);
  await assert.rejects(lockFile(path, { ...now, staleMs: 60_000 }), { code: "store.locked" });
  assert.equal(lock.lost.aborted, false);
  writeFileSync(path, holder({ host: "elsewhere" }));
  await systemClock.sleep(100);
  assert.equal(lock.lost.aborted, true);
  lock[Symbol.dispose]();
  assert.ok(existsSync(path), "another holder's lock stays");
});

test("lockFile() says store.unwritable where no file can be made", async () => {
  using temp = new TempFolder();
  await assert.rejects(lockFile(temp.join("no/such/run.lock"), now), { code: "store.unwritable" });
});

test("lockFile() admits one of many processes at a time", async () => {
  using temp = new TempFolder();
  const script = `
    import { lockFile } from "${new URL("../../../lib/files/lock.ts", import.meta.url)}";
    import { systemClock } from "${new URL("../../../lib/runtime/clock.ts", import.meta.url)}";
    import { openSync, closeSync, rmSync } from "node:fs";
    for (let i = 0; i < 25; i++) {
      using _lock = await lockFile("${temp.join("run.lock")}", { clock: systemClock, waitMs: 30000 });
      closeSync(openSync("${temp.join("inside")}", "wx"));
      await systemClock.sleep(1);
      rmSync("${temp.join("inside")}");
    }`;
  writeFileSync(temp.join("contend.ts"), script);
  writeFileSync(temp.join("run.lock"), holder({ start: "1" })); // stale: all of them see it at once
  const ends = await Promise.all([1, 2, 3].map(async () => {
    const child = spawn(process.execPath, [...RUN, temp.join("contend.ts")], {
      stdio: ["ignore", "ignore", "inherit"],
    });
    return (await once(child, "exit"))[0];
  }));
  assert.deepEqual(ends, [0, 0, 0]);
});

test("I14: a lock of another machine whose time lies in the future is taken over once it was seen to stand still", async () => {
  using temp = new TempFolder();
  const path = temp.join("run.lock");
  writeFileSync(path, holder({ host: "elsewhere" }));
  const ahead = new Date(Date.now() + 86_400_000);
  utimesSync(path, ahead, ahead);
  const beats = setInterval(() => writeFileSync(path, holder({ host: "elsewhere" })), 20);
  await assert.rejects(lockFile(path, { ...soon, waitMs: 900, staleMs: 500 }), /elsewhere holds it/);
  clearInterval(beats);
  utimesSync(path, ahead, ahead);
  using held = await lockFile(path, { ...soon, staleMs: 500 });
  assert.equal(held.holder.host, hostname());
});
