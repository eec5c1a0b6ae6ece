import { test } from "node:test";
import assert from "node:assert/strict";
import { parse } from "smol-toml";
import { registriesConf } from "../../providers/_registries_conf.ts";

const insecure = new Map([["registry.local:5000", { insecure: true, mirrors: [] }]]);
const mirrored = new Map([["docker.io", {
  insecure: false,
  mirrors: ["https://mirror.local/hub/", "http://10.0.0.1:5000"],
}]]);
const LOOPBACK = [{ location: "localhost", insecure: true }, { location: "127.0.0.1", insecure: true }];

test("registriesConf() looks for short names on Docker Hub alone, and asks nobody", () => {
  const rows: [what: string, machine: string, settings: Parameters<typeof registriesConf>[1], registry: unknown[]][] = [
    ["nothing said", "", new Map(), LOOPBACK],
    ["plain HTTP for a host", "", insecure, [...LOOPBACK, { location: "registry.local:5000", insecure: true }]],
    ["mirrors", "", mirrored, [...LOOPBACK, {
      location: "docker.io",
      mirror: [{ location: "mirror.local/hub" }, { location: "10.0.0.1:5000", insecure: true }],
    }]],
    [
      "the machine's own mirrors stay",
      'unqualified-search-registries = ["quay.io"]\nshort-name-mode = "enforcing"\n[[registry]]\nprefix = "registry.local:5000"\nlocation = "other:1"\n[aliases]\n"centos" = "quay.io/centos/centos"\n',
      insecure,
      [{ prefix: "registry.local:5000", location: "other:1", insecure: true }, ...LOOPBACK],
    ],
    [
      "the old form of the file",
      '[registries.search]\nregistries = ["quay.io"]\n[registries.insecure]\nregistries = ["old:1"]\n[registries.block]\nregistries = ["bad"]\n',
      new Map(),
      [{ location: "old:1", insecure: true }, { location: "bad", blocked: true }, ...LOOPBACK],
    ],
    ["a file that nobody can read", "= [", new Map(), LOOPBACK],
  ];
  for (const [what, machine, settings, registry] of rows) {
    const written = JSON.parse(JSON.stringify(parse(registriesConf(machine, settings))));
    assert.deepEqual(written, {
      "unqualified-search-registries": ["docker.io"],
      "short-name-mode": "disabled",
      registry,
    }, what);
  }
});
