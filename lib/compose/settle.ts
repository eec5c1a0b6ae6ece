/**
 * The merged document → a plan: the file's own tables, every service by the field table, and what only shows with all
 * services in view. Looks at mounted and built files; changes nothing.
 */
import { nearest } from "../suggest.ts";
import { isTable, type Table, table, type Value } from "./document.ts";
import { startOrder } from "./order.ts";
import type { ComposePlan, ComposeService, ServiceBuild, ServiceImage } from "./plan.ts";
import type { ComposeRequest } from "./read.ts";
import { isVoid } from "./readers.ts";
import type { Refusals } from "./refusals.ts";
import { asBoolean, asText } from "./scalars.ts";
import { readService, type ServiceDraft } from "./service.ts";
import type { Variables } from "./variables.ts";
import { LOG_FOLDERS, logVolume } from "./volumes.ts";

interface Desk {
  variables: Variables;
  refusals: Refusals;
  notes: string[];
}

const SERVICE_NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]*$/;
const TOP_LEVEL = ["name", "version", "services", "networks", "volumes"];
const UNSUPPORTED = ["configs", "secrets", "models", "include"];

/** The plan; it counts only when nothing was refused. */
export function settle(document: Table, request: ComposeRequest, desk: Desk): ComposePlan {
  const { refusals } = desk;
  const warnings: string[] = [];
  readTopLevel(document, refusals, warnings);
  const declared = readVolumeTable(document.volumes, refusals, desk.notes);
  const isInternal = readNetworkTable(document.networks, refusals, desk.notes);
  const drafts = readServices(document.services, request, desk, declared);
  checkNames(drafts, request, refusals);
  shareLogs(drafts);
  const services = startOrder(drafts, refusals).map((draft) => finished(draft, drafts, request, refusals));
  const volumes = [
    ...new Set(services.flatMap((one) => one.mounts.flatMap((m) => (m.kind === "volume" ? [m.name] : [])))),
  ];
  const unused = [...declared].filter((name) => !volumes.includes(name));
  if (unused.length > 0) warnings.push(`volumes that no service mounts: ${unused.join(", ")}`);
  const { unset, taken } = desk.variables;
  if (unset.size > 0) warnings.push(`variables that are not set and become empty: ${[...unset].join(", ")}`);
  return {
    services,
    volumes: volumes.sort(),
    ...(isInternal && { network: "no-network" as const }),
    needsGroup: services.length > 1 || services.some(needsMore),
    notes: [...new Set(desk.notes)],
    warnings,
    taken,
  };
}

function readTopLevel(document: Table, refusals: Refusals, warnings: string[]): void {
  for (const [key, value] of Object.entries(document)) {
    if (TOP_LEVEL.includes(key) || key.startsWith("x-")) continue;
    if (UNSUPPORTED.includes(key)) {
      if (!isVoid(value)) refusals.add(null, key, "is not supported");
      continue;
    }
    const near = nearest(key, TOP_LEVEL);
    refusals.add(null, key, `is no key of a Compose file${near === undefined ? "" : ` (did you mean ${near}?)`}`);
  }
  if (!isVoid(document.version ?? null)) warnings.push("version is read by nobody any more");
}

/** Names under `volumes`. */
function readVolumeTable(value: Value | undefined, refusals: Refusals, notes: string[]): Set<string> {
  const names = new Set<string>();
  for (const [name, settings] of sections("volumes", value, refusals)) {
    names.add(name);
    if (!SERVICE_NAME.test(name)) refusals.add(null, `volumes.${name}`, "is no name of a volume");
    for (const [key, one] of Object.entries(settings)) {
      if (isVoid(one) || key === "labels" || key.startsWith("x-")) continue;
      if (key === "name") notes.push(`volumes.${name}: name is left out, a volume belongs to its episode`);
      else if (key !== "driver" || asText(one) !== "local") {
        refusals.add(null, `volumes.${name}.${key}`, "is not supported");
      }
    }
  }
  return names;
}

