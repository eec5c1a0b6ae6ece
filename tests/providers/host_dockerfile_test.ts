import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { HarborError } from "../../lib/errors.ts";
import type { Step } from "../../providers/_build_plan.ts";
import { placed } from "../../providers/_build_steps.ts";
import { type HostPlan, planDockerfile } from "../../providers/_host_dockerfile_plan.ts";
import { withoutInstalls } from "../../providers/_host_installs.ts";

const context = mkdtempSync(join(tmpdir(), "host-context-"));
after(() => rmSync(context, { recursive: true }));
for (const path of ["app/main.py", "app/sub/data.txt", "app/skip.log", "a.txt", "b.txt", "keep.log", "site.tar.gz"]) {
  mkdirSync(dirname(join(context, path)), { recursive: true });
  writeFileSync(join(context, path), path);
}
writeFileSync(join(context, ".dockerignore"), "# comment\n**/*.log\n!keep.log\n");

const plan = (lines: string, run: "all" | "no-install" | "skip" = "no-install"): HostPlan =>
  planDockerfile({ taskId: "t", text: `FROM python:3.12\n${lines}\n`, context, run });
const files = (step: Step | undefined) =>
  step?.kind === "copy" ? placed(step, (path) => ["/w", "/usr"].includes(path)) : [];
const copied = (step: Step | undefined): string[] => files(step).map(({ to }) => to);
const refused = (code: string, message: RegExp) => (error: unknown): boolean =>
  error instanceof HarborError && error.code === code && message.test(error.message);

test("planDockerfile() follows WORKDIR, ENV, ARG and USER with expansion", () => {
  const made = plan('ARG V=3\nENV A=x B="y $A"\nENV PATH=/opt/bin:$PATH\nWORKDIR /srv\nWORKDIR app-$V\nUSER agent:$V');
  assert.equal(made.workdir, "/srv/app-3");
  assert.equal(made.user, "agent:3");
  assert.equal(made.env.A, "x");
  assert.match(made.env.PATH!, /^\/opt\/bin:\/usr\/local\/sbin:/);
  assert.equal("V" in made.env, false);
  assert.deepEqual(made.steps, [{ kind: "folder", path: "/srv", user: "" }, {
    kind: "folder",
    path: "/srv/app-3",
    user: "",
  }]);
  assert.match(made.notes.join(), /FROM python:3.12 is not used/);
});

const COPIES: [string, string, string[]][] = [
  ["a file to a name", "COPY a.txt /x/y.txt", ["/x/y.txt"]],
  ["a file to a folder by its slash", "COPY a.txt /x/", ["/x/a.txt"]],
  ["a file to a folder that WORKDIR made", "WORKDIR /w\nCOPY a.txt /w", ["/w/a.txt"]],
  ["a file to a folder that stands there", "COPY a.txt /usr", ["/usr/a.txt"]],
  ["a file to the working directory", "WORKDIR /w\nCOPY a.txt .", ["/w/a.txt"]],
  ["several files", "COPY a.txt b.txt /x", ["/x/a.txt", "/x/b.txt"]],
  ["a pattern", "COPY *.txt /x/", ["/x/a.txt", "/x/b.txt"]],
  ["the contents of a folder", "COPY app /x", ["/x/main.py", "/x/sub", "/x/sub/data.txt"]],
  ["what .dockerignore takes back", "COPY keep.log /x/", ["/x/keep.log"]],
  ["JSON words", 'COPY ["a.txt", "/x y/"]', ["/x y/a.txt"]],
  ["a source that climbs stays in the context", "COPY ../a.txt /x/", ["/x/a.txt"]],
  ["a heredoc", "COPY <<EOF /x/conf\nv=$V\nEOF", ["/x/conf"]],
];
for (const [name, lines, wanted] of COPIES) {
  test(`planDockerfile() copies ${name}`, () => {
    assert.deepEqual(copied(plan(lines).steps.find(({ kind }) => kind === "copy")).sort(), wanted);
  });
}

test("planDockerfile() keeps owner and mode of COPY and expands a heredoc unless it is quoted", () => {
  const [step] = plan("ENV V=1\nCOPY --chown=a:b --chmod=755 a.txt /x").steps;
  assert.deepEqual(step?.kind === "copy" && [step.owner, step.mode], ["a:b", "755"]);
  const text = (lines: string) => {
    const [one] = plan(`ENV V=1\n${lines}`).steps;
    const from = files(one)[0]?.from;
    return from !== undefined && "data" in from ? from.data : undefined;
  };
  assert.equal(text("COPY <<EOF /x\n$V ${V}\nEOF"), "1 1\n");
  assert.equal(text("COPY <<'EOF' /x\n$V\nEOF"), "$V\n");
});

