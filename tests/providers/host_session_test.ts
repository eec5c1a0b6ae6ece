import assert from "node:assert/strict";
import { test } from "node:test";
import { groupName, parseCgroups } from "../../providers/_namespace_limits.ts";
import { hasForeignSockets } from "../../providers/_namespace_networks.ts";
import { parseRequest, refusedAddress, upstreamFor } from "../../providers/_namespace_proxy.ts";
import {
  accountOf,
  capabilitySet,
  initProgram,
  launcher,
  type LaunchRequest,
} from "../../providers/_namespace_init.ts";
import { ownTools } from "../../providers/_namespace_tools.ts";
import { membersOf, parseStat, type Suspect } from "../../providers/_namespace_tree.ts";

const LAUNCH: LaunchRequest = {
  id: "7-x",
  run: { script: "echo hi" },
  env: { A: "it's\n$x" },
  cwd: "/app",
  tools: ownTools({ setpriv: "/usr/bin/setpriv", bash: "/bin/bash" }),
  stdout: "0o",
  stderr: "0e",
};

test("launcher() quotes environment and script, reads nothing and never mixes streams", () => {
  const { launcher: text, script } = launcher(LAUNCH);
  assert.equal(script, undefined);
  assert.match(text, /^export A='it'\\''s\n\$x'$/m);
  assert.match(text, /^exec <\/dev\/null >\/\.gym-harbor\/0o 2>\/\.gym-harbor\/0e$/m);
  assert.match(text, /exec \$shell -c 'echo hi'\n$/);
});

test("G2: launcher() carries a script that is too long for an argument in a file", () => {
  const long = "x".repeat(300_000);
  const made = launcher({ ...LAUNCH, run: { script: long } });
  assert.equal(made.script, long);
  assert.ok(made.launcher.length < 2000);
});

test("launcher() passes names that bash owns or cannot hold through env", () => {
  const { launcher: text } = launcher({ ...LAUNCH, env: { "a.b": "1", UID: "5", SECONDS: "9", OK: "1" } });
  assert.match(text, /\/usr\/bin\/env a\.b=1 UID=5 SECONDS=9 \$shell/);
  assert.match(text, /^export OK=1$/m);
});

test("launcher() changes user last, with numbers only", () => {
  const { launcher: text } = launcher({
    ...LAUNCH,
    account: { uid: 1000, gid: 100, groups: [4, 27], home: "/home/a" },
  });
  assert.match(text, /exec \/usr\/bin\/setpriv --reuid 1000 --regid 100 --groups 4,27 \$shell/);
});

const PASSWD = "root:x:0:0:root:/root:/bin/bash\nagent:x:1000:1001::/home/agent:/bin/sh\n";
const GROUP = "root:x:0:\nstaff:x:50:agent,other\nagent:x:1001:\n";
const ACCOUNTS: [string, ReturnType<typeof accountOf>][] = [
  ["agent", { uid: 1000, gid: 1001, groups: [50], home: "/home/agent" }],
  ["1000", { uid: 1000, gid: 1001, groups: [50], home: "/home/agent" }],
  ["agent:staff", { uid: 1000, gid: 50, groups: [], home: "/home/agent" }],
  ["4242", { uid: 4242, gid: 0, groups: [], home: "/" }],
  ["4242:7", { uid: 4242, gid: 7, groups: [], home: "/" }],
  ["nobody-here", undefined],
  ["agent:nogroup-here", undefined],
];
for (const [user, wanted] of ACCOUNTS) {
  test(`accountOf(${user})`, () => assert.deepEqual(accountOf(user, PASSWD, GROUP), wanted));
}

test("capabilitySet() never holds what makes host root of a sandbox's root", () => {
  for (const shared of [false, true]) {
    const set = capabilitySet(shared);
    for (
      const name of ["sys_admin", "sys_ptrace", "sys_module", "mknod", "net_admin", "dac_read_search", "sys_rawio"]
    ) {
      assert.ok(!set.includes(`+${name}`), name);
    }
    assert.equal(set.includes("+net_raw"), !shared);
  }
});

test("initProgram() drops rights before anything of a task can run, and never by a program entered later", () => {
  const program = initProgram({
    base: "/tmp/it's",
    tools: ownTools({ setpriv: "/usr/bin/setpriv", bash: "/bin/bash" }),
    entry: { kind: "pivot" },
    loopback: ["ip", "link", "set", "lo", "up"],
    sharedNetwork: false,
    ownUserNamespace: false,
    ttlSeconds: 10,
    pipes: ["0o"],
  });
  const order = ["mount --fstab", "pivot_root", "umount -l", "--bounding-set"].map((step) => program.indexOf(step));
  assert.deepEqual(order, [...order].sort((a, b) => a - b));
  assert.match(program, /cd '\/tmp\/it'\\''s'/);
});

const suspect = (pid: number, parent: number, more: Partial<Suspect> = {}): Suspect => ({
  pid,
  parent,
  group: pid,
  session: 1,
  start: 200,
  zombie: false,
  execId: undefined,
  ...more,
});

test("B1: membersOf() finds children in other sessions, and what cleared its environment", () => {
  const all = [
    suspect(10, 1, { execId: "e" }),
    suspect(11, 10, { group: 10, execId: "e" }),
    suspect(12, 1, { execId: "e" }), // setsid
    suspect(13, 1), // env -i, orphaned
    suspect(20, 1, { execId: "other" }),
    suspect(30, 1, { start: 50 }), // lived before
    suspect(31, 30), // child of what lived before
  ];
  const target = { execId: "e", leader: 10, since: 100 };
  assert.deepEqual(membersOf({ ...target, groupOnly: false }, all), [10, 11, 12, 13]);
  assert.deepEqual(membersOf({ ...target, groupOnly: true }, all), [10, 11]);
});

test("parseStat() reads a process whose name holds parentheses and spaces", () => {
  const stat = `42 (a) b (c) S 7 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0`;
  assert.deepEqual(parseStat(stat), { pid: 42, zombie: false, parent: 7, group: 8, session: 9, start: 12345 });
});

test("parseCgroups() reads version 1 lines with several controllers and the version 2 line", () => {
  const groups = parseCgroups("4:memory:/a\n3:cpu,cpuacct:/b:c\n0::/u\n");
  assert.equal(groups.get("memory"), "/a");
  assert.equal(groups.get("cpuacct"), "/b:c");
  assert.equal(groups.get(""), "/u");
});

test("groupName() says whose group it is, for a sweep that finds nothing else", () => {
  const owner = { run: "abcd1234", host: "h", pid: 42, start: "777" };
  assert.equal(groupName(owner, "0-0-3"), "gym-harbor-42.777-abcd1234-0-0-3");
});

test("hasForeignSockets() knows our listener and its connections from a task's sockets", () => {
  const head = "  sl  local_address rem_address   st\n";
  const ours = "   0: 0100007F:EEC8 00000000:0000 0A\n";
  assert.equal(hasForeignSockets(head), false);
  assert.equal(hasForeignSockets(head + ours), false);
  assert.equal(hasForeignSockets(head + ours + "   1: 0100007F:1F90 00000000:0000 0A\n"), true);
});

const OWN = new Set(["10.1.2.3", "2001:db8::5"]);
const ADDRESSES: [string, boolean][] = [
  ["93.184.216.34", false],
  ["10.9.9.9", false],
  ["2606:4700::1", false],
  ["127.0.0.1", true],
  ["127.8.8.8", true],
  ["0.0.0.0", true],
  ["::1", true],
  ["::", true],
  ["::ffff:127.0.0.1", true],
  ["::ffff:7f00:1", true],
  ["169.254.169.254", true],
  ["fe80::1%eth0", true],
  ["10.1.2.3", true],
  ["2001:DB8::5", true],
  ["224.0.0.1", true],
  ["not-an-address", true],
];
for (const [address, refused] of ADDRESSES) {
  test(`refusedAddress(${address}) is ${refused ? "refused" : "let through"}`, () => {
    assert.equal(refusedAddress(address, OWN) !== undefined, refused);
  });
}

test("parseRequest() understands CONNECT and whole http addresses, and names what it cannot do", () => {
  assert.deepEqual(parseRequest("CONNECT pypi.org:443 HTTP/1.1\r\nHost: x"), {
    method: "CONNECT",
    host: "pypi.org",
    port: 443,
    head: "",
  });
  assert.deepEqual(parseRequest("CONNECT [::1]:80 HTTP/1.1"), { method: "CONNECT", host: "::1", port: 80, head: "" });
  const got = parseRequest(
    "GET http://a.b:81/x?y HTTP/1.1\r\nHost: a.b\r\nProxy-Connection: keep-alive\r\nAccept: */*",
  );
  assert.deepEqual(got, {
    method: "GET",
    host: "a.b",
    port: 81,
    head: "GET /x?y HTTP/1.1\r\nHost: a.b\r\nAccept: */*\r\nConnection: close\r\n\r\n",
  });
  for (const bad of ["", "GET /x HTTP/1.1", "CONNECT x HTTP/1.1", "CONNECT x:0 HTTP/1.1", "GET ftp://x/ HTTP/1.1"]) {
    assert.equal(typeof parseRequest(bad), "string", bad);
  }
});

test("upstreamFor() follows this machine's own proxy and its exceptions", () => {
  const env = { HTTPS_PROXY: "http://proxy:3128", NO_PROXY: "internal.example, .corp" };
  const to = (host: string) => upstreamFor({ method: "CONNECT", host }, env)?.host;
  assert.equal(to("pypi.org"), "proxy:3128");
  assert.equal(to("a.internal.example"), undefined);
  assert.equal(to("x.corp"), undefined);
  assert.equal(upstreamFor({ method: "GET", host: "pypi.org" }, env), undefined);
  assert.equal(upstreamFor({ method: "GET", host: "pypi.org" }, {}), undefined);
});
