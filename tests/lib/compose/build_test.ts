import assert from "node:assert/strict";
import { test } from "node:test";
import { serviceImageName } from "../../../lib/compose/mod.ts";
import { planCase, reasonCase } from "../../support/compose.ts";

const FILES = {
  "environment/api/Dockerfile": "FROM debian:12\n",
  "environment/api/prod.Dockerfile": "FROM debian:12\n",
  "environment/link": { symlink: "api" },
};
const file = (build: string) => `services:\n  api:\n    build: ${build}\n`;
const built = (build: string, hostEnv = {}) => {
  const { image } = planCase({ file: file(build), files: FILES, hostEnv }).services.find((one) => one.name === "api")!;
  assert.equal(image.kind, "build");
  return image.build;
};

test("readCompose() settles a build section", () => {
  const plain = built("./api");
  assert.match(plain.context, /\/environment\/api$/);
  assert.deepEqual({ ...plain, context: "", dockerfile: "" }, {
    context: "",
    dockerfile: "",
    args: {},
    labels: {},
    ulimits: {},
    cacheFrom: [],
  });
  const full = built(
    "{context: api, dockerfile: prod.Dockerfile, args: [A=1, SET, UNSET], target: run, labels: {l: 1}, shm_size: 64m, " +
      "ulimits: {nofile: 5, nproc: {soft: 1, hard: 2}}, no_cache: true, pull: 'true', network: none, cache_from: [user/app:cache], platforms: [linux/amd64]}",
    { SET: "host" },
  );
  assert.match((full.dockerfile as { path: string }).path, /\/environment\/api\/prod\.Dockerfile$/);
  assert.deepEqual({ ...full, context: "", dockerfile: "" }, {
    context: "",
    dockerfile: "",
    args: { A: "1", SET: "host" },
    target: "run",
    labels: { l: "1" },
    shmSize: "67108864",
    ulimits: { nofile: "5", nproc: "1:2" },
    noCache: true,
    pull: true,
    network: "none",
    cacheFrom: ["user/app:cache"],
  });
  assert.deepEqual(built('{context: ., dockerfile_inline: "FROM debian:12\\nRUN true\\n"}').dockerfile, {
    inline: "FROM debian:12\nRUN true\n",
  });
});

test("readCompose() refuses what of a build reaches beyond the task", () => {
  const rows: [build: string, reason: string][] = [
    ["..", "build.context '..' lies outside of environment/"],
    ["/usr/src", "build.context '/usr/src' lies outside of environment/"],
    ["./link", "build.context './link' leads over the link link"],
    ["./gone", "build.context './gone' is no folder"],
    [
      "https://github.com/a/b.git",
      "build.context 'https://github.com/a/b.git' is remote, must be a folder in environment/",
    ],
    ["{context: api, dockerfile: ../Dockerfile}", "build.dockerfile '../Dockerfile' lies outside of the build context"],
    ["{context: api, dockerfile: gone}", "build.dockerfile 'gone' does not exist"],
    [
      "{context: api, dockerfile: a, dockerfile_inline: FROM x}",
      "build.dockerfile and dockerfile_inline exclude each other",
    ],
    ["{context: api, secrets: [a]}", "build.secrets is not supported"],
    ["{context: api, ssh: [default]}", "build.ssh is not supported"],
    ["{context: api, additional_contexts: {a: ../x}}", "build.additional_contexts is not supported"],
    ["{context: api, extra_hosts: ['a:1.1.1.1']}", "build.extra_hosts is not supported"],
    ["{context: api, entitlements: [network.host]}", "build.entitlements is not supported"],
    ["{context: api, privileged: true}", "build.privileged is not supported"],
    ["{context: api, network: host}", "build.network 'host' is not supported, only default and none"],
    ["{context: api, cache_to: ['type=s3,secret_access_key=abc']}", "build.cache_to holds credentials"],
    ["{context: api, cache_from: ['https://u:p@host/x']}", "build.cache_from holds credentials"],
    ["{context: api, platforms: [linux/arm64]}", "build.platforms does not hold linux/amd64"],
    ["{context: api, targt: x}", "build.targt is not supported (did you mean target?)"],
  ];
  for (const [build, reason] of rows) {
    assert.equal(reasonCase({ file: file(build), files: FILES }), `service 'api': ${reason}`, build);
  }
});

test("serviceImageName() names a service's image by the context's", () => {
  const rows: [service: string, wanted: string][] = [
    ["main", "hb__abc"],
    ["api", "hb__abc__api"],
    ["My_Web.1", "hb__abc__my_web.1"],
  ];
  for (const [service, wanted] of rows) assert.equal(serviceImageName("hb__abc", service), wanted);
});
