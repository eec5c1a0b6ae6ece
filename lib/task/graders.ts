/**
 * Who grades a task or a step, and whether what grades it is there (task-format §5.2, §5.4; Harbor 0.25.0 B, C).
 *
 * NeMo Gym takes tests/test.sh, else tests/verifier.py, else the dataset's verifier.py; Harbor (`strict`) wants the
 * test script of the verifier's system, and anything of that name will do.
 */
import { verifierMode } from "./effective.ts";
import type { TaskFiles } from "./files.ts";
import type { StepToml, TaskToml, VerifierToml } from "./schema.ts";
import type { Grader } from "./task.ts";

type System = "linux" | "windows";

/** Who grades a single-step task; null when the verifier's image brings its tests, or after a fault. */
export function taskGrader(files: TaskFiles, config: TaskToml, datasetVerifier: string | null): Grader | null {
  const { verifier } = config;
  if (verifierMode(verifier) === "separate" && bringsTests(files, [verifier], ["tests"])) return null;
  const script = testScript(systemOf(config, verifier));
  if (files.strict) {
    if (scriptThere(files, "tests", script)) return { kind: "test.sh", tests: files.at("tests") };
    files.say("tests.no-grader", "tests", { wanted: script });
    return null;
  }
  if (files.kind("tests") !== "dir") {
    if (datasetVerifier !== null) return { kind: "python", verifier: datasetVerifier, tests: null };
    files.sayFolder("tests.missing", "tests");
    return null;
  }
  const grader = graderIn(files, "tests");
  if (grader === null) files.say("tests.no-grader", "tests", { wanted: "test.sh or verifier.py" });
  return grader;
}

/** Says what a step lacks to be graded: a script in its own tests folder or the task's. */
export function checkStepGrader(files: TaskFiles, step: StepToml, config: TaskToml): void {
  const own = `steps/${step.name}/tests`;
  const mode = verifierMode(step.verifier) ?? verifierMode(config.verifier) ?? "shared";
  if (mode === "separate" && bringsTests(files, [step.verifier, config.verifier], [own, "tests"])) return;
  const script = testScript(systemOf(config, step.verifier?.environment ? step.verifier : config.verifier));
  const there = (folder: string): boolean =>
    files.strict ? scriptThere(files, folder, script) : graderIn(files, folder) !== null;
  if (there(own) || there("tests")) return;
  files.say("step.tests", "", { step: step.name, first: `${own}/${script}`, second: `tests/${script}` });
}

/** A verifier's own table may name another system than the task's. */
const systemOf = (config: TaskToml, verifier: VerifierToml | undefined): System =>
  verifier?.environment?.os ?? config.environment?.os ?? "linux";

const testScript = (system: System): string => system === "windows" ? "test.bat" : "test.sh";

function graderIn(files: TaskFiles, folder: string): Grader | null {
  const script = `${folder}/test.sh`;
  const module = `${folder}/verifier.py`;
  if (files.kind(script) === "file") {
    mustNotBeIgnored(files, script);
    files.warnOfCrlf(script);
    return { kind: "test.sh", tests: files.at(folder) };
  }
  if (files.kind(module) !== "file") return null;
  mustNotBeIgnored(files, module);
  return { kind: "python", verifier: files.at(module), tests: files.at(folder) };
}

function scriptThere(files: TaskFiles, folder: string, script: string): boolean {
  const path = `${folder}/${script}`;
  if (files.kind(path) === undefined) return false;
  mustNotBeIgnored(files, path);
  files.warnOfCrlf(path);
  return true;
}

function mustNotBeIgnored(files: TaskFiles, path: string): void {
  if (files.isIgnored(path)) files.sayFolder("tests.ignored", path, { file: path });
}

/**
 * Whether a separate verifier's image brings its own tests: a docker_image of its own, or a definition in a tests
 * folder. `verifiers` and `folders` go from the step's to the task's; the first match wins, a table before a folder.
 * Checks the folder that the image is made from, in the end environment/.
 */
function bringsTests(
  files: TaskFiles,
  verifiers: readonly (VerifierToml | undefined)[],
  folders: readonly string[],
): boolean {
  for (const [index, folder] of folders.entries()) {
    if (verifiers[index]?.environment?.docker_image) return true;
    if (!definesImage(files, folder)) continue;
    files.checkContext(folder);
    return true;
  }
  files.checkContext("environment");
  return false;
}

const definesImage = (files: TaskFiles, folder: string): boolean =>
  ["Dockerfile", "docker-compose.yaml"].some((name) => files.kind(`${folder}/${name}`) !== undefined);
