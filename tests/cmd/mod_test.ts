import { test } from "node:test";
import assert from "node:assert/strict";
import { COMMANDS, type Entry, find, main } from "../../cmd/mod.ts";
import { HelpShown, spellings } from "../../cmd/_help.ts";
import { HarborError } from "../../lib/errors.ts";
import { testContext } from "../support/context.ts";

const nothing = () => Promise.resolve({ parse: () => ({}), run: () => Promise.resolve(0) });
const table: Entry[] = [
  { name: "validate", aliases: ["dataset validate"], about: "grade", section: "Run", load: nothing },
  { name: "sandbox gc", aliases: [], about: "remove", section: "Machine", load: nothing },
  { name: "relay", aliases: [], about: "inside", section: "", hidden: true, load: nothing },
  { name: "eval plan", aliases: [], about: "show attempts", section: "" },
  { name: "env start", aliases: [], about: "part of Python servers", section: "", never: true },
];

for (
  const [line, name, rest] of [
    ["validate a -q", "validate", "a -q"],
    ["dataset validate a", "validate", "a"],
    ["-v --json validate a", "validate", "a -v --json"],
    ["sandbox gc", "sandbox gc", ""],
    ["relay 3", "relay", "3"],
    ["help validate", "validate", "-h"],
    ["help dataset validate", "validate", "-h"],
    ["-h sandbox gc", "sandbox gc", "-h"],
  ] as const
) {
  test(`find() reads '${line}' as ${name}`, async () => {
    const found = await find(line.split(" "), table);
    assert.equal(found.entry.name, name);
    assert.equal(found.rest.join(" "), rest);
  });
}

for (
  const [line, exit, says] of [
    ["", 2, "Usage: gym-harbor COMMAND"],
    ["-v", 2, "Usage: gym-harbor COMMAND"],
    ["-h", 0, "Usage: gym-harbor COMMAND"],
    ["help", 0, "Usage: gym-harbor COMMAND"],
    ["dataset", 2, "Usage: gym-harbor dataset COMMAND"],
    ["dataset -h", 0, "Usage: gym-harbor dataset COMMAND"],
    ["help eval", 0, "Not in this version: eval plan."],
  ] as const
) {
  test(`find() answers '${line}' with help and exit ${exit}`, async () => {
    await assert.rejects(find(line.split(" ").filter(Boolean), table), (error) => {
      assert.ok(error instanceof HelpShown);
      assert.equal(error.exit, exit);
      assert.ok(error.text.includes(says), error.text);
      return true;
    });
  });
}

for (
  const [line, code, message, hint] of [
    ["valdate a", "usage", "unknown command 'valdate'", "did you mean 'gym-harbor validate'?"],
    ["datset validate", "usage", "unknown command 'datset'", "did you mean 'gym-harbor dataset validate'?"],
    ["sandbox cg", "usage", "unknown command 'sandbox cg'", "did you mean 'gym-harbor sandbox gc'?"],
    ["sandbox everything", "usage", "unknown command 'sandbox everything'", "gym-harbor sandbox -h lists the commands"],
    ["--hlep", "usage", "unknown option '--hlep'", "did you mean 'gym-harbor --help'?"],
    ["./tasks", "usage", "unknown command './tasks'", "to try the tasks below it: gym-harbor validate ./tasks"],
    ["rely", "usage", "unknown command 'rely'", "gym-harbor -h lists the commands"],
    ["eval plan x", "not-built", "'eval plan' (show attempts) is not in this version", "gym-harbor -h lists what is"],
    ["env start", "not-built", "'env start' is part of Python servers, not of gym-harbor", undefined],
  ] as const
) {
  test(`find() refuses '${line}' by name`, async () => {
    await assert.rejects(find(line.split(" "), table), (error) => {
      assert.ok(error instanceof HarborError);
      assert.equal(error.code, code);
      assert.equal(error.message, message);
      if (hint !== undefined) assert.equal(error.hint, hint);
      return true;
    });
  });
}

test("no two commands share a spelling", () => {
  const names = COMMANDS.flatMap(spellings);
  assert.deepEqual(names, [...new Set(names)]);
});

test("main() prints an error as code, fact and next step, and exits 2 for the command line", async () => {
  const { ctx, out, notes } = testContext();
  assert.equal(await main(["vlaidate"], ctx), 2);
  assert.deepEqual(notes, ["error[usage]: unknown command 'vlaidate'", "hint: did you mean 'gym-harbor validate'?"]);
  assert.deepEqual(out, []);
});

test("main() prints an error as one JSON object on stderr under --json", async () => {
  const { ctx, notes } = testContext();
  assert.equal(await main(["eval", "plan", "--json"], ctx), 2);
  assert.equal(notes.length, 1);
  const { error } = JSON.parse(notes[0]!);
  assert.equal(error.code, "not-built");
  assert.match(error.hint, /-h/);
});

for (const line of ["--version", "-V", "version"]) {
  test(`main() prints the version for '${line}'`, async () => {
    const { ctx, out } = testContext();
    assert.equal(await main([line], ctx), 0);
    assert.match(out.join("\n"), /^gym-harbor \d+\.\d+\.\d+$/);
  });
}

test("--version --json gives version, commit, runtime and platform", async () => {
  const { ctx, out } = testContext();
  assert.equal(await main(["--version", "--json"], ctx), 0);
  assert.deepEqual(Object.keys(JSON.parse(out[0]!)), ["version", "commit", "runtime", "platform"]);
});

test("--version refuses words it does not know", async () => {
  const { ctx } = testContext();
  assert.equal(await main(["--version", "--jsn"], ctx), 2);
});
