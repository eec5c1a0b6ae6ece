import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, utimesSync } from "node:fs";
import { dirname } from "node:path";
import { test } from "node:test";
import { hashTask, taskDigest } from "../../../lib/digest/task.ts";
import { contextHash } from "../../../lib/digest/context.ts";
import { walkTree } from "../../../lib/files/tree.ts";
import { dataPath, dataRows } from "../../support/data.ts";
import { type Files, TempFolder, writeFiles } from "../../support/tasks.ts";

const PLAIN: Files = {
  "task.toml": "",
  "instruction.md": "x",
  "environment/Dockerfile": "FROM x",
  "tests/test.sh": "t",
  "solution/solve.sh": "s",
};

function hashed(files: Files) {
  using temp = new TempFolder();
  const folder = temp.join("task");
  writeFiles(folder, files);
  return hashTask(folder, { dirhash: true });
}

// The vectors of task-format §9.1 and §9.3.
const SPEC: Files = {
  "task.toml": 'schema_version = "1.4"\n',
  "instruction.md": "Do it.\n",
  "tests/test.sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n",
  "environment/Dockerfile": "FROM ubuntu:24.04\n",
  "environment/sub/\u00e9.txt": "x",
  "tests/a.swp": "ignored",
  "notes.txt": "not covered",
};

test("hashTask() gives the values of the specification's vector", () => {
  const hashes = hashed(SPEC);
  assert.deepEqual(hashes.problems, []);
  assert.equal(hashes.task_digest, "c5ce36f830d6be620693affb739173a70245ba7f5a77d401b7187581e8e858af");
  assert.equal(hashes.package_hash, hashes.task_digest);
  assert.equal(hashes.context_hash, "4c473bcce8197d76b4d88b6290ebbc32");
});

test("taskDigest() and contextHash() give what hashTask() gives", () => {
  using temp = new TempFolder();
  writeFiles(temp.path, SPEC);
  const hashes = hashTask(temp.path);
  assert.equal(taskDigest(temp.path), hashes.task_digest);
  assert.equal(contextHash(temp.join("environment")), hashes.context_hash);
  assert.equal("dirhash" in hashes, false);
});

// What Harbor 0.25.0 says to trees of the repository's own; more of them in the vectors below.
const OWN: { tree: string; files: Files; package_hash: string; context_hash: string; dirhash: string }[] = [
  {
    tree: "plain",
    files: PLAIN,
    package_hash: "6e93809465fd2f8a21e53ad8bc9bdc26a710359ee422c9c5bc6d2749a7b2a56d",
    context_hash: "222fad2eb1f64f3d1ee34ecf5d9a516a",
    dirhash: "8177e13c8efde99377822d0c63de06edf255f7bde0d1c7f9778b123c9562f386",
  },
  {
    tree: "an inner .harborignore takes back",
    files: {
      ...PLAIN,
      "tests/.harborignore": "*.log\n",
      "tests/sub/.harborignore": "!*.log\n",
      "tests/a.log": "1",
      "tests/sub/b.log": "2",
    },
    package_hash: "cad44a2d810253d517ec179455e2032eccc82619ce7f290e1665eb8bc9fe4ea4",
    context_hash: "222fad2eb1f64f3d1ee34ecf5d9a516a",
    dirhash: "3730e3bdcc7616f2822699f36604ba3fdb68294ef6c93124ee464663b97ee934",
  },
  {
    tree: "environment/ is a link to a folder of the task",
    files: {
      "task.toml": "",
      "instruction.md": "x",
      "tests/test.sh": "t",
      "solution/solve.sh": "s",
      "env-real/Dockerfile": "FROM x",
      environment: { symlink: "env-real" },
    },
    package_hash: "6e93809465fd2f8a21e53ad8bc9bdc26a710359ee422c9c5bc6d2749a7b2a56d",
    context_hash: "222fad2eb1f64f3d1ee34ecf5d9a516a",
    dirhash: "4e785537c883e67e9bf388f833a37afb5b1c8bca96c2e77e6d7fe74b372323f1",
  },
];

for (const { tree, files, ...wanted } of OWN) {
  test(`hashTask() agrees with Harbor 0.25.0: ${tree}`, () => {
    const { package_hash, context_hash, dirhash } = hashed(files);
    assert.deepEqual({ package_hash, context_hash, dirhash }, wanted);
  });
}

