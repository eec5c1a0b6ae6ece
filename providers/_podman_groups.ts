/** Whether podman can give the services of a Compose task a network of their own on this machine, and what it lacks. */
import { accessSync, constants, existsSync } from "node:fs";
import type { Missing } from "../lib/sandbox/provider.ts";

/** The part of `podman info` that decides (4.3; `pasta` from 5 on). */
export interface NetworkHost {
  networkBackend?: string;
  slirp4netns?: { executable?: string };
  pasta?: { executable?: string };
  security?: { rootless?: boolean };
}

export interface NetworkMachine {
  /** Whether one of podman's helper programs is installed. */
  has(program: string): boolean;
  /** Whether this user may use /dev/net/tun. */
  tun: () => boolean;
}

/** Where podman looks for the programs that make its networks (containers.conf(5): helper_binaries_dir, cni_plugin_dirs). */
const HELPERS = [
  "/usr/local/libexec/podman",
  "/usr/local/lib/podman",
  "/usr/libexec/podman",
  "/usr/lib/podman",
  "/usr/local/libexec/cni",
  "/usr/libexec/cni",
  "/usr/local/lib/cni",
  "/usr/lib/cni",
  "/opt/cni/bin",
];

export const THIS_MACHINE: NetworkMachine = {
  has: (program) => HELPERS.some((folder) => existsSync(`${folder}/${program}`)),
  tun() {
    try {
      accessSync("/dev/net/tun", constants.R_OK | constants.W_OK);
      return true;
    } catch {
      return false;
    }
  },
};

/**
 * The first piece that is missing; undefined where groups work. A name server is none of them: members learn of one another
 * by their hosts files. Pure but for what `machine` looks at.
 */
export function groupFault(host: NetworkHost, machine: NetworkMachine): Missing | undefined {
  const cni = (host.networkBackend ?? "cni") !== "netavark";
  const missing = (what: string, fix: string): Missing => ({
    what: `no networks of their own for Compose tasks: ${what}`,
    fix,
  });
  if (!machine.has(cni ? "bridge" : "netavark")) {
    return cni
      ? missing("CNI's bridge plugin is missing", "install containernetworking-plugins, or netavark")
      : missing("netavark is missing", "install netavark");
  }
  if (host.security?.rootless !== true) return undefined;
  if (!host.slirp4netns?.executable && !host.pasta?.executable) {
    return missing("neither slirp4netns nor pasta is installed", "install slirp4netns (the administrator)");
  }
  if (!machine.tun()) {
    const fix = "chmod 666 /dev/net/tun (the administrator), or --sandbox namespace, which needs none";
    return missing("this user may not use /dev/net/tun", fix);
  }
  return undefined;
}
