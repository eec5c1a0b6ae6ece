/**
 * What must not lie in a task folder: links that lead out of it, folders that contain themselves through links, and
 * things that are neither file nor folder. Two readers, two rules: NeMo Gym's digest covers no linked folder at all
 * (task-format §7 #21); Harbor 0.25.0 follows links inside tests/, solution/ and declared steps, `.harborignore`d ones
 * left out (`--strict`).
 */
import { realpathSync } from "node:fs";
import { type Entry, readFolder, statKind } from "../files/tree.ts";
import { TASK_FOLDERS, type TaskTree } from "../digest/tree.ts";

export type LinkFault = { code: "link.escapes" | "link.cycle" | "link.folder" | "file.special"; file: string };

/** Every fault of the task by NeMo Gym's rules; paths below the task. */
export function linkFaults(tree: TaskTree): LinkFault[] {
  const faults: LinkFault[] = [];
  const look = (entry: Entry): void => {
    if (entry.kind === "other") faults.push({ code: "file.special", file: entry.path });
    if (entry.kind !== "link") return;
    if (tree.leadsOut(entry.path)) faults.push({ code: "link.escapes", file: entry.path });
    else if (tree.target(entry.path)?.isDirectory()) faults.push({ code: "link.folder", file: entry.path });
  };
  for (const entry of tree.root()) {
    look(entry);
    if (entry.kind === "dir" && TASK_FOLDERS.includes(entry.name)) tree.below(entry.name).forEach(look);
  }
  return faults;
}

/**
 * The first fault by Harbor's rules below each of `scopes` (folders of the task), links followed. With `honourIgnore`
 * what `.harborignore` excludes is not looked at. Throws HarborError "task.invalid" for an invalid `.harborignore`.
 */
export function harborLinkFaults(tree: TaskTree, scopes: readonly string[], honourIgnore: boolean): LinkFault[] {
  return scopes.flatMap((scope) => {
    const fault = tree.target(scope) === undefined && !isLink(tree, scope)
      ? undefined
      : faultIn(tree, { path: scope, name: scope, kind: isLink(tree, scope) ? "link" : "dir" }, [], honourIgnore);
    return fault === undefined ? [] : [fault];
  });
}

function faultIn(tree: TaskTree, entry: Entry, above: readonly string[], honourIgnore: boolean): LinkFault | undefined {
  if (entry.kind !== "link" && entry.kind !== "dir") return undefined;
  if (honourIgnore && tree.ignore().excludes(entry.path, entry.kind)) return undefined;
  if (entry.kind === "link" && tree.leadsOut(entry.path)) return { code: "link.escapes", file: entry.path };
  if (!tree.target(entry.path)?.isDirectory()) return undefined;
  const real = realpathSync(tree.at(entry.path));
  if (above.includes(real)) return { code: "link.cycle", file: entry.path };
  for (const one of readFolder(tree.folder, entry.path)) {
    const fault = faultIn(tree, one, [...above, real], honourIgnore);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

const isLink = (tree: TaskTree, path: string): boolean => statKind(tree.at(path)) === "link";