/** Whether the default network is internal: nothing reaches out. */
function readNetworkTable(value: Value | undefined, refusals: Refusals, notes: string[]): boolean {
  let isInternal = false;
  for (const [name, settings] of sections("networks", value, refusals)) {
    for (const [key, one] of Object.entries(settings)) {
      const at = `networks.${name}.${key}`;
      if (isVoid(one) || ["labels", "name", "attachable"].includes(key) || key.startsWith("x-")) continue;
      if (key === "internal" && asBoolean(one) !== undefined) isInternal ||= name === "default" && asBoolean(one)!;
      else if (key !== "driver" || asText(one) !== "bridge") refusals.add(null, at, "is not supported");
    }
    if (name !== "default") notes.push(`networks.${name}: left out, a group has one network`);
  }
  return isInternal;
}

function sections(key: string, value: Value | undefined, refusals: Refusals): [string, Table][] {
  if (value === undefined || isVoid(value)) return [];
  if (!isTable(value)) {
    refusals.add(null, key, "must be a table");
    return [];
  }
  return Object.entries(value).flatMap(([name, one]): [string, Table][] => {
    if (one === null) return [[name, table()]];
    if (isTable(one)) return [[name, one]];
    refusals.add(null, `${key}.${name}`, "must be a table");
    return [];
  });
}

function readServices(
  value: Value | undefined,
  request: ComposeRequest,
  desk: Desk,
  declared: Set<string>,
): ServiceDraft[] {
  const facts = {
    task: request.task.folder,
    environment: `${request.task.folder}/environment`,
    declared,
    platform: request.platform,
    lacks: request.sandbox?.groupLacks ?? [],
    ...desk,
  };
  return sections("services", value, desk.refusals).map(([name, keys]) => {
    if (!SERVICE_NAME.test(name)) desk.refusals.add(name, "", "is no name of a service");
    // docker_image wins over whatever the file would build for main.
    const isPrebuilt = name === "main" && request.task.environment.docker_image !== undefined;
    const { build: _build, ...rest } = keys;
    return readService(name, isPrebuilt ? rest : keys, facts);
  });
}

/** Names that must be those of services. */
function checkNames(drafts: readonly ServiceDraft[], { task }: ComposeRequest, refusals: Refusals): void {
  const byName = new Map(drafts.map((draft) => [draft.name, draft]));
  for (const { name, dependsOn, networkOf } of drafts) {
    for (const { service, condition } of dependsOn) {
      const other = byName.get(service);
      if (other === undefined) refusals.add(name, `depends_on.${service}`, "is no service of the file");
      else if (service === "main" && condition === "service_healthy") {
        refusals.add(name, "depends_on.main", "waits for main's health, which is asked after that of all others");
      } else if (condition === "service_completed_successfully") {
        if (service === "main") {
          refusals.add(name, "depends_on.main", "waits for the end of main, which is never awaited");
        } else if (other.restarts) refusals.add(service, "restart", `starts it again, but '${name}' waits for its end`);
      }
    }
    if (networkOf !== undefined && !byName.has(networkOf)) {
      refusals.add(name, "network_mode", `names '${networkOf}', which is no service of the file`);
    }
  }
  const named = [...task.verifier.collect, ...task.artifacts].map((one) => one.service).filter((one) =>
    !byName.has(one)
  );
  if (named.length > 0) {
    const list = [...new Set(named)].sort().map((one) => `'${one}'`).join(", ");
    refusals.add(null, "", `Artifacts or collect hooks name Compose services that do not exist: [${list}]`);
  }
}

