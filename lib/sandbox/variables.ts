/** What no environment of a Linux program can hold, whatever sandbox it is meant for; pure. */
import { HarborError } from "../errors.ts";

/** Linux refuses to start a program with one longer string, `NAME=value` in bytes (MAX_ARG_STRLEN, 32 pages). */
export const LONGEST_VARIABLE = 131_071;

/**
 * Throws "task.unsupported" for the first variable that cannot reach any command: too long, or with a name or value
 * that no environment has. `where` says which table it stands in (`verifier.env`).
 */
export function refuseVariables(env: Readonly<Record<string, string>>, where?: string): void {
  for (const [name, value] of Object.entries(env)) {
    const bytes = new TextEncoder().encode(`${name}=${value}`).length;
    if (bytes > LONGEST_VARIABLE) {
      const why = `it has ${bytes} bytes, and Linux starts no program with more than ${LONGEST_VARIABLE}`;
      throw cannotSet(name, why, "put the value into a file of the task, and its path into the variable", where);
    }
    if (name === "" || /[=\0]/.test(name) || value.includes("\0")) {
      throw cannotSet(
        name,
        "its name is empty or holds '=', or a NUL is in it",
        "rename it, or put the value into a file",
        where,
      );
    }
  }
}

/** The error for a variable that a task asks for and a sandbox cannot give. */
export const cannotSet = (name: string, why: string, hint: string, where?: string): HarborError =>
  new HarborError(
    "task.unsupported",
    `Environment variable ${JSON.stringify(name)}${where === undefined ? "" : ` of ${where}`} cannot be set: ${why}`,
    { hint },
  );
