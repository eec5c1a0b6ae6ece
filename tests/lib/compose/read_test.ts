import assert from "node:assert/strict";
import { test } from "node:test";
import type { ComposeService } from "../../../lib/compose/mod.ts";
import { type ComposeCase, planCase, readCase, reasonCase, sidecar, TASK_IMAGE } from "../../support/compose.ts";

const web = (given: ComposeCase | string): ComposeService =>
  planCase(given).services.find((one) => one.name === "web")!;

test("readCompose() takes every supported key of a service", () => {
  const rows: [keys: string, wanted: Partial<ComposeService>][] = [
    ["command: python -m http.server '8 0'", { command: ["python", "-m", "http.server", "8 0"] }],
    ["command: [a, 1, true]", { command: ["a", "1", "true"] }],
    ["command: []", { command: [] }],
    [`command: ""`, { command: [] }],
    ["entrypoint: /run.sh --x", { entrypoint: ["/run.sh", "--x"] }],
    ["environment: {A: 1, B: true, C: 1.50, D: '', E: 0x10}", {
      environment: { A: "1", B: "true", C: "1.5", D: "", E: "16" },
    }],
    ["environment: [A=1, B=a=b, C=]", { environment: { A: "1", B: "a=b", C: "" } }],
    ["working_dir: /srv", { workdir: "/srv" }],
    ["user: 1000", { user: "1000" }],
    ["user: www-data", { user: "www-data" }],
    ["expose: ['8000', 9000, 3000-3002/tcp]", { ports: [8000, 9000, 3000, 3001, 3002] }],
    ["ports: [80, '8080:81', '127.0.0.1:9:82', '83/tcp', {target: 84, published: '9'}]", {
      ports: [80, 81, 82, 83, 84],
    }],
    ["networks: [default]", { aliases: [] }],
    ["networks: {default: {aliases: [db, store]}}", { aliases: ["db", "store"] }],
    ["network_mode: none", { noNetwork: true }],
    ["container_name: old_name", { aliases: ["old_name"] }],
    ["extra_hosts: ['a:10.0.0.1', 'b=::1', 'c=[::2]']", { extraHosts: { a: "10.0.0.1", b: "::1", c: "::2" } }],
    ["extra_hosts: {a: 10.0.0.1}", { extraHosts: { a: "10.0.0.1" } }],
    ["cap_add: [sys_ptrace, CAP_NET_ADMIN]", { capAdd: ["SYS_PTRACE", "NET_ADMIN"] }],
    ["cap_drop: [ALL]", { capDrop: ["ALL"] }],
    ["security_opt: ['no-new-privileges:true']", { noNewPrivileges: true }],
    ["read_only: 'yes'", { readOnly: true }],
    ["hostname: db-1", { hostname: "db-1" }],
    ["init: true", { init: true }],
    ["shm_size: 64m", { shmBytes: 64 * 1024 ** 2 }],
    ["shm_size: 1048576", { shmBytes: 1024 ** 2 }],
    ["stop_signal: SIGINT", { stopSignal: "SIGINT" }],
    ["stop_grace_period: 1m30s", { stopGraceMs: 90_000 }],
    ["ulimits: {nofile: 1024, nproc: {soft: 1, hard: 2}, core: -1}", {
      ulimits: { nofile: { soft: 1024, hard: 1024 }, nproc: { soft: 1, hard: 2 }, core: { soft: -1, hard: -1 } },
    }],
    ["labels: [a=1, b]", { labels: { a: "1", b: "" } }],
    ["tmpfs: [/run, '/cache:size=64m,mode=1777']", {
      mounts: [
        { kind: "tmpfs", target: "/run", options: "" },
        { kind: "tmpfs", target: "/cache", options: "size=64m,mode=1777" },
      ],
    }],
    ["tmpfs: /run", { mounts: [{ kind: "tmpfs", target: "/run", options: "" }] }],
    ["cpus: 2", { limits: { cpus: 2 } }],
    ["cpus: '0.5'\nmem_limit: 512m", { limits: { cpus: 0.5, memoryMb: 512 } }],
    ["deploy: {resources: {limits: {cpus: '1.5', memory: 1.5g}}}", { limits: { cpus: 1.5, memoryMb: 1536 } }],
    ["cpus: 2\ndeploy: {resources: {limits: {cpus: '2.0'}}}", { limits: { cpus: 2 } }],
    ["gpus: [{driver: nvidia, count: 2, capabilities: [gpu]}]", { limits: { gpus: 2 } }],
    ["deploy: {resources: {reservations: {devices: [{count: 1, capabilities: [gpu]}]}}}", { limits: { gpus: 1 } }],
    [
      "healthcheck: {test: [CMD, a, b], interval: 2s, timeout: 1m30.5s, retries: 4, start_period: 500ms, start_interval: 1s}",
      {
        healthcheck: {
          probe: { argv: ["a", "b"] },
          intervalMs: 2000,
          timeoutMs: 90_500,
          retries: 4,
          startPeriodMs: 500,
          startIntervalMs: 1000,
        },
      },
    ],
    ["healthcheck: {test: curl -f localhost, retries: '5'}", {
      healthcheck: { probe: { script: "curl -f localhost" }, retries: 5 },
    }],
    ["healthcheck: {test: [CMD-SHELL, 'exit 0']}", { healthcheck: { probe: { script: "exit 0" } } }],
    ["healthcheck: {test: [NONE]}", { healthcheck: "none" }],
    ["healthcheck: {disable: 'true', test: [CMD, a]}", { healthcheck: "none" }],
  ];
  for (const [keys, wanted] of rows) {
    const found = web(sidecar(keys));
    for (const [key, value] of Object.entries(wanted)) {
      assert.deepEqual(found[key as keyof ComposeService], value, keys);
    }
  }
});

