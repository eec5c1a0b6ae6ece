import { test } from "node:test";
import assert from "node:assert/strict";
import { baseImages, stagesOf } from "../../../lib/task/dockerfile_stages.ts";

test("E4: baseImages() sees arguments where a FROM does, and nowhere else", () => {
  const rows: [text: string, args: Record<string, string>, images: string[]][] = [
    ["ARG V=3.12\nFROM python:${V}\n", {}, ["python:3.12"]],
    ["ARG V=3.12\nFROM python:${V}\n", { V: "3.11" }, ["python:3.11"]],
    ["ARG V\nFROM python:${V:-3}\n", {}, ["python:3"]],
    ["ARG A=py\nARG B=${A}thon\nFROM $B\n", {}, ["python"]],
    // An argument of a stage does not reach the next FROM.
    ["ARG V=1\nFROM a:$V AS one\nARG V=2\nFROM b:$V\nCOPY --from=one /x /\n", {}, ["a:1", "b:1"]],
    ["FROM a AS build\nFROM build\n", {}, ["a"]],
    ["FROM a AS build\nFROM BUILD AS more\nFROM more\n", {}, ["a"]],
    // A stage that nothing needs is not built.
    ["FROM a AS unused\nFROM b\n", {}, ["b"]],
    ["FROM a\nFROM b\nCOPY --from=0 /x /\nCOPY --from=c /y /\n", {}, ["a", "b", "c"]],
    ["FROM a\nARG TOOL=uv:1\nRUN --mount=type=bind,from=$TOOL,target=/t true\n", {}, ["a", "uv:1"]],
    ["FROM --platform=$BUILDPLATFORM a AS x\nFROM scratch\nCOPY --from=x / /\n", {}, ["a"]],
    ["FROM --platform=linux/arm64 a@sha256:00\n", {}, ["a@sha256:00"]],
    ["FROM $UNSET\nRUN true\n", {}, []],
    ["RUN true\n", {}, []],
    ["FROM a as A\nFROM b as a\nFROM a\n", {}, ["b"]],
    ["FROM a\nFROM 0\nFROM c\nCOPY --from=1 /x /\n", {}, ["a", "c"]],
    ["ARG N=one\nFROM a AS ${N}\nFROM one\n", {}, ["a"]],
  ];
  for (const [text, args, images] of rows) assert.deepEqual(baseImages(text, { args }), images, text);
});

test("a target leaves out what comes after it", () => {
  const text = "FROM a AS one\nFROM b AS two\nFROM c\n";
  assert.deepEqual(baseImages(text, { target: "TWO" }), ["b"]);
  assert.deepEqual(baseImages(text, { target: "0" }), ["a"]);
});

test("E4: an instruction sees the ARG and ENV of its stage, given values first, the last one set", () => {
  const seen = (text: string, args: Record<string, string> = {}) =>
    stagesOf(`${text}\nRUN look\n`, {
      args,
      baseEnv: (reference) => reference === "base" ? { PATH: "/bin", LANG: "C" } : undefined,
    })
      .stages.at(-1)!.instructions.at(-1)!.variables;
  const rows: [text: string, args: Record<string, string>, variables: Record<string, string>][] = [
    ["FROM alpine\nARG a b=set", {}, { b: "set" }],
    ["ARG BASE=alpine\nFROM $BASE\nARG BASE", {}, { BASE: "alpine" }],
    ["ARG foo=0 bar=1\nFROM alpine\nARG foo=9\nARG bar", {}, { foo: "9", bar: "1" }],
    ["ARG FOO=header\nFROM busybox\nARG FOO=stage", {}, { FOO: "stage" }],
    ["ARG FOO=header\nFROM busybox\nARG FOO=stage", { FOO: "given", OTHER: "x" }, { FOO: "given" }],
    ["ARG V=1\nFROM a", { V: "2" }, {}],
    ["FROM a\nARG A=1\nENV A=2 B=$A", {}, { A: "2", B: "1" }],
    ["FROM a\nENV A=2\nARG A=1", { A: "9" }, { A: "9" }],
    ["FROM a\nENV A=2\nARG A", {}, { A: "2" }],
    ["FROM a AS x\nARG P=1\nENV Q=2\nFROM x", {}, { P: "1", Q: "2" }],
    ["FROM base\nENV PATH=/x:$PATH", {}, { PATH: "/x:/bin", LANG: "C" }],
    ['FROM a\nENV A 1  2 \nENV B="x y" C=z', {}, { A: "1  2", B: "x y", C: "z" }],
    ["FROM a\nARG TARGETARCH\nARG X=$TARGETARCH", {}, { TARGETARCH: "amd64", X: "amd64" }],
    ["# escape=`\nFROM a\nENV A=`$x B=\\", {}, { A: "$x", B: "\\" }],
  ];
  for (const [text, args, variables] of rows) assert.deepEqual(seen(text, args), variables, text);
});

test("SHELL holds for the rest of its stage and the stages from it", () => {
  const { stages } = stagesOf('FROM a AS x\nRUN 1\nSHELL ["/bin/bash", "-c"]\nRUN 2\nFROM x\nRUN 3\nFROM a\nRUN 4\n');
  const shells = stages.flatMap(({ instructions }) => instructions).filter(({ instruction }) =>
    instruction.name === "RUN"
  );
  assert.deepEqual(shells.map(({ shell }) => shell?.[0]), [undefined, "/bin/bash", "/bin/bash", undefined]);
});
