import assert from "node:assert/strict";
import { test } from "node:test";
import type { Event } from "../../../lib/events.ts";
import { filesOf, localLogins } from "../../../lib/registry/credential_files.ts";
import type { Runner } from "../../../lib/runtime/runner.ts";
import { FakeRunner } from "../../support/runner.ts";
import { type Files, writeTree } from "../../support/tree.ts";

const signal = new AbortController().signal;
const auth = (user: string, password = "pw") => ({ auth: btoa(`${user}:${password}`) });
const auths = (table: Record<string, unknown>) => JSON.stringify({ auths: table });

/** Who is logged in for `host/repository`, by their user name; and the warnings. */
async function found(
  files: Files,
  image: string,
  given: { env?: (path: string) => Record<string, string>; runner?: Runner } = {},
) {
  using tree = writeTree(files);
  const events: Event[] = [];
  const find = localLogins({
    env: { HOME: tree.path, ...given.env?.(tree.path) },
    runner: given.runner ?? new FakeRunner(),
    emit: (event) => events.push(event),
  });
  const [host, ...path] = image.split("/");
  const credential = await find(host!, path.join("/"), signal);
  const warnings = events.map((event) => (event.kind === "warning" ? event.text.replace(tree.path, "~") : event.kind));
  return { credential, user: credential?.kind === "basic" ? credential.username : credential?.kind, warnings };
}

test("filesOf() looks where podman and docker keep logins, in the documented order", () => {
  const paths = (env: Record<string, string>) => filesOf(env).map(({ path }) => path);
  assert.deepEqual(paths({ HOME: "/h", REGISTRY_AUTH_FILE: "/a.json", XDG_RUNTIME_DIR: "/run/1" }), [
    "/a.json",
    "/run/1/containers/auth.json",
    "/h/.config/containers/auth.json",
    "/h/.docker/config.json",
    "/h/.dockercfg",
  ]);
  assert.deepEqual(paths({ HOME: "/h", XDG_CONFIG_HOME: "/c", DOCKER_CONFIG: "/d" }), [
    "/c/containers/auth.json",
    "/d/config.json",
    "/h/.dockercfg",
  ]);
  assert.deepEqual(paths({}), []);
});

const DOCKER = ".docker/config.json";
const KEYS: [image: string, table: Record<string, unknown>, user: string | undefined][] = [
  ["ghcr.io/org/x", { "ghcr.io": auth("host") }, "host"],
  ["ghcr.io/org/x", { "ghcr.io": auth("host"), "ghcr.io/org": auth("org"), "ghcr.io/org/x": auth("image") }, "image"],
  ["ghcr.io/org/xy", { "ghcr.io/org/x": auth("image"), "ghcr.io/org": auth("org") }, "org"],
  ["ghcr.io/org/x", { "ghcr.io/other": auth("other") }, undefined],
  ["ghcr.io/org/x", { "https://ghcr.io/v1/": auth("address") }, "address"],
  ["docker.io/library/debian", { "https://index.docker.io/v1/": auth("hub") }, "hub"],
  ["docker.io/library/debian", { "index.docker.io": auth("hub") }, "hub"],
  ["docker.io/library/debian", { "registry-1.docker.io/library": auth("hub"), "docker.io": auth("less") }, "hub"],
  ["127.0.0.1:5000/x", { "127.0.0.1:5001": auth("no"), "127.0.0.1:5000": auth("yes") }, "yes"],
  ["r.local/x", { "r.local": { username: "plain", password: "pw" } }, "plain"],
  ["r.local/x", { "r.local": { ...auth("u"), identitytoken: "t" } }, "identity"],
  ["r.local/x", { "r.local": {} }, undefined],
  ["r.local/x", { "r.local": { auth: btoa("nocolon") } }, undefined],
];

for (const [image, table, user] of KEYS) {
  test(`${image} with logins of ${Object.keys(table).join(", ")} is ${user ?? "nobody"}`, async () => {
    assert.equal((await found({ [DOCKER]: auths(table) }, image)).user, user);
  });
}

test("a password keeps its colons and its letters", async () => {
  const { credential } = await found(
    { [DOCKER]: auths({ "r.local": { auth: btoa("u:a:b\u00c3\u00a4\0") } }) },
    "r.local/x",
  );
  assert.deepEqual(credential, { kind: "basic", username: "u", password: "a:bä" });
});

test("the first file that has a login wins; .dockercfg has its table at the top", async () => {
  const files = {
    "a.json": auths({ "a.local": auth("first") }),
    [DOCKER]: auths({ "a.local": auth("second"), "b.local": auth("second") }),
    ".dockercfg": JSON.stringify({ "b.local": auth("third"), "c.local": auth("third") }),
  };
  const env = (path: string) => ({ REGISTRY_AUTH_FILE: `${path}/a.json` });
  const users = await Promise.all(
    ["a", "b", "c"].map(async (name) => (await found(files, `${name}.local/x`, { env })).user),
  );
  assert.deepEqual(users, ["first", "second", "third"]);
});