const newer = dataRows("vectors", "harbor-0.25.0", "hashes.jsonl");
const older = dataRows("vectors", "hashes.jsonl").filter((row) => !newer.some(({ tree }) => tree === row.tree));
for (const row of [...newer, ...older].filter((row) => row.files !== undefined)) {
  test(`hashTask() agrees with Harbor's vectors: ${row.tree}`, () => {
    for (const [path, spec] of Object.entries(row.files)) {
      if ((spec as { dir?: unknown }).dir === true) row.files[path] = { dir: 1 }; // as the older file spells it
    }
    const { package_hash, context_hash, dirhash } = hashed(row.files);
    assert.equal(context_hash, row.environment_id, "environment id");
    assert.equal(package_hash, row.package_content_hash, "package hash");
    assert.equal(dirhash, row.task_checksum_dirhash_sha256, "directory checksum");
  });
}
for (const row of newer) {
  for (const [key, wanted] of Object.entries(row)) {
    const image = /^environment_id_with_docker_image_(.*)$/.exec(key)?.[1];
    if (image === undefined) continue;
    test(`contextHash() agrees with Harbor's vectors: an empty context with image ${image}`, () => {
      using temp = new TempFolder();
      mkdirSync(temp.join("environment"));
      assert.equal(contextHash(temp.join("environment"), { dockerImage: image }), wanted);
    });
  }
}

test("hashTask() does not look at modes, times, empty folders and leftovers", () => {
  using temp = new TempFolder();
  writeFiles(temp.path, PLAIN);
  const before = hashTask(temp.path);
  chmodSync(temp.join("tests/test.sh"), 0o700);
  utimesSync(temp.join("task.toml"), 1, 1);
  writeFiles(temp.path, {
    "tests/empty/deeper": { dir: 1 },
    "tests/__pycache__/a.pyc": "1",
    "tests/x~": "2",
    "steps/.DS_Store": "3",
    "notes.txt": "4",
  });
  const after = hashTask(temp.path);
  assert.equal(after.task_digest, before.task_digest);
  assert.equal(after.package_hash, before.package_hash);
  assert.equal(after.context_hash, before.context_hash);
});

// Files that only one of the two digests covers, or that both must tell apart.
const CHANGES: [string, Files, { task: boolean; package: boolean }][] = [
  ["task_data.json", { "task_data.json": "{}" }, { task: true, package: false }],
  ["trajectory.json", { "trajectory.json": "{}" }, { task: true, package: true }],
  ["README.md", { "README.md": "r" }, { task: true, package: true }],
  ["a hidden file", { "tests/.x": "1" }, { task: true, package: true }],
  ["a file that .harborignore hides", { "tests/.harborignore": "h\n", "tests/h": "1" }, { task: true, package: false }],
  ["a file named __pycache__", { "tests/__pycache__": "1" }, { task: false, package: true }],
];
for (const [what, files, changes] of CHANGES) {
  test(`hashTask() sees ${what} where it should`, () => {
    const before = hashed(PLAIN);
    const after = hashed({ ...PLAIN, ...files });
    assert.equal(after.task_digest !== before.task_digest, changes.task, "task digest");
    assert.equal(after.package_hash !== before.package_hash, changes.package, "package hash");
  });
}

test("hashTask() counts a link to a file by the bytes it leads to", () => {
  const linked = hashed({ ...PLAIN, "tests/data": { symlink: "../environment/Dockerfile" } });
  const copied = hashed({ ...PLAIN, "tests/data": "FROM x" });
  assert.equal(linked.task_digest, copied.task_digest);
  assert.equal(linked.package_hash, copied.package_hash);
});

const REFUSED: [string, Files, RegExp][] = [
  [
    "a link out of the task",
    { "tests/x": { symlink: "/etc/passwd" } },
    /^Task file escapes the task folder: tests\/x$/,
  ],
  [
    "a link out and to nothing",
    { "tests/x": { symlink: "../../none" } },
    /^Task file escapes the task folder: tests\/x$/,
  ],
  [
    "a link to a sibling whose name begins alike",
    { "tests/x": { symlink: "../../task-2/f" } },
    /escapes the task folder/,
  ],
  ["a link to a folder", { "tests/d/f": "1", "tests/x": { symlink: "d" } }, /^Directory symlinks .*: tests\/x$/],
  ["a folder that is a link", { real: { dir: 1 }, steps: { symlink: "real" } }, /^Directory symlinks .*: steps$/],
];
for (const [what, files, message] of REFUSED) {
  test(`hashTask() has no task digest for ${what}, and says why`, () => {
    const hashes = hashed({ ...PLAIN, ...files });
    assert.equal(hashes.task_digest, null);
    assert.equal(hashes.problems[0]!.hash, "task_digest");
    assert.match(hashes.problems[0]!.message, message);
    assert.ok(hashes.problems[0]!.hint);
    assert.ok(hashes.context_hash !== null);
  });
}

