import { test } from "node:test";
import assert from "node:assert/strict";
import { rewriteHeredocs, usesHeredocs, withoutSyntaxDirective } from "../../../lib/images/heredoc.ts";
import { parseDockerfile } from "../../../lib/task/dockerfile.ts";
import type { BuildSettings } from "../../../lib/task/dockerfile_stages.ts";

const rewrite = (text: string, settings: BuildSettings = {}) =>
  rewriteHeredocs(text, { ...settings, filesImage: "files" });

/** The instructions that a builder reads, each with its line. */
function instructions(text: string) {
  const { text: written, ...rest } = rewrite(text);
  assert.equal(written.split("\n").length, text.split("\n").length, "no line is added or lost");
  assert.equal(usesHeredocs(written), false, written);
  return { ...rest, written, instructions: parseDockerfile(written).instructions };
}

const argvOf = (text: string): string[] => instructions(text).instructions.find(({ name }) => name === "RUN")!.json!;

test("E2: a RUN gets the script that BuildKit gives its shell", () => {
  const rows: [what: string, text: string, argv: string[]][] = [
    ["alone", "FROM a\nRUN <<EOF\necho a\necho b\nEOF\n", ["/bin/sh", "-c", "echo a\necho b\n"]],
    ["quoted", "FROM a\nRUN <<'EOF'\necho $A\nEOF\n", ["/bin/sh", "-c", "echo $A\n"]],
    ["tabs", "FROM a\nRUN <<-EOF\n\t\techo a\n\tEOF\n", ["/bin/sh", "-c", "echo a\n"]],
    ["what parsers drop", 'FROM a\nRUN <<EOF\n\n# note\n  #x\n\\\n"q"\\\nEOF\n', [
      "/bin/sh",
      "-c",
      '\n# note\n  #x\n\\\n"q"\\\n',
    ]],
    ["with a command", "FROM a\nRUN cat <<EOF > /x\na $B\nEOF\n", ["/bin/sh", "-c", "cat <<EOF > /x\na $B\nEOF"]],
    [
      "several",
      "FROM a\nRUN <<F1 cat > f1 && <<F2 cat > f2\none\nF1\ntwo\nF2\n",
      ["/bin/sh", "-c", "<<F1 cat > f1 && <<F2 cat > f2\none\nF1\ntwo\nF2"],
    ],
    [
      "on a continued line",
      "FROM a\nRUN set -e; \\\n  # a comment\n  cat <<EOF\nx\nEOF\n",
      ["/bin/sh", "-c", "set -e;   cat <<EOF\nx\nEOF"],
    ],
    ["another shell", 'FROM a\nSHELL ["/bin/awk"]\nRUN <<EOF\nBEGIN {}\nEOF\n', ["/bin/awk", "BEGIN {}\n"]],
    ["empty", "FROM a\nRUN <<EOF\nEOF\n", ["/bin/sh", "-c", ""]],
    ["with a backtick as escape", "# escape=`\nFROM a\nRUN <<EOF\necho `date`\nx`\nEOF\n", [
      "/bin/sh",
      "-c",
      "echo `date`\nx`\n",
    ]],
    ["never closed", "FROM a\nRUN <<EOF\necho a\n", ["/bin/sh", "-c", "echo a\n"]],
  ];
  for (const [what, text, argv] of rows) assert.deepEqual(argvOf(text), argv, what);
});

test("every instruction stays on its line, and flags stay", () => {
  const text =
    "FROM a\nRUN --mount=type=cache,target=/c <<EOF\none\ntwo\nEOF\nUSER x\nCOPY <<A <<B /d/\n1\nA\n2\nB\nCMD last\n";
  const { instructions: found } = instructions(text);
  assert.deepEqual(found.map(({ name, line }) => [name, line]), [["FROM", 1], ["RUN", 2], ["USER", 6], ["COPY", 7], [
    "CMD",
    12,
  ]]);
  assert.deepEqual(found[1]!.flags, ["--mount=type=cache,target=/c"]);
});

test("E2: a script with #! goes to its interpreter, with at most one argument", () => {
  const [shell, , script] = argvOf(
    'FROM a\nSHELL ["/bin/bash", "-c"]\nRUN <<EOF\n#!/usr/bin/env  python3 -u \nprint(\'a\')\nEOF\n',
  );
  assert.equal(shell, "/bin/sh");
  assert.match(script!, /printf %s '#!\/usr\/bin\/env {2}python3 -u \nprint\('\\''a'\\''\)\n' >/);
  assert.match(script!, /; \/usr\/bin\/env 'python3 -u' "\$d"\/EOF; s=\$\?; rm -rf "\$d"; exit \$s$/);
});

