/**
 * The files a task must have, by who reads them: instructions, graders, solutions, steps, task_data.json. Each question
 * answers what was found and says what is wrong; none stops at the first fault.
 */
import { HarborError, messageOf } from "../errors.ts";
import type { FileReader } from "../digest/reader.ts";
import type { TaskTree } from "../digest/tree.ts";
import { withoutCanary } from "./canary.ts";
import { harborLinkFaults, linkFaults } from "./containment.ts";
import { verifierMode } from "./effective.ts";
import type { Findings, RefusalCode, REFUSALS } from "./refusals.ts";
import { hasCrlf, readTextFile } from "./read.ts";
import type { StepToml, VerifierToml } from "./schema.ts";
import type { Grader, Solution } from "./task.ts";

type FactsOf<C extends RefusalCode> = Parameters<(typeof REFUSALS)[C]["say"]>[0];

export interface GraderQuestion {
  verifier: VerifierToml | undefined;
  mode: "shared" | "separate";
  os: "linux" | "windows";
  /** The dataset's verifier.py. */
  datasetVerifier: string | null;
}

export class TaskFiles {
  constructor(
    readonly tree: TaskTree,
    readonly reader: FileReader,
    readonly shownAs: string,
    readonly findings: Findings,
    readonly strict: boolean,
  ) {}

  /** Says a finding about a path of the task ("" for the folder itself). */
  say<C extends RefusalCode>(code: C, file: string, facts: Omit<FactsOf<C>, "at">): void {
    const at = file === "" ? this.shownAs : `${this.shownAs}/${file}`;
    this.findings.add(code, { at, ...facts } as never, file === "" ? {} : { file });
  }

  /** Whether the root has an entry of that name. */
  has(name: string): boolean {
    return this.tree.root().some((entry) => entry.name === name);
  }

  /** What lies at a path, links followed. The listing answers, so that the usual question costs no call. */
  kind(path: string): "file" | "dir" | "other" | undefined {
    const top = path.split("/", 1)[0]!;
    const entries = top === path ? this.tree.root() : this.tree.below(top);
    const listed = entries.find((entry) => entry.path === path)?.kind;
    if (listed !== undefined && listed !== "link") return listed;
    // What a listing lacks may lie behind a link, where the walk does not go.
    if (listed === undefined && !entries.some(({ kind }) => kind === "link")) return undefined;
    const target = this.tree.target(path);
    return target === undefined ? undefined : target.isFile() ? "file" : target.isDirectory() ? "dir" : "other";
  }

  isFile(path: string): boolean {
    return this.kind(path) === "file";
  }

  /** Whether anything but folders lies below. */
  holdsFiles(folder: string): boolean {
    return this.tree.below(folder).some(({ kind }) => kind === "file" || kind === "link");
  }

  dockerfile(path: string): { path: string; text: string } | undefined {
    const read = readTextFile(this.tree.at(path), this.reader);
    if (read.ok) return { path: this.tree.at(path), text: read.text };
    this.say("dockerfile.unreadable", path, { detail: read.detail });
    return undefined;
  }

  instruction(path: string): string {
    const read = readTextFile(this.tree.at(path), this.reader);
    if (read.ok) return withoutCanary(read.text);
    if (read.fault !== "missing") {
      this.say(read.fault === "encoding" ? "instruction.encoding" : "task.unreadable", path, { detail: read.detail });
    } else if (path === "instruction.md") {
      this.findings.add("instruction.missing", { at: this.shownAs }, { file: path });
    } else {
      this.say("step.instruction", path, {});
    }
    return "";
  }

  /** Who grades a single-step task; null when the verifier's image brings its tests, or after a fault. */
  grader(question: GraderQuestion): Grader | null {
    if (question.mode === "separate" && this.#bringsTests(question.verifier, ["tests"])) return null;
    const script = testScript(question.os);
    if (this.strict) {
      if (this.#scriptThere("tests", script)) return { kind: "test.sh", tests: this.tree.at("tests") };
      this.say("tests.no-grader", "tests", { wanted: script });
      return null;
    }
    if (this.kind("tests") !== "dir") {
      if (question.datasetVerifier !== null) return { kind: "python", verifier: question.datasetVerifier, tests: null };
      this.findings.add("tests.missing", { at: this.shownAs }, { file: "tests" });
      return null;
    }
    return this.#graderIn("tests") ?? this.#noGrader("tests");
  }

  #graderIn(folder: string): Grader | null {
    const script = `${folder}/test.sh`;
    const module = `${folder}/verifier.py`;
    if (this.isFile(script)) {
      this.#notIgnored(script);
      this.#warnOfCrlf(script);
      return { kind: "test.sh", tests: this.tree.at(folder) };
    }
    if (!this.isFile(module)) return null;
    this.#notIgnored(module);
    return { kind: "python", verifier: this.tree.at(module), tests: this.tree.at(folder) };
  }

  #noGrader(folder: string): null {
    this.say("tests.no-grader", folder, { wanted: "test.sh or verifier.py" });
    return null;
  }

