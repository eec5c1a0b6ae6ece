import assert from "node:assert/strict";
import { test } from "node:test";
import { interpolate, TemplateError } from "../../../lib/compose/interpolate.ts";

const VALUES: Record<string, string> = { A: "a", EMPTY: "", _x1: "under", TEMPLATE: "${LATER}", KEY: "secret-value" };

function run(text: string): { text: string; missing: string[] } {
  const missing: string[] = [];
  const get = (name: string) => (Object.hasOwn(VALUES, name) ? VALUES[name] : undefined);
  return { text: interpolate(text, { get, missing: (name) => void missing.push(name) }), missing };
}

test("interpolate() replaces every form of a variable", () => {
  const rows: [text: string, wanted: string][] = [
    ["no variable", "no variable"],
    ["$A-$_x1-", "a-under-"],
    ["${A}b", "ab"],
    ["$$A $${A} $$$$", "$A ${A} $$"],
    ["$$$A", "$a"],
    ["${A:-d} ${EMPTY:-d} ${NONE:-d}", "a d d"],
    ["${A-d} ${EMPTY-d} ${NONE-d}", "a  d"],
    ["${A:+r} ${EMPTY:+r} ${NONE:+r}", "r  "],
    ["${A+r} ${EMPTY+r} ${NONE+r}", "r r "],
    ["${A:?m} ${EMPTY?m}", "a "],
    ["${NONE:-${EMPTY:-${A}}}", "a"],
    ["${NONE:-x${A}y}z", "xayz"],
    ["${NONE:-}", ""],
    ["${NONE:-a:-b}", "a:-b"],
    ['${NONE:-{"k": {"a": 1}}}', '{"k": {"a": 1}}'],
    ["${NONE:-$$5}", "$5"],
    ["${A:+${NONE:-n}}", "n"],
  ];
  for (const [text, wanted] of rows) assert.equal(run(text).text, wanted, text);
});

test("interpolate() tells of names that are set nowhere, not of those with a default", () => {
  assert.deepEqual(run("$NONE ${OTHER} ${MORE:-d} ${EMPTY}"), { text: "  d ", missing: ["NONE", "OTHER"] });
  assert.deepEqual(run("${A:-$NONE}").missing, [], "a default that is not used asks for nothing");
});

test("interpolate() refuses what is no form, a wanted variable, and a value that is a template itself", () => {
  const rows: [text: string, message: RegExp][] = [
    ["a $ b", /begins no variable at '\$ b'/],
    ["$(date)", /begins no variable/],
    ["price: 5$", /begins no variable at '\$'/],
    ["$1", /begins no variable/],
    ["${A", /nothing closes/],
    ["${A:-${B}", /nothing closes/],
    ["${}", /no form/],
    ["${1A}", /no form/],
    ["${A B}", /no form/],
    ["${A:5}", /no form/],
    ["${A/b}", /no form/],
    ["${NONE:?say so}", /needs the variable NONE, which is not set: say so$/],
    ["${EMPTY:?}", /needs the variable EMPTY, which is empty$/],
    ["${NONE?m}", /not set: m$/],
    ["${TEMPLATE}", /TEMPLATE, whose value still holds/],
  ];
  for (const [text, message] of rows) {
    assert.throws(() => run(text), (error) => error instanceof TemplateError && message.test(error.message), text);
  }
  assert.throws(() => run("${KEY}$"), (error) => !String(error).includes("secret-value"));
});
