import { test } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, lstatSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { Control, LineEnded, LineStuck } from "../../providers/_oci_control.ts";
import {
  beforeScript,
  bringScript,
  collectScript,
  CONTROL,
  execScript,
  killScript,
  LAUNCH,
  oneLine,
  setupScript,
  shellCanExport,
  WITH_REAPER,
} from "../../providers/_oci_scripts.ts";

/** The shells that images bring; those of this machine speak for them. */
const SHELLS = [["bash"], ["dash"], ["busybox", "sh"]].filter(([program]) =>
  spawnSync(program!, ["-c", "true"]).error === undefined
);

interface Line extends AsyncDisposable {
  control: Control;
  folder: string;
  /** Sends a request and returns what came: markers by verb, and all data. */
  ask(script: (n: number) => string, last: string): Promise<{ markers: string[][]; data: string }>;
}

async function line(
  shell: string[],
  setup: string | undefined = undefined,
): Promise<Line & { ready: string[][]; said: string }> {
  const folder = mkdtempSync(join(tmpdir(), "gh-line-"));
  const control = new Control(await systemRunner().start([...shell, "-c", CONTROL], { cwd: folder }), systemClock);
  const ask = async (script: (n: number) => string, last: string) => {
    const markers: string[][] = [];
    let data = "";
    await control.ask(script, last, {
      onMarker: (words) => markers.push(words),
      onData: (chunk) => data += new TextDecoder().decode(chunk),
    }, 10_000);
    return { markers, data };
  };
  const { markers, data } = await ask(
    () => setupScript({ ttlSeconds: 60, workdir: join(folder, "work dir"), workdirOwner: undefined, script: setup }),
    "ready",
  );
  return {
    control,
    folder,
    ask,
    ready: markers,
    said: data,
    async [Symbol.asyncDispose]() {
      control.close();
      await control.ended;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

for (const shell of SHELLS) {
  const name = shell.join(" ");

  test(`${name}: the setup makes the working directory, runs root's script apart, and tells what is there`, async () => {
    await using one = await line(shell, "echo said; exit 3");
    assert.deepEqual(one.ready.slice(0, 4), [["made", "0"], ["script", "3"], ["owned", "0"], ["workdir"]]);
    assert.equal(one.said, `said\n${join(one.folder, "work dir")}\n`);
    assert.match(one.ready[4]!.join(" "), /^ready oom=\d* bash=\S+ tar=\S+/);
    assert.equal((await one.ask((n) => `gym_say ${n} here\n`, "here")).markers.length, 1, "the shell goes on");
  });

  test(`${name}: a script with a syntax error or an exit does not end the line`, async () => {
    await using one = await line(shell);
    for (const script of ["if then", "exit 4", "false", "'", "exec true", "set -e; false; echo not reached"]) {
      const { markers } = await one.ask((n) => beforeScript(n, script, []), "folders");
      assert.equal(markers[0]![0], "script", script);
      assert.equal(markers[0]![1] === "0", script === "exec true", script);
    }
  });

  test(`${name}: folders for an upload are real, whatever was planted there`, async () => {
    await using one = await line(shell);
    const { folder } = one;
    mkdirSync(join(folder, "victim"));
    symlinkSync(join(folder, "victim"), join(folder, "last"));
    symlinkSync(join(folder, "victim"), join(folder, "system"));
    writeFileSync(join(folder, "file"), "");
    const wanted = [
      join(folder, "last"),
      join(folder, "system/inner"),
      join(folder, "file/below"),
      join(folder, "a b/$c/'d'"),
    ];
    const { markers } = await one.ask((n) => beforeScript(n, undefined, wanted), "folders");
    assert.deepEqual(markers, [["script", "0"], ["folders", "0"]]);
    assert.equal(lstatSync(join(folder, "last")).isDirectory(), true, "a link in the last place is replaced");
    assert.equal(existsSync(join(folder, "victim/inner")), true, "a link of the image in between is the image's own");
    for (const path of wanted) assert.equal(lstatSync(path).isDirectory(), true, path);
  });

  test(`${name}: collected files are regular, within their limit and whole`, async () => {
    await using one = await line(shell);
    const { folder } = one;
    writeFileSync(join(folder, "bin"), new Uint8Array([0, 10, 255, 10, 10]));
    writeFileSync(join(folder, "empty"), "");
    writeFileSync(join(folder, "big"), "123456");
    symlinkSync("bin", join(folder, "link"));
    symlinkSync(folder, join(folder, "via"));
    spawnSync("mkfifo", [join(folder, "fifo")]);
    const paths = ["bin", "empty", "big", "link", "via/bin", "fifo", "none", "."];
    const { markers, data } = await one.ask(
      (n) => collectScript(n, paths.map((path) => ({ path: join(folder, path), maxBytes: 5 }))),
      "collected",
    );
    assert.deepEqual(markers.slice(1, -1).map((words) => words.join(" ")), [
      "file 0",
      "file 1",
      "refused 2 larger than 5 bytes, it has 6",
      "refused 3 a symbolic link",
      "refused 4 a symbolic link",
      "refused 5 not a regular file",
      "absent 6",
      "refused 7 not a regular file",
    ]);
    assert.equal(data, "\0\n\ufffd\n\n");
  });

  test(`${name}: a folder comes as an archive of bounded size, or its absence is told`, async () => {
    await using one = await line(shell);
    const { folder } = one;
    mkdirSync(join(folder, "d"));
    writeFileSync(join(folder, "d/f"), "x".repeat(100_000));
    symlinkSync("d", join(folder, "l"));
    assert.equal((await one.ask((n) => bringScript(n, join(folder, "d"), 5000), "sent")).data.length, 5000);
    const rows: [string, string][] = [["none", "absent"], ["l", "refused a symbolic link"], [
      "d/f",
      "refused not a folder",
    ]];
    for (const [path, told] of rows) {
      assert.equal(
        (await one.ask((n) => bringScript(n, join(folder, path), 5000), "sent")).markers[0]!.join(" "),
        told,
      );
    }
  });

  test(`${name}: an exec is ended with its session, its descendants and whatever carries its id`, async () => {
    await using one = await line(shell);
    const id = crypto.randomUUID();
    const word = `48${Math.floor(Math.random() * 1e6)}`;
    const script =
      `sleep ${word} & (trap '' TERM; sleep ${word}) & setsid sleep ${word} & (setsid sh -c 'sleep ${word} & sleep ${word}' &) ; wait; sleep ${word}`;
    const running = await systemRunner().start(["setsid", "-w", ...shell, "-c", LAUNCH]);
    let said = "";
    running.stderr.on("data", (chunk) => said += chunk);
    running.stdout.on("data", () => {});
    const program = execScript({
      id,
      archive: false,
      command: { run: { script }, cwd: "/", env: {}, shell: shell.join(" "), sweep: false },
    });
    running.stdin.end(`secret\n${program}`);
    while (!said.includes("secret run")) await new Promise((next) => setTimeout(next, 20));
    await new Promise((next) => setTimeout(next, 300));
    const [, pid, start] = /secret start (\d+) (\d+)/.exec(said)!;
    const count = () =>
      spawnSync("ps", ["-eo", "args"], { encoding: "utf8" }).stdout.split("\n").filter((args) =>
        args === `sleep ${word}`
      ).length;
    assert.ok(count() >= 4, `${count()} run`);
    const { markers } = await one.ask(
      (n) => killScript(n, { pid: Number(pid), start: start!, id, wide: true }),
      "killed",
    );
    assert.deepEqual(markers, [["killed"]]);
    assert.equal(count(), 0);
    await running.ended;
  });

  test(`${name}: what is asked is answered in turn; the end of the line is told to whoever waits`, async () => {
    const one = await line(shell);
    const order = await Promise.all(
      [3, 1, 2].map((pause) => one.ask((n) => `sleep 0.0${pause}; gym_say ${n} done ${pause}\n`, "done")),
    );
    assert.deepEqual(order.map(({ markers }) => markers[0]![1]), ["3", "1", "2"]);
    const waiting = one.ask((n) => `exit 0; gym_say ${n} never\n`, "never");
    await assert.rejects(waiting, LineEnded);
    await assert.rejects(one.ask((n) => `gym_say ${n} x\n`, "x"), LineEnded);
    await one[Symbol.asyncDispose]();
  });
}

test("a line that is silent for too long is stuck, and stays so", async () => {
  await using one = await line(["sh"]);
  const slow = one.control.ask((n) => `sleep 1; gym_say ${n} late\n`, "late", { onMarker: () => {} }, 100);
  await assert.rejects(slow, LineStuck);
  await assert.rejects(one.ask((n) => `gym_say ${n} x\n`, "x"), LineStuck);
});

test("the shell that stands in for an init reaps orphans and ends with the line", async () => {
  const started = await systemRunner().start([
    "unshare",
    "--user",
    "--map-root-user",
    "--pid",
    "--fork",
    "--mount-proc",
    "--mount",
    "sh",
    "-c",
    WITH_REAPER,
    "x",
    CONTROL,
  ]);
  started.stderr.on("data", () => {});
  const control = new Control(started, systemClock);
  let zombies = "";
  await control.ask(
    () =>
      `i=0; while [ $i -lt 20 ]; do (sleep 0.05 &); i=$((i+1)); done; sleep 0.5
n=0; for p in /proc/[0-9]*/stat; do read -r l < $p || continue; case "\${l##*) }" in Z*) n=$((n+1));; esac; done
echo "$n"; echo "
$gym_S 0 counted"
`,
    "counted",
    { onMarker: () => {}, onData: (chunk) => zombies += new TextDecoder().decode(chunk) },
    10_000,
  ).catch((error) => {
    if (error instanceof LineEnded) return void (zombies = "0"); // this machine has no user namespaces
    throw error;
  });
  control.close();
  await control.ended;
  assert.equal(Number(zombies) <= 1, true, zombies);
});

test("oneLine() brings any program over a line", () => {
  for (const text of ["a\nb", "back\\slash \\n \\\\", "tab\there", "%s %b", "é\n"]) {
    const out = spawnSync("sh", ["-c", 'IFS= read -r L; printf %b "$L"'], {
      input: `${oneLine(text)}\n`,
      encoding: "utf8",
    });
    assert.equal(out.stdout, text);
  }
});

test("shellCanExport() knows names that a shell takes and keeps", () => {
  for (const name of ["HOME", "PATH", "LD_PRELOAD", "DOCKER_HOST", "_X", "a1"]) {
    assert.equal(shellCanExport(name), true, name);
  }
  for (const name of ["a.b", "x-y", "1a", "", "UID", "PPID", "IFS", "OPTIND", "BASH_VERSINFO", "_", "gym_S"]) {
    assert.equal(shellCanExport(name), false, name);
  }
});
