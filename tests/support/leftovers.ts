/**
 * What a run of the program left on this machine: processes, containers, mounts and temp folders. A run is known by
 * `Trace`: its pid is a label of its containers, its TMPDIR holds its folders, and its mark is in the environment of
 * what it starts here and in the argv of what its tasks start.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import type { SandboxName } from "./kit.ts";
import type { TempFolder } from "./tasks.ts";

export class Trace {
  /** A number for `sleep` in tasks: no other process has it in its argv. */
  readonly mark = `7${Math.floor(Math.random() * 1e9)}`;
  readonly tmp: string;
  readonly pids: number[] = [];

  constructor(folder: TempFolder, private readonly sandbox: SandboxName) {
    this.tmp = folder.join("tmp");
    mkdirSync(this.tmp, { mode: 0o1777 });
  }

  /** Environment for the program, by which its children are known. */
  get env(): Record<string, string> {
    return { TMPDIR: this.tmp, XDG_RUNTIME_DIR: this.tmp, GH_TEST_MARK: this.mark };
  }

  /** Living processes that the run started, on this machine or in its sandboxes. */
  processes(): string[] {
    return readdirSync("/proc").filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid).flatMap((pid) => {
      const argv = readProc(pid, "cmdline");
      const isOurs = argv.includes(this.mark) || readProc(pid, "environ").includes(`GH_TEST_MARK=${this.mark}`);
      if (!isOurs || this.pids.includes(Number(pid))) return [];
      return [`process ${pid}: ${argv.slice(0, 160)} (${readProc(pid, "stat").slice(0, 60)})`];
    });
  }

  containers(): string[] {
    if (this.sandbox === "host" || this.sandbox === "namespace") return [];
    return this.pids.flatMap((pid) => {
      const listed = spawnSync(this.sandbox, [
        "ps",
        "-a",
        "--filter",
        `label=gym-harbor.pid=${pid}`,
        "--format",
        "{{.Names}}",
      ], {
        encoding: "utf8",
      });
      return listed.stdout.split("\n").filter((name) => name !== "").map((name) => `container ${name}`);
    });
  }

  mounts(): string[] {
    return readFileSync("/proc/self/mountinfo", "utf8").split("\n").filter((line) => line.includes(this.tmp))
      .map((line) => `mount ${line.split(" ")[4]}`);
  }

  folders(): string[] {
    return existsSync(this.tmp) ? readdirSync(this.tmp).map((name) => `folder ${join(this.tmp, name)}`) : [];
  }

  /** Everything of the above. */
  leftovers(): string[] {
    return [...this.processes(), ...this.containers(), ...this.mounts(), ...this.folders()];
  }

  /** Waits until `what` gives nothing, at most `ms`; returns what is still there. */
  async gone(what: () => string[], ms: number): Promise<string[]> {
    const until = performance.now() + ms;
    let left = what();
    while (left.length > 0 && performance.now() < until) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      left = what();
    }
    return left;
  }
}

function readProc(pid: string, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, "utf8").replaceAll("\0", " ");
  } catch {
    return ""; // it ended meanwhile, or is not ours to read
  }
}
