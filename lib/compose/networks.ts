/** What a service is to the others on the group's one network: `networks`, `network_mode`, `ports`, `extra_hosts`. */
import { isIP } from "node:net";
import { isTable, type Value } from "./document.ts";
import { readPort } from "./ports.ts";
import { isVoid, readTable, readText, readTexts, refuseOthers } from "./readers.ts";
import type { Field } from "./refusals.ts";

const HOST_NAME = /^[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?$/;

export const isHostName = (text: string): boolean => HOST_NAME.test(text);

/** Aliases on the one network there is. */
export function readNetworks(value: Value, field: Field): string[] {
  return Object.entries(readTable(value, field) ?? {}).flatMap(([name, settings]) => {
    const at = field.at(name);
    if (name !== "default") {
      at.refuse("is not supported: a group has one network, default");
      return [];
    }
    if (settings === null || !isTable(settings)) return [];
    refuseOthers(settings, ["aliases", "priority"], at);
    const aliases = isVoid(settings.aliases ?? null) ? [] : readTexts(settings.aliases!, at.at("aliases"));
    const bad = aliases.find((alias) => !isHostName(alias));
    if (bad !== undefined) at.at("aliases").refuse(`'${bad}' is no host name`);
    return aliases;
  });
}

/** The service whose network is shared, `none`, or undefined for the group's own. */
export function readNetworkMode(value: Value, field: Field): { service: string } | "none" | undefined {
  const mode = readText(value, field);
  if (mode === undefined || mode === "none") return mode as "none" | undefined;
  const service = /^service:(.+)$/.exec(mode)?.[1];
  if (service !== undefined) return { service };
  field.refuse(`'${mode}' is not supported, only none and service:<name>`);
  return undefined;
}

/** TCP ports inside. The host's side of an entry is left out: a group opens nothing on this machine. */
export function readPorts(value: Value, field: Field): number[] {
  const list = Array.isArray(value) ? value : [value];
  return list.flatMap((entry, index) => {
    const at = field.at(index);
    const port = readPort(entry);
    if (typeof port === "string") at.refuse(port);
    else if (port.protocol !== "tcp") at.refuse(`has the protocol ${port.protocol}, only tcp is supported`);
    else if (field.key === "expose" && port.published !== undefined) at.refuse("is no port");
    else {
      if (port.published !== undefined || port.hostIp !== undefined) {
        at.note("opens nothing on this machine: the others reach the service by its name");
      }
      return port.targets;
    }
    return [];
  });
}

export function readExtraHosts(value: Value, field: Field): Record<string, string> {
  const hosts: Record<string, string> = {};
  for (const [host, given] of Object.entries(readTable(value, field) ?? {})) {
    const at = field.at(host);
    const address = (readText(given, at) ?? "").replace(/^\[(.*)\]$/, "$1");
    if (!isHostName(host)) at.refuse("is no host name");
    else if (isIP(address) === 0) at.refuse(`is '${address}', must be an address`);
    else hosts[host] = address;
  }
  return hosts;
}
