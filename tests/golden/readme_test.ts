import { test } from "node:test";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { COMMANDS, main } from "../../cmd/mod.ts";
import { spellings } from "../../cmd/_help.ts";
import { testContext } from "../support/context.ts";

const root = join(import.meta.dirname!, "..", "..");
const readme = readFileSync(join(root, "README.md"), "utf8");
const config = JSON.parse(readFileSync(join(root, "deno.json"), "utf8")) as { imports: Record<string, string> };
const tools = JSON.parse(readFileSync(join(root, "tools", "package.json"), "utf8"));

/** `$ gym-harbor …` lines of console blocks, each with the lines that follow it. */
const examples = [...readme.matchAll(/^```console\n([\s\S]*?)^```/gm)].flatMap(([, block]) =>
  block!.split(/^\$ /m).slice(1).map((part) => {
    const [line, ...output] = part.trimEnd().split("\n");
    return { line: line!, output };
  })
);

test("the README has examples", () => assert.ok(examples.length > 0));

for (const { line, output } of examples) {
  test(`README: '${line}' prints what it says`, async () => {
    const { ctx, out } = testContext({ cwd: root });
    const [program, ...argv] = line.split(" ");
    assert.equal(program, "gym-harbor");
    assert.equal(await main(argv, ctx), 0);
    assert.deepEqual(out, output);
  });
}

test("the README opens with the two commands, by the pinned deno", () => {
  const first = /```sh\n([\s\S]*?)```/.exec(readme)?.[1];
  const deno = tools.dependencies.deno;
  assert.equal(first, `npx -y deno@${deno} task demo\nnpx -y deno@${deno} task test\n`);
});

test("the README names every command of this version, and no other", () => {
  const table = readme.slice(readme.indexOf("## Commands"), readme.indexOf("## Exit codes"));
  const named = [...table.matchAll(/^\| (`.*?)\|([^|]*)\|/gm)]
    .flatMap(([, name, also]) => [...`${name}${also}`.matchAll(/`([^`]+)`/g)])
    .map(([, words]) => words!.replace(/ (PATH|NAME).*/, ""));
  const known = COMMANDS.filter((entry) => entry.load !== undefined && !entry.hidden).flatMap(spellings);
  assert.deepEqual(named.sort(), known.filter((name) => name !== "-V").sort());
});

test("the README explains every dependency, and no other", () => {
  const table = readme.slice(readme.indexOf("## Dependencies"), readme.indexOf("## Numbers"));
  const explained = [...table.matchAll(/^\| `([^`]+)`/gm)].map((match) => match[1]!);
  assert.deepEqual(explained.sort(), Object.keys(config.imports).sort());
});
