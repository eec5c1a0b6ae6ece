/** CPUs, memory and GPUs of a service, wherever the file says them, as one set of limits. */
import type { Limits } from "../sandbox/provider.ts";
import { isTable, type Table, type Value } from "./document.ts";
import { isVoid, readAmount, readBytes, readCount, readTable, readText, readTexts, refuseOthers } from "./readers.ts";
import type { Field } from "./refusals.ts";
import { asInteger, asText } from "./scalars.ts";

const MIB = 1024 ** 2;

/** `keys`: a service's table. `field(key)`: where to say what is wrong with a key. */
export function readResources(keys: Table, field: (key: string) => Field): Limits {
  const deploy = given(keys.deploy) === undefined ? {} : readTable(keys.deploy!, field("deploy")) ?? {};
  const resources = tableAt(deploy, "resources", field("deploy"));
  const limits = tableAt(resources, "limits", field("deploy.resources"));
  const reservations = tableAt(resources, "reservations", field("deploy.resources"));
  refuseOthers(resources, ["limits", "reservations"], field("deploy.resources"));
  refuseOthers(limits, ["cpus", "memory"], field("deploy.resources.limits"));
  refuseOthers(reservations, ["cpus", "memory", "devices"], field("deploy.resources.reservations"));
  readDeploy(deploy, field("deploy"));
  if (given(reservations.cpus) !== undefined || given(reservations.memory) !== undefined) {
    field("deploy.resources.reservations").note("of cpus and memory are left out: nothing is reserved here");
  }
  const made: Limits = {};
  const cpus = same("cpus", keys.cpus, limits.cpus, readAmount, field);
  const bytes = same("mem_limit", keys.mem_limit, limits.memory, readBytes, field);
  const gpus = gpusOf(keys, reservations, field);
  if (cpus !== undefined) made.cpus = cpus;
  if (bytes !== undefined && bytes > 0) made.memoryMb = Math.max(1, Math.ceil(bytes / MIB));
  if (gpus !== undefined) made.gpus = gpus;
  return made;
}

const given = (value: Value | undefined): Value | undefined => value === undefined || isVoid(value) ? undefined : value;

function tableAt(holder: Table, key: string, field: Field): Table {
  const value = given(holder[key]);
  return value === undefined ? {} : readTable(value, field.at(key)) ?? {};
}

/** What `deploy` says beyond resources: one replica, nothing of a swarm. */
function readDeploy(deploy: Table, field: Field): void {
  const swarm = ["endpoint_mode", "labels", "placement", "restart_policy", "rollback_config", "update_config"];
  refuseOthers(deploy, ["mode", "replicas", "resources", ...swarm], field);
  const left = swarm.filter((key) => given(deploy[key]) !== undefined);
  if (left.length > 0) field.note(`${left.join(", ")}: left out, a group is no swarm`);
  const mode = given(deploy.mode) === undefined ? "replicated" : readText(deploy.mode!, field.at("mode"));
  if (mode !== undefined && mode !== "replicated") field.at("mode").refuse(`'${mode}' is not supported`);
  const replicas = given(deploy.replicas) === undefined ? 1 : readCount(deploy.replicas!, field.at("replicas"));
  if (replicas !== undefined && replicas !== 1) field.at("replicas").refuse(`is ${replicas}, only 1 is supported`);
}

/** One value said in two places must be one value. */
function same(
  key: "cpus" | "mem_limit",
  short: Value | undefined,
  long: Value | undefined,
  read: (value: Value, field: Field) => number | undefined,
  field: (key: string) => Field,
): number | undefined {
  const other = `deploy.resources.limits.${key === "cpus" ? "cpus" : "memory"}`;
  const first = given(short) === undefined ? undefined : read(short!, field(key));
  const second = given(long) === undefined ? undefined : read(long!, field(other));
  if (first !== undefined && second !== undefined && first !== second) {
    field(key).refuse(`is ${asText(short)}, but ${other} is ${asText(long)}`);
  }
  return first ?? second;
}

/** GPUs are counted; a certain one cannot be asked for. */
function gpusOf(keys: Table, reservations: Table, field: (key: string) => Field): number | undefined {
  const counts = [
    ...deviceCounts(given(keys.gpus), field("gpus")),
    ...deviceCounts(given(reservations.devices), field("deploy.resources.reservations.devices")),
  ];
  if (counts.length > 1 && new Set(counts).size > 1) field("gpus").refuse("are asked for twice, with different counts");
  return counts[0];
}

function deviceCounts(value: Value | undefined, field: Field): number[] {
  if (value === undefined) return [];
  if (!Array.isArray(value)) {
    field.refuse(`is '${asText(value) ?? "a table"}', must be a list with a count of NVIDIA GPUs`);
    return [];
  }
  return value.flatMap((entry, index) => {
    const at = field.at(index);
    if (!isTable(entry)) {
      at.refuse("must be a table");
      return [];
    }
    refuseOthers(entry, ["driver", "count", "capabilities"], at);
    const driver = asText(entry.driver) ?? "nvidia";
    if (driver !== "nvidia") at.at("driver").refuse(`'${driver}' is not supported, only nvidia`);
    const capabilities = given(entry.capabilities) === undefined
      ? []
      : readTexts(entry.capabilities!, at.at("capabilities"));
    const odd = capabilities.find((one) => !["gpu", "compute", "utility", "nvidia"].includes(one));
    if (odd !== undefined) at.at("capabilities").refuse(`'${odd}' is not supported, only gpu`);
    const count = asInteger(entry.count);
    if (count === undefined || count < 1) {
      at.at("count").refuse(`is ${asText(entry.count) ?? "missing"}, must be a number of GPUs`);
      return [];
    }
    return [count];
  });
}
