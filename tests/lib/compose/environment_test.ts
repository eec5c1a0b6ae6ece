import assert from "node:assert/strict";
import { test } from "node:test";
import { planCase, readCase, reasonCase, sidecar } from "../../support/compose.ts";

const env = (given: Parameters<typeof planCase>[0]) =>
  planCase(given).services.find((one) => one.name === "web")!.environment;

test("readCompose() looks variables up in Harbor's own, then the task's, then this machine's, then .env", () => {
  const given = {
    file: sidecar("environment: {A: $A, B: $B, C: $C, D: $D, T: $TEST_DIR, M: $MEMORY, CPUS: $CPUS}"),
    environment: { env: { A: "task", B: "${HOST_B:-fallback}", TEST_DIR: "task" }, cpus: 1.5, memory_mb: 2048 },
    hostEnv: { A: "host", B: "host", C: "host", HOST_B: "from the host", CPUS: "64" },
    files: { "environment/.env": "A=file\nC=file\nD=${C}-file\n" },
  };
  assert.deepEqual(env(given), {
    A: "task",
    B: "from the host",
    C: "host",
    D: "host-file",
    T: "/tests",
    M: "2048M",
    CPUS: "1.5",
  });
});

test("readCompose() gives Harbor's infrastructure variables", () => {
  const names = "MAIN_IMAGE_NAME PREBUILT_IMAGE_NAME HOST_VERIFIER_LOGS_PATH ENV_AGENT_LOGS_PATH HOST_ARTIFACTS_PATH"
    .split(" ");
  const found = env({
    file: sidecar(`environment: {${names.map((name) => `${name}: $${name}`).join(", ")}}`),
    environment: { docker_image: "debian:12" },
  });
  assert.deepEqual(found, {
    MAIN_IMAGE_NAME: "hb__0123456789abcdef0123456789abcdef",
    PREBUILT_IMAGE_NAME: "debian:12",
    HOST_VERIFIER_LOGS_PATH: "/logs/verifier",
    ENV_AGENT_LOGS_PATH: "/logs/agent",
    HOST_ARTIFACTS_PATH: "/logs/artifacts",
  });
});

test("readCompose() passes a name without a value on, or leaves it out", () => {
  const hostEnv = { SET: "1" };
  assert.deepEqual(env({ file: sidecar("environment: [SET, UNSET]"), hostEnv }), { SET: "1" });
  assert.deepEqual(env({ file: sidecar("environment: {SET: , UNSET: , EMPTY: ''}"), hostEnv }), {
    SET: "1",
    EMPTY: "",
  });
});

test("readCompose() works env_file in below environment, later files over earlier ones", () => {
  const files = {
    "environment/a.env": "A=1\nB=1\nHOME_OF=$NAME\n",
    "environment/b.env": "B=2\nC=2\n",
    "shared.env": "S=1\n",
    "environment/raw.env": 'R="$NAME" # x\n',
  };
  const hostEnv = { NAME: "host" };
  const rows: [keys: string, wanted: Record<string, string>][] = [
    ["env_file: a.env", { A: "1", B: "1", HOME_OF: "host" }],
    ["env_file: [a.env, './b.env']\nenvironment: {C: own}", { A: "1", B: "2", C: "own", HOME_OF: "host" }],
    ["env_file: '${CONTEXT_DIR}/b.env'", { B: "2", C: "2" }],
    ["env_file: ../shared.env", { S: "1" }],
    ["env_file: [{path: gone.env, required: false}, {path: raw.env, format: raw}]", { R: '"$NAME" # x' }],
  ];
  for (const [keys, wanted] of rows) assert.deepEqual(env({ file: sidecar(keys), files, hostEnv }), wanted, keys);
});

