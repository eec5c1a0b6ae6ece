/** Who starts before whom: `depends_on` and shared networks, circles refused. Pure. */
import { isTable, type Value } from "./document.ts";
import type { ComposeService, Condition, Dependency } from "./plan.ts";
import { readBoolean, readTable, readText, refuseOthers } from "./readers.ts";
import type { Field, Refusals } from "./refusals.ts";

const CONDITIONS: readonly string[] = ["service_started", "service_healthy", "service_completed_successfully"];

export function readDependsOn(value: Value, field: Field): Dependency[] {
  return Object.entries(readTable(value, field) ?? {}).flatMap(([service, settings]) => {
    const at = field.at(service);
    if (settings === null) return [{ service, condition: "service_started" as const }];
    if (!isTable(settings)) {
      at.refuse("must be a table");
      return [];
    }
    refuseOthers(settings, ["condition", "required", "restart"], at);
    const required = settings.required ?? null;
    if (required !== null && readBoolean(required, at.at("required")) === false) {
      at.at("required").refuse("is false, which is not supported");
    }
    const restart = settings.restart ?? null;
    if (restart !== null && readBoolean(restart, at.at("restart")) === true) {
      at.at("restart").refuse("is true, which is not supported");
    }
    const condition = (settings.condition ?? null) === null
      ? "service_started"
      : readText(settings.condition!, at.at("condition"));
    if (condition === undefined) return [];
    if (!CONDITIONS.includes(condition)) {
      at.at("condition").refuse(`'${condition}' is not ${CONDITIONS.slice(0, -1).join(", ")} or ${CONDITIONS.at(-1)}`);
      return [];
    }
    return [{ service, condition: condition as Condition }];
  });
}

type Node = Pick<ComposeService, "name" | "dependsOn" | "networkOf">;

/** Whom a service waits for before it starts. */
const before = (service: Node): string[] => [
  ...service.dependsOn.map((one) => one.service),
  ...(service.networkOf === undefined ? [] : [service.networkOf]),
];

/**
 * The services with whoever is waited for in front. `main` comes as late as the others let it: everybody else is there
 * when it starts, unless they wait for it. A circle is refused, and the order is then undefined.
 */
export function startOrder<S extends Node>(services: readonly S[], refusals: Refusals): S[] {
  const byName = new Map(services.map((service) => [service.name, service]));
  const ordered: S[] = [];
  const done = new Set<string>();
  const visit = (service: S, above: readonly string[]): void => {
    if (done.has(service.name)) return;
    const place = above.indexOf(service.name);
    if (place >= 0) {
      const circle = [...above.slice(place), service.name];
      const first = circle.slice(0, -1).sort()[0]!;
      const turned = turn(circle, first);
      refusals.add(
        first,
        byName.get(first)!.networkOf === turned[1] ? "network_mode" : "depends_on",
        `goes in a circle: ${turned.join(" → ")}`,
      );
      return;
    }
    for (const name of before(service)) {
      const other = byName.get(name);
      if (other !== undefined) visit(other, [...above, service.name]);
    }
    if (done.has(service.name)) return;
    done.add(service.name);
    ordered.push(service);
  };
  const sidecars = services.filter((one) => one.name !== "main");
  for (const service of [...sidecars, ...services.filter((one) => one.name === "main")]) visit(service, []);
  return ordered;
}

/** `[b, c, a, b]` as seen from `a`: `[a, b, c, a]`. */
function turn(circle: readonly string[], first: string): string[] {
  const ring = circle.slice(0, -1);
  const at = ring.indexOf(first);
  return [...ring.slice(at), ...ring.slice(0, at), first];
}
