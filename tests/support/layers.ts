/** Images made of a folder of this machine, for the sandbox on layers: no store, no registry. */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import process from "node:process";
import type { ImageConfig } from "../../lib/images/config.ts";
import type { ImageNeed, ProviderDeps } from "../../lib/sandbox/provider.ts";
import type { ImageStore, StoredImage } from "../../lib/store/store.ts";
import { NamespaceProvider } from "../../providers/namespace.ts";
import { type RootfsKind, rootfsTar } from "./rootfs.ts";

export interface FolderImage {
  name: string;
  /** Absolute folders, topmost first. */
  trees: string[];
  config?: ImageConfig;
}

export const needOf = (reference: string, more: Partial<ImageNeed> = {}): ImageNeed => ({
  taskId: "t",
  source: { kind: "named", reference },
  network: "no-network",
  limits: {},
  users: [],
  ...more,
});

/** A provider that knows these images and no others. */
export function folderProvider(deps: ProviderDeps, images: readonly FolderImage[]): NamespaceProvider {
  const store = {
    folder: deps.scratch,
    readOnly: true,
    find: (name: string) => Promise.resolve(storedOf(images.find((image) => image.name === name))),
  };
  const unpack = ({ names: [name] }: StoredImage) =>
    Promise.resolve({ folders: images.find((image) => image.name === name)!.trees, notes: [] });
  return new NamespaceProvider({ ...deps, store: store as unknown as ImageStore }, unpack);
}

function storedOf(image: FolderImage | undefined): StoredImage | undefined {
  if (image === undefined) return undefined;
  const blob = { mediaType: "", digest: `sha256:${image.name}`, size: 0 };
  return {
    names: [image.name],
    manifest: blob,
    config: blob,
    layers: [],
    platform: "linux/amd64",
    file: { os: "linux", architecture: "amd64", config: image.config ?? {}, rootfs: { diff_ids: [] } },
  };
}

/** Unpacks a root folder into `folder`, which is made. */
export function unpackRootfs(kind: RootfsKind, folder: string): string {
  mkdirSync(folder, { recursive: true });
  execFileSync("tar", ["-xpf", rootfsTar(kind), "-C", folder]);
  return folder;
}

/** Whether we are a plain user whom newuidmap gives no ids. */
export function oneId(): boolean {
  if (process.getuid?.() === 0) return false;
  const argv = ["--user", "--map-root-user", "--map-users=auto", "--map-groups=auto", "true"];
  return spawnSync("unshare", argv).status !== 0;
}
