import { test } from "node:test";
import assert from "node:assert/strict";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BuildRequest } from "../../../lib/images/builder.ts";
import {
  lacksFrontend,
  mustBeStaged,
  namesFrontend,
  stagedContext,
  withoutHeredocs,
} from "../../../providers/builders/_inputs.ts";

function bench(dockerfile: string) {
  const root = mkdtempSync(join(tmpdir(), "gh-inputs-"));
  const [context, folder] = [join(root, "context"), join(root, "work")];
  mkdirSync(context);
  mkdirSync(folder);
  writeFileSync(join(context, "Dockerfile"), dockerfile);
  writeFileSync(join(context, "Dockerfile.dockerignore"), "secret\n");
  const said: string[] = [];
  const copied: string[] = [];
  const request = { context, dockerfile: join(context, "Dockerfile") } as BuildRequest;
  return {
    request,
    folder,
    said,
    copied,
    work: (network?: string) => ({
      folder,
      space: () => ({ freeBytes: 1, ...(network !== undefined && { network }) }),
      say: (line: string) => void said.push(line),
      copyTree: (from: string, to: string) => {
        copied.push(from);
        cpSync(from, to, { recursive: true });
        return Promise.resolve();
      },
      args: {},
      platform: "linux/amd64",
      configOf: () => Promise.resolve({ Env: ["JAVA_HOME=/java"] }),
      makeFiles: () => Promise.resolve(),
    }),
    [Symbol.dispose]: () => rmSync(root, { recursive: true }),
  };
}

test("E21: a context on a network file system is copied to a local disk, any other is read where it lies", async () => {
  assert.deepEqual([undefined, { freeBytes: 1 }, { freeBytes: 1, network: "NFS" }].map(mustBeStaged), [
    false,
    false,
    true,
  ]);
  using one = bench("FROM a\n");
  assert.deepEqual(await stagedContext(one.request, one.work()), one.request);
  for (const network of ["Lustre"]) {
    const staged = await stagedContext(one.request, one.work(network));
    assert.deepEqual(staged, {
      context: join(one.folder, "context"),
      dockerfile: join(one.folder, "context/Dockerfile"),
    });
    assert.ok(existsSync(staged.dockerfile));
    assert.match(one.said.join(), /lies on Lustre: it is copied to/);
  }
});

test("a rewritten Dockerfile stands outside of the context, with its ignore file", async () => {
  using one = bench("FROM a\nRUN <<EOF\ntrue\nEOF\n");
  const { context, dockerfile } = await withoutHeredocs(one.request, one.work(), { keepSyntax: true });
  assert.equal(context, one.request.context);
  assert.ok(!dockerfile.startsWith(context));
  assert.equal(readFileSync(`${dockerfile}.dockerignore`, "utf8"), "secret\n");
  assert.match(readFileSync(one.request.dockerfile, "utf8"), /<<EOF/, "the task's own file is never touched");
  assert.match(one.said.join(), /^Dockerfile line 2: the heredoc of RUN/);
});

test("generated files are expanded with what the base image says", async () => {
  using one = bench("FROM a\nCOPY --chmod=600 <<EOF /f\n$JAVA_HOME\nEOF\n");
  await withoutHeredocs(one.request, one.work(), { keepSyntax: true });
  assert.equal(readFileSync(join(one.folder, "heredocs/files/2-0/EOF"), "utf8"), "/java\n");
});

test("a frontend that cannot be fetched is known by what BuildKit says (20.10)", () => {
  const said = " > resolve image config for docker.io/docker/dockerfile:1:\n------\n" +
    'failed to solve with frontend dockerfile.v0: failed to solve with frontend gateway.v0: failed to do request: Head "https://registry-1.docker.io/v2/docker/dockerfile/manifests/1": dial tcp: no such host\n';
  assert.equal(lacksFrontend(said), true);
  assert.equal(lacksFrontend("failed to solve with frontend dockerfile.v0: failed to create LLB definition: x"), false);
  assert.deepEqual(["# syntax=docker/dockerfile:1\nFROM a\n", "FROM a\n"].map(namesFrontend), [true, false]);
});
