import { test } from "node:test";
import assert from "node:assert/strict";
import { Findings } from "../../../lib/task/refusals.ts";
import { readSettings } from "../../../lib/task/settings.ts";

function read(toml: string, strict = false) {
  const findings = new Findings();
  const settings = readSettings(toml, findings, { strict, shownAs: "t/task.toml" });
  return {
    settings,
    errors: findings.errors,
    warnings: findings.warnings,
    codes: findings.errors.map((one) => one.code),
  };
}

/** Where NeMo Gym's verdict and Harbor's differ (spec/decisions 13): [toml, default's first error or "ok", --strict's]. */
const DIFFERENT: [toml: string, byDefault: string, strict: string][] = [
  ["[agent]\ntimeout_sec = 0", "toml.range", "ok"],
  ["[agent]\ntimeout_sec = inf", "toml.not-finite", "ok"],
  ["[verifier]\ntimeout_sec = -1", "toml.range", "ok"],
  ["[environment]\nbuild_timeout_sec = 0", "toml.range", "ok"],
  ["[environment]\ncpus = -0.5", "toml.range", "ok"],
  ["[environment]\nmemory_mb = 0", "toml.range", "ok"],
  ["[environment]\ngpus = -1", "toml.range", "ok"],
  ['[[verifier.collect]]\ncommand = "x"\ntimeout_sec = 0', "toml.range", "ok"],
  ["[metadata]\nx = [nan]", "toml.not-finite", "ok"],
  ['[environment]\nos = "windows"', "os.windows", "ok"],
  ['[environment]\nnetwork_mode = "allowlist"', "ok", "ok"],
  ['[agent]\nnetwork_mode = "allowlist"', "ok", "ok"],
  ["artifacts = ['a\\b']", "artifact.path", "ok"],
  ["version = 1.0", "ok", "toml.type"],
  ['[task]\ndescription = "x"', "ok", "toml.type"],
  ['[task]\nname = "x"', "ok", "package.name"],
  ['[task]\nname = "a/b"\nversion = 1', "ok", "toml.type"],
  ['[environment.tpu]\ntype = "v6e"\ntopology = "0x4"', "ok", "toml.type"],
  ['[environment]\nenv = {\n A = "1",\n}', "ok", "toml.syntax"],
  ['[environment]\nenv = { A = "1", }', "ok", "toml.syntax"],
  ['[metadata]\na = "\\e[0m"', "ok", "toml.syntax"],
  ['[metadata]\na = "\\x41"', "ok", "toml.syntax"],
  ["[metadata]\na = 07:32", "ok", "toml.syntax"],
  ["[metadata]\na = 1979-05-27T07:32", "ok", "toml.syntax"],
  // The same on both sides
  ["[environment]\ncpus = 0.5", "ok", "ok"],
  ['[environment]\nmemory = "infG"', "size.invalid", "size.invalid"],
  ["\uFEFF", "toml.syntax", "toml.syntax"],
  [
    "[metadata]\na = [1,\n 2,\n]\nb = 1979-05-27T07:32:00+01:00\nc = { d = [\n1,\n] }\n# }, {\ne = '''\n{\n,}'''",
    "ok",
    "ok",
  ],
];
for (const [toml, byDefault, strict] of DIFFERENT) {
  test(`readSettings() ${JSON.stringify(toml)}: ${byDefault}, strictly ${strict}`, () => {
    assert.equal(read(toml).codes[0] ?? "ok", byDefault);
    assert.equal(read(toml, true).codes[0] ?? "ok", strict);
  });
}