/** A log folder that a sidecar mounts is main's own. */
function shareLogs(drafts: readonly ServiceDraft[]): void {
  const main = drafts.find((draft) => draft.name === "main");
  for (const target of LOG_FOLDERS) {
    const name = logVolume(target);
    if (drafts.some((draft) => draft.mounts.some((mount) => mount.kind === "volume" && mount.name === name))) {
      main?.mounts.push({ kind: "volume", name, target, readOnly: false, noCopy: true });
    }
  }
}

function finished(
  draft: ServiceDraft,
  drafts: readonly ServiceDraft[],
  request: ComposeRequest,
  refusals: Refusals,
): ComposeService {
  const { reference: _reference, build: _build, platform: _platform, restarts: _restarts, ...rest } = draft;
  const roots = new Map(drafts.map((one) => [one.name, one.networkOf]));
  let networkOf = draft.networkOf;
  for (let hops = 0; networkOf !== undefined && roots.get(networkOf) !== undefined && hops < drafts.length; hops++) {
    networkOf = roots.get(networkOf); // whoever lends its network to a lender lends it to all
  }
  const lends = networkOf === undefined ? undefined : drafts.find((one) => one.name === networkOf);
  return {
    ...rest,
    image: imageOf(draft, drafts, request, refusals),
    aliases: [...new Set(draft.aliases)].filter((alias) => alias !== draft.name),
    ports: [...new Set(draft.ports)],
    networkOf: lends?.noNetwork === true ? undefined : networkOf,
    noNetwork: draft.noNetwork || lends?.noNetwork === true,
  };
}

/** An image that another service builds is that one's; the task's own stands under its name. */
function imageOf(
  draft: ServiceDraft,
  drafts: readonly ServiceDraft[],
  { task, taskImage }: ComposeRequest,
  refusals: Refusals,
): ServiceImage {
  const { name, reference, build } = draft;
  if (name === "main" && isTasksOwn(draft, task, taskImage)) return { kind: "task" };
  if (build === null) return { kind: "task" }; // its section was refused
  if (build !== undefined) return { kind: "build", service: name, build };
  if (reference === taskImage) return { kind: "task" };
  if (reference === undefined) {
    refusals.add(name, "image", "is missing: a sidecar needs image or build");
    return { kind: "task" };
  }
  const maker = drafts.find((one) => one.build && one.reference === reference);
  if (maker !== undefined) return { kind: "build", service: maker.name, build: maker.build! };
  return { kind: "reference", reference, ...(draft.platform !== undefined && { platform: draft.platform }) };
}

/**
 * Whether main is what the task itself defines. docker_image counts unless the file names another image; an
 * environment/Dockerfile counts unless the file builds something else (Harbor's base document builds it whatever the
 * image is called).
 */
function isTasksOwn({ reference, build }: ServiceDraft, task: ComposeRequest["task"], taskImage: string): boolean {
  const { docker_image } = task.environment;
  if (docker_image !== undefined) return reference === undefined || [docker_image, taskImage].includes(reference);
  if (build === null) return false;
  if (build !== undefined) return isPlain(build, `${task.folder}/environment`);
  return reference === taskImage || task.image.dockerfile !== undefined;
}

/** A build of environment/Dockerfile as it is. */
function isPlain(
  { context, dockerfile, args, target, labels, shmSize, ulimits, network }: ServiceBuild,
  environment: string,
) {
  return context === environment && "path" in dockerfile && dockerfile.path === `${environment}/Dockerfile` &&
    target === undefined && network === undefined && shmSize === undefined &&
    [args, labels, ulimits].every((one) => Object.keys(one).length === 0);
}

/** What only a group can give main. Everything else a plain sandbox has as well. */
function needsMore(main: ComposeService): boolean {
  return main.mounts.length > 0 || main.networkOf !== undefined || main.capAdd.length > 0 || main.capDrop.length > 0 ||
    main.noNewPrivileges || main.readOnly || main.hostname !== undefined || main.init === true ||
    main.shmBytes !== undefined || Object.keys(main.ulimits).length > 0 || Object.keys(main.extraHosts).length > 0;
}
