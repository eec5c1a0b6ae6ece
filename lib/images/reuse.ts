/** Whether a recorded build can be used again (images §3.5). Pure. */
import type { BuildOptions } from "./options.ts";
import type { BuiltRecord } from "./built.ts";
import type { ImageRecord } from "./records.ts";
import { isPinned } from "./reference.ts";

export interface ReuseFacts {
  /** `hb__<hash>`, `hb__<hash>__<service>`. */
  name: string;
  service: string;
  /** Of what would be built now. */
  inputsDigest: string;
  /** `os/arch`. */
  platform: string;
  built: BuiltRecord | undefined;
  /** Record of the image by its name, for the platform. */
  image: ImageRecord | undefined;
}

export type Reuse =
  /** `check`: it is only on this machine, so look whether it still is. */
  | { kind: "reuse"; reference: string; check: boolean; note?: string }
  | { kind: "build"; why: string }
  /** Nothing may be built, and what is recorded does not fit. */
  | { kind: "refuse"; reason: string };

/** `mayBuild` false: builds.enabled=false or --offline; then other inputs under the same hash are used, and said. */
export function reuseOf(
  facts: ReuseFacts,
  { repository, mayBuild }: Pick<BuildOptions, "repository"> & { mayBuild: boolean },
): Reuse {
  const { built, image, service, name, platform, inputsDigest } = facts;
  const reference = built?.services[service];
  const otherwise = (why: string): Reuse =>
    mayBuild ? { kind: "build", why } : { kind: "refuse", reason: `${name} is not built: ${why}` };
  if (built === undefined || reference === undefined) return otherwise("nothing is recorded");
  if ((image?.platform ?? built.platform ?? platform) !== platform) {
    return otherwise(`what is recorded is ${image?.platform ?? built.platform}, not ${platform}`);
  }
  const pushed = isPinned(reference);
  if (!pushed && repository !== undefined) {
    return otherwise(`it is recorded as local, and this run pushes to ${repository}`);
  }
  if (image === undefined && mayBuild) return otherwise("the record of its configuration is gone");
  const same = image?.inputsDigest === inputsDigest;
  if (!same && mayBuild) return otherwise("modes, links or settings of its context changed");
  const elsewhere = pushed && repository !== undefined && !reference.startsWith(`${repository}/`);
  const note = !same
    ? `${name} was built from a context that differs in modes, links or settings`
    : elsewhere
    ? `${reference} was pushed to another repository than builds.repository=${repository}; it is used as it is`
    : undefined;
  return { kind: "reuse", reference, check: !pushed, ...(note !== undefined && { note }) };
}
