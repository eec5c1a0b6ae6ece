/** What an image's configuration says, as record files, layouts and registries spell it (OCI image-spec, Docker v2s2). */
import process from "node:process";
import { z } from "zod";

const strings = z.array(z.string()).nullish();

/** The part of a configuration that decides how an image starts; the rest is kept. */
export const ImageConfig = z.looseObject({
  Entrypoint: strings,
  Cmd: strings,
  Env: strings,
  User: z.string().nullish(),
  WorkingDir: z.string().nullish(),
  ExposedPorts: z.record(z.string(), z.unknown()).nullish(),
  Healthcheck: z.looseObject({}).nullish(),
  Volumes: z.record(z.string(), z.unknown()).nullish(),
});
export type ImageConfig = z.infer<typeof ImageConfig>;

/** The configuration blob of an image. */
export const ImageFile = z.looseObject({
  os: z.string(),
  architecture: z.string(),
  variant: z.string().optional(),
  config: ImageConfig.nullish(),
  rootfs: z.looseObject({ type: z.string().optional(), diff_ids: z.array(z.string()) }),
});
export type ImageFile = z.infer<typeof ImageFile>;

/** Names of one architecture as different tools write it (spec/images-and-sandboxes §5.2 row 6). */
const ARCHITECTURES: Record<string, string> = {
  x86_64: "amd64",
  "x86-64": "amd64",
  x64: "amd64",
  aarch64: "arm64",
  armhf: "arm",
};

/** `os/arch`, variant dropped, one name per architecture: what platforms are compared by. */
export function platformOf(file: Pick<ImageFile, "os" | "architecture">): string {
  return `${file.os}/${ARCHITECTURES[file.architecture] ?? file.architecture}`;
}

/** `os/arch[/variant]` as an option gives it, in the form of platformOf(). */
export function platformName(text: string): string {
  const [os = "", architecture = ""] = text.split("/");
  return platformOf({ os, architecture });
}

/** What images start on this machine without another platform being named. */
export const thisPlatform = (): string => platformName(`linux/${process.arch}`);

/** `Env` lines as a table; a line without `=` is an empty variable. */
export function envOf(config: ImageConfig): Record<string, string> {
  return Object.fromEntries((config.Env ?? []).map((line) => {
    const at = line.indexOf("=");
    return at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 1)];
  }));
}