const MALFORMED: [what: string, text: string, says: string][] = [
  ["no JSON", "{secret", "logins in ~/.docker/config.json are not used: it is not JSON"],
  [
    "another form",
    '{"auths": {"r.local": "secret"}}',
    "logins in ~/.docker/config.json are not used: auths.r.local has another form",
  ],
];

for (const [what, text, says] of MALFORMED) {
  test(`a login file of ${what} is a warning that names it, and the next file counts`, async () => {
    const { user, warnings } = await found(
      { [DOCKER]: text, ".dockercfg": JSON.stringify({ "r.local": auth("u") }) },
      "r.local/x",
    );
    assert.deepEqual([user, warnings], ["u", [says]]);
  });
}

test("the file that REGISTRY_AUTH_FILE names should be there; the others need not be", async () => {
  const { warnings } = await found({}, "r.local/x", { env: (path) => ({ REGISTRY_AUTH_FILE: `${path}/none.json` }) });
  assert.deepEqual(warnings.map((text) => text.split(": ")[0]), ["logins in ~/none.json are not used"]);
});

test("a login that is no login is a warning that does not repeat it, and the next file counts", async () => {
  const { user, warnings } = await found(
    {
      [DOCKER]: auths({ "r.local": { auth: "s3cret!" } }),
      ".dockercfg": JSON.stringify({ "r.local": auth("u") }),
    },
    "r.local/x",
  );
  assert.deepEqual([user, warnings], ["u", [
    "the login for r.local is not used: its 'auth' is not user:password in base64",
  ]]);
});

test("a login file that cannot be read is a warning that names it", async () => {
  const { warnings } = await found({ [`${DOCKER}/in-its-place`]: "" }, "r.local/x");
  assert.deepEqual(warnings, ["logins in ~/.docker/config.json are not used: it is a folder, must be a file"]);
});

const HELPERS: [what: string, config: unknown, image: string, stdin: string, argv: RegExp][] = [
  [
    "credHelpers by host",
    { credHelpers: { "r.local": "gcr" }, credsStore: "desktop" },
    "r.local/x",
    "r.local",
    /^docker-credential-gcr get$/,
  ],
  [
    "credsStore for the others",
    { credHelpers: { "r.local": "gcr" }, credsStore: "desktop" },
    "docker.io/library/x",
    "https://index.docker.io/v1/",
    /^docker-credential-desktop get$/,
  ],
];

for (const [what, config, image, stdin, argv] of HELPERS) {
  test(`a credential helper is asked: ${what}`, async () => {
    using runner = new FakeRunner().expect(argv, { stdout: '{"ServerURL":"x","Username":"u","Secret":"s"}' });
    const { credential } = await found({ [DOCKER]: JSON.stringify(config) }, image, { runner });
    assert.deepEqual(credential, { kind: "basic", username: "u", password: "s" });
    assert.equal(runner.calls[0]!.options.stdin, stdin);
    assert.equal(runner.calls[0]!.options.deadlineMs, 30_000);
  });
}

const REPLIES: [
  what: string,
  reply: Parameters<FakeRunner["expect"]>[1],
  user: string | undefined,
  warning?: RegExp,
][] = [
  ["an identity token", { stdout: '{"Username":"<token>","Secret":"t"}' }, "identity"],
  ["nothing known", { exitCode: 1, stdout: "credentials not found in native keychain\n" }, "file"],
  ["a failure", { exitCode: 2, stderr: "s3cret" }, "file", /^docker-credential-x failed with exit 2$/],
  ["no end", { ended: "deadline", exitCode: 143 }, "file", /gave no answer within 30 s$/],
  ["no JSON", { stdout: "s3cret" }, "file", /^docker-credential-x answered with something else than a login$/],
  ["no program", new Error("docker-credential-x: not found"), "file", /not found/],
];

for (const [what, reply, user, warning] of REPLIES) {
  test(`a credential helper with ${what} gives ${user}`, async () => {
    using runner = new FakeRunner().expect(/x get$/, reply);
    const config = JSON.stringify({ credsStore: "x", auths: { "r.local": auth("file") } });
    const result = await found({ [DOCKER]: config }, "r.local/x", { runner });
    assert.equal(result.user, user);
    assert.equal(result.warnings.length, warning === undefined ? 0 : 1);
    if (warning !== undefined) assert.match(result.warnings[0]!, warning);
  });
}

test("a helper's name is a name: no path is started", async () => {
  const { warnings } = await found({ [DOCKER]: JSON.stringify({ credsStore: "../../bin/sh" }) }, "r.local/x");
  assert.match(warnings[0]!, /it is no program's name/);
});
