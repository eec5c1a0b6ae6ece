/**
 * The field table of a service (spec/images-and-sandboxes §6.4): every key is read, taken in another form with a note, or
 * refused by name. A key that asks for nothing (`privileged: false`) is as good as absent.
 */
import { HarborError } from "../errors.ts";
import { parseReference } from "../images/reference.ts";
import { platformName } from "../images/config.ts";
import type { MemberFeature } from "../sandbox/group.ts";
import { nearest } from "../suggest.ts";
import { readBuild, readUlimits } from "./build.ts";
import { isTable, type Table, type Value } from "./document.ts";
import { readHealthcheck } from "./healthcheck.ts";
import type { Lookup } from "./interpolate.ts";
import { isHostName, readExtraHosts, readNetworkMode, readNetworks, readPorts } from "./networks.ts";
import { readDependsOn } from "./order.ts";
import type { ComposeService, ServiceBuild } from "./plan.ts";
import {
  isVoid,
  readBoolean,
  readBytes,
  readDuration,
  readTable,
  readText,
  readTexts,
  readTextTable,
  refuseOthers,
} from "./readers.ts";
import { Field, type Refusals } from "./refusals.ts";
import { readResources } from "./resources.ts";
import { asText, asWords } from "./scalars.ts";
import { readTmpfs, readVolumes, type VolumeFacts } from "./volumes.ts";

/** A service as its keys say it; where its image comes from is settled with the others in view. */
export interface ServiceDraft extends Omit<ComposeService, "image"> {
  reference?: string;
  /** Null: there is a section, and it was refused. */
  build?: ServiceBuild | null;
  platform?: string;
  restarts: boolean;
}

export interface ServiceFacts extends VolumeFacts {
  /** `os/arch` of the run. */
  platform: string;
  /** What variables without a value take theirs from. */
  variables: Lookup;
  /** What the provider's groups cannot give. */
  lacks: readonly MemberFeature[];
  notes: string[];
  refusals: Refusals;
}

type Reader = (value: Value, field: Field, draft: ServiceDraft, facts: ServiceFacts) => void;

