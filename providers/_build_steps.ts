/** Applies the steps of a Dockerfile in a sandbox, within one deadline. */
import { readFileSync, statSync } from "node:fs";
import { posix } from "node:path";
import { HarborError } from "../lib/errors.ts";
import type { Clock } from "../lib/runtime/clock.ts";
import type { Command, ExecResult, HostTree, Sandbox } from "../lib/sandbox/provider.ts";
import type { CopyStep, StageCopyStep, Step } from "./_build_plan.ts";
import type { FoundInside } from "./_namespace_files.ts";
import type { BuildTool } from "./_namespace_tools.ts";

/** A sandbox to build in. */
export interface BuildBox extends Sandbox {
  /** Sees what a command prints as it arrives. */
  exec(command: Command & { onOutput?: (chunk: Uint8Array) => void }, signal: AbortSignal): Promise<ExecResult>;
  /** Folders with their parents; new ones belong to `user` ("" is root). */
  makeFolders(paths: readonly string[], user: string, signal: AbortSignal): Promise<void>;
  /** Whether a folder stands at a path, links followed as the sandbox's programs would. */
  isFolder(path: string): boolean;
  /** What a path, patterns allowed, means below the folder `jail`, as programs would see it with that as their root. */
  find(jail: string, pattern: string): FoundInside[];
  /** Runs a program of ours as root. */
  tool(name: BuildTool, args: readonly string[], deadlineMs: number, signal: AbortSignal): Promise<ExecResult>;
  /** `--chown` as ids (`1000:1000`), by the sandbox's own account files. Throws "sandbox.failed" for an unknown name. */
  idsOf(owner: string): string;
  /** Ends it and keeps its writes: shown folder, or `/` → folder of this machine. Undefined where that cannot be. */
  harvest(): Promise<Readonly<Record<string, string>> | undefined>;
}

export interface ApplyRequest {
  /** For messages. */
  taskId: string;
  /** `on this machine`, `in a sandbox of the base image`. */
  where: string;
  /** What helps against a RUN line that fails. */
  hint: string;
  deadlineMs: number;
  clock: Clock;
  /** Sees what is run and printed. */
  log?: (text: string | Uint8Array) => void;
  /** Carries out COPY --from. */
  copyFromStage?: (step: StageCopyStep, leftMs: number) => Promise<void>;
}

export interface CopiedFile {
  /** Absolute path in the sandbox. */
  to: string;
  from: { path: string; kind: "file" | "link" | "folder" } | { data: string };
}

/** Where the files of a COPY land; a folder's contents land in the target, the folder itself is made. Pure. */
export function placed(
  { sources, target, intoFolder }: Pick<CopyStep, "sources" | "target" | "intoFolder">,
  isFolder: (path: string) => boolean,
): CopiedFile[] {
  const into = intoFolder || isFolder(target);
  return sources.flatMap((source): CopiedFile[] => {
    if (source.kind === "folder") {
      return source.entries.map(({ name, path, kind }) => ({ to: posix.join(target, name), from: { path, kind } }));
    }
    const to = into ? posix.join(target, source.name) : target;
    return [{ to, from: source.kind === "data" ? { data: source.data } : { path: source.path, kind: "file" } }];
  });
}

/** Throws "image.failed" with the end of what a RUN printed. */
export async function applySteps(
  box: BuildBox,
  steps: readonly Step[],
  request: ApplyRequest,
  signal: AbortSignal,
): Promise<void> {
  const { clock, deadlineMs, taskId, log = () => {} } = request;
  const over = clock.ticks() + deadlineMs;
  for (const step of steps) {
    const leftMs = over - clock.ticks();
    if (leftMs <= 0) {
      throw new HarborError("image.failed", `${taskId}: its Dockerfile took longer than ${deadlineMs / 1000} s`, {
        details: { class: "timeout" },
      });
    }
    switch (step.kind) {
      case "folder":
        await box.makeFolders([step.path], step.user, signal);
        break;
      case "copy":
        log(`COPY line ${step.line} -> ${step.target}\n`);
        await copy(box, step, leftMs, taskId, signal);
        break;
      case "stage-copy":
        log(`COPY --from=${step.from} line ${step.line} -> ${step.target}\n`);
        await request.copyFromStage!(step, leftMs);
        break;
      case "run":
        log(`RUN line ${step.line}: ${step.argv.join(" ")}\n`);
        await run(box, step, leftMs, request, signal);
    }
  }
}

async function run(
  box: BuildBox,
  step: Extract<Step, { kind: "run" }>,
  deadlineMs: number,
  { taskId, where, hint, log }: ApplyRequest,
  signal: AbortSignal,
): Promise<void> {
  const caches = await beginCaches(box, step.caches, deadlineMs, taskId, signal);
  const done = await box.exec({
    run: { argv: step.argv },
    purpose: "server",
    cwd: step.cwd,
    env: step.env,
    user: step.user || "root",
    deadlineMs,
    ...(log !== undefined && { onOutput: log }),
  }, signal);
  if (done.ended === "exit" && done.exitCode === 0) return await caches();
  const why = done.ended === "deadline" ? "took longer than the build may" : `ended with exit code ${done.exitCode}`;
  const tail = `${done.stdout}\n${done.stderr}`.trim().split("\n").slice(-12).join("\n");
  throw new HarborError(
    "image.failed",
    `${taskId}: RUN of line ${step.line} of the Dockerfile ${why} ${where}\n${tail}`,
    {
      hint,
      details: { class: done.ended === "deadline" ? "timeout" : "build" },
    },
  );
}