  /** Harbor's question: anything of that name counts, a folder too; an excluded one is a fault of its own. */
  #scriptThere(folder: string, script: string): boolean {
    const path = `${folder}/${script}`;
    if (this.kind(path) === undefined) return false;
    this.#notIgnored(path);
    this.#warnOfCrlf(path);
    return true;
  }

  #notIgnored(path: string): void {
    if (this.tree.ignore().excludes(path, this.kind(path) === "dir" ? "dir" : "file")) {
      this.findings.add("tests.ignored", { at: this.shownAs, file: path }, { file: path });
    }
  }

  #warnOfCrlf(path: string): void {
    if (hasCrlf(this.tree.at(path), this.reader)) this.say("script.crlf", path, {});
  }

  /**
   * Whether a separate verifier's image brings its own tests: a docker_image of its own, or a definition in a tests
   * folder (Harbor 0.25.0; the first match wins). Checks the folder the image is made from.
   */
  #bringsTests(task: VerifierToml | undefined, folders: readonly string[], step?: VerifierToml): boolean {
    const [own, shared] = folders.length > 1 ? folders : [undefined, folders[0]];
    if (step?.environment?.docker_image) return true;
    if (own !== undefined && this.#definesImage(own)) return this.#checkContext(own);
    if (task?.environment?.docker_image) return true;
    if (this.#definesImage(shared!)) return this.#checkContext(shared!);
    this.#checkContext("environment");
    return false;
  }

  #definesImage(folder: string): boolean {
    return ["Dockerfile", "docker-compose.yaml"].some((name) => this.kind(`${folder}/${name}`) !== undefined);
  }

  /** A build context is read whole: `.harborignore` does not help there. */
  #checkContext(folder: string): true {
    if (this.strict) this.#sayLinks(harborLinkFaults(this.tree, [folder], false));
    return true;
  }

  solution(folder: string): Solution | null {
    const script = `${folder}/solve.sh`;
    if (this.isFile(script)) {
      if (this.tree.ignore().excludes(script, "file")) {
        this.findings.add("solution.ignored", { at: this.shownAs, file: script }, { file: script });
      }
      this.#warnOfCrlf(script);
      return { kind: "solve.sh", folder: this.tree.at(folder) };
    }
    return this.isFile(`${folder}/answer.md`) ? { kind: "answer.md", path: this.tree.at(`${folder}/answer.md`) } : null;
  }

  /** A step's instruction and solution; says what its folder lacks. */
  step(
    step: StepToml,
    task: VerifierToml | undefined,
    os: "linux" | "windows",
  ): { instruction: string; solution: Solution | null } {
    const folder = `steps/${step.name}`;
    if (this.kind(folder) !== "dir") {
      this.say("step.folder", folder, {});
      return { instruction: "", solution: null };
    }
    const instruction = this.instruction(`${folder}/instruction.md`);
    const mode = verifierMode(step.verifier) ?? verifierMode(task) ?? "shared";
    const own = `${folder}/tests`;
    if (mode === "shared" || !this.#bringsTests(task, [own, "tests"], step.verifier)) {
      this.#stepGrader(step.name, own, os);
    }
    for (const script of [`${folder}/workdir/setup.sh`]) this.#warnOfCrlf(script);
    return { instruction, solution: this.solution(`${folder}/solution`) ?? this.solution("solution") };
  }

  #stepGrader(step: string, own: string, os: "linux" | "windows"): void {
    const script = testScript(os);
    const there = (folder: string): boolean =>
      this.strict ? this.#scriptThere(folder, script) : this.#graderIn(folder) !== null;
    if (!there(own) && !there("tests")) {
      this.say("step.tests", "", { step, first: `${own}/${script}`, second: `tests/${script}` });
    }
  }

  /** The task's own fields; {} when there are none or after a fault. */
  taskData(): Record<string, unknown> {
    const file = "task_data.json";
    if (this.strict || !this.has(file)) return {};
    const read = readTextFile(this.tree.at(file), this.reader);
    if (!read.ok) {
      this.say("task-data.invalid", file, { detail: read.detail });
      return {};
    }
    let value: unknown;
    try {
      value = JSON.parse(read.text);
    } catch (error) {
      this.say("task-data.invalid", file, { detail: `is not valid JSON: ${messageOf(error).replace(/\s+/g, " ")}` });
      return {};
    }
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      this.say("task-data.invalid", file, {
        detail: `holds ${read.text.trim().slice(0, 40)}, must be one JSON object`,
      });
      return {};
    }
    for (const key of Object.keys(value).filter((one) => one.startsWith("_ng_"))) {
      this.say("task-data.reserved", file, { key });
    }
    return value as Record<string, unknown>;
  }

  /** Links that lead out, and what else must not lie in a task; `.harborignore` files that cannot be read. */
  checkLinks(steps: readonly string[]): void {
    try {
      this.tree.ignore();
      if (this.strict) {
        const scopes = ["tests", "solution", ...steps.map((step) => `steps/${step}`)].filter((scope) =>
          this.#hasLinks(scope)
        );
        this.#sayLinks(harborLinkFaults(this.tree, scopes, true));
      } else {
        this.#sayLinks(linkFaults(this.tree));
      }
    } catch (error) {
      if (!(error instanceof HarborError) || error.details?.file === undefined) throw error;
      this.findings.add("harborignore.invalid", { at: this.shownAs, detail: error.message }, {
        file: String(error.details?.file ?? ".harborignore"),
      });
    }
  }

  #hasLinks(scope: string): boolean {
    const top = scope.split("/")[0]!;
    return this.tree.root().some((entry) => entry.name === top && entry.kind === "link") ||
      this.tree.below(top).some(({ kind }) => kind === "link");
  }

  #sayLinks(faults: ReturnType<typeof linkFaults>): void {
    for (const { code, file } of faults) {
      if (!this.findings.errors.some((one) => one.code === code && one.file === file)) {
        this.findings.add(code, { at: this.shownAs, file }, { file });
      }
    }
  }
}

const testScript = (os: "linux" | "windows"): string => os === "windows" ? "test.bat" : "test.sh";