const FIELDS: Record<string, Reader> = {
  image: (value, field, draft) => {
    const reference = readText(value, field)?.trim();
    if (reference === undefined) return;
    try {
      parseReference(reference);
      draft.reference = reference;
    } catch (error) {
      if (!(error instanceof HarborError)) throw error;
      field.refuse(error.message);
    }
  },
  build: (value, field, draft, facts) => draft.build = readBuild(value, field, facts) ?? null,
  entrypoint: (value, field, draft) => draft.entrypoint = readCommand(value, field),
  command: (value, field, draft) => draft.command = readCommand(value, field),
  environment: (value, field, draft, { variables }) => draft.environment = readEnvironment(value, field, variables),
  working_dir: (value, field, draft) => {
    const folder = readText(value, field);
    if (folder?.startsWith("/") === false) field.refuse(`'${folder}' is not absolute`);
    else draft.workdir = folder;
  },
  user: (value, field, draft) => {
    const user = readText(value, field);
    if (user?.includes(":")) field.refuse(`'${user}' names a group, which is not supported: give the user alone`);
    else if (user !== undefined && !/^[A-Za-z0-9_][A-Za-z0-9_.-]*\$?$/.test(user)) field.refuse(`'${user}' is no user`);
    else draft.user = user;
  },
  depends_on: (value, field, draft) => draft.dependsOn = readDependsOn(value, field),
  healthcheck: (value, field, draft) => draft.healthcheck = readHealthcheck(value, field),
  expose: (value, field, draft) => draft.ports.push(...readPorts(value, field)),
  ports: (value, field, draft) => draft.ports.push(...readPorts(value, field)),
  networks: (value, field, draft) => draft.aliases.push(...readNetworks(value, field)),
  network_mode: (value, field, draft) => {
    const mode = readNetworkMode(value, field);
    if (mode === "none") draft.noNetwork = true;
    else draft.networkOf = mode?.service;
  },
  volumes: (value, field, draft, facts) => draft.mounts.push(...readVolumes(value, field, facts)),
  tmpfs: (value, field, draft) => draft.mounts.push(...readTmpfs(value, field)),
  extra_hosts: (value, field, draft) => draft.extraHosts = readExtraHosts(value, field),
  cap_add: (value, field, draft) => {
    draft.capAdd = readCapabilities(value, field);
    if (draft.capAdd.includes("ALL")) field.refuse("holds ALL, which amounts to privileged");
  },
  cap_drop: (value, field, draft) => draft.capDrop = readCapabilities(value, field),
  security_opt: (value, field, draft) => {
    for (const text of readTexts(value, field)) {
      if (/^no-new-privileges(?:[:=]true)?$/.test(text)) draft.noNewPrivileges = true;
      else if (!/^no-new-privileges[:=]false$/.test(text)) field.refuse(`'${text}' is not supported`);
    }
  },
  read_only: (value, field, draft) => draft.readOnly = readBoolean(value, field) ?? false,
  hostname: (value, field, draft) => {
    const name = readText(value, field);
    if (name !== undefined && !isHostName(name)) field.refuse(`'${name}' is no host name`);
    else draft.hostname = name;
  },
  init: (value, field, draft) => draft.init = readBoolean(value, field),
  shm_size: (value, field, draft) => draft.shmBytes = readBytes(value, field),
  stop_signal: (value, field, draft) => {
    const signal = readText(value, field);
    if (signal !== undefined && !/^(?:SIG)?[A-Z][A-Z0-9+-]*$|^\d+$/.test(signal)) {
      field.refuse(`'${signal}' is no signal`);
    } else draft.stopSignal = signal;
  },
  stop_grace_period: (value, field, draft) => draft.stopGraceMs = readDuration(value, field),
  ulimits: (value, field, draft) => draft.ulimits = readUlimits(value, field),
  labels: (value, field, draft) => draft.labels = readTextTable(value, field),
  annotations: (value, field) => void readTextTable(value, field),
  platform: (value, field, draft, facts) => {
    const platform = readText(value, field);
    if (platform === undefined) return;
    if (platformName(platform) !== facts.platform) field.refuse(`'${platform}' is not ${facts.platform}`);
    else draft.platform = platform;
  },
  pull_policy: (value, field) => {
    const policy = readText(value, field);
    if (policy === undefined || /^(?:always|never|missing|if_not_present|build|daily|weekly|every_\w+)$/.test(policy)) {
      return;
    }
    field.refuse(`'${policy}' is no policy`);
  },
  restart: (value, field, draft) => {
    const policy = value === false ? "no" : readText(value, field);
    if (policy === undefined || policy === "no") return;
    if (!/^(?:always|unless-stopped|on-failure(?::\d+)?)$/.test(policy)) {
      return field.refuse(`'${policy}' is no policy`);
    }
    draft.restarts = true;
    field.note(`'${policy}' is left out: a service that ends stays ended, and its row says so`);
  },
  container_name: (value, field, draft) => {
    const name = readText(value, field);
    if (name === undefined || name === draft.name) return;
    if (!isHostName(name)) return field.refuse(`'${name}' is no host name`);
    draft.aliases.push(name);
    field.note("is an alias on the network: every episode has containers of its own");
  },
  attach: (value, field) => void readBoolean(value, field),
  scale: (value, field) => {
    if (asText(value) !== "1") field.refuse(`is ${asText(value) ?? "no number"}, only 1 is supported`);
  },
  "x-sandbox": (value, field) => {
    const section = readTable(value, field) ?? {};
    refuseOthers(section, ["hosts", "resolve_environment"], field);
    if (!isVoid(section.resolve_environment ?? null)) {
      field.at("resolve_environment").note("is left out: names resolve inside the group");
    }
  },
};

/** Read together by readResources(). */
const RESOURCES = ["cpus", "mem_limit", "deploy", "gpus"];

