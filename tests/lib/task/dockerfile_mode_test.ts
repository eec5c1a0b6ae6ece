import { test } from "node:test";
import assert from "node:assert/strict";
import { type Change, classifyDockerfile, expandWord, resolveDockerfile } from "../../../lib/task/dockerfile_mode.ts";

const said = (text: string): string => {
  const mode = classifyDockerfile(text);
  return mode.mode === "build" ? `build: ${mode.reason}` : `${mode.mode} ${mode.image}`;
};

function changesOf(text: string): Change[] {
  const mode = classifyDockerfile(text);
  assert.notEqual(mode.mode, "build");
  return mode.mode === "build" ? [] : mode.changes;
}

/** Every row of task-format §6.3's tables. */
const MODES: [dockerfile: string, mode: string][] = [
  ["FROM a", "pull a"],
  ["FROM --platform=linux/amd64 a:1 AS base", "pull a:1"],
  ["FROM a\nWORKDIR /x\nENV A=b\nUSER u\nLABEL x=y\nCMD []\nENTRYPOINT [ ]", "pull a"],
  ["FROM a\nRUN true", "overlay a"],
  ['FROM a\nRUN ["echo", "it\'s"]', "overlay a"],
  ["FROM a\nRUN [ -f x ]", "overlay a"],
  ["# syntax=docker/dockerfile:1\nFROM a", "pull a"],
  ["FROM a\nRUN cat <<< x", "overlay a"],
  ['FROM a\nRUN echo $((1<<2)) "<<EOF"', "overlay a"],
  ["FROM a\nFROM b", "build: a second FROM (multi-stage build)"],
  ["FROM", "build: FROM without an image"],
  ["FROM --platform=x", "build: FROM without an image"],
  ["FROM a:$V", "build: FROM a:$V (ARG-templated image)"],
  ["FROM a b", "build: FROM a b"],
  ["FROM a AS", "build: FROM a AS"],
  ["ARG V=1\nFROM a:${V}", "build: ARG before FROM"],
  ["run x", "build: RUN before FROM"],
  ["FROM a\nRUN --mount=type=cache,target=/x make", "build: RUN --mount (BuildKit flags)"],
  ["FROM a\nRUN --network=none make", "build: RUN --network (BuildKit flags)"],
  ["FROM a\nRUN", "build: RUN with no command"],
  ["FROM a\nRUN <<EOF\nx\nEOF", "build: RUN with a heredoc (<<EOF)"],
  ["FROM a\nRUN cat <<-'E' > /x\nx\nE", "build: RUN with a heredoc (<<EOF)"],
  ["FROM a\nRUN []", "build: RUN []"],
  ['FROM a\nRUN ["a", 1]', 'build: RUN ["a", 1]'],
  ["FROM a\nWORKDIR", "build: WORKDIR with no argument"],
  ["FROM a\nUSER", "build: USER with no argument"],
  ["FROM a\nENV", "build: ENV with no arguments"],
  ["FROM a\nENV A=1 B", "build: ENV B (not KEY=value)"],
  ["FROM a\nENV A", "build: ENV A must have two arguments"],
  ["FROM a\nENV A=${B:?x}", "build: unsupported variable expansion 'A=${B:?x}'"],
  ["FROM a\nWORKDIR /${B", "build: unsupported variable expansion '/${B'"],
  ["FROM a\nWORKDIR ${B:-${C-x}}", "pull a"],
  ["FROM a\nCMD x", "build: CMD"],
  ['FROM a\nENTRYPOINT ["x"]', "build: ENTRYPOINT"],
  ...[
    "COPY . .",
    "ADD a b",
    "ARG A",
    "EXPOSE 1",
    "VOLUME /x",
    'SHELL ["x"]',
    "STOPSIGNAL 1",
    "HEALTHCHECK NONE",
    "ONBUILD RUN x",
    "MAINTAINER x",
    "FOO x",
  ].map((line): [string, string] => [`FROM a\n${line}`, `build: ${line.split(" ")[0]}`]),
  ["", "build: no FROM instruction"],
  ["# only this\n", "build: no FROM instruction"],
  ["FROM a\nRUN x\nCOPY a b\nFROM c", "build: COPY"],
  ["FROM a\r\nRUN x \\\r\n  # why\r\n  y\r\n", "overlay a"],
];
for (const [text, mode] of MODES) {
  test(`classifyDockerfile(): ${JSON.stringify(text).slice(0, 70)} is ${mode}`, () => assert.equal(said(text), mode));
}

test("classifyDockerfile() names the line that forces a build", () => {
  assert.deepEqual(classifyDockerfile("FROM a\n\n# x\nCOPY a b\n"), { mode: "build", reason: "COPY", line: 4 });
});

const EXPANSIONS: [word: string, value: string][] = [
  ["'$A \\x'", "$A \\x"],
  [`"\\"\\$\\\\\\n$A"`, `"$\\\\n1`],
  ["a\\$A\\b\\", "a$Ab"],
  ["$A$B-${A}", "1-1"],
  ["${B:-x}${E:-x}${E-x}${B-x}", "xxx"],
  ["${A:+x}${E:+x}${E+x}${B+x}", "xx"],
  ["${B:-${A:+$A y}}", "1 y"],
  ["$1 $ $", "$1 $ $"],
  ['a"b c"d', "ab cd"],
];
for (const [word, value] of EXPANSIONS) {
  test(`expandWord(): ${word}`, () => assert.equal(expandWord(word, { A: "1", E: "" }), value));
}

test("resolveDockerfile() applies changes in order, ENV against the state before its line", () => {
  const changes = changesOf(
    "FROM a\nENV A=1 B=$A\nENV PATH=/x:$PATH C=$B\nWORKDIR /srv\nRUN one\nWORKDIR app/../lib/\nUSER u$A\nENV A=2\nRUN two\nENTRYPOINT []\n",
  );
  const got = resolveDockerfile(changes, {
    env: { PATH: "/bin", Z: "z" },
    workdir: "/",
    user: "",
  });
  assert.deepEqual(got, {
    env: { A: "2", B: "", PATH: "/x:/bin", C: "" },
    workdir: "/srv/lib",
    user: "u1",
    entrypointCleared: true,
    runs: [
      { command: "one", line: 5, workdir: "/srv", user: "", env: { PATH: "/x:/bin", Z: "z", A: "1", B: "", C: "" } },
      {
        command: "two",
        line: 9,
        workdir: "/srv/lib",
        user: "u1",
        env: { PATH: "/x:/bin", Z: "z", A: "2", B: "", C: "" },
      },
    ],
  });
});

const NEEDS_BASE: [string, string | undefined][] = [
  ["FROM a\nENV A=1\nENV B=$A\nWORKDIR /x\nWORKDIR y", undefined],
  ["FROM a\nENV PATH=/x:$PATH", "$PATH is not set by the Dockerfile"],
  ["FROM a\nWORKDIR x", "WORKDIR x is relative"],
  ["FROM a\nRUN x", "a RUN needs its environment"],
];
for (const [text, why] of NEEDS_BASE) {
  test(`resolveDockerfile() without a base: ${JSON.stringify(text)}`, () => {
    const changes = changesOf(text);
    assert.equal(resolveDockerfile(changes).needsBase, why);
  });
}
