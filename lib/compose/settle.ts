/**
 * The merged document → a plan: the file's own tables, every service by the field table, and what only shows with all
 * services in view. Looks at mounted and built files; changes nothing.
 */
import { type Table, type Value } from "./document.ts";
import { startOrder } from "./order.ts";
import type { ComposePlan, ComposeService } from "./plan.ts";
import type { ComposeRequest } from "./read.ts";
import type { Refusals } from "./refusals.ts";
import { readService, type ServiceDraft } from "./service.ts";
import { imageOf } from "./service_image.ts";
import { NAME, readNetworkTable, readTopLevel, readVolumeTable, sections } from "./top_level.ts";
import type { Variables } from "./variables.ts";
import { LOG_FOLDERS, logVolume } from "./volumes.ts";

interface Desk {
  variables: Variables;
  refusals: Refusals;
  notes: string[];
}

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
    if (!NAME.test(name)) desk.refusals.add(name, "", "is no name of a service");
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

/** What only a group can give main. Everything else a plain sandbox has as well. */
function needsMore(main: ComposeService): boolean {
  return main.mounts.length > 0 || main.networkOf !== undefined || main.capAdd.length > 0 || main.capDrop.length > 0 ||
    main.noNewPrivileges || main.readOnly || main.hostname !== undefined || main.init === true ||
    main.shmBytes !== undefined || Object.keys(main.ulimits).length > 0 || Object.keys(main.extraHosts).length > 0;
}
