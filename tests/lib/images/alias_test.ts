import { test } from "node:test";
import assert from "node:assert/strict";
import { localAlias } from "../../../lib/images/alias.ts";

const CONFIG = `sha256:0123456789abcdef${"f".repeat(48)}`;

test("localAlias() is one name for all spellings of a reference, by the image's own bytes", () => {
  const rows: [string, string][] = [
    ["python:3.12", "python"],
    ["docker.io/library/python:3.12", "python"],
    [`library/python@sha256:${"a".repeat(64)}`, "python"],
    ["127.0.0.1:5000/org/deep/tool_x:1", "tool_x"],
    ["hb__0123", "hb__0123"],
  ];
  for (const [reference, slug] of rows) {
    assert.equal(localAlias(reference, CONFIG), `localhost/gym-harbor/${slug}:0123456789abcdef`, reference);
  }
});
