/** `volumes` and `tmpfs` of a service (spec/images-and-sandboxes §6.4.1): short and long forms → what is mounted. */
import { posix, relative } from "node:path";
import { isTable, type Table, type Value } from "./document.ts";
import { placeInside } from "./paths.ts";
import type { PlannedMount } from "./plan.ts";
import { isVoid, readBoolean, readBytes, readTable, readText, readTexts, refuseOthers } from "./readers.ts";
import type { Field } from "./refusals.ts";
import { asText } from "./scalars.ts";

export interface VolumeFacts {
  /** Absolute folder of the task, and environment/ in it. */
  task: string;
  environment: string;
  /** Named volumes that the file declares. */
  declared: ReadonlySet<string>;
}

/** What Harbor's log variables stand for here: the folders inside the sandbox. */
export const LOG_FOLDERS = ["/logs/verifier", "/logs/agent", "/logs/artifacts"];

/** The volume of a group that holds a log folder which a sidecar shares with main. */
export const logVolume = (folder: string): string => `${folder.slice(1).replace("/", "-")}-of-main`;

interface Written {
  type: string;
  source?: string;
  target: string;
  readOnly: boolean;
  noCopy: boolean;
  createSource: boolean;
  tmpfsOptions: string;
}

/** Mounts of one service; log folders of `main` are left out, since the harness carries them itself. */
export function readVolumes(value: Value, field: Field, facts: VolumeFacts): PlannedMount[] {
  if (!Array.isArray(value)) {
    field.refuse("must be a list");
    return [];
  }
  return value.flatMap((entry, index) => {
    const at = field.at(index);
    const written = isTable(entry) ? longForm(entry, at) : shortForm(entry, at);
    return written === undefined ? [] : mountOf(written, at, facts) ?? [];
  });
}

function shortForm(entry: Value, field: Field): Written | undefined {
  const text = readText(entry, field);
  if (text === undefined) return undefined;
  const parts = text.split(":");
  const alone = parts.length === 1;
  const [source, target = "", modes = ""] = alone ? [undefined, parts[0]] : parts;
  if (parts.length > 3 || target === "" || source === "") {
    field.refuse(`'${text}' is not source:target[:mode]`);
    return undefined;
  }
  const options = modes === "" ? [] : modes.split(",");
  const odd = options.find((one) =>
    !["ro", "rw", "z", "Z", "nocopy", "cached", "delegated", "consistent"].includes(one)
  );
  if (odd !== undefined) {
    field.refuse(`has the mode '${odd}', which is not supported`);
    return undefined;
  }
  return {
    type: source === undefined || !/^[./~]|^[A-Za-z]:\\/.test(source) ? "volume" : "bind",
    source,
    target,
    readOnly: options.includes("ro"),
    noCopy: options.includes("nocopy"),
    createSource: true,
    tmpfsOptions: "",
  };
}

function longForm(entry: Table, field: Field): Written | undefined {
  refuseOthers(entry, ["type", "source", "target", "read_only", "bind", "volume", "tmpfs", "consistency"], field);
  const type = asText(entry.type) ?? "volume";
  const target = asText(entry.target);
  if (!["bind", "volume", "tmpfs"].includes(type)) field.at("type").refuse(`'${type}' is not supported`);
  if (target === undefined) field.refuse("has no target");
  const options = (key: string, known: string[]): Table => {
    const given = entry[key] === undefined || entry[key] === null ? {} : readTable(entry[key]!, field.at(key)) ?? {};
    refuseOthers(given, known, field.at(key));
    return given;
  };
  const bind = options("bind", ["create_host_path", "selinux"]);
  const volume = options("volume", ["nocopy"]);
  const tmpfs = options("tmpfs", ["size", "mode"]);
  const flag = (value: Value | undefined, fallback: boolean, at: Field) =>
    value === undefined || value === null ? fallback : readBoolean(value, at) ?? fallback;
  const size = isVoid(tmpfs.size ?? null) ? undefined : readBytes(tmpfs.size!, field.at("tmpfs.size"));
  const mode = isVoid(tmpfs.mode ?? null) ? undefined : readText(tmpfs.mode!, field.at("tmpfs.mode"));
  if (target === undefined || !["bind", "volume", "tmpfs"].includes(type)) return undefined;
  const source = asText(entry.source);
  return {
    type,
    ...(source !== undefined && { source }),
    target,
    readOnly: flag(entry.read_only, false, field.at("read_only")),
    noCopy: flag(volume.nocopy, false, field.at("volume.nocopy")),
    createSource: flag(bind.create_host_path, true, field.at("bind.create_host_path")),
    tmpfsOptions: [size === undefined ? "" : `size=${size}`, mode === undefined ? "" : `mode=${mode}`].filter((one) =>
      one !== ""
    ).join(","),
  };
}

