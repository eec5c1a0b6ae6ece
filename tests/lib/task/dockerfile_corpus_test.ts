import { test } from "node:test";
import assert from "node:assert/strict";
import { lstatSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { rewriteHeredocs, usesHeredocs } from "../../../lib/images/heredoc.ts";
import { parseDockerfile } from "../../../lib/task/dockerfile.ts";
import { classifyDockerfile, resolveDockerfile } from "../../../lib/task/dockerfile_mode.ts";
import { baseImages, stagesOf } from "../../../lib/task/dockerfile_stages.ts";
import { dataPath } from "../../support/kit.ts";

const inputs = dataPath("inputs");

/** Every Dockerfile below a folder. */
function* dockerfiles(folder: string): Generator<string> {
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    const found = lstatSync(path);
    if (found.isDirectory()) yield* dockerfiles(path);
    else if (found.isFile() && /dockerfile|containerfile/i.test(name)) yield path;
  }
}

test("real Dockerfiles are read, told apart and rewritten without a fault", {
  skip: inputs === undefined && "GYM_HARBOR_DATA is not set",
}, () => {
  const modes = { pull: 0, overlay: 0, build: 0 };
  for (const path of dockerfiles(inputs!)) {
    const text = readFileSync(path, "utf8");
    const { instructions } = parseDockerfile(text);
    const found = classifyDockerfile(text);
    modes[found.mode]++;
    if (found.mode !== "build") {
      const { image, changes } = found;
      resolveDockerfile(changes);
      assert.deepEqual(baseImages(text), image === "scratch" ? [] : [image], path);
    }
    const froms = instructions.filter(({ name }) => name === "FROM").length;
    assert.equal(stagesOf(text).stages.length, froms, path);
    if (usesHeredocs(text)) {
      const { text: written } = rewriteHeredocs(text, { filesImage: "files" });
      assert.equal(usesHeredocs(written), false, path);
      const linesOf = (all: typeof instructions) => all.map(({ line }) => line);
      assert.deepEqual(linesOf(parseDockerfile(written).instructions), linesOf(instructions), path);
    }
  }
  assert.ok(modes.build > 100 && modes.overlay > 20 && modes.pull > 10, JSON.stringify(modes));
});
