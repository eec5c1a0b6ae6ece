/**
 * `[gym]` of dataset.toml → checked settings, and how they change a task: the task's override replaces or merges, then
 * the multipliers scale (task-format §4.5). Pure: the text comes in, findings go out.
 */
import type { z } from "zod";
import { dotted, keyTable, type Path, suggestion, unknownKeys } from "../task/keys.ts";
import type { Multipliers } from "../task/effective.ts";
import { Findings, shown } from "../task/refusals.ts";
import { applyRules, at, sayer } from "../task/rules.ts";
import { Environment, type TaskToml } from "../task/schema.ts";
import { lineOfKey, readToml } from "../task/toml.ts";
import { nearest } from "../suggest.ts";
import { type Defaults, Gym, LICENSES, type Override, TYPES } from "./schema.ts";

export interface DatasetSettings {
  /** dataset.toml's path as messages write it. */
  shownAs: string;
  gym: Gym;
  multipliers: Multipliers;
  /** By task ID. */
  overrides: ReadonlyMap<string, Override>;
  /** The tables as written, for digests; overrides by task ID. */
  raw: { defaults: Defaults; overrides: ReadonlyMap<string, unknown> };
  /** Line of an override's table in dataset.toml. */
  lineOfOverride(id: string): number | undefined;
  /** Harbor's `[[tasks]]`: package hash, bare hex, by name; "" where none is given. */
  listed: ReadonlyMap<string, string>;
  /** `tasks` was written below `[dataset]`, where nobody reads it. */
  misplacedTasks: boolean;
}

/** What holds without a dataset.toml. */
export const NO_SETTINGS: DatasetSettings = {
  shownAs: "dataset.toml",
  gym: {},
  multipliers: { timeout: 1, resource: 1 },
  overrides: new Map(),
  raw: { defaults: {}, overrides: new Map() },
  lineOfOverride: () => undefined,
  listed: new Map(),
  misplacedTasks: false,
};

const ENVIRONMENT_KEYS = keyTable(Environment);

/** Reads dataset.toml; null when it refuses, and then no task of the dataset loads. */
export function readDatasetSettings(text: string, findings: Findings, shownAs: string): DatasetSettings | null {
  const parsed = readToml(text);
  const file = "dataset.toml";
  if (!parsed.ok) {
    findings.add("dataset.syntax", { at: shownAs, detail: parsed.message, hint: parsed.hint }, {
      file,
      line: parsed.line,
    });
    return null;
  }
  const raw = parsed.table;
  const listed = listedTasks(raw.tasks);
  const misplacedTasks = at(raw, ["dataset", "tasks"]) !== undefined;
  const rawGym = raw.gym;
  if (rawGym === undefined) return { ...NO_SETTINGS, shownAs, listed, misplacedTasks };
  const before = findings.errors.length;
  if (typeof rawGym !== "object" || rawGym === null || Array.isArray(rawGym)) {
    findings.add("dataset.gym", { at: shownAs, detail: "[gym] must be a table" }, {
      file,
      key: "gym",
      line: lineOfKey(text, ["gym"]),
    });
    return null;
  }
  const checked = Gym.safeParse(rawGym);
  for (const issue of checked.error?.issues ?? []) sayIssue(issue, rawGym, text, findings, shownAs);
  const rawOverrides = new Map(Object.entries(tableOf(at(rawGym, ["tasks"]))));
  if (checked.success) {
    for (const [id, override] of Object.entries(checked.data.tasks ?? {})) {
      overrideRules(id, override, rawOverrides.get(id), text, findings, shownAs);
    }
    sayUnknownValues(checked.data, text, findings, shownAs);
  }
  if (findings.errors.length > before) return null;
  const gym = checked.data!;
  const defaults = gym.defaults ?? {};
  return {
    shownAs,
    gym,
    multipliers: { timeout: defaults.timeout_multiplier ?? 1, resource: defaults.resource_multiplier ?? 1 },
    overrides: new Map(Object.entries(gym.tasks ?? {})),
    raw: { defaults: tableOf(at(rawGym, ["defaults"])) as Defaults, overrides: rawOverrides },
    lineOfOverride: (id) => lineOfKey(text, ["gym", "tasks", id]),
    listed,
    misplacedTasks,
  };
}

const tableOf = (value: unknown): Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? value as Record<string, unknown> : {};

function listedTasks(tasks: unknown): DatasetSettings["listed"] {
  const listed = new Map<string, string>();
  for (const { name, digest } of Array.isArray(tasks) ? tasks.map(tableOf) : []) {
    if (typeof name === "string") listed.set(name, typeof digest === "string" ? digest.replace(/^sha256:/, "") : "");
  }
  return listed;
}

function sayIssue(issue: z.core.$ZodIssue, rawGym: unknown, text: string, findings: Findings, shownAs: string): void {
  const path = issue.path as Path;
  const place = (path: Path) => ({
    file: "dataset.toml",
    key: dotted(["gym", ...path]),
    line: lineOfKey(text, ["gym", ...path]),
  });
  if (issue.code === "unrecognized_keys") {
    const near = issue.keys.map((key) => nearest(key, knownKeys(path))).find((one) => one !== undefined);
    const hint = near === undefined ? `known keys: ${knownKeys(path).join(", ")}` : `did you mean \`${near}\`?`;
    const keys = issue.keys.map((key) => `\`${key}\``).join(", ");
    if (path[0] === "tasks") {
      findings.add(
        "dataset.override",
        { at: shownAs, detail: `${tableName(path)} has unknown keys: ${keys}`, hint },
        place([...path, issue.keys[0]!]),
      );
    } else {
      const where = path.length === 0 ? "" : ` in ${tableName(path)}`;
      findings.add(
        "dataset.gym",
        { at: shownAs, detail: `unknown key ${keys}${where}`, hint },
        place([...path, issue.keys[0]!]),
      );
    }
    return;
  }
  const found = shown(at(rawGym, path));
  const detail = `${dotted(path)} is ${found}, must be ${wanted(issue)}`;
  findings.add("dataset.gym", { at: shownAs, detail }, place(path));
}

