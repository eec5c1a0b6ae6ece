/**
 * What a sandbox with a control shell asks of the client that runs it, as command lines. docker and podman share one;
 * a tool with other words brings its own, and everything else about its sandboxes is the same code.
 */
import {
  copyInArgv,
  copyOutArgv,
  type ExecArgv,
  execArgv,
  oomEventsArgv,
  type Program,
  removeArgv,
  stateArgv,
} from "./_oci_argv.ts";

export interface BoxClient {
  /** What messages call it. */
  readonly name: string;
  /** A sandbox stays when its line ends: it has to be removed in any case. */
  readonly outlivesLine: boolean;
  exec(request: ExecArgv): string[];
  /** Opens a shell in it, for a person. */
  enter(id: string, shell: string): string[];
  /** The client's own environment for exec(): variables that no shell can export, by name. */
  carried(variables: Readonly<Record<string, string>>): Record<string, string>;
  /** Ends it at once and takes away all that it had. */
  remove(id: string): string[];
  state(id: string): string[];
  /** What `state` printed. */
  isRunning(stdout: string, id: string): boolean;
  /** Tells of OOM kills, also after the end; undefined where nothing does. */
  oomEvents(id: string): string[] | undefined;
  /** An archive in by stdin, or a folder out by stdout, without any program of the image; undefined where it cannot. */
  copyIn(id: string): string[] | undefined;
  copyOut(id: string, folder: string): string[] | undefined;
}

export function ociClient(program: Program): BoxClient {
  return {
    name: program.path,
    outlivesLine: false,
    exec: (request) => execArgv(program, request),
    enter: (id, shell) => [program.path, "exec", "-it", id, shell],
    carried: (variables) => variables,
    remove: (id) => removeArgv(program, [id]),
    state: (id) => stateArgv(program, id),
    isRunning: (stdout) => saysRunning(stdout),
    oomEvents: (id) => oomEventsArgv(program, id),
    copyIn: (id) => copyInArgv(program, id),
    copyOut: (id, folder) => copyOutArgv(program, id, folder),
  };
}

function saysRunning(inspected: string): boolean {
  try {
    return (JSON.parse(inspected) as { State?: { Running?: boolean } }[])[0]?.State?.Running === true;
  } catch {
    return false;
  }
}
