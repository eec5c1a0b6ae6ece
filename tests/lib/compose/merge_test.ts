import assert from "node:assert/strict";
import { test } from "node:test";
import { readDocument } from "../../../lib/compose/document.ts";
import { mergeDocuments } from "../../../lib/compose/merge.ts";

const merged = (...texts: string[]) => {
  const made = mergeDocuments(texts.map((text, index) => readDocument(`services:\n  web: ${text}\n`, `${index}.yaml`)));
  return (JSON.parse(JSON.stringify(made)) as { services: { web: Record<string, unknown> } }).services.web;
};

test("mergeDocuments() merges as Compose does: tables by key, lists appended, some by target, some replaced", () => {
  const rows: [first: string, second: string, wanted: Record<string, unknown>][] = [
    ["{image: a, user: u}", "{image: b}", { image: "b", user: "u" }],
    ["{image: a}", "{image: }", { image: "a" }],
    ["{environment: [A=1, B=2]}", "{environment: {B: 3, C: }}", { environment: { A: "1", B: 3, C: null } }],
    ["{environment: {A: 1}}", "{environment: {A: }}", { environment: { A: 1 } }],
    ["{labels: [a=1]}", "{labels: [b]}", { labels: { a: "1", b: null } }],
    ["{extra_hosts: ['a:1.1.1.1', 'b=::1']}", "{extra_hosts: {c: 2.2.2.2}}", {
      extra_hosts: { a: "1.1.1.1", b: "::1", c: "2.2.2.2" },
    }],
    ["{build: .}", "{build: {args: [A=1]}}", { build: { context: ".", args: { A: "1" } } }],
    ["{build: {args: {A: 1}}}", "{build: {args: [A=2, B=3]}}", { build: { args: { A: "2", B: "3" } } }],
    ["{depends_on: [a]}", "{depends_on: {b: {condition: service_healthy}}}", {
      depends_on: { a: { condition: "service_started" }, b: { condition: "service_healthy" } },
    }],
    ["{networks: [default]}", "{networks: {default: {aliases: [x]}}}", { networks: { default: { aliases: ["x"] } } }],
    ["{command: [a, b]}", "{command: [c]}", { command: ["c"] }],
    ["{command: a b}", "{command: [c]}", { command: ["c"] }],
    ["{entrypoint: [a]}", "{entrypoint: [b]}", { entrypoint: ["b"] }],
    ["{healthcheck: {test: [CMD, a], retries: 2}}", "{healthcheck: {test: [CMD, b]}}", {
      healthcheck: { test: ["CMD", "b"], retries: 2 },
    }],
    ["{expose: [80]}", "{expose: ['80', 81]}", { expose: ["80", 81] }],
    ["{ports: ['8080:80', '127.0.0.1:1:81']}", "{ports: ['9090:80', '2:81']}", {
      ports: ["127.0.0.1:1:81", "9090:80", "2:81"],
    }],
    ["{ports: ['80/tcp']}", "{ports: ['80/udp', {target: 80, published: 5}]}", {
      ports: ["80/udp", { target: 80, published: 5 }],
    }],
    ["{volumes: ['a:/x:ro', './b:/y']}", "{volumes: [{type: volume, source: c, target: /x}]}", {
      volumes: ["./b:/y", { type: "volume", source: "c", target: "/x" }],
    }],
    ["{cap_add: [A]}", "{cap_add: [B]}", { cap_add: ["A", "B"] }],
    ["{env_file: a.env}", "{env_file: [b.env]}", { env_file: ["a.env", "b.env"] }],
    ["{deploy: {resources: {limits: {cpus: 1}}}}", "{deploy: {resources: {limits: {memory: 1g}}}}", {
      deploy: { resources: { limits: { cpus: 1, memory: "1g" } } },
    }],
    ["{ports: [80], image: a}", "{ports: !reset [], image: !reset null}", {}],
    ["{environment: {A: 1}}", "{environment: !override {B: 2}}", { environment: { B: 2 } }],
    ["{environment: {A: 1, B: 2}}", "{environment: {A: !reset null}}", { environment: { B: 2 } }],
    ["{volumes: ['a:/x']}", "{volumes: !override ['b:/y']}", { volumes: ["b:/y"] }],
    ["{expose: !override [80], user: !reset x}", "{}", { expose: [80] }],
  ];
  for (const [first, second, wanted] of rows) assert.deepEqual(merged(first, second), wanted, `${first} + ${second}`);
});

test("readDocument() works in anchors, aliases and <<", () => {
  const text =
    "x-common: &c {environment: {A: 1, B: 2}, user: u}\nservices:\n  web:\n    <<: *c\n    user: own\n  two:\n    <<: [{user: first}, *c]\n";
  const services = JSON.parse(JSON.stringify(readDocument(text, "f"))).services;
  assert.deepEqual(services, {
    web: { environment: { A: 1, B: 2 }, user: "own" },
    two: { environment: { A: 1, B: 2 }, user: "first" },
  });
});

test("readDocument() stops at a file that aliases make huge", () => {
  const level = (n: number) => `x-${n}: &x${n} [${Array(10).fill(n === 0 ? "a" : `*x${n - 1}`).join(", ")}]`;
  assert.throws(
    () => readDocument(Array.from({ length: 9 }, (_, n) => level(n)).join("\n"), "f.yaml"),
    /more than 100000 values/,
  );
});