test("readCompose() refuses an env_file that is missing, outside of the task, or none", () => {
  const rows: [keys: string, why: string][] = [
    ["env_file: gone.env", "env_file[0] 'gone.env' does not exist"],
    ["env_file: ../../other.env", "env_file[0] '../../other.env' lies outside of the task folder"],
    ["env_file: /etc/environment", "env_file[0] '/etc/environment' lies outside of the task folder"],
    ["env_file: link.env", "env_file[0] 'link.env' leads over the link environment/link.env"],
    ["env_file: bad.env", "env_file[0] 'bad.env' line 2 is neither NAME=value nor a comment"],
    ["env_file: [[a.env]]", "env_file[0] names no file"],
    ["env_file: [{path: ok.env, format: ini}]", "env_file[0] has the format 'ini', only raw is supported"],
  ];
  const files = {
    "environment/bad.env": "A=1\nnot a line\n",
    "environment/ok.env": "A=1\n",
    "environment/link.env": { symlink: "ok.env" },
  };
  for (const [keys, why] of rows) {
    assert.equal(reasonCase({ file: sidecar(keys), files }), `service 'web': ${why}`, keys);
  }
});

test("readCompose() names the value whose variables it cannot replace", () => {
  const reason = reasonCase({
    file: sidecar("environment: [A=1, 'B=${C']\ncommand: [echo, $(date)]\nhealthcheck: {test: '${T:?set it}'}"),
  });
  assert.equal(
    reason,
    "service 'web': command[1] has a $ that begins no variable at '$(date)' (write $$ for one $); " +
      "service 'web': environment[1] has a ${ that nothing closes at '${C'; " +
      "service 'web': healthcheck.test needs the variable T, which is not set: set it",
  );
  assert.equal(env(sidecar("environment: {A: $$HOME, B: '$${X}'}")).A, "$HOME", "an escaped one is none");
});

test("readCompose() converts to a field's type after its variables are replaced", () => {
  const web = planCase({
    file: sidecar(
      "cpus: $N\nread_only: ${FLAG}\nports: ['${P:-80}']\nhealthcheck: {test: x, retries: $N}\nmem_limit: ''",
    ),
    hostEnv: { N: "2", FLAG: "true" },
  }).services.find((one) => one.name === "web")!;
  assert.deepEqual([web.limits, web.readOnly, web.ports], [{ cpus: 2 }, true, [80]]);
});

test("G1: secrets of this machine stand in no reason, and are told for the redaction of rows", () => {
  const hostEnv = { MY_API_KEY: "sk-very-secret", HF_TOKEN: "hf_abcdef", APP_SECRET: "s3cr3t!" };
  const files = { "environment/.env": "DB_PASSWORD=from-the-file\n" };
  const file = sidecar(
    "user: 'a:$MY_API_KEY'\nworking_dir: $HF_TOKEN\nenvironment: {K: $MY_API_KEY}\nhostname: '!$APP_SECRET'\nnetwork_mode: $DB_PASSWORD",
  );
  const reading = readCase({ file, files, hostEnv });
  assert.equal(reading.ok, false);
  const text = JSON.stringify(reading);
  for (const value of [...Object.values(hostEnv), "from-the-file"]) assert.equal(text.includes(value), false, value);
  assert.match(text, /user 'a:\[MY_API_KEY\]' names a group/);
  assert.deepEqual(planCase({ file: sidecar("environment: {K: $MY_API_KEY}"), hostEnv }).taken, {
    MY_API_KEY: "sk-very-secret",
  });
});

test("readCompose() refuses a .env that it cannot read", () => {
  const reason = (text: string | { symlink: string } | { hex: string }) =>
    reasonCase({ file: "services: {}", files: { "environment/.env": text } });
  assert.equal(reason("A=1\n='x"), "environment/.env line 2 is neither NAME=value nor a comment");
  assert.equal(reason({ hex: "41 3d ff".replaceAll(" ", "") }), "environment/.env cannot be read: is not UTF-8");
  assert.equal(reason({ symlink: "/etc/environment" }), "'.env' leads over the link .env");
});
