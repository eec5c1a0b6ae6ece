/** Dockerfiles built without an engine. What BuildKit makes of the same file was measured with Docker 20.10. */
import assert from "node:assert/strict";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { after, before, test } from "node:test";
import { HarborError } from "../../lib/errors.ts";
import type { BuildRequest, BuiltImage } from "../../lib/images/builder.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { newRunId, thisOwner } from "../../lib/sandbox/owner.ts";
import { removeWhole } from "../../lib/sandbox/scratch.ts";
import type { ProviderDeps } from "../../lib/sandbox/provider.ts";
import { openStore } from "../../lib/store/layout.ts";
import { importRootfsArchive } from "../../lib/store/rootfs.ts";
import { NamespaceBuilder } from "../../providers/builders/namespace.ts";
import { NamespaceProvider } from "../../providers/namespace.ts";
import { needOf, oneId } from "../support/layers.ts";
import { rootfsTar } from "../support/rootfs.ts";

const folder = mkdtempSync(join(tmpdir(), "gh-nsb-"));
const signal = AbortSignal.timeout(300_000);
const who = process.getuid?.() === 0 ? "root" : "a plain user";
const store = openStore(join(folder, "store"), { clock: systemClock });
const runner = systemRunner();
const deps: ProviderDeps = {
  runner,
  clock: systemClock,
  env: process.env,
  emit: () => {},
  scratch: folder,
  options: {},
  store,
  unpackDir: join(folder, "trees"),
};
const builder = new NamespaceBuilder({ store, clock: systemClock, provider: () => new NamespaceProvider(deps) });
let serial = 0;

before(async () => {
  const options = { platform: "linux/amd64", runner };
  await importRootfsArchive(rootfsTar("host"), store, { ...options, names: ["base:host"] }, signal);
  await importRootfsArchive(rootfsTar("busybox"), store, { ...options, names: ["base:busybox"] }, signal);
});
after(() => removeWhole(folder));

function request(
  dockerfile: string,
  files: Record<string, string> = {},
  more: Partial<BuildRequest> = {},
): BuildRequest {
  const context = join(folder, `context-${++serial}`);
  mkdirSync(context);
  for (const [path, text] of Object.entries({ ...files, Dockerfile: dockerfile })) {
    mkdirSync(join(context, path, ".."), { recursive: true });
    writeFileSync(join(context, path), text);
  }
  return {
    context,
    dockerfile: join(context, "Dockerfile"),
    name: `hb__${String(serial).padStart(32, "0")}`,
    platform: "linux/amd64",
    args: {},
    timeoutMs: 120_000,
    push: false,
    logFile: join(folder, `log-${serial}`),
    ...more,
  };
}

const build = (one: BuildRequest): Promise<BuiltImage> => builder.build(one, signal, () => {});

/** What a script prints in a sandbox of an image. */
async function inside(name: string, script: string): Promise<string> {
  await using provider = new NamespaceProvider(deps);
  await using box = await provider.open({
    image: await provider.prepare(needOf(name), signal, () => {}),
    owner: thisOwner(newRunId()),
    episode: "0-0",
    role: "agent",
    env: {},
    workdir: undefined,
    user: undefined,
    network: "no-network",
    limits: {},
    ttlMs: 600_000,
    readyTimeoutMs: 60_000,
  }, signal);
  const done = await box.exec({ run: { script }, purpose: "agent", user: "root", deadlineMs: 30_000 }, signal);
  return done.stdout;
}

test(`builds as ${who}: stages, copies, variables and settings come out as BuildKit makes them`, async () => {
  const one = request(
    `ARG TAG=busybox
FROM base:\${TAG} AS tools
RUN mkdir -p /x/y && echo z > /x/y/f && chmod 700 /x/y && ln -s /x/y /abs && ln -s f /x/y/link && ln /x/y/f /x/y/hard
FROM base:host
ARG WORD=hello
ENV GREETING="$WORD world" PATH=/opt/bin:$PATH
RUN mkdir -p /there && chmod 711 /there && rm -rf /mnt /usr/bin/xz && mkdir /mnt && touch /mnt/new
COPY src/ /app/
COPY src /there
COPY --from=tools /x/y /from
COPY --from=tools /abs/f /from2
COPY --from=tools /x/y/har? /x/y/li* /many/
COPY --chmod=640 one /new/deep/name
COPY one src /both/
WORKDIR /w/x
RUN <<EOF
echo "$GREETING" > greeting
EOF
COPY <<EOF /conf
value=$GREETING
EOF
RUN --mount=type=cache,target=/var/cache/thing echo kept > /var/cache/thing/f && echo out > /outside
LABEL a=b
EXPOSE 80 53/udp
HEALTHCHECK --interval=5s --retries=3 CMD true
ENTRYPOINT ["/bin/e"]
CMD ["x"]
`,
    { "src/f": "a\n", "src/sub/g": "b\n", one: "hi\n" },
  );
  chmodSync(join(one.context, "src"), 0o700);
  chmodSync(join(one.context, "src/sub"), 0o750);
  const built = await build(one);
  assert.equal(built.pushed, false);
  const { Env, Entrypoint, Cmd, WorkingDir, Labels, ExposedPorts, Healthcheck, User } = built.config;
  assert.deepEqual(Env, [
    "PATH=/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "GREETING=hello world",
  ]);
  assert.deepEqual([Entrypoint, Cmd, WorkingDir, User], [["/bin/e"], ["x"], "/w/x", ""]);
  assert.deepEqual([Labels, ExposedPorts], [{ a: "b" }, { "80/tcp": {}, "53/udp": {} }]);
  assert.deepEqual(Healthcheck, { Test: ["CMD-SHELL", "true"], Interval: 5_000_000_000, Retries: 3 });
  const seen = await inside(
    one.name,
    `cd /; stat -c '%A %n' app app/f app/sub there from from2 new/deep new/deep/name both/one w/x
cat w/x/greeting conf; ls mnt; ls usr/bin/xz 2>&1 | grep -c 'No such'; ls many | tr '\\n' ' '; readlink from/link; stat -c %h from/f
ls /var/cache/thing outside; ls -A / | tr '\\n' ' '`,
  );
  assert.deepEqual(seen.split("\n"), [
    "drwxr-xr-x app",
    "-rw-r--r-- app/f",
    "drwxr-x--- app/sub",
    "drwx--x--x there",
    "drwxr-xr-x from",
    "-rw-r--r-- from2",
    "drwxr-xr-x new/deep",
    "-rw-r----- new/deep/name",
    "-rw-r--r-- both/one",
    "drwxr-xr-x w/x",
    "hello world",
    "value=hello world",
    "new",
    "1",
    "hard link f",
    "2",
    "outside",
    "",
    "/var/cache/thing:",
    ".gym-harbor .gym-harbor-tools app bin both conf dev etc from from2 home lib lib64 many mnt new opt outside proc root run sbin sys there tmp usr var w ",
  ]);
  assert.match(readFileSync(one.logFile, "utf8"), /^FROM line 2[^]*RUN line/m);
  assert.equal(await builder.has(one.name), true);
  assert.equal(await builder.has("hb__ffffffffffffffffffffffffffffffff"), false);
});

