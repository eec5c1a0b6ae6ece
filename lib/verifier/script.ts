/**
 * How a task's own script (`test.sh`, `solve.sh`) is started: by bash where the image has it, as Harbor does; in an
 * image without bash by what its first line names. A script that cannot be started is told apart from one that failed.
 */
import { shellQuote } from "../runtime/runner.ts";

/** Facts about a script file that decide how it is started and explained. */
export interface ScriptFacts {
  /** Program of the first line (`#!/bin/sh` → `/bin/sh`, `#!/usr/bin/env python3` → `python3`); null without one. */
  interpreter: string | null;
  /** Its lines end in CR LF: bash takes the CR as part of each line's last word (field case C5). */
  carriageReturns: boolean;
}

/** Reads the facts from the beginning of a script (4 KiB are plenty). */
export function scriptFacts(head: string): ScriptFacts {
  const line = head.split("\n", 1)[0]!;
  const shebang = /^#![ \t]*([^ \t\r]+)(?:[ \t]+([^ \t\r]+))?/.exec(line);
  const viaEnv = shebang?.[1]?.endsWith("/env") === true;
  return {
    interpreter: (viaEnv ? shebang?.[2] : shebang?.[1]) ?? null,
    carriageReturns: /\r\n/.test(head),
  };
}

/** First words of the line by which our wrapper says that it could not start a script; nobody else writes there. */
const CANNOT = "gym-harbor: cannot start";

/**
 * Shell text that runs the script at `path` with everything it prints in the file `output`, standard input empty. What
 * the text itself prints on stdout is ours alone: `couldNotStart` reads it.
 */
export function launchText(path: string, output: string, facts: ScriptFacts): string {
  const [script, log] = [shellQuote(path), shellQuote(output)];
  const name = facts.interpreter?.split("/").at(-1) ?? "sh";
  const other = /^(ba)?sh$/.test(name) ? (name === "sh" ? "sh" : null) : facts.interpreter;
  const fallback = other === null
    ? ""
    : `elif command -v ${shellQuote(other)} >/dev/null 2>&1; then set -- ${shellQuote(other)} ${script}
`;
  const missing = other === null || other === "sh" ? "bash" : `bash and ${other}`;
  return `if command -v bash >/dev/null 2>&1; then set -- bash ${script}
${fallback}else echo ${shellQuote(`${CANNOT} ${path}: the image has no ${missing}`)}; exit 127; fi
( : > ${log} ) 2>/dev/null || { echo ${shellQuote(`${CANNOT} ${path}: ${output} cannot be written`)}; exit 126; }
exec "$@" > ${log} 2>&1 < /dev/null
`;
}

/** Why the script was not started, or null when it was. `stdout` is what the command with `launchText` printed. */
export function couldNotStart(stdout: string): string | null {
  const line = stdout.split("\n").find((one) => one.startsWith(CANNOT));
  return line === undefined ? null : line.slice("gym-harbor: ".length);
}