test("COPY and ADD copy generated files, expanded as BuildKit expands them", () => {
  const rows: [what: string, text: string, copies: string[], data: string[]][] = [
    ["one file", "FROM a\nCOPY <<EOF single\nfile\nEOF\n", ["COPY --from=files <0>/EOF single"], ["file\n"]],
    [
      "several",
      "FROM a\nCOPY <<EOF <<EOF2 double/\n1\nEOF\n2\nEOF2\n",
      ["COPY --from=files <0>/EOF <1>/EOF2 double/"],
      [
        "1\n",
        "2\n",
      ],
    ],
    ["ADD", "FROM a\nADD <<EOF /index.html\nx\nEOF\n", ["COPY --from=files <0>/EOF /index.html"], ["x\n"]],
    ["an owner", "FROM a\nCOPY --chown=u:g --link <<EOF /f\nx\nEOF\n", ["COPY --from=files --chown=u:g <0>/EOF /f"], [
      "x\n",
    ]],
    [
      "beside other sources",
      "FROM a\nCOPY --from=b x <<EOF y /d/\nf\nEOF\n",
      ["COPY --from=b x y /d/", "COPY --from=files <0>/EOF /d/"],
      ["f\n"],
    ],
    [
      "variables",
      "FROM a\nARG name=world\nCOPY <<EOF /c\n'${name}' \"$name\" \\$name \\\\\nEOF\n",
      ["COPY --from=files <0>/EOF /c"],
      ["'world' \"world\" $name \\\n"],
    ],
    ["quoted", 'FROM a\nARG name=world\nCOPY <<"EOF" /c\n${name} \\$\nEOF\n', ["COPY --from=files <0>/EOF /c"], [
      "${name} \\$\n",
    ]],
    ["tabs", "FROM a\nCOPY <<-EOF /c\n\tx\n\t\ty\n\tEOF\n", ["COPY --from=files <0>/EOF /c"], ["x\ny\n"]],
  ];
  for (const [what, text, copies, data] of rows) {
    const { instructions: found, files } = instructions(text);
    const written = found.filter(({ name }) => name === "COPY" || name === "ADD").map(({ name, args }) =>
      `${name} ${args}`
    );
    assert.deepEqual(written.map((one) => one.replaceAll(/\/\d+-(\d)\//g, "<$1>/")), copies, what);
    assert.deepEqual(files.map((file) => file.data), data, what);
  }
});

test("the mode of a generated file is what --chmod says, since the classic builder has no such flag", () => {
  const text =
    "FROM a\nARG M=0750\nCOPY --chmod=755 <<EOF /a\nx\nEOF\nCOPY --chmod=$M <<EOF /b\nx\nEOF\nCOPY --chmod=u+x <<EOF /c\nx\nEOF\nCOPY <<EOF /d\nEOF\n";
  const { files, instructions: found } = instructions(text);
  assert.deepEqual(files.map(({ mode }) => mode.toString(8)), ["755", "750", "644", "644"]);
  assert.deepEqual(found.filter(({ name }) => name === "COPY").map(({ flags }) => flags.slice(1)), [
    [],
    [],
    ["--chmod=u+x"],
    [],
  ]);
});

test("a variable that only the base image can know asks for its environment", () => {
  const text = "FROM base:1 AS x\nFROM x\nENV A=1\nCOPY <<EOF /f\n$A $JAVA_HOME $1\nEOF\n";
  assert.deepEqual(rewrite(text).unknown, ["base:1"]);
  const known = rewrite(text, { baseEnv: () => ({ JAVA_HOME: "/opt/java" }) });
  assert.deepEqual([known.unknown, known.files[0]!.data], [[], "1 /opt/java \n"]);
  assert.deepEqual(rewrite("FROM base:1\nARG A=1\nCOPY <<EOF /f\n$A\nEOF\n").unknown, []);
});

test("ONBUILD holds back what it held back before", () => {
  const { instructions: found } = instructions('FROM a\nONBUILD RUN <<EOF\necho "hello"\nEOF\nUSER x\n');
  assert.deepEqual(found.map(({ name, args, line }) => [name, args, line]), [
    ["FROM", "a", 1],
    ["ONBUILD", 'RUN ["/bin/sh", "-c", "echo \\"hello\\"\\n"]', 2],
    ["USER", "x", 5],
  ]);
  assert.throws(() => rewrite("FROM a\nONBUILD COPY <<EOF /x\nx\nEOF\n"), {
    code: "task.unsupported",
    message: /line 2: ONBUILD COPY/,
  });
});

test("what is no heredoc is left alone", () => {
  for (
    const text of [
      "FROM a\nRUN cat <<< x\n",
      "FROM a\nRUN echo $((1<<2))\n",
      'FROM a\nRUN echo "<<EOF"\n',
      'FROM a\nCOPY ["<<EOF", "/x"]\n',
    ]
  ) {
    assert.equal(usesHeredocs(text), false, text);
    assert.equal(rewrite(text).text, text);
  }
});

test("withoutSyntaxDirective() keeps lines and other directives", () => {
  const rows: [string, string][] = [
    ["# syntax=docker/dockerfile:1\nFROM a\n", "#\nFROM a\n"],
    ["#syntax = docker/dockerfile:1.4\n# escape=`\nFROM a\n", "# escape=`\n#\nFROM a\n"],
    ["# a comment\n# syntax=docker/dockerfile:1\nFROM a\n", "# a comment\n# syntax=docker/dockerfile:1\nFROM a\n"],
    ["FROM a\n", "FROM a\n"],
  ];
  for (const [text, expected] of rows) assert.equal(withoutSyntaxDirective(text), expected);
});
