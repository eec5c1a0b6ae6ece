/**
 * What every provider promises, whatever it is made of. A gap is listed with its reason and shows in the output.
 *
 * The sandbox that a promise gets has a POSIX shell and the usual small programs; bash, python and a network are not
 * taken for granted.
 */
import { after, before, test } from "node:test";
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { HarborError } from "../../lib/errors.ts";
import type { Event } from "../../lib/events.ts";
import { envOf } from "../../lib/images/config.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { newRunId, type Owner, thisOwner } from "../../lib/sandbox/owner.ts";
import type {
  Command,
  ExecResult,
  ImageNeed,
  PreparedImage,
  ProviderDeps,
  Sandbox,
  SandboxProvider,
  SandboxSpec,
} from "../../lib/sandbox/provider.ts";

export interface Subject {
  /** How the tests call it: `docker`, `docker (BusyBox)`. */
  name: string;
  make(deps: ProviderDeps): SandboxProvider | Promise<SandboxProvider>;
  /** What the sandboxes start from. */
  need: ImageNeed;
  /** Why none of it can run here; undefined where it can. */
  skip?: string;
  /** Promise → why this provider cannot keep it. */
  gaps?: Record<string, string>;
  /** Ends a sandbox behind our back, as a stranger would. */
  destroy(id: string): void;
  /** What of a sandbox can still be seen from outside: containers, processes, mounts, folders. */
  remains(box: { id: string; run: string }): string[];
}

interface Bench {
  subject: Subject;
  provider: SandboxProvider;
  image: PreparedImage;
  run: string;
  owner: Owner;
  events: Event[];
  /** A folder of this test alone. */
  scratch: string;
  open(spec?: Partial<SandboxSpec>): Promise<Sandbox>;
}

const soon = (ms = 60_000): AbortSignal => AbortSignal.timeout(ms);
const sh = (script: string, more: Partial<Command> = {}): Command => ({
  run: { script },
  purpose: "server",
  deadlineMs: 30_000,
  ...more,
});
const run = (box: Sandbox, script: string, more: Partial<Command> = {}): Promise<ExecResult> =>
  box.exec(sh(script, more), soon());
const output = async (box: Sandbox, script: string, more: Partial<Command> = {}): Promise<string> =>
  (await run(box, script, more)).stdout.trim();
const lost = (error: unknown): boolean => error instanceof HarborError && error.code === "sandbox.lost";
const failed = (code: string, message: RegExp) => (error: unknown): boolean => {
  assert.ok(error instanceof HarborError, String(error));
  assert.equal(error.code, code, error.message);
  assert.match(error.message, message);
  return true;
};
/** A variable that no command can have: the task's fault, whether it is told at the start or by the command. */
const unpassable = (message: RegExp) => (error: unknown): boolean => {
  assert.ok(error instanceof HarborError, String(error));
  assert.ok(["task.unsupported", "sandbox.failed"].includes(error.code), `${error.code}: ${error.message}`);
  assert.match(error.message, message);
  return true;
};
/** Counts processes inside whose command line holds a word; the counting shell never does. */
const count = async (box: Sandbox, word: string): Promise<number> =>
  Number(
    await output(
      box,
      `n=0; w='${word[0]}'; w="$w"'${word.slice(1)}'
       for p in /proc/[0-9]*; do case "$p" in /proc/$$) continue;; esac
         s=$(tr '\\0' ' ' < $p/cmdline 2>/dev/null); st=; read -r _ _ st _ < $p/stat 2>/dev/null
         case "$s" in *"$w"*) [ "$st" = Z ] || n=$((n+1));; esac
       done; echo $n`,
    ),
  );

const LOCAL = "local() tells what the image is and does, and nothing for a name that is not here";
const ALIAS = "prepare() finds an image under another name of it and tells it as it was asked for";
const OFFLINE = "offline what is here is used, and what is not is told by its name";
/** Promises about images by name, for a provider that starts from none. */
export const NAMED_IMAGES: readonly string[] = [LOCAL, ALIAS, OFFLINE];

const NOWHERE = "gym-harbor.invalid/none:1";

/** A need for the same image by another reference. */
function elsewhere({ need }: Subject, reference: string, aliases: string[] = []): ImageNeed {
  assert.equal(need.source.kind, "named");
  return { ...need, source: { kind: "named", reference, aliases } };
}

let episode = 0;