const tableName = (path: Path): string =>
  `[gym.${path.map((part, index) => path[0] === "tasks" && index === 1 ? JSON.stringify(part) : part).join(".")}]`;

function knownKeys(path: Path): string[] {
  if (path.length === 0) return Object.keys(Gym.shape);
  if (path[0] === "defaults") return Object.keys(Gym.shape.defaults.unwrap().shape);
  const override = Gym.shape.tasks.unwrap().valueType.shape;
  return path.length === 2 ? Object.keys(override) : Object.keys(override.verifier.unwrap().shape);
}

function wanted(issue: z.core.$ZodIssue): string {
  switch (issue.code) {
    case "invalid_type":
      return {
        string: "text in quotes",
        number: "a number",
        int: "a whole number",
        array: "a list",
        object: "a table",
        record: "a table",
        boolean: "true or false",
      }[
        issue.expected as string
      ] ?? issue.expected;
    case "too_small":
      return issue.inclusive ? `${issue.minimum} or more` : `above ${issue.minimum}`;
    case "invalid_union":
      return "a name or a whole number";
    default:
      return issue.message;
  }
}

/** An override's environment keeps every rule of task.toml; its unknown keys are refused, not warned about. */
function overrideRules(
  id: string,
  override: Override,
  raw: unknown,
  text: string,
  findings: Findings,
  shownAs: string,
): void {
  const table = `[gym.tasks.${JSON.stringify(id)}`;
  const place = (path: Path) => ({
    file: "dataset.toml",
    key: dotted(["gym", "tasks", id, ...path]),
    line: lineOfKey(text, ["gym", "tasks", id, ...path]),
  });
  unknownKeys(ENVIRONMENT_KEYS, at(raw, ["environment"]), (path, known) => {
    findings.add("dataset.override", {
      at: shownAs,
      detail: `${table}.environment] has unknown keys: \`${dotted(path)}\``,
      hint: suggestion(path, known, ENVIRONMENT_KEYS),
    }, place(["environment", ...path]));
  });
  if (override.environment !== undefined) {
    const inner = new Findings();
    const say = sayer(inner, "", "dataset.toml", (path) => lineOfKey(text, ["gym", "tasks", id, ...path]));
    applyRules(
      { environment: override.environment } as TaskToml,
      { environment: at(raw, ["environment"]) as never },
      say,
      false,
    );
    for (const one of inner.errors) {
      findings.add("dataset.override", {
        at: shownAs,
        detail: `${table}]: ${one.message.replace(/^: /, "")}`,
        hint: one.hint,
      }, {
        file: "dataset.toml",
        key: `gym.tasks.${JSON.stringify(id)}.${one.key}`,
        line: one.line,
      });
    }
  }
  for (const [index, input] of (override.verifier?.inputs ?? []).entries()) {
    const fault = inputFault(input);
    if (fault === undefined) continue;
    const detail = `${table}.verifier]: inputs[${index}] is ${shown(input)}, ${fault}`;
    findings.add("dataset.override", { at: shownAs, detail }, place(["verifier", "inputs"]));
  }
}

const RESERVED_INPUTS = ["reward.txt", "reward.json", "test-stdout.txt"];

function inputFault(input: string): string | undefined {
  if (input === "" || input.startsWith("/") || input.includes("\\") || input.split("/").includes("..")) {
    return "must be a relative path below /logs/verifier, without .. or backslash";
  }
  return RESERVED_INPUTS.includes(input) ? "which the verifier itself writes" : undefined;
}

function sayUnknownValues(gym: Gym, text: string, findings: Findings, shownAs: string): void {
  for (const [key, known] of [["license", LICENSES], ["type", TYPES]] as const) {
    const value = gym[key];
    if (value === undefined || known.includes(value)) continue;
    findings.add("dataset.unknown-value", { at: shownAs, key, found: shown(value), wanted: known.join(", ") }, {
      file: "dataset.toml",
      key: `gym.${key}`,
      line: lineOfKey(text, ["gym", key]),
    });
  }
}

/** The task's keys with its override over them: `env` tables merge, every other key replaces. */
export function withOverride(config: TaskToml, override: Override | undefined): TaskToml {
  if (override === undefined) return config;
  const { environment, verifier } = override;
  const singleStep = (config.steps?.length ?? 0) === 0;
  return {
    ...config,
    ...(environment && {
      environment: { ...config.environment, ...environment, env: { ...config.environment?.env, ...environment.env } },
    }),
    ...(verifier && {
      verifier: {
        ...config.verifier,
        ...(verifier.timeout_sec !== undefined && singleStep && { timeout_sec: verifier.timeout_sec }),
        ...(verifier.user !== undefined && { user: verifier.user }),
        env: { ...config.verifier?.env, ...verifier.env },
      },
    }),
  };
}
