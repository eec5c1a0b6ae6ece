/**
 * The root folder of a sandbox on the layers of an image: one overlay of the image's unpacked trees with the sandbox's
 * writes above, and a skeleton between the two that holds what every sandbox has (`/dev`, mount points). The skeleton
 * lies over the image, so that a link the image has in one of these places leads no mount astray.
 *
 * Each tree is reached through a short link (`l/7`): mount options end at 4,096 bytes, which holds 127 layers so and
 * some 30 by full paths.
 */
import { appendFileSync, existsSync, lstatSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Network } from "../lib/sandbox/provider.ts";
import { type MemberMount, placeMounts } from "./_layers_mounts.ts";
import { makeFolderHere, makeTree } from "./_namespace_folders.ts";
import type { Machine } from "./_namespace_machine.ts";
import { CONTROL, DEVICE_LINKS, DEVICES, fstabLine, kernelMounts, type MountPlan } from "./_namespace_mounts.ts";
import type { Rootfs } from "./_namespace_open.ts";
import type { CarriedFolder } from "./_namespace_tools.ts";
import type { Way } from "./_namespace_way.ts";

/** Where the copies of this machine's programs are seen inside, read-only. */
export const TOOLS = "/.gym-harbor-tools";

const HOSTNAME = "gym-harbor";
/** Of /dev/shm, as Docker's default. */
const SHM_BYTES = 64 * 2 ** 20;

/** An image as it lies unpacked on this machine. */
export interface LayerStack {
  /** Folder of short links `0`, `1`, …: the skeleton, then the image's trees, topmost first. Absolute. */
  links: string;
  count: number;
  /** Mode of the image's `/etc`; undefined where it is no folder that files may be written to. */
  etcMode: number | undefined;
  /** The best shell that it has, and whether it has any. */
  shell: string;
  hasShell: boolean;
}

/** The image's trees, topmost first. */
export const treesOf = ({ links, count }: LayerStack): string[] =>
  Array.from({ length: count - 1 }, (_, at) => join(links, String(at + 1)));

/** Makes the folder of links in `folder`, which must not exist. `trees`: absolute, topmost first. */
export function stackLayers(folder: string, skeleton: string, trees: readonly string[]): LayerStack {
  mkdirSync(folder, { mode: 0o700 });
  for (const [at, tree] of [join(skeleton, "root"), ...trees].entries()) symlinkSync(tree, join(folder, String(at)));
  const etc = trees.map((tree) => lstatSync(join(tree, "etc"), { throwIfNoEntry: false })).find(Boolean);
  const etcMode = etc === undefined ? 0o755 : etc.isDirectory() ? etc.mode & 0o7777 : undefined;
  const has = (path: string) =>
    trees.some((tree) => lstatSync(join(tree, path), { throwIfNoEntry: false }) !== undefined);
  const hasBash = has("bin/bash") || has("usr/bin/bash");
  return {
    links: folder,
    count: trees.length + 1,
    etcMode,
    shell: hasBash ? "/bin/bash" : "/bin/sh",
    hasShell: hasBash || has("bin/sh") || has("usr/bin/sh"),
  };
}

/** Makes what lies over every image, and beside it an empty folder. */
export function makeLayerSkeleton(folder: string): void {
  const root = join(folder, "root");
  makeFolderHere(folder, 0o755);
  makeFolderHere(root, 0o755);
  makeFolderHere(join(folder, "none"), 0o555);
  for (const path of [CONTROL, TOOLS, "/dev", "/dev/pts", "/dev/shm", "/proc", "/sys"]) {
    makeFolderHere(join(root, path), 0o755);
  }
  for (const name of DEVICES) writeFileSync(join(root, "dev", name), "");
  for (const [path, target] of DEVICE_LINKS) symlinkSync(target, join(root, path));
}

/** What the folder of programs needs beside them to be the root folder for a moment. */
export function makeToolsRoot(tools: CarriedFolder): void {
  for (const name of [".old", "box"]) makeFolderHere(join(tools.folder, name), 0o755);
  writeFileSync(join(tools.folder, APT_CONFIG), 'APT::Sandbox::User "root";\n', { mode: 0o644 });
  symlinkSync(".old/proc", join(tools.folder, "proc")); // umount reads the mounts there; it leads nowhere afterwards
}

/** apt drops to a user of its own while it fetches (apt.conf(5)), which cannot be where root is the only id. */
const APT_CONFIG = "apt.conf";

export interface LayersRoot {
  machine: Machine;
  stack: LayerStack;
  skeleton: string;
  tools: CarriedFolder;
  way: Way;
  network: Network;
  /** Other images to be seen at `FROM/<n>`, read-only: what COPY --from copies. */
  others?: readonly LayerStack[];
  member?: Member;
}

/** What a member of a group has besides. */
export interface Member {
  hostname: string;
  /** More lines of /etc/hosts. */
  hosts: readonly string[];
  mounts: readonly MemberMount[];
  shmBytes?: number;
}

/** Where other images are seen inside a sandbox that builds. */
export const FROM = "/.gym-harbor-from";

