import { test } from "node:test";
import assert from "node:assert/strict";
import type { HarborError } from "../../../lib/errors.ts";
import type { BuildFailure } from "../../../lib/images/builder.ts";
import { buildFailed, type Failed } from "../../../providers/builders/_failure.ts";

const IMAGE = "registry.local/team/hb__0123";

const failed = (more: Partial<Failed> & { stdout?: string; stderr?: string; exitCode?: number }): HarborError =>
  buildFailed({
    tool: { name: "podman" },
    result: { ended: "exit", exitCode: more.exitCode ?? 125, stdout: more.stdout ?? "", stderr: more.stderr ?? "" },
    image: IMAGE,
    step: "build",
    limitMs: 600_000,
    storage: "/var/lib/containers/storage",
    lowestFreeBytes: 50 * 1024 ** 3,
    platform: "linux/amd64",
    machine: "linux/amd64",
    logFile: "/r/builds/0123.log",
    proxies: [],
    ...more,
  });

const CLASSIC = { name: "docker", kind: "classic" } as const;
const BUILDKIT = { name: "docker", kind: "buildkit" } as const;
const PODMAN = { name: "podman" } as const;
const CLASSIC_FROM = "Sending build context to Docker daemon  13.31kB\nStep 1/2 : FROM 127.0.0.1:28709/library/x:1\n";
const DEPRECATED = "DEPRECATED: The legacy builder is deprecated and will be removed in a future release.\n" +
  "            BuildKit is currently disabled; enable it by removing the DOCKER_BUILDKIT=0\n            environment-variable.\n\n";
const FULL = "dd: error writing '/dev/shm/f': No space left on device\n65+0 records in\n64+0 records out\n" +
  'Error: building at STEP "RUN dd if=/dev/zero of=/dev/shm/f bs=1M count=900": while running runtime: exit status 1\n';

