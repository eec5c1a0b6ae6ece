/**
 * The files of a task, by who reads them: instructions, solutions, steps, task_data.json. Each question answers what was
 * found and says what is wrong; none stops at the first fault. Who grades is in graders.ts.
 */
import { HarborError, messageOf } from "../errors.ts";
import type { FileReader } from "../digest/reader.ts";
import type { TaskTree } from "../digest/tree.ts";
import { withoutCanary } from "./canary.ts";
import { harborLinkFaults, type LinkFault, linkFaults } from "./containment.ts";
import type { Findings, RefusalCode, REFUSALS } from "./refusals.ts";
import { hasCrlf, readTextFile } from "./read.ts";
import type { Solution } from "./task.ts";

type FactsOf<C extends RefusalCode> = Parameters<(typeof REFUSALS)[C]["say"]>[0];

export class TaskFiles {
  #said = new Set<string>();

  constructor(
    readonly tree: TaskTree,
    readonly reader: FileReader,
    readonly shownAs: string,
    readonly findings: Findings,
    readonly strict: boolean,
  ) {}

  /** Says a finding about a path of the task ("" for the folder itself); once, however many steps meet it. */
  say<C extends RefusalCode>(code: C, file: string, facts: Omit<FactsOf<C>, "at">): void {
    this.#add(code, file === "" ? this.shownAs : `${this.shownAs}/${file}`, file, facts);
  }

  /** Says a finding about the folder that stands in one of its files. */
  sayFolder<C extends RefusalCode>(code: C, file: string, facts: Omit<FactsOf<C>, "at"> = {} as never): void {
    this.#add(code, this.shownAs, file, facts);
  }

  #add<C extends RefusalCode>(code: C, at: string, file: string, facts: Omit<FactsOf<C>, "at">): void {
    const key = JSON.stringify([code, file, facts]);
    if (this.#said.has(key)) return;
    this.#said.add(key);
    this.findings.add(code, { at, ...facts } as never, file === "" ? {} : { file });
  }

  /** Absolute path. */
  at(path: string): string {
    return this.tree.at(path);
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

  /** Whether anything but folders lies below. */
  holdsFiles(folder: string): boolean {
    return this.tree.below(folder).some(({ kind }) => kind === "file" || kind === "link");
  }

  dockerfile(path: string): { path: string; text: string } | undefined {
    const read = readTextFile(this.at(path), this.reader);
    if (read.ok) return { path: this.at(path), text: read.text };
    this.say("dockerfile.unreadable", path, { detail: read.detail });
    return undefined;
  }

  instruction(path: string): string {
    const read = readTextFile(this.at(path), this.reader);
    if (read.ok) return withoutCanary(read.text);
    if (read.fault !== "missing") {
      this.say(read.fault === "encoding" ? "instruction.encoding" : "task.unreadable", path, { detail: read.detail });
    } else if (path === "instruction.md") {
      this.sayFolder("instruction.missing", path);
    } else {
      this.say("step.instruction", path, {});
    }
    return "";
  }

  /** Whether `.harborignore` leaves a path out. */
  isIgnored(path: string): boolean {
    return this.tree.ignore().excludes(path, this.kind(path) === "dir" ? "dir" : "file");
  }

  warnOfCrlf(path: string): void {
    if (hasCrlf(this.at(path), this.reader)) this.say("script.crlf", path, {});
  }

  /** A build context is read whole: `.harborignore` does not help there. Only Harbor looks at it when loading. */
  checkContext(folder: string): void {
    if (this.strict) this.#sayLinks(harborLinkFaults(this.tree, [folder], false));
  }

  /** What stands as reference solution in a folder; solve.sh before answer.md. */
  solution(folder: string): Solution | null {
    const script = `${folder}/solve.sh`;
    if (this.kind(script) === "file") {
      if (this.isIgnored(script)) this.sayFolder("solution.ignored", script, { file: script });
      this.warnOfCrlf(script);
      return { kind: "solve.sh", folder: this.at(folder) };
    }
    const answer = `${folder}/answer.md`;
    return this.kind(answer) === "file" ? { kind: "answer.md", path: this.at(answer) } : null;
  }

  /** A step's instruction and solution; null when its folder is missing, which is said. */
  step(name: string): { instruction: string; solution: Solution | null } | null {
    const folder = `steps/${name}`;
    if (this.kind(folder) !== "dir") {
      this.say("step.folder", folder, {});
      return null;
    }
    this.warnOfCrlf(`${folder}/workdir/setup.sh`);
    const instruction = this.instruction(`${folder}/instruction.md`);
    return { instruction, solution: this.solution(`${folder}/solution`) ?? this.solution("solution") };
  }

  /** The task's own fields; {} when there are none or after a fault. */
  taskData(): Record<string, unknown> {
    const file = "task_data.json";
    if (this.strict || !this.has(file)) return {};
    const read = readTextFile(this.at(file), this.reader);
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
      this.sayFolder("harborignore.invalid", String(error.details.file), { detail: error.message });
    }
  }

  #hasLinks(scope: string): boolean {
    const top = scope.split("/")[0]!;
    return this.tree.root().some((entry) => entry.name === top && entry.kind === "link") ||
      this.tree.below(top).some(({ kind }) => kind === "link");
  }

  #sayLinks(faults: readonly LinkFault[]): void {
    for (const { code, file } of faults) this.sayFolder(code, file, { file });
  }
}