const REFUSED: [what: string, dockerfile: string, message: RegExp][] = [
  [
    "RUN --mount=type=secret",
    "FROM base:host\nRUN --mount=type=secret,id=x cat /run/secrets/x\n",
    /line 2.*RUN --mount=type=secret/,
  ],
  ["ADD of an address", "FROM base:host\nADD https://example.com/x /x\n", /line 2.*ADD of an address/],
  ["another platform", "FROM --platform=linux/arm64 base:host\n", /line 1.*--platform=linux\/arm64/],
  ["a base that is nowhere", "FROM base:none\n", /base:none/],
  ["an instruction that there is not", "FROM base:host\nFETCH x\n", /line 2.*FETCH/],
  ["a source that is not there", "FROM base:host\nCOPY none /x\n", /line 2.*none/],
  [
    "a stage's source that is not there",
    "FROM base:host AS a\nFROM base:host\nCOPY --from=a /none /x\n",
    /line 3.*\/none/,
  ],
  ["a line that fails", "FROM base:host\nRUN echo why >&2; exit 3\n", /line 2[^]*exit code 3[^]*why/],
  ["no FROM at all", "# nothing\n", /no FROM/],
];
for (const [what, dockerfile, message] of REFUSED) {
  test(`builds as ${who}: refused by name: ${what}`, async () => {
    const one = request(dockerfile);
    await assert.rejects(build(one), (error) => {
      assert.ok(error instanceof HarborError && error.code === "image.failed", String(error));
      assert.match(error.message, message);
      assert.match(error.hint!, /whole log/);
      return true;
    });
    assert.equal(await builder.has(one.name), false);
  });
}

test(`builds as ${who}: a build that takes too long ends with all that it started`, async () => {
  const one = request("FROM base:host\nRUN sleep 4741 & sleep 4741\n", {}, { timeoutMs: 1500 });
  const started = performance.now();
  await assert.rejects(build(one), (error) => error instanceof HarborError && error.details?.class === "timeout");
  assert.ok(performance.now() - started < 20_000);
});

test(`builds as ${who}: settings alone make no layer, FROM scratch makes one of files`, async () => {
  const settings = request("FROM base:busybox\nENV A=b\nWORKDIR /\n");
  await build(settings);
  const [base, made] = await Promise.all([
    store.find("base:busybox", "linux/amd64"),
    store.find(settings.name, "linux/amd64"),
  ]);
  assert.deepEqual(made!.layers.map(({ digest }) => digest), base!.layers.map(({ digest }) => digest));
  const files = request("FROM scratch\nCOPY f /d/f\n", { f: "data" });
  await build(files);
  const empty = await store.find(files.name, "linux/amd64");
  assert.equal(empty!.layers.length, 1);
});

test(`builds as ${who}: owners of files and of the working directory are the image's`, {
  skip: oneId() && "needs more than one id",
}, async () => {
  const one = request(
    `FROM base:host AS a
RUN mkdir /x && echo 1 > /x/f && chown 5:6 /x/f && chown 7:8 /x
FROM base:host
RUN echo 'bob:x:1000:77::/home/bob:/bin/sh' >> /etc/passwd && echo 'crew:x:99:' >> /etc/group
COPY --from=a /x /from
COPY --chown=bob f /named
COPY --chown=bob:crew f /crew
COPY --chown=42 f /number
USER bob
WORKDIR /home/bob/new
RUN touch mine
`,
    { f: "x" },
  );
  const built = await build(one);
  assert.equal(built.config.User, "bob");
  assert.equal(
    await inside(one.name, "cd /; stat -c '%u:%g %n' from from/f named crew number home home/bob home/bob/new/mine"),
    "0:0 from\n5:6 from/f\n1000:77 named\n1000:99 crew\n42:42 number\n0:0 home\n1000:77 home/bob\n1000:77 home/bob/new/mine\n",
  );
});
