import { test } from "node:test";
import assert from "node:assert/strict";
import { readOptions } from "../../providers/_oci_options.ts";
import { rangeOf } from "../../providers/_oci_subnets.ts";

const POOL = "10.213.0.0/16";

test("readOptions() takes what there is, and null for unset", () => {
  const unset = { network: undefined, runArgs: [], pidsLimit: 4096, subnetPool: { text: POOL, range: rangeOf(POOL)! } };
  assert.deepEqual(readOptions("docker", {}), unset);
  assert.deepEqual(readOptions("docker", { network: null, run_args: null, pids_limit: null }), unset);
  assert.deepEqual(readOptions("podman", { network: "n", run_args: "--a  --b=1", pids_limit: 9 }), {
    network: "n",
    runArgs: ["--a", "--b=1"],
    pidsLimit: 9,
    subnetPool: { text: POOL, range: rangeOf(POOL)! },
  });
  assert.equal(readOptions("docker", { subnet_pool: "192.168.4.0/22" }).subnetPool.text, "192.168.4.0/22");
  assert.deepEqual(readOptions("podman", { run_args: ["--shm-size", 1] }).runArgs, ["--shm-size", "1"]);
});

test("readOptions() refuses what there is not: by name, with the value found and wanted", () => {
  const rows: [Record<string, unknown>, RegExp, RegExp][] = [
    [{ pid_limit: 9 }, /unknown option sandbox\.docker\.pid_limit/, /did you mean pids_limit\?/],
    [{ foo: 1 }, /unknown option sandbox\.docker\.foo/, /^there are network, run_args, pids_limit, subnet_pool$/],
    [{ network: 7 }, /sandbox\.docker\.network is 7, must be the name of a network/, /network=bridge/],
    [{ network: "" }, /network is "", must be the name/, /network=bridge/],
    [{ run_args: { a: 1 } }, /run_args is \{"a":1\}, must be a list of flags/, /run_args=\[/],
    [{ pids_limit: 0 }, /pids_limit is 0, must be a whole number above 0/, /pids_limit=4096/],
    [{ pids_limit: "many" }, /pids_limit is "many", must be a whole number above 0/, /pids_limit=4096/],
    [
      { subnet_pool: "10.0.0.0" },
      /subnet_pool is "10\.0\.0\.0", must be a range of IPv4 addresses/,
      /subnet_pool=10\.213/,
    ],
    [{ subnet_pool: "10.0.0.0/29" }, /must be a range of IPv4 addresses, 16 at least/, /subnet_pool=/],
    [{ pids_limit: 1.5 }, /pids_limit is 1\.5, must be/, /pids_limit=4096/],
  ];
  for (const [given, message, hint] of rows) {
    assert.throws(() => readOptions("docker", given), { code: "usage", message, hint });
  }
});