test("readSettings() warns once for each unknown key, with its dotted path, line and a suggestion", () => {
  const { settings, warnings } = read(
    'verison = "1.0"\n[environment]\ndokcer_image = "x"\n[[environment.mcp_servers]]\nname = "m"\nurl = "u"\nenv = { A = "b" }\n[limits]\nx.y = 1\n[metadata]\nfree = 1\n[verifier]\ninputs = []\n[[steps]]\nname = "a"\n[[steps]]\nname = "b"\n[steps.agent]\nuser_name = "x"\n',
  );
  assert.notEqual(settings, null);
  assert.deepEqual(warnings.map(({ key, line, hint }) => [key, line, hint]), [
    ["verison", 1, undefined],
    ["environment.dokcer_image", 3, "did you mean `docker_image`?"],
    ["environment.mcp_servers[0].env", 7, "`env` belongs in [environment]"],
    ["limits", 8, undefined],
    ["verifier.inputs", 13, undefined],
    ["steps[1].agent.user_name", 19, undefined],
  ]);
  assert.equal(warnings[2]!.message, "t/task.toml: ignoring unknown key `environment.mcp_servers[0].env`");
});

test("readSettings() replaces old spellings and never reports them", () => {
  const { settings, warnings } = read(
    'version = "1.0"\nmulti_step_reward_mode = "mean"\n[environment]\nmemory = "1.5g"\nstorage = "2048K"\nallow_internet = false\n[verifier.environment]\nallow_internet = "no"\n',
  );
  assert.deepEqual(warnings, []);
  assert.deepEqual(settings!.resolved(), {
    schema_version: "1.0",
    environment: { memory_mb: 1536, storage_mb: 2, network_mode: "no-network" },
    verifier: { environment: { network_mode: "no-network" } },
  });
});

test("readSettings() names every fault of a file at once", () => {
  const { codes, errors } = read('[environment]\nos = "darwin"\nenv = { A = 1 }\n[agent]\nuser = 1.5\n[[steps]]\n');
  assert.deepEqual(codes, ["toml.type", "toml.type", "toml.type", "toml.type"]);
  assert.deepEqual(errors.map(({ key, line }) => [key, line]), [
    ["agent.user", 5],
    ["environment.os", 2],
    ["environment.env.A", 3],
    ["steps[0].name", 6],
  ]);
});

test("resolved() keeps the digits of large integers and spells what JSON has not", () => {
  const { settings } = read(
    "[environment]\ncpus = 9007199254740993\n[verifier]\ntimeout_sec = nan\n[agent]\ntimeout_sec = -inf\n[metadata]\nd = 1979-05-27\nt = 07:32:00.5\n",
    true,
  );
  const resolved = settings!.resolved() as Record<string, Record<string, unknown>>;
  assert.equal(resolved.environment!.cpus, 9007199254740993n);
  assert.equal(resolved.verifier!.timeout_sec, "NaN");
  assert.equal(resolved.agent!.timeout_sec, "-Infinity");
  assert.deepEqual(resolved.metadata, { d: "1979-05-27", t: "07:32:00.500000" });
});

const HOSTS: [host: string, normal: string | undefined][] = [
  ["A.Example.COM.", "a.example.com"],
  ["*.a.b", "*.a.b"],
  ["*", undefined],
  ["a.*.b", undefined],
  ["*.10.0.0.1", undefined],
  ["10.0.0.1/8", undefined],
  ["10.0.0.0/8", "10.0.0.0/8"],
  ["10.0.0.0/33", undefined],
  ["2001:DB8::/32", "2001:db8::/32"],
  ["2001:db8::1/32", undefined],
  ["::ffff:1.2.3.4", "::ffff:1.2.3.4"],
  ["1:2:3:4:5:6:7", undefined],
  ["1::2::3", undefined],
  ["[::1]", undefined],
  ["a..b", undefined],
  [`${"x".repeat(64)}.org`, undefined],
  ["http://a", undefined],
  ["a:80", undefined],
];
for (const [host, normal] of HOSTS) {
  test(`allowed_hosts ${JSON.stringify(host)} is ${normal ?? "refused"}`, () => {
    const { settings, errors } = read(
      `[environment]\nnetwork_mode="allowlist"\nallowed_hosts=[${JSON.stringify(host)}]`,
      true,
    );
    assert.deepEqual(settings?.config.environment?.allowed_hosts, normal && [normal], errors[0]?.message);
  });
}
