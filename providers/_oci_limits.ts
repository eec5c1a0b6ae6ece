/** What of a task's limits an engine holds on this machine; pure. */
import type { Limits, Sandbox } from "../lib/sandbox/provider.ts";
import type { EngineFacts } from "./_oci_engine.ts";

export interface Held {
  /** For the command line. */
  limits: Limits;
  /** One for each limit that is not held as asked. */
  notes: string[];
}

/** Splits `asked` into what `engine` can hold and a note for the rest. */
export function heldLimits(
  asked: Limits,
  engine: string,
  { cpus, limits: can, gpus }: Pick<EngineFacts, "cpus" | "limits" | "gpus">,
): Held {
  const notes: string[] = [];
  const limits: Limits = {};
  if (asked.cpus !== undefined) {
    if (!can.cpu) notes.push(`cpus = ${asked.cpus} is not enforced: ${engine} cannot limit CPUs here`);
    else if (asked.cpus > cpus) notes.push(`cpus = ${asked.cpus}: this machine has ${cpus}`);
    else limits.cpus = asked.cpus;
  }
  if (asked.memoryMb !== undefined) {
    if (can.memory) limits.memoryMb = asked.memoryMb;
    else notes.push(`memory_mb = ${asked.memoryMb} is not enforced: ${engine} cannot limit memory here`);
  }
  if (asked.storageMb !== undefined) notes.push(`storage_mb = ${asked.storageMb} is not enforced by ${engine}`);
  if (asked.gpus && gpus) limits.gpus = asked.gpus;
  return { limits, notes };
}

/** How limits hold on this machine, whatever a task asks for. */
export const holdOf = ({ cpu, memory, pids }: EngineFacts["limits"]): Sandbox["limits"] =>
  cpu && memory && pids ? "enforced" : cpu || memory || pids ? "partly" : "none";
