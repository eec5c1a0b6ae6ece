import { test } from "node:test";
import assert from "node:assert/strict";
import { z } from "zod";
import { HelpShown, parseWith } from "../../cmd/_options.ts";
import { HarborError } from "../../lib/errors.ts";

const Options = z.strictObject({
  taskPath: z.string(),
  json: z.boolean().default(false),
  numRepeats: z.coerce.number("a whole number").int().min(1, "must be 1 or more").default(1),
});
const parse = (argv: string[]) =>
  parseWith(argv, Options, (command) =>
    command.name("try").description("Tries\na task.")
      .argument("<task-path>", "a task")
      .option("--json", "lines")
      .option("--num-repeats <n>", "how often"));

test("parseWith() gives finished options under camelCase names", () => {
  assert.deepEqual(parse(["a", "--num-repeats", "3"]), { taskPath: "a", json: false, numRepeats: 3 });
  assert.deepEqual(parse(["--json", "--num-repeats=2", "a"]), { taskPath: "a", json: true, numRepeats: 2 });
  assert.deepEqual(parse(["--", "--json"]), { taskPath: "--json", json: false, numRepeats: 1 });
});

for (
  const [argv, message, hint] of [
    [["a", "--jsno"], "unknown option '--jsno'", "did you mean --json?"],
    [["a", "--zzz"], "unknown option '--zzz'", "see gym-harbor try -h"],
    [["a", "b"], /^too many arguments/, "see gym-harbor try -h"],
    [["--json"], "missing required argument 'task-path'", "see gym-harbor try -h"],
    [["a", "--num-repeats"], "option '--num-repeats <n>' argument missing", "see gym-harbor try -h"],
    [["a", "--num-repeats", "0"], "--num-repeats: must be 1 or more", "see gym-harbor try -h"],
    [["a", "--num-repeats", "many"], "--num-repeats: a whole number", "see gym-harbor try -h"],
  ] as const
) {
  test(`parseWith() refuses ${JSON.stringify(argv)} as usage`, () => {
    assert.throws(() => parse([...argv]), (error) => {
      assert.ok(error instanceof HarborError);
      assert.equal(error.code, "usage");
      if (typeof message === "string") assert.equal(error.message, message);
      else assert.match(error.message, message);
      assert.equal(error.hint, hint);
      return true;
    });
  });
}

for (
  const [argv, exit] of [
    [["-h"], 0],
    [["a", "--help"], 0],
    [[], 2],
  ] as const
) {
  test(`parseWith() answers ${JSON.stringify(argv)} with help and exit ${exit}`, () => {
    assert.throws(() => parse([...argv]), (error) => {
      assert.ok(error instanceof HelpShown);
      assert.equal(error.exit, exit);
      assert.match(error.text, /^Usage: gym-harbor try \[options\] <task-path>\n\nTries a task\.\n/);
      return true;
    });
  });
}