/** A cache's folder is there while the line runs; what the line leaves in it is no part of the image. */
async function beginCaches(
  box: BuildBox,
  caches: readonly string[],
  deadlineMs: number,
  taskId: string,
  signal: AbortSignal,
): Promise<() => Promise<void>> {
  if (caches.length === 0) return () => Promise.resolve();
  const doing = `${taskId}: a cache of the Dockerfile`;
  await box.makeFolders(caches, "", signal);
  const listed = await box.exec({
    run: { argv: ["sh", "-c", 'for d do ls -A "$d" | sed "s|^|$d/|"; done', "sh", ...caches] },
    purpose: "server",
    user: "root",
    cwd: "/",
    deadlineMs,
  }, signal);
  const kept = listed.stdout.split("\n").filter((line) => line !== "");
  const script = 'n=$1; shift; i=0; k=; while [ $i -lt $n ]; do k="$k\n$1"; shift; i=$((i+1)); done; ' +
    'for d do for f in "$d"/* "$d"/.[!.]*; do printf "%b\\n" "$k" | grep -qxF -e "$f" || rm -rf -- "$f"; done; done';
  const argv = ["sh", "-c", script, "sh", String(kept.length), ...kept, ...caches];
  return () => asRoot(box, { argv }, deadlineMs, doing, signal);
}

async function copy(
  box: BuildBox,
  step: CopyStep,
  deadlineMs: number,
  taskId: string,
  signal: AbortSignal,
): Promise<void> {
  const doing = `${taskId}: line ${step.line} of the Dockerfile`;
  const files = placed(step, (path) => box.isFolder(path));
  const folders = step.sources.some(({ kind }) => kind === "folder") && !box.isFolder(step.target) ? [step.target] : [];
  await box.makeFolders(folders, "", signal);
  await box.exec({
    run: { argv: ["true"] },
    purpose: "server",
    user: "root",
    cwd: "/",
    deadlineMs,
    unpack: treesOf(files),
  }, signal);
  const paths = [...folders, ...files.map(({ to }) => to)];
  if (step.extract) {
    const script = 'cd -- "$(dirname -- "$1")" && tar -xf "$1" && rm -f -- "$1"';
    return await asRoot(box, { argv: ["sh", "-c", script, "sh", paths[0]!] }, deadlineMs, doing, signal);
  }
  await setAttributes(box, paths, step, deadlineMs, doing, signal);
}

/** `--chown` and `--chmod` of what was copied. */
export async function setAttributes(
  box: BuildBox,
  paths: readonly string[],
  { owner, mode }: { owner?: string; mode?: string },
  deadlineMs: number,
  doing: string,
  signal: AbortSignal,
  recursive: readonly string[] = [],
): Promise<void> {
  const calls: [BuildTool, string[]][] = [
    ...(owner === undefined ? [] : [["chown", ["-h", ...recursive, box.idsOf(owner)]] as [BuildTool, string[]]]),
    ...(mode === undefined ? [] : [["chmod", [...recursive, mode]] as [BuildTool, string[]]]),
  ];
  for (const [name, words] of calls) {
    for (let at = 0; at < paths.length; at += 500) {
      const args = [...words, "--", ...paths.slice(at, at + 500)];
      failUnlessDone(await box.tool(name, args, deadlineMs, signal), doing);
    }
  }
}

/** One upload per folder that files come from: names may differ on both sides, and kinds do not matter to it. */
export function treesOf(files: readonly CopiedFile[]): HostTree[] {
  const trees: HostTree[] = [];
  const byFolders = new Map<string, HostTree>();
  for (const { to, from } of files) {
    if ("data" in from) {
      trees.push({ from: "/", to: posix.dirname(to), only: [], extra: { [posix.basename(to)]: { data: from.data } } });
      continue;
    }
    if (posix.basename(to) !== posix.basename(from.path)) {
      // A new name: the file travels by its content, a folder by being made.
      if (from.kind === "folder") trees.push({ from: from.path, to, only: [] });
      else {
        const mode = modeOf(from.path);
        trees.push({
          from: "/",
          to: posix.dirname(to),
          only: [],
          extra: { [posix.basename(to)]: { data: readFileSync(from.path), mode } },
        });
      }
      continue;
    }
    const key = `${posix.dirname(from.path)}\0${posix.dirname(to)}`;
    const known = byFolders.get(key);
    if (known !== undefined) known.only!.push(posix.basename(to));
    else {
      const tree = { from: posix.dirname(from.path), to: posix.dirname(to), only: [posix.basename(to)] };
      byFolders.set(key, tree);
      trees.push(tree);
    }
  }
  return trees;
}

const modeOf = (path: string): number => statSync(path).mode & 0o7777;

async function asRoot(
  box: BuildBox,
  run: { argv: string[] },
  deadlineMs: number,
  doing: string,
  signal: AbortSignal,
): Promise<void> {
  failUnlessDone(await box.exec({ run, purpose: "server", user: "root", cwd: "/", deadlineMs }, signal), doing);
}

export function failUnlessDone(done: ExecResult, doing: string): void {
  if (done.ended === "exit" && done.exitCode === 0) return;
  throw new HarborError("image.failed", `${doing}: ${done.stderr.trim() || `exit code ${done.exitCode}`}`, {
    details: { class: "build" },
  });
}