test("hashTask() reads nothing outside of the task, whichever link leads there", () => {
  using temp = new TempFolder();
  writeFiles(temp.path, { "outside/f": "1", "task/tests/test.sh": "t", "task/task.toml": "" });
  writeFiles(temp.join("task"), {
    "environment/f": { symlink: "../../outside/f" },
    "extra": { symlink: "../outside" },
    "steps": { symlink: "/" },
  });
  const hashes = hashTask(temp.join("task"), { dirhash: true });
  assert.deepEqual(hashes.problems.map(({ hash, message }) => `${hash}: ${message}`), [
    "task_digest: Task file escapes the task folder: environment/f",
    "package_hash: Task file escapes the task folder: environment/f",
    "dirhash: Task file escapes the task folder: environment/f",
  ]);
  assert.equal(hashes.context_hash, "ba5285161ba6eed0085fb13784ce5c92", "links do not count there");
});

test("hashTask() leaves out a link that leads to nothing inside the task", () => {
  const hashes = hashed({ ...PLAIN, "tests/x": { symlink: "gone" } });
  assert.equal(hashes.task_digest, hashed(PLAIN).task_digest);
});

test("hashTask() never opens FIFOs and leaves them out", () => {
  using temp = new TempFolder();
  writeFiles(temp.path, PLAIN);
  const before = hashTask(temp.path, { dirhash: true });
  for (const path of ["environment/p", "tests/p", "p"]) execFileSync("mkfifo", [temp.join(path)]);
  assert.deepEqual(hashTask(temp.path, { dirhash: true }), before);
});

test("hashTask() names a link that leads round in a circle, and still gives the other hashes", () => {
  const hashes = hashed({ ...PLAIN, "extra/loop": { symlink: ".." } });
  assert.equal(hashes.dirhash, null);
  assert.match(hashes.problems[0]!.message, /never end/);
  assert.equal(hashes.task_digest, hashed(PLAIN).task_digest);
});

test("hashTask() takes long paths, odd names and files of any length", () => {
  const deep = Array.from({ length: 12 }, () => "d".repeat(200)).join("/");
  const large = "0123456789abcdef".repeat(200_000); // 3.2 MB, more than one buffer
  const files: Files = {
    ...PLAIN,
    [`environment/${deep}/f`]: "1",
    "tests/a\nb": "2",
    "environment/large": large,
    "tests/large": large,
  };
  const hashes = hashed(files);
  assert.deepEqual(hashes.problems, []);
  assert.notEqual(hashes.task_digest, hashed({ ...files, "tests/large": `${large.slice(0, -1)}x` }).task_digest);
});

test("hashTask() says which name is not UTF-8, where it matters", () => {
  using temp = new TempFolder();
  writeFiles(temp.path, PLAIN);
  const before = hashTask(temp.path);
  execFileSync("sh", ["-c", `printf x > "$(printf 'bad-\\377')"`], { cwd: temp.path });
  assert.deepEqual(hashTask(temp.path), before, "outside of what is covered");
  execFileSync("sh", ["-c", `printf x > "$(printf 'bad-\\377')"`], { cwd: temp.join("tests") });
  const hashes = hashTask(temp.path);
  assert.equal(hashes.context_hash, before.context_hash);
  assert.equal(hashes.task_digest, null);
  assert.match(hashes.problems[0]!.message, /tests\/bad-\ufffd: the file's name is not UTF-8/);
});

test("hashTask() says why a package hash cannot be had", () => {
  for (
    const [files, message] of [
      [{ ".gitignore": { hex: "ff0a" } }, /\.gitignore: .*/],
      [{ ".gitignore": { dir: 1 } }, /\.gitignore: it is not a file/],
      [{ ".gitignore": "a\\\n" }, /\.gitignore:1: 'a\\' is no ignore pattern/],
      [{ "README.md/x": "1" }, /README\.md: it is not a file/],
      [{ "tests/.harborignore": { hex: "ff0a" } }, /tests\/\.harborignore: it is not UTF-8/],
    ] as [Files, RegExp][]
  ) {
    const hashes = hashed({ ...PLAIN, ...files });
    assert.equal(hashes.package_hash, null);
    assert.match(hashes.problems.find(({ hash }) => hash === "package_hash")!.message, message);
    assert.ok(hashes.task_digest !== null && hashes.context_hash !== null);
  }
});

const real = dataPath("real-tasks");
test(
  "hashTask() has every hash of every real task",
  { skip: real === undefined && "GYM_HARBOR_DATA is not set" },
  () => {
    let count = 0;
    walkTree(real!, ({ path, name, kind }) => {
      if (kind !== "file" || name !== "task.toml") return;
      count++;
      const hashes = hashTask(dirname(`${real}/${path}`), { dirhash: true });
      assert.deepEqual(hashes.problems, [], path);
    });
    assert.ok(count > 0);
  },
);