test("F2: readCompose() takes durations and numbers as Compose has them, and no duration without a unit", () => {
  const period = (text: string) => {
    const part = web(sidecar(`healthcheck: {test: x, start_period: ${text}}`)).healthcheck;
    return part === "none" ? part : part?.startPeriodMs;
  };
  const rows: [text: string, ms: number | undefined][] = [
    ["1m30.5s", 90_500],
    ["1h", 3_600_000],
    [".5s", 500],
    ["250us", 0.25],
    ["1h0m0.001s", 3_600_001],
    ["'0'", undefined],
    ["0s", undefined],
  ];
  for (const [text, ms] of rows) assert.equal(period(text), ms, text);
  for (const text of ["5", "'10'", "1d", "-5s", "s", "1 s"]) {
    assert.match(
      reasonCase(sidecar(`healthcheck: {test: x, interval: ${text}}`)),
      /healthcheck\.interval is .* duration/,
      text,
    );
  }
});

test("readCompose() refuses what a group has not, by service and key", () => {
  const rows: [keys: string, reason: string | RegExp][] = [
    ["privileged: true", "service 'web': privileged is not supported"],
    ["pid: host\nipc: host", "service 'web': ipc is not supported; service 'web': pid is not supported"],
    ["userns_mode: host", "service 'web': userns_mode is not supported"],
    ["sysctls: {a: 1}", "service 'web': sysctls is not supported"],
    ["devices: ['/dev/kvm:/dev/kvm']", "service 'web': devices is not supported"],
    ["secrets: [a]", "service 'web': secrets is not supported"],
    ["configs: [a]", "service 'web': configs is not supported"],
    ["extends: {service: x}", "service 'web': extends is not supported"],
    ["profiles: [a]", "service 'web': profiles is not supported"],
    ["links: [main]", "service 'web': links is not supported"],
    ["volumes_from: [main]", "service 'web': volumes_from is not supported"],
    ["tty: true\nstdin_open: true", "service 'web': stdin_open is not supported; service 'web': tty is not supported"],
    ["logging: {driver: none}", "service 'web': logging is not supported"],
    ["post_start: [{command: a}]", "service 'web': post_start is not supported"],
    ["enviroment: {A: 1}", "service 'web': enviroment is no key of a Compose service (did you mean environment?)"],
    ["frobnicate: false", "service 'web': frobnicate is no key of a Compose service"],
    ["scale: 3", "service 'web': scale is 3, only 1 is supported"],
    ["deploy: {replicas: 2}", "service 'web': deploy.replicas is 2, only 1 is supported"],
    ["deploy: {mode: global}", "service 'web': deploy.mode 'global' is not supported"],
    ["deploy: {resources: {limits: {pids: 5}}}", "service 'web': deploy.resources.limits.pids is not supported"],
    ["network_mode: host", "service 'web': network_mode 'host' is not supported, only none and service:<name>"],
    ["network_mode: bridge", /network_mode 'bridge' is not supported/],
    ["network_mode: 'container:x'", /network_mode 'container:x' is not supported/],
    ["network_mode: 'service:nobody'", "service 'web': network_mode names 'nobody', which is no service of the file"],
    ["network_mode: 'service:main'\nports: ['80']", "service 'web': network_mode excludes ports"],
    ["network_mode: 'service:main'\nnetworks: [default]", "service 'web': network_mode excludes networks"],
    ["networks: [back]", "service 'web': networks.back is not supported: a group has one network, default"],
    ["networks: {default: {ipv4_address: 10.0.0.2}}", "service 'web': networks.default.ipv4_address is not supported"],
    ["networks: {default: {mac_address: x}}", "service 'web': networks.default.mac_address is not supported"],
    ["ports: ['53:53/udp']", "service 'web': ports[0] has the protocol udp, only tcp is supported"],
    ["ports: [99999]", "service 'web': ports[0] '99999' is no port"],
    ["expose: ['80:80']", "service 'web': expose[0] is no port"],
    ["extra_hosts: ['h:host-gateway']", "service 'web': extra_hosts.h is 'host-gateway', must be an address"],
    ["user: '1:1'", "service 'web': user '1:1' names a group, which is not supported: give the user alone"],
    ["working_dir: srv", "service 'web': working_dir 'srv' is not absolute"],
    ["command: echo 'x", "service 'web': command opens a quote that nothing closes"],
    ["cap_add: [ALL]", "service 'web': cap_add holds ALL, which amounts to privileged"],
    ["security_opt: ['seccomp:unconfined']", "service 'web': security_opt 'seccomp:unconfined' is not supported"],
    ["restart: sometimes", "service 'web': restart 'sometimes' is no policy"],
    ["pull_policy: maybe", "service 'web': pull_policy 'maybe' is no policy"],
    ["platform: linux/arm64", "service 'web': platform 'linux/arm64' is not linux/amd64"],
    [
      "cpus: 2\ndeploy: {resources: {limits: {cpus: '1'}}}",
      "service 'web': cpus is 2, but deploy.resources.limits.cpus is 1",
    ],
    ["mem_limit: lots", "service 'web': mem_limit is 'lots', must be a size such as 64m"],
    ["cpus: -1", "service 'web': cpus is '-1', must be a number above 0"],
    ["gpus: all", "service 'web': gpus is 'all', must be a list with a count of NVIDIA GPUs"],
    ["gpus: [{driver: amd, count: 1}]", "service 'web': gpus[0].driver 'amd' is not supported, only nvidia"],
    ["healthcheck: {test: [a, b]}", /healthcheck\.test must begin with NONE, CMD or CMD-SHELL/],
    [
      "healthcheck: {test: x, retries: many}",
      "service 'web': healthcheck.retries is 'many', must be a whole number, 0 or more",
    ],
    [
      "healthcheck: {test: x, intervall: 5s}",
      "service 'web': healthcheck.intervall is not supported (did you mean interval?)",
    ],
    ["depends_on: [nobody]", "service 'web': depends_on.nobody is no service of the file"],
    ["depends_on: {main: {condition: service_healthy}}", /depends_on\.main waits for main's health/],
    ["depends_on: {main: {condition: service_completed_successfully}}", /depends_on\.main waits for the end of main/],
    [
      "depends_on: {main: {condition: ready}}",
      /depends_on\.main\.condition 'ready' is not service_started, service_healthy or/,
    ],
    [
      "depends_on: {main: {condition: service_started, required: false}}",
      "service 'web': depends_on.main.required is false, which is not supported",
    ],
    [
      "depends_on: {main: {condition: service_started, restart: true}}",
      "service 'web': depends_on.main.restart is true, which is not supported",
    ],
    ["image: 'Not An Image'", /service 'web': image 'Not An Image' is not an image reference/],
    ["ulimits: {nofile: lots}", "service 'web': ulimits.nofile must be a whole number, or soft and hard"],
    ['command: "a\\0b"', "service 'web': command holds a NUL, which neither programs nor files take"],
    ['env_file: "\\0"', "service 'web': env_file holds a NUL, which neither programs nor files take"],
    [`volumes: ["./${"n".repeat(300)}:/x"]`, /volumes\[0\] source '\.\/n+' cannot be looked at: /],
    ["environment: [{A: 1}]", "service 'web': environment is a list, must be a table"],
  ];
  for (const [keys, reason] of rows) {
    const text = keys.startsWith("image:") ? `services:\n  web:\n    ${keys}\n` : sidecar(keys);
    const found = reasonCase(text);
    if (typeof reason === "string") assert.equal(found, reason, keys);
    else assert.match(found, reason, keys);
  }
});

test("readCompose() takes a key that asks for nothing as if it were not there", () => {
  for (
    const keys of [
      "privileged: false",
      "tty:",
      "links: []",
      "secrets: []",
      "sysctls: {}",
      "pid: ''",
      "scale: 1",
      "restart: no",
      "build:",
    ]
  ) {
    assert.equal(reasonCase(sidecar(keys)), "accepted", keys);
  }
});

test("readCompose() says once, in order, everything that a file asks for in vain", () => {
  const reason = readCase({
    file:
      "services:\n  b: {image: x, privileged: true, pid: host}\n  a: {image: x, network_mode: host}\nsecrets: {s: {file: x}}\n",
  });
  assert.deepEqual(reason, {
    ok: false,
    reason: "Compose file was refused: secrets is not supported; " +
      "service 'a': network_mode 'host' is not supported, only none and service:<name>; " +
      "service 'b': pid is not supported; service 'b': privileged is not supported",
    hint: "mend what is named in environment/docker-compose.yaml",
  });
});

test("readCompose() refuses files that are none", () => {
  const rows: [file: string, reason: string | RegExp][] = [
    ["services: [", /^environment\/docker-compose\.yaml:1: /],
    ["a: b: c", /^environment\/docker-compose\.yaml:1: /],
    ["- a", "environment/docker-compose.yaml is no table of services"],
    ["services: {}\n---\nservices: {}", "environment/docker-compose.yaml:2: a second document begins"],
    ["services: {web: {image: !secret x}}", /the tag !secret is not supported/],
    ["services: {web: &w {image: x, x-me: *w}}", /a value contains itself/],
    ["services: {web: {image: *nowhere}}", /no anchor &nowhere/],
    ["services: {web: {image: a, image: b}}", /Map keys must be unique/],
    ["services: [web]", "services must be a table"],
    ["services: {web: [image]}", "services.web must be a table"],
    ["services: {'a b': {image: x}}", "service 'a b': is no name of a service"],
    ["services: {web: }", "service 'web': image is missing: a sidecar needs image or build"],
    ["service: {web: {image: x}}", "service is no key of a Compose file (did you mean services?)"],
    ["include: [other.yaml]", "include is not supported"],
    ["configs: {a: {file: b}}", "configs is not supported"],
    ["models: {a: {model: b}}", "models is not supported"],
    ["volumes: {a: {external: true}}", "volumes.a.external is not supported"],
    ["volumes: {a: {driver: nfs}}", "volumes.a.driver is not supported"],
    ["volumes: {a: {driver_opts: {o: bind}}}", "volumes.a.driver_opts is not supported"],
    ["networks: {default: {external: true}}", "networks.default.external is not supported"],
    ["networks: {default: {driver: host}}", "networks.default.driver is not supported"],
    ["networks: {default: {ipam: {config: [{subnet: 10.0.0.0/8}]}}}", "networks.default.ipam is not supported"],
  ];
  for (const [file, reason] of rows) {
    const found = reasonCase(file);
    if (typeof reason === "string") assert.equal(found, reason, file);
    else assert.match(found, reason, file);
  }
});

test("readCompose() refuses circles and names them once", () => {
  const rows: [file: string, reason: string][] = [
    [
      "services:\n  b: {image: x, depends_on: [c]}\n  c: {image: x, depends_on: [a]}\n  a: {image: x, depends_on: [b]}\n",
      "service 'a': depends_on goes in a circle: a → b → c → a",
    ],
    ["services:\n  a: {image: x, depends_on: [a]}\n", "service 'a': depends_on goes in a circle: a → a"],
    [
      "services:\n  main: {depends_on: [a]}\n  a: {image: x, depends_on: [main]}\n",
      "service 'a': depends_on goes in a circle: a → main → a",
    ],
    [
      "services:\n  a: {image: x, network_mode: 'service:b'}\n  b: {image: x, network_mode: 'service:a'}\n",
      "service 'a': network_mode goes in a circle: a → b → a",
    ],
  ];
  for (const [file, reason] of rows) assert.equal(reasonCase(file), reason);
});

test("readCompose() orders services after those they wait for, main last unless it is waited for", () => {
  const names = (file: string) => planCase(file).services.map((one) => one.name);
  assert.deepEqual(
    names("services:\n  main: {}\n  app: {image: x, depends_on: [db, cache]}\n  cache: {image: x}\n  db: {image: x}\n"),
    ["db", "cache", "app", "main"],
  );
  assert.deepEqual(
    names("services:\n  after: {image: x, depends_on: [main]}\n  db: {image: x}\n  main: {depends_on: [db]}\n"),
    [
      "db",
      "main",
      "after",
    ],
  );
  assert.deepEqual(names("services:\n  proxy: {image: x, network_mode: 'service:app'}\n  app: {image: x}\n"), [
    "app",
    "proxy",
    "main",
  ]);
});

test("readCompose() settles which services share whose network", () => {
  const plan = planCase(
    "services:\n  a: {image: x, network_mode: 'service:b'}\n  b: {image: x, network_mode: 'service:c'}\n  c: {image: x}\n" +
      "  d: {image: x, network_mode: 'service:e'}\n  e: {image: x, network_mode: none}\n",
  );
  const of = (name: string) => plan.services.find((one) => one.name === name)!;
  assert.deepEqual([of("a").networkOf, of("b").networkOf, of("c").networkOf], ["c", "c", undefined]);
  assert.deepEqual([of("d").networkOf, of("d").noNetwork], [undefined, true], "nothing can be shared of no network");
});

test("readCompose() cuts a group off whose default network is internal", () => {
  assert.equal(planCase("networks: {default: {internal: true}}\n").network, "no-network");
  assert.equal(planCase("networks: {default: {internal: false}, other: {internal: true}}\n").network, undefined);
});

test("readCompose() tells images apart: the task's own, by name, built", () => {
  const kinds = (given: ComposeCase | string) =>
    Object.fromEntries(
      planCase(given).services.map(({ name, image }) => [
        name,
        image.kind === "reference" ? image.reference : image.kind === "build" ? `build ${image.service}` : "task",
      ]),
    );
  const rows: [given: ComposeCase | string, wanted: Record<string, string>][] = [
    ["services: {main: {working_dir: /app}}", { main: "task" }],
    ["services: {main: {image: '${MAIN_IMAGE_NAME}'}, twin: {image: '${MAIN_IMAGE_NAME}'}}", {
      main: "task",
      twin: "task",
    }],
    ["services: {main: {build: {context: '${CONTEXT_DIR}'}, image: '${MAIN_IMAGE_NAME}'}}", { main: "task" }],
    ["services: {main: {build: .}}", { main: "task" }],
    ["services: {main: {build: {context: ., args: {A: 1}}}}", { main: "build main" }],
    ["services: {main: {image: my-name}}", { main: "task" }],
    [{ file: "services: {main: {image: 'python:3.12'}}", dockerfile: false }, { main: "python:3.12" }],
    [{ file: "services: {main: {}}", dockerfile: false }, { main: "task" }],
    [{ file: "services: {main: {build: .}}", environment: { docker_image: "debian:12" }, dockerfile: false }, {
      main: "task",
    }],
    [{
      file: "services: {main: {image: '${PREBUILT_IMAGE_NAME}'}, b: {image: '${PREBUILT_IMAGE_NAME}'}}",
      environment: { docker_image: "debian:12" },
    }, { main: "task", b: "debian:12" }],
    [{ file: "services: {main: {image: 'ubuntu:24.04'}}", environment: { docker_image: "debian:12" } }, {
      main: "ubuntu:24.04",
    }],
    [
      {
        file: "services: {api: {build: ./api}, api2: {image: shared}, api3: {build: ./api, image: shared}}",
        files: { "environment/api/Dockerfile": "FROM debian:12\n" },
      },
      { api: "build api", api2: "build api3", api3: "build api3", main: "task" },
    ],
  ];
  for (const [given, wanted] of rows) {
    assert.deepEqual(kinds(given), wanted, typeof given === "string" ? given : given.file);
  }
  assert.equal(TASK_IMAGE.startsWith("hb__"), true);
});

test("readCompose() needs a group for sidecars, and for what a plain sandbox cannot have", () => {
  const rows: [file: string, wanted: boolean][] = [
    ["services: {main: {working_dir: /app, user: root, environment: {A: 1}, command: sleep infinity, cpus: 1}}", false],
    [
      "services: {main: {volumes: ['${HOST_AGENT_LOGS_PATH}:${ENV_AGENT_LOGS_PATH}'], deploy: {resources: {limits: {cpus: '${CPUS}'}}}}}",
      false,
    ],
    ["services: {main: {network_mode: none, healthcheck: {test: 'true'}}}", false],
    ["services: {main: {volumes: [/data]}}", true],
    ["services: {main: {cap_add: [SYS_PTRACE]}}", true],
    ["services: {main: {extra_hosts: {a: 1.2.3.4}}}", true],
    ["services: {main: {}, web: {image: x}}", true],
  ];
  for (const [file, wanted] of rows) assert.equal(planCase(file).needsGroup, wanted, file);
});

test("readCompose() refuses what the provider's groups lack, and hooks of services that do not exist", () => {
  assert.equal(
    reasonCase({
      file: sidecar("ulimits: {nofile: 1}\ncap_add: [NET_ADMIN]\ninit: false"),
      lacks: ["ulimits", "cap_add", "init"],
    }),
    "service 'web': cap_add is not offered by this sandbox; service 'web': ulimits is not offered by this sandbox",
  );
  assert.equal(
    reasonCase({ file: sidecar(""), hooks: ["web", "gone", "main", "also"] }),
    "Artifacts or collect hooks name Compose services that do not exist: ['also', 'gone']",
  );
});

test("readCompose() refuses a group where there are none, and lets main alone run anywhere", () => {
  const sandbox = { name: "host" } as const;
  assert.equal(readCase({ file: sidecar(""), sandbox }).ok, false);
  assert.equal(reasonCase({ file: sidecar(""), sandbox }), "host cannot run a Compose task");
  assert.equal(reasonCase({ file: "services: {main: {working_dir: /app}}", sandbox }), "accepted");
});

test("readCompose() notes what it does otherwise, and warns of what nobody reads", () => {
  const plan = planCase({
    file: "version: '3'\n" + sidecar("restart: always\nports: ['80:80']\ncommand: run $NONE $NONE $ALSO") +
      "volumes: {spare: }\n",
  });
  assert.deepEqual(plan.notes, [
    "service 'web': restart 'always' is left out: a service that ends stays ended, and its row says so",
    "service 'web': ports[0] opens nothing on this machine: the others reach the service by its name",
  ]);
  assert.deepEqual(plan.warnings, [
    "version is read by nobody any more",
    "volumes that no service mounts: spare",
    "variables that are not set and become empty: NONE, ALSO",
  ]);
});

test("readCompose() refuses a service that starts itself again while somebody waits for its end", () => {
  assert.equal(
    reasonCase(
      "services:\n  job: {image: x, restart: on-failure}\n  main: {depends_on: {job: {condition: service_completed_successfully}}}\n",
    ),
    "service 'job': restart starts it again, but 'main' waits for its end",
  );
});