/** Outputs of docker 20.10 (clients 20.10 and 28.2), podman 4.3 and buildah 1.28, cut to what matters. */
const rows: [what: string, given: Parameters<typeof failed>[0], kind: BuildFailure, message: RegExp][] = [
  [
    "a pull limit, podman",
    {
      tool: PODMAN,
      stderr: "Trying to pull 127.0.0.1:28709/library/x:1...\n" +
        "Error: creating build container: initializing source docker://127.0.0.1:28709/library/x:1: reading manifest 1 in 127.0.0.1:28709/library/x: toomanyrequests: You have reached your unauthenticated pull rate limit. https://www.docker.com/increase-rate-limit\n",
    },
    "registry-limit",
    /^Docker Hub pull limit while building registry\.local\/team\/hb__0123: .*toomanyrequests/,
  ],
  [
    "a pull limit, podman ended while it went on asking",
    {
      tool: PODMAN,
      result: {
        ended: "aborted",
        exitCode: 143,
        stdout: "STEP 1/2: FROM x\n",
        stderr:
          'time="2026-11-29T19:18:41Z" level=warning msg="Failed, retrying in 2s ... (1/3). Error: initializing source docker://x:1: reading manifest 1 in x: toomanyrequests: You have reached your unauthenticated pull rate limit."\n',
      },
    },
    "registry-limit",
    /^Docker Hub pull limit while building /,
  ],
  [
    "a pull limit, docker's classic builder",
    {
      tool: CLASSIC,
      exitCode: 1,
      stdout: CLASSIC_FROM,
      stderr:
        `${DEPRECATED}toomanyrequests: You have reached your unauthenticated pull rate limit. https://www.docker.com/increase-rate-limit\n`,
    },
    "registry-limit",
    /^Docker Hub pull limit while building .*: toomanyrequests: You have reached/,
  ],
  [
    "a pull limit, BuildKit",
    {
      tool: BUILDKIT,
      exitCode: 1,
      stderr: " > [internal] load metadata for 127.0.0.1:28709/library/x:1:\n------\n" +
        "failed to solve with frontend dockerfile.v0: failed to create LLB definition: pulling from host 127.0.0.1:28709 failed with status code [manifests 1]: 429 Too Many Requests\n",
    },
    "registry-limit",
    /429 Too Many Requests/,
  ],
  [
    "a push without a login, docker",
    {
      tool: CLASSIC,
      step: "push",
      exitCode: 1,
      stdout:
        "Using default tag: latest\nThe push refers to repository [127.0.0.1:25640/team/hbx1]\na19b3f4c7fa4: Preparing\n",
      stderr: "no basic auth credentials\n",
    },
    "credentials",
    /^push to registry\.local\/team refused: no basic auth credentials$/,
  ],
  [
    "a push without a login, podman",
    {
      tool: PODMAN,
      step: "push",
      stderr:
        "Getting image source signatures\nError: trying to reuse blob sha256:a013 at destination: checking whether a blob sha256:a013 exists in 127.0.0.1:25640/team/hbx3: unauthorized: authentication required\n",
    },
    "credentials",
    /^push to registry\.local\/team refused: .*unauthorized: authentication required$/,
  ],
  [
    "a push that a proxy answers",
    {
      tool: PODMAN,
      step: "push",
      proxies: ["HTTPS_PROXY", "NO_PROXY"],
      stderr:
        "Error: trying to reuse blob sha256:a013 at destination: failed to read from destination repository t/hb: 403 (Forbidden)\n",
    },
    "credentials",
    /^push to registry\.local\/team refused: .*403 \(Forbidden\) \(set here: HTTPS_PROXY, NO_PROXY; a proxy may have answered\)$/,
  ],
  [
    "a pull that a proxy answers, docker's classic builder",
    {
      tool: CLASSIC,
      exitCode: 1,
      proxies: ["https_proxy"],
      stdout: CLASSIC_FROM,
      stderr:
        `${DEPRECATED}error parsing HTTP 403 response body: invalid character '<' looking for beginning of value: "<html>denied by proxy</html>"\n`,
    },
    "credentials",
    /^a pull for the build of .* refused: error parsing HTTP 403 .*\(set here: https_proxy;/,
  ],
  [
    "a registry that is broken, podman",
    {
      tool: PODMAN,
      stderr:
        "Error: creating build container: initializing source docker://127.0.0.1:28702/library/x:1: reading manifest 1 in 127.0.0.1:28702/library/x: received unexpected HTTP status: 502 Bad Gateway\n",
    },
    "network",
    /^image build failed \(exit 125\): a base image cannot be pulled: .*502 Bad Gateway$/,
  ],
  [
    "a registry that is not there, docker's classic builder",
    {
      tool: CLASSIC,
      exitCode: 1,
      stdout: CLASSIC_FROM,
      stderr: `${DEPRECATED}Get "http://127.0.0.1:1/v2/": dial tcp 127.0.0.1:1: connect: connection refused\n`,
    },
    "network",
    /a base image cannot be pulled: Get "http:\/\/127\.0\.0\.1:1\/v2\/"/,
  ],
  [
    "no network, BuildKit",
    {
      tool: BUILDKIT,
      exitCode: 1,
      stderr:
        'failed to solve with frontend dockerfile.v0: failed to create LLB definition: failed to do request: Head "https://registry-1.docker.io/v2/library/none-such-base/manifests/1": dial tcp: lookup registry-1.docker.io on 10.255.255.53:53: no such host\n',
    },
    "network",
    /no such host$/,
  ],
  [
    "a push that a broken registry did not take, docker",
    { tool: CLASSIC, step: "push", exitCode: 1, stderr: "received unexpected HTTP status: 502 Bad Gateway\n" },
    "network",
    /^push to .* did not come through: received unexpected HTTP status: 502 Bad Gateway$/,
  ],
  [
    "E16: a full disk under a layer, podman",
    {
      tool: PODMAN,
      stderr:
        'Error: committing container for step {Command:run}: copying layers and metadata for container "1f": writing blob: adding layer with blob "sha256:1f": Error processing tar file(exit status 1): write /big: no space left on device\n',
    },
    "disk",
    /^no space left on device in \/var\/lib\/containers\/storage while building /,
  ],
  [
    "E16: a full disk under a RUN",
    { tool: PODMAN, exitCode: 1, stderr: FULL, lowestFreeBytes: 4096 },
    "disk",
    /^no space left on device in /,
  ],
  [
    "a RUN that filled its own /dev/shm",
    { tool: PODMAN, exitCode: 1, stderr: FULL },
    "build",
    /^image build failed \(exit 1\): /,
  ],
  [
    "E18: another platform without an emulator",
    {
      tool: PODMAN,
      exitCode: 1,
      platform: "linux/arm64",
      stderr:
        'exec container process `/bin/sh`: Exec format error\nError: building at STEP "RUN true": while running runtime: exit status 1\n',
    },
    "platform",
    /^this machine \(linux\/amd64\) cannot run programs for linux\/arm64: /,
  ],
  [
    "a limit",
    { tool: PODMAN, result: { ended: "deadline", exitCode: 143, stdout: "STEP 2/2: RUN sleep 9999\n", stderr: "" } },
    "timeout",
    /^image build exceeded 600 s/,
  ],
  [
    "a limit, BuildKit",
    {
      tool: BUILDKIT,
      result: {
        ended: "deadline",
        exitCode: 130,
        stdout: "",
        stderr: "#7 445.3    Compiling regex v1.13.2\n#7 CANCELED\nERROR: failed to build: failed to solve: " +
          "Canceled: context canceled\n",
      },
    },
    "timeout",
    /^image build exceeded 600 s: last said: #7 445\.3 +Compiling regex v1\.13\.2$/,
  ],
  [
    "a RUN that speaks of networks and logins",
    {
      tool: CLASSIC,
      exitCode: 6,
      stdout: "Step 2/2 : RUN curl https://example.org\n ---> Running in 352d68a6b94\n",
      stderr:
        `${DEPRECATED}curl: (6) Could not resolve host: example.org, dial tcp: 401 unauthorized 429\nThe command '/bin/sh -c curl https://example.org' returned a non-zero code: 6\n`,
    },
    "build",
    /^image build failed \(exit 6\): .*\(Step 2\/2 : RUN curl https:\/\/example\.org\)$/,
  ],
  [
    "a RUN that quotes a pull limit, podman",
    {
      tool: PODMAN,
      exitCode: 1,
      stdout: 'STEP 2/2: RUN echo "toomanyrequests"; exit 1\n',
      stderr: 'Error: building at STEP "RUN echo "toomanyrequests"; exit 1": while running runtime: exit status 1\n',
    },
    "build",
    /^image build failed \(exit 1\): /,
  ],
  [
    "a source that is not there",
    {
      tool: BUILDKIT,
      exitCode: 1,
      stderr:
        '#4 [2/2] COPY nothere /f\n#4 ERROR: "/nothere" not found: not found\nfailed to compute cache key: "/nothere" not found: not found\n',
    },
    "build",
    /"\/nothere" not found: not found \(#4 \[2\/2\] COPY nothere \/f\)/,
  ],
];

for (const [what, given, kind, message] of rows) {
  test(`a failed build is told by its class: ${what}`, () => {
    const error = failed(given);
    assert.equal(error.code, "image.failed");
    assert.equal(error.details?.class, kind, error.message);
    assert.match(error.message, message);
    assert.match(error.hint ?? "", /the whole log is \/r\/builds\/0123\.log$/);
    assert.ok(!error.message.includes("\n"));
  });
}

test("what people can do about a pull limit is said", () => {
  const hint = failed({ stderr: "Error: toomanyrequests\n" }).hint ?? "";
  for (const advice of [/log in/, /Run config written to/, /mirror/, /offline bundle/]) assert.match(hint, advice);
});
