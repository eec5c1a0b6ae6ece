import { test } from "node:test";
import assert from "node:assert/strict";
import { groupFault, type NetworkHost } from "../../providers/_podman_groups.ts";

test("groupFault() names the first piece that podman lacks for a network of a task's own", () => {
  const rootless = { networkBackend: "netavark", security: { rootless: true } };
  const slirp = { slirp4netns: { executable: "/usr/bin/slirp4netns" } };
  const rows: [string, NetworkHost, string[], boolean, RegExp | undefined][] = [
    ["root", { networkBackend: "netavark" }, ["netavark"], false, undefined],
    ["root, no netavark", { networkBackend: "netavark" }, ["bridge"], true, /netavark is missing/],
    ["CNI", {}, ["bridge"], false, undefined],
    ["CNI without plugins", { networkBackend: "cni" }, [], false, /CNI's bridge plugin is missing/],
    ["a user", { ...rootless, ...slirp }, ["netavark"], true, undefined],
    ["a user with pasta", { ...rootless, pasta: { executable: "/usr/bin/pasta" } }, ["netavark"], true, undefined],
    [
      "a user with nothing",
      { ...rootless, slirp4netns: { executable: "" } },
      ["netavark"],
      true,
      /slirp4netns nor pasta/,
    ],
    ["a user without the device", { ...rootless, ...slirp }, ["netavark"], false, /may not use \/dev\/net\/tun/],
  ];
  for (const [when, host, programs, tun, what] of rows) {
    const fault = groupFault(host, { has: (program) => programs.includes(program), tun: () => tun });
    if (what === undefined) assert.equal(fault, undefined, when);
    else assert.match(fault?.what ?? "", what, when);
  }
});
