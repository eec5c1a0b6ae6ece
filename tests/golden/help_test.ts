import { test } from "node:test";
import assert from "node:assert/strict";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { COMMANDS, main } from "../../cmd/mod.ts";
import { spellings } from "../../cmd/_help.ts";
import { testContext } from "../support/context.ts";
import { golden } from "./golden.ts";

const built = COMMANDS.filter((entry) => entry.load !== undefined && !entry.hidden).map((entry) => entry.name);
const groups = [...new Set(COMMANDS.flatMap(spellings).filter((name) => name.includes(" ")).map((name) => name.split(" ")[0]!))];
const names = ["gym-harbor", ...built, ...groups];
const fileOf = (name: string): string => `help/${name.replaceAll(" ", "-")}.txt`;

if (process.env.GOLDEN === "write") rmSync(join(import.meta.dirname!, "help"), { recursive: true, force: true });

for (const name of names) {
  test(`help of ${name} reads as it did, within 100 columns`, async () => {
    const { ctx, out } = testContext();
    assert.equal(await main([...(name === "gym-harbor" ? [] : name.split(" ")), "-h"], ctx), 0);
    const text = out.join("\n") + "\n";
    for (const line of text.split("\n")) assert.ok(line.length <= 100, `${line.length} columns: ${line}`);
    golden(fileOf(name), text);
  });
}

test("no golden help is left of a command that went", () => {
  const files = readdirSync(join(import.meta.dirname!, "help")).map((name) => `help/${name}`);
  assert.deepEqual(files.filter((file) => !names.map(fileOf).includes(file)), []);
});