/** Keys that Compose has and a group has not; any value that asks for something is refused. */
const UNSUPPORTED = [
  ...["blkio_config", "cgroup", "cgroup_parent", "configs", "cpu_count", "cpu_percent", "cpu_period", "cpu_quota"],
  ...["cpu_rt_period", "cpu_rt_runtime", "cpu_shares", "cpuset", "credential_spec", "develop", "device_cgroup_rules"],
  ...["devices", "dns", "dns_opt", "dns_search", "domainname", "driver_opts", "extends", "external_links", "group_add"],
  ...["ipc", "isolation", "label_file", "links", "logging", "mac_address", "mem_reservation", "mem_swappiness"],
  ...["memswap_limit", "models", "oom_kill_disable", "oom_score_adj", "pid", "pids_limit", "post_start", "pre_stop"],
  ...["privileged", "profiles", "provider", "runtime", "secrets", "stdin_open", "storage_opt", "sysctls", "tty"],
  ...["use_api_socket", "userns_mode", "uts", "volumes_from"],
];

/** `env_file` is worked into `environment` before the table is asked. */
const KNOWN = [...Object.keys(FIELDS), ...RESOURCES, ...UNSUPPORTED, "env_file"];

/** Which keys need what of a provider. */
const FEATURES: MemberFeature[] = [
  ...["cap_add", "cap_drop", "hostname", "init", "read_only", "security_opt", "shm_size", "stop_signal"] as const,
  ...["tmpfs", "ulimits"] as const,
];

export function readService(name: string, keys: Table, facts: ServiceFacts): ServiceDraft {
  const { refusals, notes } = facts;
  const field = (key: string) => new Field(refusals, name, key, notes);
  const draft: ServiceDraft = {
    name,
    environment: {},
    dependsOn: [],
    ports: [],
    aliases: [],
    noNetwork: false,
    mounts: [],
    limits: readResources(keys, field),
    extraHosts: {},
    capAdd: [],
    capDrop: [],
    noNewPrivileges: false,
    readOnly: false,
    ulimits: {},
    labels: {},
    restarts: false,
  };
  for (const [key, value] of Object.entries(keys)) {
    const at = field(key);
    if (!KNOWN.includes(key)) {
      if (key.startsWith("x-")) continue;
      const near = nearest(key, KNOWN);
      at.refuse(`is no key of a Compose service${near === undefined ? "" : ` (did you mean ${near}?)`}`);
    } else if (UNSUPPORTED.includes(key)) {
      if (!isVoid(value)) at.refuse("is not supported");
    } else if (!isVoid(value) || ["entrypoint", "command"].includes(key)) {
      if (value !== null) FIELDS[key]?.(value, at, draft, facts);
    }
  }
  for (const feature of FEATURES.filter((one) => facts.lacks.includes(one) && !isVoid(keys[one] ?? null))) {
    field(feature).refuse("is not offered by this sandbox");
  }
  if (facts.lacks.includes("gpus") && draft.limits.gpus !== undefined) {
    field("gpus").refuse("are not offered by this sandbox");
  }
  if (draft.networkOf !== undefined || draft.noNetwork) {
    for (const key of ["networks", "ports"]) {
      if (!isVoid(keys[key] ?? null)) field("network_mode").refuse(`excludes ${key}`);
    }
  }
  return draft;
}

/** A list as it is; text is split by a shell's rules. An empty one clears what the image has. */
function readCommand(value: Value, field: Field): string[] | undefined {
  if (Array.isArray(value)) return readTexts(value, field);
  if (isTable(value)) field.refuse("must be text or a list");
  const text = asText(value);
  const words = text === undefined ? undefined : asWords(text);
  if (text !== undefined && words === undefined) field.refuse("opens a quote that nothing closes");
  return words;
}

/** A name without a value passes that of this machine on; one that is not set is left out. */
function readEnvironment(value: Value, field: Field, variables: Lookup): Record<string, string> {
  const entries = Object.entries(readTable(value, field) ?? {});
  return Object.fromEntries(entries.flatMap(([name, one]): [string, string][] => {
    if (name === "" || name.includes("=") || name.includes("\0")) field.refuse(`has the name '${name}'`);
    const text = one === null ? variables.get(name) : readText(one, field.at(name));
    return text === undefined ? [] : [[name, text]];
  }));
}

/** Names of capabilities as engines take them, without `CAP_`. */
function readCapabilities(value: Value, field: Field): string[] {
  return readTexts(value, field).flatMap((text) => {
    const name = text.toUpperCase().replace(/^CAP_/, "");
    if (/^[A-Z][A-Z_]+$/.test(name)) return [name];
    field.refuse(`'${text}' is no capability`);
    return [];
  });
}