function mountOf(written: Written, field: Field, facts: VolumeFacts): PlannedMount | undefined {
  const { source, readOnly } = written;
  const target = posix.normalize(written.target).replace(/(.)\/$/, "$1");
  const logs = source === undefined ? undefined : LOG_FOLDERS.find((one) => source === one);
  if (written.type !== "tmpfs" && logs !== undefined) {
    if (field.service === "main") return undefined;
    return targetFault(target, written.target, true) === undefined
      ? { kind: "volume", name: logVolume(logs), target, readOnly, noCopy: true }
      : refuse(field, targetFault(target, written.target, true)!);
  }
  const fault = targetFault(target, written.target, false);
  if (fault !== undefined) return refuse(field, fault);
  if (written.type === "tmpfs") return { kind: "tmpfs", target, options: written.tmpfsOptions };
  if (source === undefined) return { kind: "scratch", target };
  if (written.type === "volume") {
    if (!facts.declared.has(source)) {
      return refuse(field, `names the volume '${source}', which the file does not declare under volumes`);
    }
    return { kind: "volume", name: source, target, readOnly, noCopy: written.noCopy };
  }
  const place = placeInside(source, facts.environment, facts.environment, "environment/");
  if (typeof place === "string") return refuse(field, `source ${place}`);
  if (place.kind === undefined && !written.createSource) return refuse(field, `source '${source}' does not exist`);
  if (place.kind === undefined) field.note(`source '${source}' does not exist: an empty folder`);
  return { kind: "bind", source: relative(facts.task, place.path), target, readOnly };
}

function refuse(field: Field, why: string): undefined {
  field.refuse(why);
}

/** What keeps a path inside from being mounted over. */
function targetFault(target: string, written: string, logs: boolean): string | undefined {
  if (!target.startsWith("/")) return `target '${written}' is not absolute`;
  if (written.split("/").includes("..")) return `target '${written}' holds ..`;
  if (target === "/") return "target '/' is the whole root";
  const below = (folder: string) => target === folder || target.startsWith(`${folder}/`);
  const own = ["/logs", "/tests", "/solution", "/tmp/.gym-harbor", "/tmp/.nemo-gym"].find(below);
  if (own !== undefined && !(logs && own === "/logs")) return `target '${written}' is the harness's own`;
  const system = ["/proc", "/sys", "/dev"].find(below);
  if (system !== undefined && target !== "/dev/shm") return `target '${written}' is the system's own`;
  return undefined;
}

/** `tmpfs`: `/run` or `/run:size=64m,mode=1777`. */
export function readTmpfs(value: Value, field: Field): PlannedMount[] {
  return readTexts(value, field).flatMap((text) => {
    const [path = "", options = ""] = text.split(/:(.*)/s);
    const target = posix.normalize(path).replace(/(.)\/$/, "$1");
    const fault = targetFault(target, path, false);
    const odd = options.split(",").find((one) =>
      one !== "" && !/^(?:size=\d+[kmgKMG]?|mode=[0-7]+|uid=\d+|gid=\d+|(?:no)?(?:exec|suid|dev)|r[ow])$/.test(one)
    );
    if (fault !== undefined) field.refuse(fault);
    else if (odd !== undefined) field.refuse(`has the option '${odd}', which is not supported`);
    else return [{ kind: "tmpfs" as const, target, options }];
    return [];
  });
}
