/**
 * A Compose task's files → a plan, or the one reason why it is refused. Reads environment/docker-compose.yaml, overlays,
 * .env and env_file, and looks at the files that are mounted or built from; after that it is pure. Prepare and seed both
 * call it, so that their texts agree.
 */
import { readFileSync } from "node:fs";
import { dirname, relative } from "node:path";
import { reasonOf } from "../files/reason.ts";
import type { SandboxProvider } from "../sandbox/provider.ts";
import type { Task } from "../task/task.ts";
import { baseDocument } from "./base.ts";
import { ComposeFault, isTable, Override, readDocument, Reset, type Table, table, type Value } from "./document.ts";
import { DotenvError, parseDotenv } from "./dotenv.ts";
import { interpolate, TemplateError } from "./interpolate.ts";
import { mergeDocuments } from "./merge.ts";
import { placeInside } from "./paths.ts";
import type { ComposeReading } from "./plan.ts";
import { isVoid, readTable } from "./readers.ts";
import { Field, Refusals } from "./refusals.ts";
import { asBoolean, asText } from "./scalars.ts";
import { settle } from "./settle.ts";
import { infrastructure, Variables } from "./variables.ts";

export interface ComposeRequest {
  task: Pick<Task, "id" | "folder" | "environment" | "image" | "verifier" | "artifacts">;
  /** Name under which the task's own image is built (`hb__<context hash>`), whether or not it has to be. */
  taskImage: string;
  hostEnv: Readonly<Record<string, string | undefined>>;
  /** Absolute paths of Compose files that go over the task's own (`harbor_environment_server.compose_overlay`). */
  overlays: readonly string[];
  /** `os/arch` of the run. */
  platform: string;
  /** Who is to run it, and what its groups cannot give; absent where that is not known yet. */
  sandbox?: Pick<SandboxProvider, "name" | "openGroup" | "groupLacks">;
}

const FILE = "environment/docker-compose.yaml";

/** Throws nothing that a file on disk can cause. */
export function readCompose(request: ComposeRequest): ComposeReading {
  const { task } = request;
  const refusals = new Refusals();
  const notes: string[] = [];
  const variables = new Variables(
    infrastructure(task, request.taskImage),
    task.environment.env,
    request.hostEnv,
  );
  const hint = `mend what is named in ${FILE}`;
  const refused = (): ComposeReading => ({ ok: false, reason: refusals.text(variables.secrets()), hint });
  try {
    readEnvironmentFile(task.folder, variables);
    const documents = files(request).map(({ path, shownAs }) => {
      const document = readDocument(readText(path, shownAs), shownAs);
      return interpolated(document, variables, refusals);
    });
    if (refusals.any) return refused();
    const merged = mergeDocuments([baseDocument(task, request.taskImage), ...documents]);
    inlineEnvFiles(merged, task.folder, variables, refusals, notes);
    if (refusals.any) return refused();
    const plan = settle(merged, request, { variables, refusals, notes });
    if (refusals.any) return refused();
    const { sandbox } = request;
    return plan.needsGroup && sandbox !== undefined && sandbox.openGroup === undefined
      ? { ok: false, reason: `${sandbox.name} cannot run a Compose task`, hint: "docker, podman and namespace can" }
      : { ok: true, plan };
  } catch (error) {
    if (!(error instanceof ComposeFault)) throw error;
    refusals.add(null, "", error.message);
    return refused();
  }
}

function files({ task, overlays }: ComposeRequest): { path: string; shownAs: string }[] {
  const own = task.image.mode === "compose" ? [{ path: `${task.folder}/${FILE}`, shownAs: FILE }] : [];
  return [...own, ...overlays.map((path) => ({ path, shownAs: path }))];
}

function readText(path: string, shownAs: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(readFileSync(path));
  } catch (error) {
    const why = error instanceof TypeError ? "is not UTF-8" : reasonOf(error);
    throw new ComposeFault(`${shownAs} cannot be read: ${why}`);
  }
}