const promises: Record<string, (bench: Bench) => Promise<void>> = {
  // --- images that are here ---

  [LOCAL]: async ({ subject, provider, image }) => {
    const { reference } = subject.need.source as { reference: string };
    const local = await provider.local!(reference, soon());
    assert.match(local!.configDigest, /^sha256:[0-9a-f]{64}$/);
    assert.equal(local!.platform, `linux/${process.arch === "x64" ? "amd64" : process.arch}`);
    assert.deepEqual(envOf(local!.config), image.env);
    assert.equal(local!.config.WorkingDir || "/", image.workdir);
    assert.equal(await provider.local!(NOWHERE, soon()), undefined);
  },
  [ALIAS]: async ({ subject, provider, image }) => {
    const { reference } = subject.need.source as { reference: string };
    const found = await provider.prepare(elsewhere(subject, NOWHERE, ["none", reference]), soon(), () => {});
    assert.deepEqual([found.reference, found.env], [NOWHERE, image.env]);
  },
  [OFFLINE]: async ({ subject, scratch, events }) => {
    const provider = await subject.make({ ...depsOf(scratch, events), offline: true });
    assert.ok(await provider.prepare(subject.need, soon(), () => {}), "what is here is used");
    await assert.rejects(provider.prepare(elsewhere(subject, NOWHERE), soon(), () => {}), (error) => {
      assert.ok(error instanceof HarborError, String(error));
      assert.equal(error.details?.missing ?? error.details?.reference, NOWHERE);
      assert.match(error.message, /gym-harbor\.invalid\/none:1/);
      return true;
    });
    await provider[Symbol.asyncDispose]?.();
  },

  // --- exit codes and output ---

  "exec() gives every exit code as the command's own word": async ({ open }) => {
    await using box = await open();
    for (const code of [0, 1, 2, 7, 124, 125, 126, 127, 128, 137, 143, 255]) {
      const result = await run(box, `exit ${code}`);
      assert.deepEqual([result.ended, result.exitCode], ["exit", code]);
    }
    assert.equal((await run(box, "kill -9 $$")).exitCode, 137, "a command that kills itself");
    assert.equal((await run(box, "no-such-program")).exitCode, 127);
  },
  "exec() runs an argv without a shell between": async ({ open }) => {
    await using box = await open();
    const words = ["a b", "", "$HOME", "`id`", "'", '"', "\\", "*", "é\n2"];
    const result = await box.exec({ ...sh(""), run: { argv: ["printf", "<%s>", ...words] } }, soon());
    assert.equal(result.stdout, words.map((word) => `<${word}>`).join(""));
    for (const argv of [["if"], ["A=b"], ["no such program"]]) {
      assert.equal((await box.exec({ ...sh(""), run: { argv } }, soon())).exitCode, 127, argv[0]);
    }
  },
  "exec() keeps the streams apart and every byte in place": async ({ open }) => {
    await using box = await open();
    const result = await run(box, "printf 'out\\n\\nno newline'; printf '\\nerr' >&2");
    assert.deepEqual([result.stdout, result.stderr], ["out\n\nno newline", "\nerr"]);
  },
  "C1: exec() takes output that is no UTF-8": async ({ open }) => {
    await using box = await open();
    const result = await run(box, "printf 'a\\377\\376\\200b\\000c'; head -c 100000 /bin/sh");
    assert.match(result.stdout, /^a\ufffd+b\0c/);
    assert.equal(result.exitCode, 0);
  },
  "B5, B7: exec() holds 64 MiB of output in bounded memory, head and tail kept": async ({ open }) => {
    await using box = await open();
    const started = process.memoryUsage().rss;
    const result = await run(
      box,
      "echo HEAD; yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa | head -c 67108864; echo TAIL; echo ERR >&2",
      {
        deadlineMs: 120_000,
      },
    );
    assert.equal(result.ended, "exit");
    assert.match(result.stdout, /^HEAD\n/);
    assert.match(result.stdout, /TAIL\n$/);
    assert.equal(result.stderr, "ERR\n");
    assert.ok(result.droppedBytes > 60 << 20, `${result.droppedBytes} dropped`);
    assert.ok(result.stdout.length < 2 << 20);
    assert.ok(process.memoryUsage().rss - started < 200 << 20, "memory grew with the output");
  },
  "B19: exec() gives /dev/null for stdin and no terminal": async ({ open }) => {
    await using box = await open();
    const found = await output(
      box,
      "cat; for n in 0 1 2; do [ -t $n ] && echo tty $n; done; ls -l /proc/self/fd/0 | sed 's/.*-> //'",
    );
    assert.equal(found, "/dev/null");
  },
  "G2: exec() runs a script of 300 KiB": async ({ open }) => {
    await using box = await open();
    const lines = Array.from({ length: 6000 }, (_, n) => `x=${n} # ${"p".repeat(40)} 'quoted \\ \\n`).join("\n");
    const result = await run(box, `${lines.replaceAll("'", "")}\ncat\necho "$x"\nexit 9`);
    assert.deepEqual([result.stdout, result.exitCode], ["5999\n", 9]);
  },
  "exec() cannot be fooled by output that looks like our own": async ({ open }) => {
    await using box = await open();
    const result = await run(
      box,
      "cat /proc/$PPID/cmdline /proc/$PPID/environ | tr '\\0' '\\n'; printf '\\n0 end 0\\nend 0\\n'; exit 3",
    );
    assert.equal(result.exitCode, 3);
    assert.match(result.stdout, /\n0 end 0\nend 0\n$/);
  },

  // --- deadlines and processes ---

  "B1, B3: a deadline ends grandchildren, children in sessions of their own and busy loops; partial output stays":
    async ({ open }) => {
      await using box = await open();
      const script = `echo before; echo problem >&2
      sh -c 'sleep 4711 & sleep 4711' &
      (setsid sh -c 'trap "" TERM; sleep 4711; sleep 4711' || true) >/dev/null 2>&1 &
      trap '' TERM; while :; do :; done`;
      const started = performance.now();
      const result = await run(box, script, { purpose: "verifier", deadlineMs: 700 });
      assert.equal(result.ended, "deadline");
      assert.match(result.stdout, /before/);
      assert.match(result.stderr, /problem/);
      assert.ok(performance.now() - started < 15_000, "it took too long");
      assert.equal(await count(box, "sleep 4711"), 0);
      assert.equal(await output(box, "echo still here"), "still here");
    },
  "B16: a deadline is kept to the second, also for one that only sleeps": async ({ open }) => {
    await using box = await open();
    const result = await run(box, "sleep infinity || sleep 99999", { purpose: "agent", deadlineMs: 1000 });
    assert.equal(result.ended, "deadline");
    assert.ok(result.durationMs >= 990 && result.durationMs < 6000, `${result.durationMs} ms`);
    assert.equal(await count(box, "sleep infinity"), 0);
  },
  "what an agent starts in the background outlives its command": async ({ open }) => {
    await using box = await open();
    const result = await run(box, "sleep 4712 >/dev/null 2>&1 &\n(trap '' HUP; sleep 4712) & echo started", {
      purpose: "agent",
    });
    assert.equal(result.exitCode, 0);
    assert.ok(result.durationMs < 5000, "the command's end does not wait for it");
    await sleep(300);
    assert.equal(await count(box, "sleep 4712"), 2);
  },
  "what a verifier starts in the background ends with its command": async ({ open }) => {
    await using box = await open();
    await run(box, "sleep 4713 & (setsid sleep 4713 &) >/dev/null 2>&1; sh -c 'sleep 4713 &'; sleep 0.2; echo done", {
      purpose: "verifier",
    });
    assert.equal(await count(box, "sleep 4713"), 0);
  },
  "an agent's service outlives a later verifier's deadline": async ({ open }) => {
    await using box = await open();
    await run(box, "sleep 4714 >/dev/null 2>&1 &", { purpose: "agent" });
    await run(box, "sleep 4715", { purpose: "verifier", deadlineMs: 300 });
    assert.deepEqual([await count(box, "sleep 4714"), await count(box, "sleep 4715")], [1, 0]);
  },
  "aborting ends the command inside and rejects with the signal's reason": async ({ open }) => {
    await using box = await open();
    const abort = new AbortController();
    const reason = new HarborError("aborted", "enough");
    setTimeout(() => abort.abort(reason), 500);
    await assert.rejects(
      box.exec(sh("sleep 4716", { purpose: "verifier", deadlineMs: 60_000 }), abort.signal),
      (error) => error === reason,
    );
    assert.equal(await count(box, "sleep 4716"), 0);
    await assert.rejects(box.exec(sh("echo never"), abort.signal), (error) => error === reason);
  },
  "a long silence is no end": async ({ open }) => {
    await using box = await open();
    assert.equal(await output(box, "sleep 3; echo after"), "after");
  },
  "commands of one sandbox run beside each other": async ({ open }) => {
    await using box = await open();
    const results = await Promise.all(
      Array.from({ length: 4 }, (_, n) => run(box, `sleep 0.5; echo ${n}; exit ${n}`, { purpose: "agent" })),
    );
    assert.deepEqual(results.map(({ exitCode, stdout }) => [exitCode, stdout]), [0, 1, 2, 3].map((n) => [n, `${n}\n`]));
  },
  "spawn() runs in the background, tells its output and its end, and can be killed": async ({ open }) => {
    await using box = await open();
    const one = await box.spawn({ run: { script: "echo up; sleep 0.3; echo down >&2; exit 5" }, purpose: "server" });
    assert.equal((await one.wait()).exitCode, 5);
    assert.equal(await one.poll(), 5);
    assert.match(await one.tail(1000), /up[^]*down/);
    const other = await box.spawn({ run: { argv: ["sleep", "4717"] }, purpose: "server" });
    assert.equal(await other.poll(), null);
    await other.kill();
    assert.equal(await count(box, "sleep 4717"), 0);
    assert.notEqual((await other.wait()).exitCode, 0);
  },
  "B11: zombies are reaped": async ({ open }) => {
    await using box = await open();
    await run(box, "i=0; while [ $i -lt 50 ]; do (sleep 0.05 &) ; i=$((i+1)); done", { purpose: "agent" });
    await sleep(700);
    const zombies = await output(
      box,
      'n=0; for p in /proc/[0-9]*/stat; do read -r l < $p || continue; case "${l##*) }" in Z*) n=$((n+1));; esac; done 2>/dev/null; echo $n',
    );
    assert.ok(Number(zombies) < 5, `${zombies} zombies`);
  },

  // --- environment, users, folders ---

  "G1, G2: environment reaches the command whatever it holds, and no process list": async ({ open }) => {
    const secret = `s3cr3t-${crypto.randomUUID()}`;
    const env = {
      LINES_: "a\nb\n",
      QUOTES: `'"\\$HOME\`id\``,
      SECRET: secret,
      BIG1: "x".repeat(100_000),
      BIG2: "y".repeat(100_000),
      EMPTY: "",
      UNICODE: "é\t✓",
    };
    await using box = await open({ env: { ...env, OVER: "sandbox" } });
    const names = Object.keys(env);
    const running = box.exec(
      sh(`sleep 1; ${names.map((name) => `printf '%s\\001' "$${name}"`).join("; ")}; printf %s "$OVER"`, {
        env: { OVER: "command" },
      }),
      soon(),
    );
    await sleep(600);
    const seen = spawnSync("ps", ["-eo", "args", "-ww"], { maxBuffer: 64 << 20 }).stdout.toString();
    assert.equal(seen.includes(secret), false, "the value is in a process list");
    assert.deepEqual((await running).stdout.split("\u0001"), [...Object.values(env), "command"]);
  },
  "names that would steer a client reach the command and not the client": async ({ open }) => {
    const env = {
      HOME: "/elsewhere",
      DOCKER_HOST: "tcp://192.0.2.1:1",
      CONTAINER_HOST: "tcp://192.0.2.1:1",
      LD_LIBRARY_PATH: "/nowhere",
      XDG_RUNTIME_DIR: "/none",
      PATH: "/opt/none:/bin:/usr/bin",
    };
    await using box = await open({ env });
    const found = await output(box, Object.keys(env).map((name) => `echo "$${name}"`).join("; "));
    assert.deepEqual(found.split("\n"), Object.values(env));
  },
  "names that a shell cannot export reach the command or are refused by name": async ({ open }) => {
    await using box = await open();
    const env = { "a.b": "1", "x-y": "two\nlines" };
    const found = await run(box, "env | grep -E -A1 '^(a.b|x-y)=' | grep -E '^(a.b|x-y|lines)' | sort", { env }).catch((
      error,
    ) => error);
    if (found instanceof HarborError) unpassable(/a\.b/)(found);
    else assert.equal(found.stdout, "a.b=1\nlines\nx-y=two\n");
  },
  "a value that Linux cannot pass is refused by name": async ({ open }) => {
    await using box = await open();
    await assert.rejects(run(box, "true", { env: { HUGE: "x".repeat(200_000) } }), unpassable(/HUGE/));
  },
  "commands start in the working directory, which is made when it is missing": async ({ open }) => {
    await using box = await open({ workdir: "/made for/this" });
    assert.equal(box.workdir, "/made for/this");
    assert.equal(await output(box, "pwd"), "/made for/this");
    assert.equal(await output(box, "pwd", { cwd: "/tmp" }), "/tmp");
  },
  "a working directory that is not there is named": async ({ open }) => {
    await using box = await open();
    await assert.rejects(run(box, "true", { cwd: "/not/there" }), failed("sandbox.failed", /\/not\/there/));
    assert.equal(await output(box, "echo on"), "on");
  },
  "setup runs as root before anything else, and its failure is told": async ({ open }) => {
    await using box = await open({ setup: "id -u > /made; mkdir -p '/a b'", user: "65534" });
    assert.equal(await output(box, "cat /made; ls -d '/a b'"), "0\n/a b");
    await assert.rejects(
      open({ setup: "echo no such luck >&2; exit 3" }),
      failed("sandbox.failed", /exit code 3.*no such luck/),
    );
    await assert.rejects(open({ setup: "if then" }), failed("sandbox.failed", /[Ss]etup/));
  },
  "commands run as root, as a named user and as a number; the sandbox's user is the default": async ({ open }) => {
    await using box = await open({
      setup:
        "echo 'alice:x:1234:1234::/home/alice:/bin/sh' >> /etc/passwd; mkdir -p /home/alice /work; chown 1234 /home/alice",
      user: "alice",
      workdir: "/fresh",
    });
    assert.equal(await output(box, "id -u; echo $HOME"), "1234\n/home/alice");
    assert.equal(await output(box, "touch mine && ls -l mine | wc -l"), "1", "a new working directory is the user's");
    assert.equal(await output(box, "id -u", { user: "root" }), "0");
    assert.equal(await output(box, "id -u", { user: "0" }), "0");
    assert.equal(await output(box, "id -u", { user: "4321" }), "4321");
  },
  "a user that nobody knows is named": async ({ open }) => {
    await using box = await open();
    await assert.rejects(run(box, "true", { user: "nobody-knows" }), failed("sandbox.failed", /nobody-knows/));
  },
  "a user's deadline and background processes are held too": async ({ open }) => {
    await using box = await open();
    await run(box, "(setsid sleep 4718 &); sleep 4718", { user: "1234", purpose: "verifier", deadlineMs: 400 });
    await run(box, "(setsid sleep 4718 &); sleep 0.1", { user: "1234", purpose: "verifier" });
    assert.equal(await count(box, "sleep 4718"), 0);
  },

  // --- files ---

  "one call empties, carries in, runs, collects and brings back": async ({ open, scratch }) => {
    await using box = await open();
    const from = join(scratch, "tests");
    mkdirSync(join(from, "sub"), { recursive: true });
    writeFileSync(
      join(from, "test.sh"),
      "#!/bin/sh\nmkdir -p /logs/verifier\necho 0.5 > /logs/verifier/reward.txt\necho hi > /logs/verifier/é.log\n",
    );
    writeFileSync(join(from, "sub", "data"), "x");
    symlinkSync("sub/data", join(from, "link"));
    await run(box, "mkdir -p /tests && touch /tests/planted");
    const to = join(scratch, "out");
    mkdirSync(to);
    const result = await run(box, "ls /tests; cat /tests/link; ./../tests/test.sh", {
      before: "rm -rf /tests",
      unpack: [{ from, to: "/tests", executable: ["test.sh"], extra: { "extra.txt": { data: "e" } } }],
      collect: [{ path: "/logs/verifier/reward.txt", maxBytes: 100 }, { path: "/logs/verifier/none", maxBytes: 100 }],
      bring: [{ from: "/logs/verifier", to, limits: { maxEntries: 100, maxBytes: 1 << 20 } }, {
        from: "/absent",
        to,
        limits: { maxEntries: 1, maxBytes: 1 },
      }],
      cwd: "/tmp",
    });
    assert.equal(result.exitCode, 0, result.stderr);
    assert.equal(result.stdout, "extra.txt\nlink\nsub\ntest.sh\nx");
    assert.deepEqual(result.collected["/logs/verifier/reward.txt"], {
      kind: "file",
      data: new Uint8Array([0x30, 0x2e, 0x35, 0x0a]),
    });
    assert.deepEqual(result.collected["/logs/verifier/none"], { kind: "absent" });
    assert.deepEqual(readdirSync(to).sort(), ["reward.txt", "é.log"]);
    assert.deepEqual(result.brought[1], { files: 0, bytes: 0, refused: [] });
  },
  "before and unpack run as root also for a command of another user": async ({ open, scratch }) => {
    await using box = await open({ user: "1234" });
    writeFileSync(join(scratch, "f"), "data");
    const result = await run(box, "id -u; cat /opt/up/f; rm -f /opt/up/f 2>/dev/null || echo kept", {
      before: "mkdir -p /opt/up",
      unpack: [{ from: scratch, to: "/opt/up" }],
      collect: [{ path: "/opt/up/f", maxBytes: 10 }],
    });
    assert.equal(result.stdout, "1234\ndatakept\n");
    assert.equal(result.collected["/opt/up/f"]!.kind, "file");
  },
  "a failing step before the command is told, and the command does not run": async ({ open }) => {
    await using box = await open();
    await assert.rejects(run(box, "touch /ran", { before: "echo why >&2; false" }), failed("sandbox.failed", /why/));
    assert.equal(await output(box, "ls /ran 2>/dev/null; echo end"), "end");
  },
  "G4: uploads keep modes, also for long and non-ASCII names": async ({ open, scratch }) => {
    await using box = await open();
    const long = `${"d".repeat(90)}/${"f".repeat(120)}`;
    mkdirSync(join(scratch, "d".repeat(90)));
    writeFileSync(join(scratch, long), "long");
    writeFileSync(join(scratch, "ünï.sh"), "u", { mode: 0o640 });
    execFileSync("chmod", ["0640", join(scratch, "ünï.sh")]);
    const found = await output(box, `cat /up/${long}; ls -ln /up/ünï.sh | cut -c1-10; ls /up | wc -l`, {
      unpack: [{ from: scratch, to: "/up" }],
    });
    assert.equal(found, "long-rw-r-----\n2");
  },
  "G5: links planted where files go are replaced, never followed": async ({ open, scratch }) => {
    await using box = await open();
    const from = join(scratch, "t");
    mkdirSync(join(from, "sub"), { recursive: true });
    writeFileSync(join(from, "sub", "passwd"), "planted");
    writeFileSync(join(from, "top"), "planted");
    await run(
      box,
      "mkdir -p /victim/verifier; echo safe > /victim/passwd; rm -rf /tests /logs; ln -s /victim /tests; ln -s /victim /logs",
      { purpose: "agent" },
    );
    await run(box, "true", { unpack: [{ from, to: "/tests" }, { from, to: "/logs/verifier" }] });
    assert.equal(
      await output(
        box,
        "cat /victim/passwd; ls -R /victim | tr '\\n' ' '; [ -L /tests ] || [ -L /logs ] || cat /tests/sub/passwd /logs/verifier/top",
      ),
      "safe\n/victim: passwd verifier  /victim/verifier: plantedplanted",
    );
    await run(box, "rm -rf /tests/sub; ln -s /victim /tests/sub; rm /tests/top; ln -s /victim/passwd /tests/top", {
      purpose: "agent",
    });
    await run(box, "true", { unpack: [{ from, to: "/tests" }] });
    assert.equal(
      await output(box, "cat /victim/passwd; [ -L /tests/sub ] || [ -L /tests/top ] || echo real"),
      "safe\nreal",
    );
  },
  "A7: read() and collect take only regular files within the limit, links not followed": async ({ open }) => {
    await using box = await open();
    await run(
      box,
      `mkdir -p /v /real; cd /v; echo ok > file; mkfifo fifo; ln -s /etc/passwd link; ln -s file inner; ln -s /dev/zero zero
      truncate -s 3G huge 2>/dev/null || dd if=/dev/zero of=huge bs=1 count=1 seek=3000000000 2>/dev/null; mkdir dir; echo through > /real/f; ln -s /real via`,
      { purpose: "agent" },
    );
    assert.equal(new TextDecoder().decode(await box.read("/v/file", 10)), "ok\n");
    const rows: [string, RegExp][] = [
      ["/v/fifo", /not a regular file/],
      ["/v/link", /symbolic link/],
      ["/v/inner", /symbolic link/],
      ["/v/zero", /symbolic link/],
      ["/v/via/f", /symbolic link/],
      ["/v/dir", /not a regular file/],
      ["/dev/null", /not a regular file/],
      ["/v/huge", /larger than 10 bytes/],
      ["/v/none", /not there/],
    ];
    for (const [path, why] of rows) await assert.rejects(box.read(path, 10), failed("transfer.failed", why), path);
    assert.equal((await box.read("/v/file", 3)).length, 3, "exactly at the limit");
  },
  "download() brings a hostile tree without harm": async ({ open, scratch }) => {
    await using box = await open();
    await run(
      box,
      `mkdir -p /h/d /h/private; cd /h; echo x > d/file; ln -s /etc/passwd out; ln -s d/file in; ln -s ../.. up; mkfifo pipe; ln d/file hard
      echo p > private/f; chmod 0 private/f; chmod 700 private; echo n > "new
line"; printf b > "$(printf 'b\\377d')"; touch -- -rf '*' 'a b'; ln -s /nowhere dangling`,
      { purpose: "agent" },
    );
    const report = await box.download("/h", scratch, { maxEntries: 100, maxBytes: 1 << 20 }, soon());
    assert.equal(readFileSync(join(scratch, "d/file"), "utf8"), "x\n");
    assert.equal(readFileSync(join(scratch, "private/f"), "utf8"), "p\n");
    assert.equal(readFileSync(join(scratch, "hard"), "utf8"), "x\n");
    assert.equal(readlinkSync(join(scratch, "in")), "d/file");
    for (const name of ["out", "up", "dangling", "pipe"]) {
      assert.equal(existsSync(join(scratch, name)) || isLink(join(scratch, name)), false, name);
      assert.ok(report.refused.some(({ path }) => path === name), `${name} is reported`);
    }
    assert.ok(readdirSync(scratch).includes("new\nline"));
  },
  "download() stops at its limits and the sandbox goes on": async ({ open, scratch }) => {
    await using box = await open();
    await run(
      box,
      "mkdir /big; truncate -s 4G /big/sparse 2>/dev/null || dd if=/dev/zero of=/big/sparse bs=1 count=1 seek=4000000000 2>/dev/null; echo s > /big/a",
    );
    const started = performance.now();
    const report = await box.download("/big", scratch, { maxEntries: 10, maxBytes: 1 << 20 }, soon());
    assert.ok(report.refused.some(({ path }) => path.includes("sparse")), JSON.stringify(report));
    assert.ok(performance.now() - started < 20_000);
    assert.equal(await output(box, "echo on"), "on");
  },
  "large uploads and downloads arrive whole": async ({ open, scratch }) => {
    await using box = await open();
    const from = join(scratch, "from");
    const to = join(scratch, "to");
    mkdirSync(from);
    mkdirSync(to);
    const bytes = new Uint8Array(24 << 20).map((_, at) => (at * 31 + (at >> 8)) & 0xff);
    writeFileSync(join(from, "blob"), bytes);
    await run(box, "true", { unpack: [{ from, to: "/big" }] });
    const report = await box.download("/big", to, { maxEntries: 10, maxBytes: 64 << 20 }, soon());
    assert.equal(report.bytes, bytes.length);
    assert.ok(readFileSync(join(to, "blob")).equals(bytes));
  },
  "G8: what root made unreadable inside can be read and deleted outside": async ({ open, scratch }) => {
    await using box = await open();
    await run(
      box,
      "mkdir -p /logs/artifacts/deep; echo a > /logs/artifacts/deep/f; chmod 0700 /logs/artifacts; chmod 0 /logs/artifacts/deep",
    );
    await box.download("/logs/artifacts", scratch, { maxEntries: 10, maxBytes: 1000 }, soon());
    assert.equal(lstatSync(join(scratch, "deep")).uid, process.getuid!());
    assert.equal(readFileSync(join(scratch, "deep/f"), "utf8"), "a\n");
  },
  "an upload from a folder that is not there is named": async ({ open, scratch }) => {
    await using box = await open();
    await assert.rejects(
      run(box, "true", { unpack: [{ from: join(scratch, "none"), to: "/x" }] }),
      failed("transfer.failed", /none/),
    );
    assert.equal(await output(box, "echo on"), "on");
  },

  // --- isolation and limits ---

  "kill -9 1 and kill of strangers' numbers are harmless": async ({ open }) => {
    await using box = await open();
    await run(box, "kill -9 1; kill -TERM 1; pkill -9 node; true", { purpose: "agent" });
    assert.equal(await output(box, "echo alive"), "alive");
    assert.equal((await box.alive()).state, "running");
  },
  "B10: kill -9 -1 reaches nothing outside, and what is left says so": async ({ open }) => {
    await using box = await open();
    await using other = await open();
    const first = await run(box, "kill -9 -1", { purpose: "agent" }).catch((error) => error);
    const ended = first instanceof HarborError ? lost(first) : first.ended === "exit";
    assert.ok(ended, String(first));
    assert.equal(await output(other, "echo other"), "other");
    const next = await run(box, "echo next").then(
      (result) => result.stdout.trim(),
      (error) => (lost(error) ? "lost" : String(error)),
    );
    assert.ok(["next", "lost"].includes(next), next);
  },
  "B22: an OOM kill is told, and who survives goes on": async ({ open }) => {
    await using box = await open({ limits: { memoryMb: 64 } });
    if (box.limits === "none") return;
    const result = await run(box, "head -c 300000000 /dev/zero | tail -c 250000000 | wc -c", { purpose: "agent" })
      .catch((error) => error);
    if (result instanceof HarborError) {
      assert.ok(lost(result), result.message);
      return;
    }
    assert.equal(result.oomKilled, true);
    assert.equal((await run(box, "true")).oomKilled, false, "and only for the command that it struck");
    assert.equal(existsSync("oom"), false, "nothing is left where we were started");
  },
  "a full process table is survived or named, in bounded time": async ({ open }) => {
    await using box = await open();
    const started = performance.now();
    const result = await run(box, "while :; do sleep 4719 & done 2>/dev/null", {
      purpose: "verifier",
      deadlineMs: 3000,
    }).catch((error) => error);
    assert.ok(
      result instanceof HarborError ? lost(result) : result.ended === "deadline" || result.exitCode !== 0,
      String(result),
    );
    const next = await run(box, "echo next").then(
      (one) => one.stdout.trim(),
      (error) => (lost(error) ? "lost" : String(error)),
    );
    assert.ok(["next", "lost"].includes(next), next);
    assert.ok(performance.now() - started < 60_000);
  },
  "B4: a sandbox whose shell is gone says so at once": async ({ open }) => {
    await using box = await open();
    await run(box, "rm -f /bin/sh /bin/bash /usr/bin/sh /usr/bin/bash /bin/busybox; rm -rf /bin /usr/bin", {
      purpose: "agent",
    }).catch(() => {});
    await assert.rejects(run(box, "echo next"), lost);
  },
  "no-network has loopback and no way out": async ({ open }) => {
    await using box = await open({ network: "no-network" });
    assert.equal(box.network, "no-network");
    const found = await output(
      box,
      "cat /proc/net/dev | grep -c ':' ; cat /sys/class/net/lo/operstate 2>/dev/null; read -r x < /proc/net/route; wc -l < /proc/net/route; cat /proc/net/if_inet6 2>/dev/null | grep -v ' lo$' | wc -l",
    );
    const [interfaces, , ...routes] = found.split("\n");
    assert.equal(interfaces, "1", "only lo");
    assert.deepEqual(routes.map(Number), [1, 0], "no route but the table's heading, no other address");
    assert.match(await output(box, "cat /proc/net/fib_trie"), /127\.0\.0\.1/, "loopback is up");
  },
  "two sandboxes do not meet on a port": async ({ open }) => {
    await using one = await open();
    await using two = await open();
    const namespace = (box: Sandbox) => output(box, "readlink /proc/self/ns/net");
    assert.notEqual(await namespace(one), await namespace(two));
    assert.notEqual(await namespace(one), readlinkSync("/proc/self/ns/net"));
  },
  "a sandbox sees no process but its own": async ({ open }) => {
    await using box = await open();
    assert.equal(Number(await output(box, `ls -d /proc/[0-9]* | wc -l`)) < 15, true);
  },
  "limits hold as far as it says": async ({ open }) => {
    await using box = await open({ limits: { cpus: 0.5, memoryMb: 128 } });
    assert.ok(["enforced", "watched", "partly", "none"].includes(box.limits));
    if (box.limits !== "enforced") assert.ok(box.notes.length > 0, "what does not hold is noted");
  },
  "storage and CPUs that cannot be had are noted, not refused": async ({ open }) => {
    await using box = await open({ limits: { cpus: 4096, storageMb: 10 } });
    assert.match(box.notes.join("\n"), /cpus/);
    assert.match(box.notes.join("\n"), /storage/);
  },

  // --- the end ---

  "disposal leaves nothing and may run twice": async ({ open, subject, run: id }) => {
    const box = await open();
    await box.spawn({ run: { script: "sleep 4720" }, purpose: "agent" });
    await run(box, "(trap '' HUP; sleep 4720) >/dev/null 2>&1 &", { purpose: "agent" });
    await box[Symbol.asyncDispose]();
    await box[Symbol.asyncDispose]();
    assert.deepEqual(subject.remains({ id: box.id, run: id }), []);
    assert.equal(spawnSync("ps", ["-eo", "args"]).stdout.toString().includes("sleep 4720"), false);
    assert.equal((await box.alive()).state, "gone");
    await assert.rejects(run(box, "true"), lost);
  },
  "a sandbox that was removed behind our back is lost, also in the middle of a command": async ({ open, subject }) => {
    await using box = await open();
    const running = run(box, "sleep 4721", { purpose: "agent" });
    setTimeout(() => subject.destroy(box.id), 700);
    await assert.rejects(running, lost);
    await assert.rejects(run(box, "true"), lost);
    assert.equal((await box.alive()).state, "gone");
  },
  "a sandbox ends by itself at its time to live": async ({ open }) => {
    await using box = await open({ ttlMs: 2000 });
    await sleep(3500);
    assert.equal((await box.alive()).state, "gone");
    await assert.rejects(run(box, "true"), lost);
  },
  "a kept sandbox outlives its disposal, and sweep() of its run removes it": async (
    { open, provider, subject, run: id },
  ) => {
    const box = await open();
    box.keep();
    await box[Symbol.asyncDispose]();
    await sleep(300);
    assert.ok((await provider.list({ run: id }, soon())).some((one) => one.id === box.id), "it is listed");
    const entered = spawnSync(box.enterArgv[0]!, [
      ...box.enterArgv.slice(1).filter((word) => word !== "-it"),
      "-c",
      "echo inside",
    ], { timeout: 20_000 });
    assert.match(entered.stdout.toString(), /inside/);
    const report = await provider.sweep({ run: id, evenAlive: true }, soon());
    assert.ok(report.removed.includes(box.id), JSON.stringify(report));
    assert.deepEqual(subject.remains({ id: box.id, run: id }), []);
  },
  "an abort while opening leaves nothing": async ({ provider, image, owner, subject, run: id }) => {
    for (const ms of [0, 30, 120, 300]) {
      const abort = new AbortController();
      const reason = new HarborError("aborted", "enough");
      const opening = provider.open(specOf(image, owner, {}), abort.signal);
      setTimeout(() => abort.abort(reason), ms);
      await opening.then((box) => box[Symbol.asyncDispose](), (error) => assert.equal(error, reason));
    }
    assert.deepEqual(subject.remains({ id: "", run: id }), []);
  },
  "B13: sweep() removes what dead owners left, and nothing of living ones or of other machines": async (
    { open, provider, run: id },
  ) => {
    const dead = spawnSync("true").pid;
    await using alive = await open();
    const owner = thisOwner(id);
    await open({ owner: { ...owner, pid: dead, start: "1" } }).then((box) => abandon(box));
    await using away = await open({ owner: { ...owner, host: "another-machine", pid: dead } });
    const listed = await provider.list({ run: id }, soon());
    assert.deepEqual(listed.map((one) => one.alive).sort(), [false, true, undefined].sort());
    const report = await provider.sweep({ run: id }, soon());
    assert.equal(report.removed.length, 1);
    assert.deepEqual(
      (await provider.list({ run: id }, soon())).map((one) => one.id).sort(),
      [alive.id, away.id].sort(),
    );
    assert.deepEqual(await provider.list({ run: "nobody00" }, soon()), []);
    assert.deepEqual(await provider.list({ run: id, olderThanMs: 3_600_000 }, soon()), []);
  },
  "sweepNow() removes a run at once and leaves other runs alone": async ({ open, provider, subject, run: id }) => {
    const mine = await open();
    const other = newRunId();
    await using theirs = await open({ owner: thisOwner(other) });
    provider.sweepNow(id);
    assert.deepEqual(subject.remains({ id: mine.id, run: id }), []);
    assert.equal(await output(theirs, "echo here"), "here");
    await mine[Symbol.asyncDispose]();
  },
  "two providers work beside each other": async ({ subject, image, owner, scratch }) => {
    const providers = await Promise.all([subject.make(depsOf(scratch, [])), subject.make(depsOf(scratch, []))]);
    const boxes = await Promise.all(providers.map((provider) => provider.open(specOf(image, owner, {}), soon())));
    assert.deepEqual(await Promise.all(boxes.map((box, n) => output(box, `echo ${n}`))), ["0", "1"]);
    await Promise.all(boxes.map((box) => box[Symbol.asyncDispose]()));
  },
  "diagnose() finds it usable and says what it can": async ({ provider }) => {
    for (const depth of ["quick", "thorough"] as const) {
      const diagnosis = await provider.diagnose(soon(), depth);
      assert.equal(diagnosis.usable, true, JSON.stringify(diagnosis));
      assert.ok(diagnosis.capabilities!.version.length > 0);
      assert.ok(diagnosis.missing.every(({ what, fix }) => what !== "" && fix !== ""));
    }
  },
  "nothing was warned about": ({ events }) => {
    assert.deepEqual(events.filter(({ kind }) => kind === "warning"), []);
    return Promise.resolve();
  },
};