export function layersRootfs(request: LayersRoot): Rootfs {
  const outside = request.tools.at("");
  return {
    storage: request.way.storage,
    tools: request.tools.at(TOOLS),
    entry: {
      kind: "through-tools",
      box: "/box",
      umount: outside.umount,
      setpriv: outside.setpriv,
      chroot: outside.chroot,
    },
    shell: request.stack.shell,
    ...(request.machine.ids === "own" && { env: { APT_CONFIG: `${TOOLS}/${APT_CONFIG}` } }),
    hostname: request.member?.hostname ?? HOSTNAME,
    on: "the image's layers",
    notes: request.way.storage === "memory" ? ["files: what the task writes is kept in memory"] : [],
    layOut: (base, control) => layOut(request, base, control),
  };
}

function layOut(request: LayersRoot, base: string, control: string): MountPlan {
  const { stack, way } = request;
  const { member } = request;
  const hostname = member?.hostname ?? HOSTNAME;
  const plan = planLayers({
    base,
    shmBytes: member?.shmBytes ?? SHM_BYTES,
    control,
    tools: request.tools.folder,
    none: join(request.skeleton, "none"),
    layers: stack.count,
    others: (request.others ?? []).map(({ count }) => count),
    sysfs: way.sysfs && request.network !== "host",
    ttyGroup: request.machine.ids !== "own",
    procEntries: request.machine.procEntries,
    sysPaths: request.machine.sysPaths,
  });
  symlinkSync(stack.links, join(base, "l"));
  for (const [at, other] of (request.others ?? []).entries()) symlinkSync(other.links, join(base, `f${at}`));
  const tree = makeTree(base, plan, way.storage);
  if (stack.etcMode !== undefined) {
    makeFolderHere(join(tree, "up/etc"), stack.etcMode);
    for (const [name, text] of Object.entries(etcFiles(request.network, hostname, member?.hosts))) {
      writeFileSync(join(tree, "up/etc", name), text, { mode: 0o644 });
    }
  }
  if (member !== undefined && member.mounts.length > 0) {
    const lines = placeMounts(member.mounts, treesOf(stack), join(tree, "up"), `${base}/tree/root/box`);
    appendFileSync(join(base, "fstab"), lines.map((line) => line + "\n").join(""));
  }
  return plan;
}

/** The three files that an engine writes for each container. */
export function etcFiles(
  network: Network,
  hostname: string,
  others: readonly string[] = [],
): Record<string, string> {
  const hosts = [
    "127.0.0.1\tlocalhost",
    "::1\tlocalhost ip6-localhost ip6-loopback",
    "fe00::0\tip6-localnet",
    "ff00::0\tip6-mcastprefix",
    "ff02::1\tip6-allnodes",
    "ff02::2\tip6-allrouters",
    // A member of a group has an address of its own under that name.
    ...(others.length > 0 ? others : [`127.0.1.1\t${hostname}`]),
  ];
  const here = "/etc/resolv.conf";
  return {
    hosts: hosts.join("\n") + "\n",
    hostname: `${hostname}\n`,
    "resolv.conf": network === "host" && existsSync(here)
      ? readFileSync(here, "utf8")
      : "# no name server in this network: names are resolved by the proxy that HTTP_PROXY names\n",
  };
}

export interface LayersMountRequest {
  /** Absolute. */
  base: string;
  control: string;
  /** Folder of programs, absolute. */
  tools: string;
  /** An empty folder, absolute. */
  none: string;
  /** How many lie below the writes. */
  layers: number;
  /** The same for each other image. */
  others: readonly number[];
  sysfs: boolean;
  ttyGroup: boolean;
  shmBytes: number;
  procEntries: readonly string[];
  sysPaths: readonly string[];
}

/** Pure. */
export function planLayers(request: LayersMountRequest): MountPlan {
  const { base, tools } = request;
  const outer = `${base}/tree/root`;
  const root = `${outer}/box`;
  const lowers = links("l", request.layers);
  const bound = "bind,ro,nodev,nosuid";
  const lines = [
    fstabLine(tools, outer, "none", bound),
    fstabLine(
      "overlay",
      root,
      "overlay",
      `nodev,userxattr,volatile,lowerdir=${lowers},upperdir=tree/up,workdir=tree/wk`,
    ),
    fstabLine(request.control, root + CONTROL, "none", bound),
    fstabLine(tools, root + TOOLS, "none", bound),
    // An overlay without an upper folder wants two lower ones at least.
    ...request.others.map((count, at) =>
      fstabLine(
        "overlay",
        `${root}${FROM}/${at}`,
        "overlay",
        `ro,nodev,userxattr,lowerdir=${links(`f${at}`, count)}:${request.none}`,
      )
    ),
    ...kernelMounts({ ...request, root }),
  ];
  const from = request.others.length === 0 ? [] : [`up${FROM}`, ...request.others.map((_, at) => `up${FROM}/${at}`)];
  const folders = ["root", "up", "wk", ...from].map((path) => ({ path, mode: 0o755 }));
  return { fstab: lines.join("\n") + "\n", folders, up: { "/": "up" } };
}

const links = (folder: string, count: number): string =>
  Array.from({ length: count }, (_, at) => `${folder}/${at}`).join(":");