const REFUSALS: [string, RegExp][] = [
  ["FROM b\nRUN x", /line 2.*several stages/],
  ["COPY --from=x /a /b", /COPY --from=x/],
  ["ADD https://example.com/x /y", /ADD of an address/],
  ["RUN --mount=type=secret,id=k cat", /RUN --mount=type=secret/],
  ["FOO bar", /the instruction FOO/],
];
for (const [lines, message] of REFUSALS) {
  test(`planDockerfile() refuses by name: ${lines.split("\n")[0]}`, () => {
    assert.throws(() => plan(lines), refused("task.unsupported", message));
  });
}

test("planDockerfile() names a source that is not in the context or is left out of it", () => {
  assert.throws(() => plan("COPY none /x"), refused("image.failed", /line 2.*none/));
  assert.throws(() => plan("COPY app/skip.log /x"), refused("image.failed", /skip.log/));
});

test("planDockerfile() runs lines in the state they stand in, heredocs included", () => {
  const made = plan(
    'ARG N=7\nENV E=1\nWORKDIR /w\nUSER 1000\nRUN echo one\nSHELL ["/bin/bash", "-c"]\nRUN <<EOF\necho two\nEOF\n' +
      'RUN cat <<X > /tmp/x\nthree\nX\nRUN ["echo", "four"]\nRUN <<P\n#!/usr/bin/env python3\nprint(5)\nP',
  );
  const runs = made.steps.filter((step) => step.kind === "run");
  assert.deepEqual(runs.map(({ argv }) => argv), [
    ["/bin/sh", "-c", "echo one"],
    ["/bin/bash", "-c", "echo two\n"],
    ["/bin/bash", "-c", "cat <<X > /tmp/x\nthree\nX\n"],
    ["echo", "four"],
    ["/usr/bin/env", "python3", "-c", "print(5)\n"],
  ]);
  assert.deepEqual([runs[0]!.cwd, runs[0]!.user, runs[0]!.env.N, runs[0]!.env.E], ["/w", "1000", "7", "1"]);
});

test("planDockerfile() says which RUN lines it leaves out", () => {
  const lines = "RUN apt-get update && apt-get install -y curl\nRUN echo hi";
  assert.equal(plan(lines, "all").steps.length, 2);
  assert.equal(plan(lines, "skip").steps.length, 0);
  const made = plan(lines);
  assert.equal(made.steps.length, 1);
  assert.match(made.notes.join("\n"), /line 2 installs, left out: apt-get update; apt-get install -y curl/);
});

const INSTALLS: [string, string][] = [
  ["apt-get update && apt-get install -y curl && rm -rf /var/lib/apt/lists/*", ""],
  ["DEBIAN_FRONTEND=noninteractive apt-get install -y x", ""],
  ["pip install --no-cache-dir numpy==1.0", ""],
  ["python3 -m pip install x", ""],
  ["curl -LsSf https://astral.sh/uv/install.sh | sh", ""],
  ["set -ex; apk add --no-cache bash", ""],
  ["npm install -g typescript", ""],
  ["bash -lc 'set -e; apt-get update -o A=5; apt-get install -y g++; rm -rf /var/lib/apt/lists/*'", ""],
  ["bash -c 'apt-get install -y x; useradd a'", "bash -c 'apt-get install -y x; useradd a'"],
  ["if ! command -v jq; then apt-get install -y jq; fi", ""],
  ["echo 'pip install x' > /notes", "echo 'pip install x' > /notes"],
  ["npm run build", "npm run build"],
  ["go build ./...", "go build ./..."],
  ["mkdir -p /app && chmod 777 /app", "mkdir -p /app && chmod 777 /app"],
  ["apt-get update && apt-get install -y git && useradd -m agent", "useradd -m agent"],
  ["useradd -m a && pip install x && echo done > /x", "useradd -m a && echo done > /x"],
  ["for i in 1 2; do echo $i; done", "for i in 1 2; do echo $i; done"],
  ['python -c "import sys; print(1)"', 'python -c "import sys; print(1)"'],
];
for (const [command, rest] of INSTALLS) {
  test(`withoutInstalls(${command})`, () => assert.equal(withoutInstalls(command).rest, rest));
}
