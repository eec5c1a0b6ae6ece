import assert from "node:assert/strict";
import { test } from "node:test";
import { canonical, isLoopback, isPinned, parseReference, pinnedTo } from "../../../lib/images/reference.ts";

const D = `sha256:${"a1".repeat(32)}`;

const SPELLINGS: [written: string, canonical: string][] = [
  ["debian", "docker.io/library/debian:latest"],
  ["debian:12", "docker.io/library/debian:12"],
  ["docker://debian:12", "docker.io/library/debian:12"],
  ["library/debian", "docker.io/library/debian:latest"],
  ["docker.io/debian", "docker.io/library/debian:latest"],
  ["index.docker.io/library/debian:12", "docker.io/library/debian:12"],
  ["registry-1.docker.io/org/x", "docker.io/org/x:latest"],
  ["org/name", "docker.io/org/name:latest"],
  ["localhost/x", "localhost/x:latest"],
  ["localhost:5000/a/b:v1", "localhost:5000/a/b:v1"],
  ["127.0.0.1:5000/x", "127.0.0.1:5000/x:latest"],
  ["ghcr.io/a/b/c:1.2", "ghcr.io/a/b/c:1.2"],
  [`debian@${D}`, `docker.io/library/debian@${D}`],
  [`ghcr.io/a/b:1@${D}`, `ghcr.io/a/b:1@${D}`],
  ["hb__0123456789abcdef0123456789abcdef", "docker.io/library/hb__0123456789abcdef0123456789abcdef:latest"],
];

for (const [written, expected] of SPELLINGS) {
  test(`parseReference() reads ${written}`, () => assert.equal(canonical(parseReference(written)), expected));
}

const REFUSED: [written: string, says: RegExp][] = [
  ["", /names no repository|path component/],
  ["Debian", /'Debian' is not a path component/],
  ["a//b", /'' is not a path component/],
  ["debian:", /its tag ''/],
  ["debian:a b", /its tag 'a b'/],
  ["debian@sha512:ab", /its digest 'sha512:ab'/],
  ["debian@sha256:ab", /its digest/],
  [`x/${"a".repeat(255)}`, /longer than 255/],
  ["https://ghcr.io/x", /it is an address/],
];

for (const [written, says] of REFUSED) {
  test(`parseReference() refuses ${JSON.stringify(written.slice(0, 20))}`, () => {
    assert.throws(() => parseReference(written), says);
  });
}

const WITH_LOGIN = [
  "bob:s3cret@h:5000/x:1",
  "http://bob:s3cret@h:5000/x",
  "docker://bob:s3cret@ghcr.io/x",
  "bob:s3@s3cret@h.io/x",
  `s3cret@ghcr.io/x:1@${D}`,
];
for (const written of WITH_LOGIN) {
  test(`parseReference() refuses ${written.slice(0, 30)} without repeating its password`, () => {
    assert.throws(
      () => parseReference(written),
      ({ message }: Error) => /it carries a login/.test(message) && !/s3/.test(message),
    );
  });
}

test("pinnedTo() leaves Docker Hub's host out and drops the tag", () => {
  assert.equal(pinnedTo(parseReference("docker.io/debian:12"), D), `library/debian@${D}`);
  assert.equal(pinnedTo(parseReference("127.0.0.1:5000/x:1"), D), `127.0.0.1:5000/x@${D}`);
});

test("isLoopback() knows the spellings of this machine and no others", () => {
  for (const host of ["localhost", "localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000"]) {
    assert.equal(isLoopback(host), true, host);
  }
  for (const host of ["127.0.0.1.evil.org", "10.0.0.1:5000", "ghcr.io"]) assert.equal(isLoopback(host), false, host);
});

test("isPinned() asks for a whole digest at the end, and takes any text", () => {
  for (const name of [`debian@${D}`, `debian:12@${D}`, `r.io/x/hb__1@${D}`]) assert.ok(isPinned(name), name);
  for (const name of ["", "debian:12", D, "debian@sha256:aa", `debian@${D}0`]) assert.ok(!isPinned(name), name);
});