/** Every provider keeps the same promises; a gap is listed with its reason and shows in the output. */
export function providerContract(subject: Subject): void {
  const run = newRunId();
  const owner = thisOwner(run);
  const events: Event[] = [];
  const root = mkdtempSync(join(tmpdir(), "gh-contract-"));
  let provider: SandboxProvider;
  let image: PreparedImage;
  if (subject.skip === undefined) {
    before(async () => {
      provider = await subject.make(depsOf(root, events));
      image = await provider.prepare(subject.need, soon(300_000), (event) => events.push(event));
    });
    after(async () => {
      await provider?.sweep({ run, evenAlive: true }, soon());
      rmSync(root, { recursive: true, force: true });
    });
  }
  const only = process.env.GYM_HARBOR_PROMISE;
  for (const [promise, check] of Object.entries(promises)) {
    if (only !== undefined && !promise.includes(only)) continue;
    const gap = subject.gaps?.[promise];
    const skip = subject.skip ?? gap;
    test(`${subject.name}: ${promise}${gap ? ` (gap: ${gap})` : ""}`, { skip: skip ?? false }, async () => {
      const scratch = mkdtempSync(join(root, "t-"));
      const open = (spec: Partial<SandboxSpec> = {}) => provider.open(specOf(image, owner, spec), soon());
      await check({ subject, provider, image, run, owner, events, scratch, open });
    });
  }
  for (const gap of Object.keys(subject.gaps ?? {})) {
    if (!(gap in promises)) test(`${subject.name}: gap "${gap}" names a promise`, () => assert.fail("no such promise"));
  }
}

function specOf(image: PreparedImage, owner: Owner, more: Partial<SandboxSpec>): SandboxSpec {
  return {
    image,
    owner,
    episode: `c-${++episode}`,
    role: "agent",
    env: {},
    workdir: undefined,
    user: undefined,
    network: "no-network",
    limits: {},
    ttlMs: 600_000,
    readyTimeoutMs: 60_000,
    ...more,
  };
}

function depsOf(scratch: string, events: Event[]): ProviderDeps {
  return {
    runner: systemRunner(),
    clock: systemClock,
    env: process.env,
    emit: (event) => void events.push(event),
    scratch,
    options: { pids_limit: 200 },
  };
}

/** As if its owner had been killed: the sandbox is neither used nor disposed of any more. */
function abandon(box: Sandbox): void {
  box.keep();
}

function isLink(path: string): boolean {
  try {
    return lstatSync(path).isSymbolicLink();
  } catch {
    return false;
  }
}
