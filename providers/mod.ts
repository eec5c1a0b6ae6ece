/**
 * Where names become providers. Modules load lazily: `--version` and `check` never pay for an engine.
 */
import { HarborError } from "../lib/errors.ts";
import type { Diagnosis, ProviderDeps, ProviderName, SandboxProvider } from "../lib/sandbox/provider.ts";
import { nearest } from "../lib/suggest.ts";

export const PROVIDERS: readonly { name: ProviderName; about: string }[] = [
  { name: "docker", about: "containers of a Docker engine" },
  { name: "podman", about: "containers of podman, rootless too" },
  { name: "namespace", about: "an image's layers in namespaces of their own; no engine" },
  { name: "apptainer", about: "instances of apptainer or singularity; images of our store" },
  { name: "enroot", about: "containers of enroot; images of our store" },
  { name: "host", about: "a throw-away view of this machine; no engine, no image" },
];

/** Sandboxes that comparable tools know and this version does not have. */
const ELSEWHERE = [
  "opensandbox",
  "daytona",
  "e2b",
  "modal",
  "ecs_fargate",
  "openshell",
];

/** Other names of what there is. */
const ALSO: Readonly<Record<string, ProviderName>> = { singularity: "apptainer" };

/** What `auto` tries, in this order; `host` starts from no image and is never chosen by itself. */
const AUTOMATIC = ["docker", "podman", "namespace"] as const;

const WAYS_ON = "start a Docker engine, or install podman, or mend what namespace lacks, or use --sandbox host " +
  "(no engine, no image); gym-harbor doctor says what is missing for each";

/** Throws HarborError "usage" for a name that nobody has, "not-built" for one of another version. */
export function providerName(name: string): ProviderName {
  const known = PROVIDERS.find((one) => one.name === (ALSO[name] ?? name));
  if (known !== undefined) return known.name;
  const names = PROVIDERS.map((one) => one.name).join(", ");
  if (name === "local") {
    throw new HarborError("not-built", "--sandbox local: commands straight on this machine are not offered", {
      hint: "--sandbox host runs tasks on a throw-away view of this machine",
    });
  }
  if (ELSEWHERE.includes(name)) {
    throw new HarborError("not-built", `--sandbox ${name}: not in this version`, {
      hint: `there are ${names} and auto`,
    });
  }
  const near = nearest(name, [...PROVIDERS.map((one) => one.name), "auto"]);
  throw new HarborError("usage", `--sandbox ${name}: no such sandbox`, {
    hint: `${near === undefined ? "" : `did you mean ${near}? `}there are ${names} and auto`,
  });
}

export async function makeProvider(name: ProviderName, deps: ProviderDeps): Promise<SandboxProvider> {
  switch (name) {
    case "docker":
      return (await import("./docker.ts")).dockerProvider(deps);
    case "podman":
      return (await import("./podman.ts")).podmanProvider(deps);
    case "namespace":
      return new (await import("./namespace.ts")).NamespaceProvider(deps);
    case "apptainer":
      return (await import("./apptainer.ts")).apptainerProvider(deps);
    case "enroot":
      return (await import("./enroot.ts")).enrootProvider(deps);
    case "host":
      return new (await import("./host.ts")).HostProvider(deps);
  }
}

/**
 * The provider for `--sandbox`: a name, or "auto": docker when its engine answers, else podman, else namespace, when it
 * works.
 * Throws HarborError "engine.missing" with the next steps when there is none; `host` is never chosen by itself.
 */
export async function chooseSandbox(
  name: string,
  depsOf: (name: ProviderName) => ProviderDeps,
  signal: AbortSignal,
): Promise<SandboxProvider> {
  if (name !== "auto") {
    const known = providerName(name);
    const provider = await makeProvider(known, depsOf(known));
    const diagnosis = await provider.diagnose(signal, "quick");
    if (diagnosis.usable) return provider;
    throw new HarborError("engine.missing", `--sandbox ${name} cannot be used: ${reasons(diagnosis)}`, {
      hint: diagnosis.missing[0]?.fix,
      details: { missing: diagnosis.missing },
    });
  }
  const refused: string[] = [];
  for (const candidate of AUTOMATIC) {
    const provider = await makeProvider(candidate, depsOf(candidate));
    const diagnosis = await provider.diagnose(signal, "quick");
    if (diagnosis.usable) return provider;
    refused.push(`${candidate}: ${reasons(diagnosis)}`);
  }
  throw new HarborError("engine.missing", `No usable sandbox (${refused.join("; ")})`, { hint: WAYS_ON });
}

const reasons = (diagnosis: Diagnosis): string => diagnosis.missing.map(({ what }) => what).join(", ") || "unknown";