function readEnvironmentFile(folder: string, variables: Variables): void {
  const environment = `${folder}/environment`;
  const place = placeInside(".env", environment, environment, "environment/");
  if (typeof place === "string") throw new ComposeFault(place);
  if (place.kind !== "file") return;
  try {
    const text = readText(place.path, "environment/.env");
    for (const [name, value] of parseDotenv(text, { variables })) variables.file.set(name, value);
  } catch (error) {
    if (error instanceof DotenvError) throw new ComposeFault(`environment/.env ${error.message}`);
    throw error;
  }
}

/** Values of the sections that Compose interpolates, variables replaced; keys stay. */
function interpolated(document: Table, variables: Variables, refusals: Refusals): Table {
  const walk = (value: Value, path: readonly string[]): Value => {
    if (typeof value === "string") {
      try {
        const replaced = interpolate(value, variables);
        if (!replaced.includes("\0")) return replaced;
        throw new TemplateError("holds a NUL, which neither programs nor files take");
      } catch (error) {
        if (!(error instanceof TemplateError)) throw error;
        const [section, name, ...rest] = path;
        if (section === "services" && name !== undefined) {
          refusals.add(name, rest.join(".").replaceAll(".[", "["), error.message);
        } else refusals.add(null, path.join("."), error.message);
        return "";
      }
    }
    if (Array.isArray(value)) return value.map((one, index) => walk(one, [...path, `[${index}]`]));
    if (value instanceof Override) return new Override(walk(value.value, path));
    if (value instanceof Reset || !isTable(value)) return value;
    return table(Object.entries(value).map(([key, one]) => [key, walk(one, [...path, key])] as const));
  };
  const plain = (key: string) => key.startsWith("x-") || key === "version";
  return table(Object.entries(document).map(([key, one]) => [key, plain(key) ? one : walk(one, [key])] as const));
}

/** `env_file` into `environment`: a later file over an earlier one, `environment` over all. */
function inlineEnvFiles(
  merged: Table,
  folder: string,
  variables: Variables,
  refusals: Refusals,
  notes: string[],
): void {
  if (!isTable(merged.services ?? null)) return;
  for (const [name, keys] of Object.entries(merged.services as Table)) {
    if (!isTable(keys) || isVoid(keys.env_file ?? null)) continue;
    const field = new Field(refusals, name, "env_file", notes);
    const entries = Array.isArray(keys.env_file) ? keys.env_file : [keys.env_file!];
    const read = table(entries.flatMap((entry, index) => [...envFile(entry, field.at(index), folder, variables)]));
    const own = isVoid(keys.environment ?? null)
      ? table()
      : readTable(keys.environment!, new Field(refusals, name, "environment", notes));
    keys.environment = table([...Object.entries(read), ...Object.entries(own ?? {})]);
    delete keys.env_file;
  }
}

function envFile(entry: Value, field: Field, folder: string, variables: Variables): Map<string, string | null> {
  const none = new Map<string, string | null>();
  const written = isTable(entry) ? asText(entry.path) : asText(entry);
  const required = isTable(entry) ? asBoolean(entry.required) ?? true : true;
  const format = isTable(entry) ? asText(entry.format) : undefined;
  if (written === undefined) {
    field.refuse("names no file");
    return none;
  }
  if (format !== undefined && format !== "raw") field.refuse(`has the format '${format}', only raw is supported`);
  const place = placeInside(written, `${folder}/environment`, folder, "the task folder");
  if (typeof place === "string") field.refuse(place);
  else if (place.kind !== "file") {
    if (required) field.refuse(`'${written}' does not exist`);
  } else {
    try {
      const shownAs = relative(dirname(folder), place.path);
      return parseDotenv(readText(place.path, shownAs), { variables, raw: format === "raw" });
    } catch (error) {
      if (!(error instanceof DotenvError)) throw error;
      field.refuse(`'${written}' ${error.message}`);
    }
  }
  return none;
}
