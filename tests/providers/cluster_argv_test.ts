import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import * as apptainer from "../../providers/_apptainer_argv.ts";
import * as enroot from "../../providers/_enroot_argv.ts";
import { BEGIN, beginArgv, inGroups, logged, unlessAbsent } from "../../providers/_cluster_launch.ts";
import { CONTROL, LAUNCH, LAUNCH_WITH_ARCHIVE } from "../../providers/_oci_scripts.ts";

const INSTANCE: apptainer.StartRequest = {
  id: "box",
  image: "/c/x.sif",
  overlay: "/s/overlay",
  fakeroot: false,
  network: true,
  gpu: false,
  log: "/s/log",
};

const STARTS: [what: string, more: Partial<apptainer.StartRequest>, has: string[], hasNot: string[]][] = [
  ["as root, with a network", {}, ["--overlay /s/overlay", "--containall", "--cleanenv", "--no-eval"], [
    "--fakeroot",
    "--net",
    "--nv",
    "--writable-tmpfs",
  ]],
  ["as a plain user", { fakeroot: true }, ["--fakeroot"], []],
  ["without a network", { network: false }, ["--net --network none"], []],
  ["with its writes in memory", { overlay: undefined }, ["--writable-tmpfs"], ["--overlay"]],
  ["with GPUs", { gpu: true }, ["--nv"], []],
];

for (const [what, more, has, hasNot] of STARTS) {
  test(`apptainer starts an instance ${what}`, () => {
    const argv = apptainer.startArgv("apptainer", { ...INSTANCE, ...more });
    assert.deepEqual(argv.slice(3, 7), ["/s/log", "apptainer", "instance", "start"]);
    assert.deepEqual(argv.slice(-2), ["/c/x.sif", "box"], "image and name come last");
    const line = argv.join(" ");
    assert.match(line, /--no-mount home,tmp,bind-paths/);
    for (const word of has) assert.ok(line.includes(` ${word}`), word);
    for (const word of hasNot) assert.ok(!line.includes(` ${word}`), word);
  });
}

test("apptainer runs a command in an instance by our launcher, its program by stdin", () => {
  const argv = apptainer.execArgv("apptainer", true, {
    name: "box",
    user: "alice",
    archive: true,
    envNames: ["a.b"],
    shell: "/bin/bash",
  });
  assert.deepEqual(argv, [
    ...["apptainer", "exec", "--pwd", "/", "--cleanenv", "--no-eval", "--fakeroot", "instance://box"],
    ...["/bin/sh", "-c", BEGIN, "gym-harbor", "alice", LAUNCH_WITH_ARCHIVE, "/bin/bash"],
  ]);
  assert.deepEqual(apptainer.carried({ "a.b": "secret" }), { "APPTAINERENV_a.b": "secret" });
  assert.deepEqual(apptainer.controlArgv("apptainer", "box", false).slice(-4), [
    "instance://box",
    "/bin/sh",
    "-c",
    CONTROL,
  ]);
});

const LISTS: [stdout: string, pid: number | undefined][] = [
  ['{"instances":[{"instance":"other","pid":1},{"instance":"box","pid":42,"img":"/x.sif"}]}', 42],
  ['{"instances":[]}', undefined],
  ['{"instances":null}', undefined],
  ["INFO: no JSON", undefined],
];

for (const [stdout, pid] of LISTS) {
  test(`apptainer's ${stdout.slice(0, 40)} means pid ${pid}`, () =>
    assert.equal(apptainer.instancePid(stdout, "box"), pid));
}

test("enroot starts in the background, as root inside, an image's own start script passed over", () => {
  const request = { id: "box", ttlSeconds: 60, log: "/s/log" };
  const argv = enroot.startArgv({ ...request, bypassRc: true });
  assert.deepEqual(argv.slice(3, 11), ["/s/log", "enroot", "start", "--rw", "--root", "--rc", "/dev/null", "box"]);
  assert.equal(argv.at(-1), "60");
  assert.deepEqual(enroot.controlArgv(42), ["enroot", "exec", "42", "/bin/sh", "-c", CONTROL]);
  assert.ok(!enroot.startArgv({ ...request, bypassRc: false }).includes("--rc"));
});

