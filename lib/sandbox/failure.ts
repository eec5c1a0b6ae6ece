/**
 * Who failed: the engine or the command? Reads what an engine's client wrote to stderr and claims only wordings that it
 * knows (docker 20.10 and 28.2, podman 4.3 and 5, buildah 1.28; runc 1.1, crun 1.8); anything else is nobody's. Callers
 * ask only when they know that no command of a task could have written the text.
 */
import { stripVTControlCharacters } from "node:util";

export type FailureKind =
  | "daemon-down" // the engine does not answer
  | "no-permission" // its socket may not be used by this user
  | "no-container" // there is no such container
  | "not-running" // it has stopped
  | "name-taken" // a container of that name is there
  | "no-image" // the image is nowhere
  | "image-denied" // the registry wants credentials, or hides it
  | "rate-limited" // the registry says: too many requests
  | "unreachable" // the registry cannot be reached
  | "no-program" // the program is not in the image
  | "not-executable" // it is there and cannot be run (permission, format)
  | "no-user" // the user is not in the image
  | "no-folder" // the working directory is not there
  | "processes-full" // no room for one more process
  | "disk-full"
  | "init-missing" // podman --init without catatonit
  | "cgroups" // the runtime cannot use this machine's cgroups
  | "rlimits" // the runtime may not raise limits
  | "cpu-range" // more CPUs asked than there are
  | "limits-unsupported" // a limit flag that this kernel or user cannot have
  | "uid-range" // files of the image belong to ids outside the user's range
  | "unknown-instruction" // the builder does not know a line: misspelt, or a heredoc for an old builder
  | "no-buildx" // BuildKit was asked and its plugin is missing
  | "busy"; // storage lock, timeouts of the engine itself: worth one more try

/** First match wins, so narrower wordings stand first. */
const WORDINGS: readonly [FailureKind, RegExp][] = [
  ["no-permission", /permission denied while trying to connect|dial unix \S+: connect: permission denied/i],
  [
    "daemon-down",
    /cannot connect to the docker daemon|is the docker daemon running|error during connect|unable to connect to podman|docker\.sock: connect: (connection refused|no such file)/i,
  ],
  ["rate-limited", /toomanyrequests|too many requests|429 \(?too many/i],
  [
    "image-denied",
    /pull access denied|requested access to the resource is denied|unauthorized: |authentication required|access to the requested resource is not authorized/i,
  ],
  [
    "no-image",
    /no such image|image not known|manifest (for \S+ )?not found|manifest unknown|unable to find image|name unknown|did not resolve to an alias|repository \S+ not found/i,
  ],
  [
    "unreachable",
    /no such host|could not resolve|i\/o timeout|tls handshake timeout|network is unreachable|connection refused.*(registry|v2)|dial tcp|client\.timeout exceeded|server gave http response to https client|x509: /i,
  ],
  ["no-container", /no such container|no container with name or id|no container with id|no such object/i],
  [
    "not-running",
    /is not running|can only create exec sessions on running containers|container state improper|container \S+ is (paused|restarting)|cannot exec in a stopped|container is stopped/i,
  ],
  ["name-taken", /is already in use by|name \S+ is in use/i],
  [
    "no-user",
    /unable to find user|no matching entries in passwd|unable to find group|no such user|user: unknown user/i,
  ],
  [
    "processes-full",
    /fork: retry|can't fork|cannot fork|fork\/exec .*resource temporarily unavailable|resource temporarily unavailable|failed to create new os thread|pthread_create failed/i,
  ],
  ["disk-full", /no space left on device|disk quota exceeded/i],
  [
    "init-missing",
    /catatonit|podman-init: no such file|init binary .*not found|container-init .*(not found|no such file)/i,
  ],
  ["no-folder", /chdir to cwd|workdir .*(does not exist|no such)|os getwd|mkdir .*: not a directory/i],
  // docker 20.10 with many starts at once: its own hook for the network does not find its socket or the new process.
  ["busy", /error running hook #\d+: .*level=fatal msg="no such (file or directory|process)"/i],
  [
    "no-program",
    /exec: "[^"]*": (stat |executable file not found)|executable file .* not found|executable file not found|: no such file or directory: oci|starting container process caused.*no such file|exec [^:]+: no such file or directory|\/bin\/sh(?: failed)?: no such file or directory/i,
  ],
  [
    "not-executable",
    /exec format error|exec: "[^"]*": permission denied|permission denied: oci|open executable: permission denied/i,
  ],
  [
    "cgroups",
    /cgroups? in hybrid mode not supported|cgroup.*(not supported|no such file or directory|permission denied|read-only)|crun: .*cgroup/i,
  ],
  ["rlimits", /setting rlimit|set rlimit|error setting rlimit/i],
  ["cpu-range", /range of cpus is from/i],
  [
    "limits-unsupported",
    /your kernel does not support|resource limits are not supported|cannot set .* (limit|without)|requires cgroups? v2|invalid option .*resource/i,
  ],
  ["uid-range", /insufficient uids or gids|potentially insufficient/i],
  [
    "unknown-instruction",
    /dockerfile parse error .*unknown instruction|build error: unknown instruction/i,
  ],
  ["no-buildx", /buildx component is missing|requires the buildx|'buildx' is not a docker command/i],
  [
    "busy",
    /database is locked|context deadline exceeded|resource busy|device or resource busy|acquiring lock|timed out waiting for/i,
  ],
];

export interface EngineFailure {
  kind: FailureKind;
  /** The line that says so, without the client's prefixes. */
  line: string;
}

/** What the engine says went wrong; undefined when it says nothing that we know. */
export function engineFailure(stderr: string): EngineFailure | undefined {
  const lines = stderr.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  for (const [kind, wording] of WORDINGS) {
    const line = lines.findLast((one) => wording.test(one));
    if (line !== undefined) return { kind, line: plain(line) };
  }
  return undefined;
}

/**
 * Whether `image inspect` says that there is no such image (docker 20.10 and 28.2: "No such image", podman 4.3 and 5:
 * "image not known"). Narrower than the kind "no-image", which a registry's answers belong to as well. docker begins an
 * inspect that failed for want of a valid name with the same words: no image has that name either.
 */
export const saysAbsent = (stderr: string): boolean => /no such image|image not known/i.test(stderr);

/** The last line that says something, for a failure that nobody knows. */
export function decisiveLine(output: string): string {
  const lines = stripVTControlCharacters(output).split("\n").map((line) => line.trim()).filter((line) =>
    line !== "" && !NOISE.test(line)
  );
  const telling = lines.findLast((line) => /error|failed|cannot|fatal|denied|not found|unknown/i.test(line));
  return plain(telling ?? lines.at(-1) ?? "no output");
}

/** What podman 4.3 and docker 28 write although nothing is wrong. */
const NOISE =
  /Error validating CNI config file|^WARNING: Localhost DNS |failed to connect to syslog|^DEPRECATED: The legacy builder|Install the buildx component|docs\.docker\.com|^See '?(docker|podman) |^Run '(docker|podman) .*--help'|^time="[^"]*" level=warning/;

const plain = (line: string): string =>
  line.replace(/^(docker|podman): /, "").replace(/^Error( response from daemon)?: /i, "").slice(0, 500);
