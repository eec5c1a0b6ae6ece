/**
 * The one table of what is wrong with a task or a dataset: a stable code, whether it refuses or warns, the condition,
 * the message and the next step. Texts that task-format §7 gives are its texts. The loader decides when a row holds;
 * nothing else words a fault. `at` is the path of the file or folder as the user named it.
 */
import type { Finding } from "./task.ts";

interface At {
  at: string;
}
interface KeyFault extends At {
  key: string;
  found: string;
  wanted: string;
}
interface Detail extends At {
  detail: string;
}

interface Rule<F> {
  kind: "error" | "warning";
  when: string;
  say(facts: F): string;
  hint?: Hint<F>;
}
/** The next step. An error always has one. */
type Hint<F> = string | ((facts: F) => string | undefined);

const error = <F = At>(when: string, say: (facts: F) => string, hint: Hint<F>): Rule<F> => ({
  kind: "error",
  when,
  say,
  hint,
});
const warning = <F = At>(when: string, say: (facts: F) => string, hint?: Hint<F>): Rule<F> => ({
  kind: "warning",
  when,
  say,
  hint,
});

const CORRECT = "correct the value, or take the key out";
const FORMAT = "a task folder holds task.toml, instruction.md and tests/";

export const REFUSALS = {
  // What was named
  "target.no-tasks": error(
    "no task.toml within six levels",
    (f) => `${f.at} is neither a task folder nor a folder of task folders (no task.toml found)`,
    FORMAT,
  ),
  "task.no-toml": error("a folder loaded as a task has no task.toml", (f) => `${f.at} has no task.toml`, FORMAT),
  "task.symlink": error(
    "a task folder is a symbolic link",
    (f) => `${f.at} is a symbolic link, wanted a real task folder`,
    "copy the folder, or name the place it points to",
  ),
  "task.duplicate-id": error<{ id: string; first: string; second: string }>(
    "two task folders have one name",
    (f) => `task ID '${f.id}' is used by ${f.first} and ${f.second}`,
    "the folder name is the task's ID and must be unique in the dataset: rename one",
  ),
  "task.unreadable": error<Detail>(
    "a file or folder of the task cannot be read",
    (f) => `Cannot read ${f.at}: ${f.detail}`,
    "make it readable for this user (chmod u+rX)",
  ),
  "folder.unreadable": error<Detail & { hint?: string }>(
    "a folder cannot be listed, or a name in it is not UTF-8",
    (f) => `${f.at}: ${f.detail}`,
    (f) => f.hint ?? "make it readable for this user (chmod u+rX)",
  ),
  "folder.name": error(
    "a folder's name is not UTF-8",
    (f) => `Cannot look into ${f.at}: its name is not UTF-8 (U+FFFD stands for each bad byte)`,
    "rename the folder",
  ),
  "task.template": error(
    "tasks.jsonl beside task.toml",
    (f) =>
      `${f.at}/tasks.jsonl makes this folder the template of a parameterized dataset, which is not in this version`,
    "name a folder of finished task folders",
  ),

  // task.toml as a document
  "toml.encoding": error<Detail>("not UTF-8", (f) => `${f.at}: ${f.detail}`, "save the file as UTF-8"),
  "toml.syntax": error<Detail & { hint?: string }>(
    "not TOML",
    (f) => `${f.at}: ${f.detail}`,
    (f) => f.hint ?? "mend that line (the format: https://toml.io/en/v1.0.0)",
  ),
  "toml.type": error<KeyFault & { hint?: string }>(
    "a key has the wrong type or is missing",
    (f) =>
      f.found === "missing"
        ? `${f.at}: ${f.key} is missing, must be ${f.wanted}`
        : `${f.at}: ${f.key} is ${f.found}, must be ${f.wanted}`,
    (f) => f.hint ?? (f.found === "missing" ? "add the key" : CORRECT),
  ),
  "toml.unknown-key": warning<At & { key: string; hint?: string }>(
    "a key that the schema does not have",
    (f) => `${f.at}: ignoring unknown key \`${f.key}\``,
    (f) => f.hint,
  ),
  "toml.range": error<KeyFault & { hint?: string }>(
    "a number outside its range",
    (f) => `${f.at}: ${f.key} is ${f.found}, must be ${f.wanted}`,
    (f) => f.hint ?? CORRECT,
  ),
  "toml.not-finite": error<At & { key: string; found: string }>(
    "NaN or an infinity anywhere",
    (f) => `${f.at}: ${f.key} is ${f.found}, must be a finite number`,
    (f) => f.key.endsWith("timeout_sec") ? "leave timeout_sec out for the default" : CORRECT,
  ),

  // Rules across keys
  "size.invalid": error<KeyFault>(
    "memory or storage is no size",
    (f) => `${f.at}: ${f.key}: Cannot parse size '${f.found}'; expected a number followed by K, M or G`,
    (f) => `write ${f.key.split(".").at(-1)}_mb = <MiB>`,
  ),
  "size.conflict": error<At & { key: string; other: string; old: string; found: string }>(
    "old and new size disagree",
    (f) => `${f.at}: Conflicting \`${f.key}\` and \`${f.other}\`: ${f.old} against ${f.found}`,
    (f) => `keep \`${f.other}\` only`,
  ),
  "size.ignored": warning<KeyFault>(
    "memory or storage is not text",
    (f) => `${f.at}: ignoring ${f.key} = ${f.found}: this old key is read only as text such as "2G"`,
    (f) => `write ${f.key.split(".").at(-1)}_mb = <MiB>`,
  ),
  "network.hosts-without-allowlist": error<At & { key: string; mode: string }>(
    "allowed_hosts without network_mode allowlist",
    (f) => `${f.at}: ${f.key} needs network_mode = "allowlist", found ${f.mode}`,
    "take allowed_hosts out, or set the mode",
  ),
  "network.bad-host": error<KeyFault>(
    "an allowed_hosts entry is no host",
    (f) => `${f.at}: ${f.key} is ${f.found}, must be ${f.wanted}`,
    'name the host alone, such as "pypi.org" or "*.pypi.org"',
  ),
  "network.allowlist": warning<At & { key: string }>(
    "network_mode allowlist, which no sandbox of this version enforces",
    (f) => `${f.at}: ${f.key} is "allowlist", which is not in this version: the task loads and is not run`,
    'use "public" or "no-network" to run it',
  ),
  "network.changes": error<At & { phase: string; found: string }>(
    "steps with different networks",
    (f) => `${f.at}: the ${f.phase}'s network_mode changes between steps (${f.found}), which is not supported`,
    "give all steps one network_mode",
  ),
  "os.windows": error<At & { key: string }>(
    "os windows",
    (f) => `${f.at}: ${f.key} is "windows", must be "linux": only Linux tasks are run here`,
    "leave the task out, or give it a Linux image",
  ),
  "tpu.ignored": warning<At & { key: string }>(
    "a TPU request",
    (f) => `${f.at}: ignoring unknown key \`${f.key}\``,
    "TPUs are not offered here",
  ),
  "mcp.invalid": error<Detail & { hint: string }>(
    "an MCP server lacks its endpoint or has bad headers",
    (f) => `${f.at}: ${f.detail}`,
    (f) => f.hint,
  ),
  "artifact.path": error<KeyFault>(
    "an artifact's source leaves the sandbox or its destination the artifacts folder",
    (f) =>
      `${f.at}: ${f.key}: Artifact paths must stay inside the sandbox and the artifacts folder: ${f.found} (${f.wanted})`,
    "write the path without .. and with forward slashes",
  ),
  "artifact.destination": error<KeyFault>(
    "an artifact's destination is absolute or reserved",
    (f) =>
      f.wanted === "relative"
        ? `${f.at}: ${f.key}: Artifact destination must be relative: ${f.found}`
        : `${f.at}: ${f.key} is ${f.found}, ${f.wanted}`,
    'write a path below the artifacts folder, such as "logs/app.log"',
  ),
  "artifact.sidecar": error<KeyFault>(
    "an artifact of a sidecar has a relative source",
    (f) => `${f.at}: ${f.key} is ${f.found}, must be ${f.wanted}`,
    "write the absolute path inside that service",
  ),
  "artifact.overlap": warning<At & { first: string; second: string }>(
    "two artifacts land in one place",
    (f) => `${f.at}: artifact ${f.second} overlaps ${f.first}; the first is kept, the other skipped`,
    "give one of them another destination",
  ),
  "service.name": error<KeyFault>(
    "a Compose service name is invalid",
    (f) => `${f.at}: ${f.key} is ${f.found}, must be ${f.wanted}`,
    "use the service's name in docker-compose.yaml; main is the task's own",
  ),
  "verifier.shared-environment": error<At & { key: string }>(
    "shared mode with [verifier.environment]",
    (f) => `${f.at}: A shared verifier cannot declare its own [${f.key}]`,
    'take the table out, or set environment_mode = "separate"',
  ),
  "step.name": error<KeyFault>(
    "a step name is no portable folder name",
    (f) => `${f.at}: ${f.key} is ${f.found}, which ${f.wanted}`,
    "use a plain folder name such as `build`",
  ),
  "step.duplicate": error<At & { key: string; found: string; other: string }>(
    "two step names that one file system takes for one",
    (f) => `${f.at}: ${f.key} is ${f.found}, the name of ${f.other} already (case and Unicode form do not count)`,
    "rename one of the steps and its folder",
  ),
  "package.name": error<KeyFault>(
    "[task].name is no org/name (--strict)",
    (f) => `${f.at}: ${f.key} is ${f.found}, must be ${f.wanted}`,
    "such as my-org/my-task",
  ),
  "package.unnamed": warning(
    "[task] without name",
    (f) => `${f.at}: [task] has no name; the folder's name is used (Harbor refuses this)`,
    'add name = "org/name"',
  ),

  // Files of a task
  "instruction.missing": error(
    "no instruction.md",
    (f) => `${f.at} has no instruction.md`,
    "write the agent's prompt to instruction.md",
  ),
  "instruction.encoding": error<Detail>(
    "an instruction is not UTF-8",
    (f) => `${f.at}: ${f.detail}`,
    "save the file as UTF-8",
  ),
  "tests.missing": error("no tests/", (f) => `${f.at} has no tests/ folder`, "put the verifier into tests/test.sh"),
  "tests.no-grader": error<At & { wanted: string }>(
    "tests/ without a grader",
    (f) => `${f.at} has no ${f.wanted}`,
    "write the reward to /logs/verifier/reward.txt from there",
  ),
  "tests.ignored": error<At & { file: string }>(
    ".harborignore hides the script that must run",
    (f) => `${f.at}: Required task input is excluded by .harborignore: ${f.file}`,
    "take the pattern out of .harborignore, or add an exception (!name)",
  ),
  "solution.ignored": warning<At & { file: string }>(
    ".harborignore hides the solution",
    (f) => `${f.at}: ${f.file} is excluded by .harborignore; the oracle will not find it`,
    "take the pattern out of .harborignore",
  ),
  "harborignore.invalid": error<Detail>(
    "a .harborignore cannot be read",
    (f) => `${f.at}: ${f.detail}`,
    "make it a plain UTF-8 text file inside the task",
  ),
  "script.crlf": warning<At>(
    "a script has CRLF line endings",
    (f) => `${f.at} has CRLF line endings; bash will not run it as meant`,
    (f) => `convert it: sed -i 's/\\r$//' ${f.at}`,
  ),
  "environment.missing": error(
    "neither environment/ nor docker_image",
    (f) => `${f.at} has no environment/ folder and task.toml names no [environment].docker_image`,
    "add environment/Dockerfile, or set docker_image",
  ),
  "environment.not-a-folder": error(
    "environment is a file",
    (f) => `${f.at} is a file, must be a folder`,
    "move it to environment/Dockerfile if that is what it is",
  ),
  "image.none": warning<{ id: string; at: string; hint?: string }>(
    "no image and nothing to build one from",
    (f) =>
      `Task '${f.id}' declares no image: only --sandbox host can run it (${f.at} has no Dockerfile or docker-compose.yaml, and task.toml no docker_image)`,
    (f) => f.hint ?? "add environment/Dockerfile, or set [environment].docker_image, for a container engine",
  ),
  "compose.refused": warning<At & { reason: string; hint: string }>(
    "a Compose file asks for what no group of sandboxes gives",
    (f) => `${f.at}: ${f.reason}`,
    (f) => f.hint,
  ),
  "dockerfile.unreadable": error<Detail>(
    "a Dockerfile cannot be read",
    (f) => `${f.at}: ${f.detail}`,
    "save it as UTF-8, readable for this user",
  ),
  "step.folder": error(
    "a step's folder is missing",
    (f) => `Step directory not found: ${f.at}`,
    "create it, or fix [[steps]].name",
  ),
  "step.instruction": error(
    "a step's instruction.md is missing",
    (f) => `Step instruction not found: ${f.at}`,
    "write the step's prompt there",
  ),
  "step.tests": error<At & { step: string; first: string; second: string }>(
    "a step has no test script in either tests folder",
    (f) => `${f.at}: step '${f.step}' has no test script, expected ${f.first} or ${f.second}`,
    "write that step's verifier there",
  ),
  "link.escapes": error<At & { file: string }>(
    "a link leads out of the task",
    (f) => `${f.at}: Task file escapes the task folder: ${f.file}`,
    "copy what it points to into the task",
  ),
  "link.cycle": error<At & { file: string }>(
    "links to folders form a cycle",
    (f) => `${f.at}: links to folders must not form a cycle: ${f.file}`,
    "remove the link",
  ),
  "link.folder": error<At & { file: string }>(
    "a linked folder inside what the digest covers",
    (f) => `${f.at}: ${f.file} is a symbolic link to a folder, which no digest covers`,
    "copy the folder it points to into the task",
  ),
  "file.special": error<At & { file: string }>(
    "a FIFO, socket or device inside the task",
    (f) => `${f.at}: ${f.file} is neither a file nor a folder`,
    "remove it",
  ),
  "digest.failed": error<Detail & { hint?: string }>(
    "no digest can be computed",
    (f) => `${f.at}: ${f.detail}`,
    (f) => f.hint ?? "mend or remove that file",
  ),
  "task-data.invalid": error<Detail>(
    "task_data.json is no JSON object",
    (f) => `${f.at}: ${f.detail}`,
    "write one JSON object, as UTF-8",
  ),
  "task-data.reserved": error<At & { key: string }>(
    "a field begins with _ng_",
    (f) => `${f.at}: field '${f.key}' is reserved (names that begin with _ng_)`,
    "rename the field",
  ),
  "trajectory.ignored": warning(
    "a trajectory.json lies in the task",
    (f) => `${f.at} is a seed trajectory, which is not sent to agents here`,
    "remove it if it is not wanted",
  ),
  "separate.no-artifacts": warning(
    "a separate verifier without artifacts",
    (f) =>
      `${f.at}: the verifier runs in a sandbox of its own and no artifacts are declared: only /logs/artifacts reaches it`,
    "declare artifacts = [...] above the first table header",
  ),

  // dataset.toml
  "dataset.syntax": error<Detail & { hint?: string }>(
    "dataset.toml is not TOML",
    (f) => `${f.at}: ${f.detail}`,
    (f) => f.hint ?? "mend that line (the format: https://toml.io/en/v1.0.0)",
  ),
  "dataset.gym": error<Detail & { hint?: string }>(
    "[gym] has a wrong or unknown key",
    (f) => `${f.at} [gym]: ${f.detail}`,
    (f) => f.hint ?? CORRECT,
  ),
  "dataset.override": error<Detail & { hint?: string }>(
    "a [gym.tasks] table has wrong or unknown keys",
    (f) => `${f.at} ${f.detail}`,
    (f) => f.hint ?? CORRECT,
  ),
  "dataset.override-unknown-task": error<At & { id: string; near?: string }>(
    "an override for a task that is not there",
    (f) => `${f.at} [gym.tasks."${f.id}"] names no task folder`,
    (f) => f.near === undefined ? "remove the table, or fix the task's ID" : `did you mean "${f.near}"?`,
  ),
  "dataset.misplaced-tasks": error(
    "tasks below [dataset], and no task folder",
    (f) => `${f.at}: dataset has no tasks; found dataset.tasks`,
    "write [[tasks]] above [dataset] or as a table of its own, and put the task folders beside dataset.toml",
  ),
  "dataset.misplaced-tasks-ignored": warning(
    "tasks below [dataset] beside task folders",
    (f) => `${f.at}: dataset.tasks is not read; the task folders are the dataset`,
    "write [[tasks]] as a table of its own",
  ),
  "dataset.listed-missing": error<At & { count: number; first: string }>(
    "dataset.toml lists tasks, and no task folder is there",
    (f) => `${f.at} lists ${f.count} tasks (${f.first}, …), but no task folder lies beside it`,
    "fetch or copy the task folders here first",
  ),
  "dataset.digest-differs": warning<At & { name: string; listed: string; found: string }>(
    "a digest in [[tasks]] is not the folder's (a note: local folders change)",
    (f) => `${f.at} lists ${f.name} with digest ${f.listed}…, the folder has ${f.found}…`,
    "update dataset.toml when the change is meant",
  ),
  "dataset.unknown-value": warning<KeyFault>(
    "an unknown license or type",
    (f) => `${f.at} [gym]: ${f.key} is ${f.found}, known are ${f.wanted}`,
  ),
  "dataset.inputs-without-compose": warning<At & { id: string }>(
    "verifier inputs on a task without Compose",
    (f) => `${f.at} [gym.tasks."${f.id}".verifier]: inputs are files of a sidecar, and the task has none`,
  ),
  "dataset.task-data-model": warning(
    "task_data.py is there",
    (f) => `${f.at}: the TaskData model is not applied in this version; fields are taken as they are`,
  ),
  "dataset.linked-folder": warning(
    "a linked folder below the dataset",
    (f) => `${f.at} is a symbolic link and is not searched for tasks`,
    "name the place it points to",
  ),
};

