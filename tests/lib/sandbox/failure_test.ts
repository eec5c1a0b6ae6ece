import { test } from "node:test";
import assert from "node:assert/strict";
import { decisiveLine, engineFailure, type FailureKind } from "../../../lib/sandbox/failure.ts";

/** As the clients really word it. */
const SAID: [FailureKind, string, string][] = [
  [
    "daemon-down",
    "docker 28.2",
    "Cannot connect to the Docker daemon at unix:///tmp/none.sock. Is the docker daemon running?",
  ],
  [
    "daemon-down",
    "podman 4.3 remote",
    'Error: unable to connect to Podman socket: Get "http://d/v4.3.1/libpod/_ping": dial unix /run/podman.sock: connect: no such file or directory',
  ],
  [
    "no-permission",
    "docker 20.10",
    "Got permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get ...: dial unix /var/run/docker.sock: connect: permission denied",
  ],
  ["no-container", "docker", "Error response from daemon: No such container: gym-harbor-x"],
  ["no-container", "podman 4.3", 'Error: no container with name or ID "gym-harbor-x" found: no such container'],
  ["no-container", "docker inspect", "Error: No such object: gym-harbor-x"],
  ["not-running", "docker 20.10", "Error response from daemon: Container 5f0c is not running"],
  ["not-running", "podman 4.3", "Error: can only create exec sessions on running containers: container state improper"],
  [
    "name-taken",
    "docker",
    'docker: Error response from daemon: Conflict. The container name "/x" is already in use by container "5f". You have to remove (or rename) that container to be able to reuse that name.',
  ],
  ["no-image", "docker", "Error: No such image: none:1"],
  ["no-image", "podman 4.3", "Error: none:1: image not known"],
  [
    "no-image",
    "docker pull",
    "Error response from daemon: manifest for python:0.0 not found: manifest unknown: manifest unknown",
  ],
  [
    "no-image",
    "podman short name",
    'Error: short-name "none:1" did not resolve to an alias and no unqualified-search registries are defined in "/etc/containers/registries.conf"',
  ],
  [
    "image-denied",
    "docker pull",
    "Error response from daemon: pull access denied for none, repository does not exist or may require 'docker login'",
  ],
  ["rate-limited", "docker pull", "toomanyrequests: You have reached your pull rate limit."],
  [
    "unreachable",
    "docker pull",
    'Error response from daemon: Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io: no such host',
  ],
  [
    "busy",
    "docker 20.10, many starts at once",
    'docker: Error response from daemon: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running hook #0: error running hook: exit status 1, stdout: , stderr: time="2026-11-29T20:05:37Z" level=fatal msg="no such file or directory": unknown.',
  ],
  [
    "no-program",
    "docker 20.10 exec",
    'OCI runtime exec failed: exec failed: unable to start container process: exec: "/bin/sh": stat /bin/sh: no such file or directory: unknown',
  ],
  [
    "no-program",
    "podman 4.3 runc",
    'Error: runc: runc create failed: unable to start container process: exec: "/bin/sh": stat /bin/sh: no such file or directory: OCI runtime attempted to invoke a command that was not found',
  ],
  [
    "no-program",
    "podman crun",
    "Error: crun: executable file `/bin/sh` not found: No such file or directory: OCI runtime attempted to invoke a command that was not found",
  ],
  [
    "not-executable",
    "docker",
    'OCI runtime exec failed: exec failed: unable to start container process: exec: "/bin/sh": permission denied: unknown',
  ],
  ["no-user", "docker", "unable to find user alice: no matching entries in passwd file"],
  ["no-user", "podman", "Error: unable to find user alice: no matching entries in passwd file"],
  [
    "no-folder",
    "docker",
    'OCI runtime exec failed: exec failed: unable to start container process: chdir to cwd ("/none") set in config.json failed: no such file or directory: unknown',
  ],
  [
    "processes-full",
    "docker",
    "OCI runtime exec failed: exec failed: unable to start container process: read init-p: connection reset by peer: runtime: failed to create new OS thread (have 2 already; errno=11)",
  ],
  [
    "disk-full",
    "podman",
    "Error: creating container storage: write /var/lib/containers/storage/x: no space left on device",
  ],
  ["init-missing", "podman 4.3", 'Error: lookup init binary: could not find "catatonit" in one of []'],
  [
    "cgroups",
    "crun 1.8",
    "Error: crun: cgroups in hybrid mode not supported, drop all controllers from cgroupv1: OCI runtime error",
  ],
  [
    "rlimits",
    "runc 1.1",
    "Error: runc: runc create failed: unable to start container process: error during container init: error setting rlimits: error setting rlimit type 7: operation not permitted: OCI permission denied",
  ],
  [
    "cpu-range",
    "docker",
    "docker: Error response from daemon: Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available.",
  ],
  [
    "uid-range",
    "podman",
    "Error: copying system image from manifest list: writing blob: potentially insufficient UIDs or GIDs available in user namespace (requested 0:42 for /etc/gshadow): Check /etc/subuid and /etc/subgid",
  ],
  [
    "unknown-instruction",
    "docker 20.10 classic",
    "Error response from daemon: dockerfile parse error line 3: unknown instruction: ECHO",
  ],
  [
    "unknown-instruction",
    "buildah 1.28",
    'Error: building at STEP "RUN <<EOF": Build error: Unknown instruction: "ECHO"',
  ],
  ["no-buildx", "docker 28.2", "ERROR: BuildKit is enabled but the buildx component is missing or broken."],
];

test("engineFailure() knows what docker, podman and their runtimes say", () => {
  for (const [kind, who, text] of SAID) {
    assert.equal(engineFailure(`some noise\n${text}\nSee 'docker run --help'.\n`)?.kind, kind, `${who}: ${text}`);
  }
});

test("engineFailure() claims nothing that it does not know", () => {
  for (
    const text of [
      "",
      "Traceback (most recent call last):",
      "AssertionError: 1 != 2",
      "make: *** [all] Error 2",
      "FAILED tests/test_x.py",
    ]
  ) {
    assert.equal(engineFailure(text), undefined, text);
  }
});

test("engineFailure() gives the line without the client's prefixes", () => {
  const text = "docker: Error response from daemon: Conflict. The container name is already in use by container 5f.\n";
  assert.equal(engineFailure(text)!.line, "Conflict. The container name is already in use by container 5f.");
});

test("decisiveLine() finds the line that says why, past the noise of clients", () => {
  const rows: [string, string][] = [
    ["", "no output"],
    ["one\ntwo\n", "two"],
    [
      "Step 1/2\nThe command returned a non-zero code: 7 error\nfurther words",
      "The command returned a non-zero code: 7 error",
    ],
    ['Error: real fault\ntime="2025" level=warning msg="x"\nError validating CNI config file /x\n', "real fault"],
    [
      "DEPRECATED: The legacy builder is deprecated\nInstall the buildx component\nbase name (${X}) should not be blank",
      "base name (${X}) should not be blank",
    ],
    ["\u001b[91mE: no such package\u001b[0m\n", "E: no such package"],
  ];
  for (const [text, line] of rows) assert.equal(decisiveLine(text), line);
});