test("enroot runs a command beside a pid; odd variables go by name, from its own environment", () => {
  const argv = enroot.execArgv(42, {
    name: "box",
    user: undefined,
    archive: false,
    envNames: ["a.b"],
    shell: "/bin/sh",
  });
  assert.deepEqual(argv, [
    ...["enroot", "exec", "--env", "a.b", "42"],
    ...beginArgv(undefined, false, "/bin/sh"),
  ]);
  assert.equal(argv.at(-2), LAUNCH);
});

const TABLES: [what: string, table: string, pid: number | undefined][] = [
  [
    "running",
    "NAME  PID  COMM  STATE  STARTED  TIME  MNTNS  USERNS  COMMAND\nbox   42   sh    S      10:00    0    1   2   sh\n",
    42,
  ],
  ["not running", "NAME  PID  COMM\nbox\n", undefined],
  ["another's name", "NAME  PID  COMM\nbox2  42  sh\n", undefined],
  ["nothing", "", undefined],
];

for (const [what, table, pid] of TABLES) {
  test(`enroot's list: ${what}`, () => assert.equal(enroot.containerPid(table, "box"), pid));
}

test("enroot keeps all of a sandbox below its folder, and asks for no GPU that was not asked for", () => {
  const env = enroot.enrootEnv("/s/box", false);
  for (const name of ["ENROOT_DATA_PATH", "ENROOT_CACHE_PATH", "ENROOT_RUNTIME_PATH", "ENROOT_TEMP_PATH"]) {
    assert.match(env[name]!, /^\/s\/box\//, name);
  }
  assert.equal(env.NVIDIA_VISIBLE_DEVICES, "void");
  assert.equal(enroot.enrootEnv("/s/box", true).NVIDIA_VISIBLE_DEVICES, "all");
});

const ran = (argv: string[], input = "") => spawnSync(argv[0]!, argv.slice(1), { input, encoding: "utf8" });

test("unlessAbsent() forgives that there is nothing to remove, and nothing else", () => {
  const saying = (text: string, code: number) => ["/bin/sh", "-c", `echo '${text}' >&2; exit ${code}`];
  assert.equal(ran(unlessAbsent("no instance found", saying("FATAL: no instance found with name x", 255))).status, 0);
  assert.equal(ran(unlessAbsent("no instance found", saying("fine", 0))).status, 0);
  const failed = ran(unlessAbsent("no instance found", saying("permission denied", 255)));
  assert.deepEqual([failed.status, failed.stderr], [1, "permission denied\n"]);
});

test("logged() and inGroups() run what they are given, words untouched", () => {
  assert.deepEqual(inGroups([], ["a", "b c"]), ["a", "b c"]);
  const joined = ran(inGroups(["/not/there"], ["echo", "ran"]));
  assert.deepEqual([joined.status, joined.stdout], [125, ""], "outside of its groups nothing runs");
  assert.equal(ran(logged("/dev/null", ["sh", "-c", "exit 7"])).status, 7);
});

test("the launcher begins as a session's leader, with its program by stdin", () => {
  const script = "secret\nread -r l </proc/self/stat; set -- ${l##*) }; [ $4 = $$ ] && echo leads; exit 3\n";
  const [program, ...words] = beginArgv(undefined, false, "/bin/sh");
  // Not a leader already: setsid would have to fork then, which sandboxes' execs never need.
  const began = ran(["/bin/sh", "-c", '"$@"; exit $?', "sh", program!, ...words], script);
  assert.deepEqual([began.stdout, began.status], ["leads\n", 3]);
});

test("a user that nobody knows is named", () => {
  const began = ran(beginArgv("nobody-knows", false, "/bin/sh")); // nothing is read
  assert.deepEqual([began.status, began.stdout], [126, ""]);
  assert.match(began.stderr, /unable to find user nobody-knows/);
});