export type RefusalCode = keyof typeof REFUSALS;

type Facts<C extends RefusalCode> = (typeof REFUSALS)[C] extends Rule<infer F> ? F : never;

/** Where a finding stands, for programs; the message says it in words. */
export interface Place {
  key?: string;
  file?: string;
  line?: number;
}

/** Collects what is wrong, in order. */
export class Findings {
  readonly errors: Finding[] = [];
  readonly warnings: Finding[] = [];

  add<C extends RefusalCode>(code: C, facts: Facts<C>, place: Place = {}): void {
    const rule = REFUSALS[code] as unknown as Rule<Facts<C>>;
    const hint = typeof rule.hint === "function" ? rule.hint(facts) : rule.hint;
    const finding: Finding = {
      code,
      ...(place.key !== undefined && { key: place.key }),
      message: rule.say(facts),
      ...(hint !== undefined && { hint }),
      ...(place.file !== undefined && { file: place.file }),
      ...(place.line !== undefined && { line: place.line }),
    };
    (rule.kind === "error" ? this.errors : this.warnings).push(finding);
  }
}

/** A value as messages show it: JSON, cut short. */
export function shown(value: unknown): string {
  if (value === undefined) return "missing";
  const text = typeof value === "bigint" || typeof value === "number"
    ? pythonLike(value)
    : JSON.stringify(value) ?? String(value);
  return text.length > 80 ? `${text.slice(0, 77)}…` : text;
}

const pythonLike = (value: number | bigint): string =>
  Number.isNaN(value) ? "nan" : value === Infinity ? "inf" : value === -Infinity ? "-inf" : String(value);
