/** What a failed build or push was, from what the tool said (spec/images-and-sandboxes §4.6). Pure. */
import { stripVTControlCharacters } from "node:util";
import { HarborError } from "../../lib/errors.ts";
import type { BuildFailure } from "../../lib/images/builder.ts";
import type { RunResult } from "../../lib/runtime/runner.ts";
import { decisiveLine } from "../../lib/sandbox/failure.ts";
import type { Tool } from "./_argv.ts";
import { NEEDED_BYTES } from "./_storage.ts";

export interface Failed {
  tool: Pick<Tool, "name" | "kind">;
  result: Pick<RunResult, "ended" | "exitCode" | "stdout" | "stderr">;
  /** Name of the image. */
  image: string;
  /** What was under way. */
  step: "build" | "push";
  /** The limit of this step. */
  limitMs: number;
  /** Where the tool keeps images, when known. */
  storage?: string;
  /** Least room that was seen there; undefined where nobody can look. */
  lowestFreeBytes?: number;
  /** `os/arch` that was asked for, and that this machine runs. */
  platform: string;
  machine: string;
  logFile: string;
  /** Names of proxy variables that are set. */
  proxies: readonly string[];
}

const TAIL_BYTES = 4096;
/** Lines at the end in which the reason of a failure stands. */
const TAIL_LINES = 40;

/** The error of a step that did not come to a good end; its message is the task's reason, `details.class` a BuildFailure. */
export function buildFailed(failed: Failed): HarborError {
  const { result, tool, image, logFile } = failed;
  const output = stripVTControlCharacters(`${result.stdout}\n${result.stderr}`);
  const { kind, message, hint } = judge(failed, output);
  return new HarborError("image.failed", message + proxyNote(failed, output), {
    hint: `${hint === undefined ? "" : `${hint}; `}the whole log is ${logFile}`,
    details: { class: kind, image, tool: tool.kind ?? tool.name, log: logFile, tail: output.trim().slice(-TAIL_BYTES) },
  });
}

/** Without what a tool says of being ended: BuildKit tells it as an error of the build. */
const beforeItsEnd = (output: string): string =>
  output.split("\n").filter((line) => !/^#\d+ CANCELED$|\bcontext canceled$/.test(line.trim())).join("\n");

export const failureClass = (error: unknown): BuildFailure | undefined =>
  error instanceof HarborError ? error.details?.class as BuildFailure | undefined : undefined;

interface Judged {
  kind: BuildFailure;
  message: string;
  hint?: string;
}

function judge(failed: Failed, output: string): Judged {
  const { result, step, image, limitMs, platform, machine, tool } = failed;
  const own = ownWords(failed, output);
  const line = (pattern: RegExp, text = own) => text.split("\n").findLast((one) => pattern.test(one))?.trim();
  const limited = line(LIMITED);
  if (limited !== undefined || asksOnAfterLimit(output)) {
    const said = limited ?? output.split("\n").findLast((one) => LIMITED.test(one))!.trim();
    return { kind: "registry-limit", message: `Docker Hub pull limit while building ${image}: ${said}`, hint: ADVICE };
  }
  if (result.ended === "deadline") {
    const what = step === "build" ? "image build" : "push";
    return {
      kind: "timeout",
      message: `${what} exceeded ${limitMs / 1000} s: last said: ${decisiveLine(beforeItsEnd(output))}`,
      hint: step === "build"
        ? "raise environment.build_timeout_sec or builds.timeout_s"
        : "see whether the registry takes anything at all",
    };
  }
  // A command may as well have filled its own /dev/shm: only the tool's own word needs no proof.
  const full = line(DISK) ?? ((failed.lowestFreeBytes ?? 0) < NEEDED_BYTES ? line(DISK, tailOf(output)) : undefined);
  if (full !== undefined) {
    const where = failed.storage === undefined ? `the storage of ${tool.name}` : failed.storage;
    return {
      kind: "disk",
      message: `no space left on device in ${where} while building ${image}: ${full}`,
      hint: `free some space there (${tool.name === "buildah" ? "buildah rmi --prune" : `${tool.name} system prune`})` +
        `${tool.name === "buildah" ? ", or name another folder: ++builds.storage_dir=DIR" : ""}`,
    };
  }
  const refused = line(REFUSED);
  if (refused !== undefined) {
    const repository = image.slice(0, image.lastIndexOf("/"));
    const where = step === "push" ? `push to ${repository}` : `a pull for the build of ${image}`;
    const host = step === "push" ? repository.split("/")[0] : "HOST";
    return { kind: "credentials", message: `${where} refused: ${refused}`, hint: `log in: ${tool.name} login ${host}` };
  }
  const foreign = line(FOREIGN, tailOf(output));
  if (foreign !== undefined) {
    const architecture = platform.split("/")[1];
    return {
      kind: "platform",
      message: platform === machine
        ? `a program in the image of ${image} is not for ${machine}: ${foreign}`
        : `this machine (${machine}) cannot run programs for ${platform}: ${foreign}`,
      hint: platform === machine
        ? "look at FROM --platform and at what the Dockerfile copies in"
        : `install an emulator: apt-get install qemu-user-static, or docker run --privileged --rm tonistiigi/binfmt --install ${architecture}`,
    };
  }
  const unreachable = line(UNREACHABLE);
  if (unreachable !== undefined) {
    return {
      kind: "network",
      message: step === "push"
        ? `push to ${image} did not come through: ${unreachable}`
        : `image build failed (exit ${result.exitCode}): a base image cannot be pulled: ${unreachable}`,
      hint:
        "no way to the registry from here: name a mirror (++registries.docker.io.mirrors=[…]) or use an offline bundle",
    };
  }
  const wanted = /the (--\w+) option requires BuildKit/i.exec(output)?.[1];
  return {
    kind: "build",
    message: step === "push"
      ? `push to ${image} failed (exit ${result.exitCode}): ${decisiveLine(output)}`
      : `image build failed (exit ${result.exitCode}): ${stepLines(output)}`,
    ...(wanted !== undefined && {
      hint: `${wanted} needs BuildKit: install the buildx plugin (docker-buildx-plugin), or ++builds.tool=podman`,
    }),
  };
}

const DISK = /no space left on device|disk quota exceeded|not enough space|ENOSPC/i;
const LIMITED = /toomanyrequests|too many requests|pull rate limit|\b429\b/i;
const REFUSED =
  /denied:|access denied|access to the (requested )?resource is (denied|not authorized)|unauthorized|authentication required|authorization failed|no basic auth credentials|(status ?code|http|:|status):? 40[13]\b|\b403 \(?forbidden/i;
const FOREIGN = /exec format error/i;
const UNREACHABLE =
  /no such host|i\/o timeout|tls handshake timeout|network is unreachable|no route to host|connection refused|connection reset|dial tcp|client\.timeout exceeded|context deadline exceeded|http response to https client|x509: |unexpected EOF|status: 5\d\d|\b50[0234] \(?(internal server error|bad gateway|service unavailable|gateway time)|: EOF$/i;

/** What buildah and podman say before they ask a registry again that has just told them to stop asking. */
export const asksOnAfterLimit = (output: string): boolean =>
  /level=warning msg="Failed, retrying [^\n]*(toomanyrequests|429)/i.test(output);

const ADVICE = "log in with the build tool; give an account; start one job and wait for 'Run config written to'; " +
  "use a mirror (++registries.docker.io.mirrors=[…]); use an offline bundle";

/**
 * What the tool itself says, without the output of the Dockerfile's own commands: those may speak of networks and
 * registries too. A push has no other voice; the engine's verdict on a build stands at the end, in one line.
 */
function ownWords({ tool, step }: Failed, output: string): string {
  if (step === "push") return output;
  const lines = output.split("\n").map((line) => line.trimEnd()).filter((line) => line !== "");
  if (tool.name === "docker" && tool.kind !== "classic") {
    return lines.filter((line) => /^(ERROR: )?failed to solve|^#\d+ ERROR: /.test(line)).map(withoutCommand).join("\n");
  }
  if (tool.name === "docker") {
    const step = lines.findLast((line) => /^Step \d+\/\d+ : /.test(line)) ?? "";
    // In any other step, its command speaks on the same streams.
    return /: (FROM|COPY|ADD) /i.test(step) || step === "" ? lines.slice(-3).join("\n") : "";
  }
  return lines.filter((line) => /^(time="[^"]*" level=(error|fatal)|error[: ])/i.test(line)).map(withoutCommand).join(
    "\n",
  );
}

/** The command that failed is quoted in the verdict, and may say anything. */
const withoutCommand = (line: string): string =>
  /did not complete successfully|executor failed running|while running runtime|error while running|building at STEP "RUN/i
      .test(line)
    ? ""
    : line;

const tailOf = (output: string): string => output.split("\n").slice(-TAIL_LINES).join("\n");

/** What a person needs to see: what was said last, and the step that failed. */
function stepLines(output: string): string {
  const lines = output.split("\n").map((line) => line.trimEnd()).filter((line) => line.trim() !== "");
  const step = lines.findLast((line) => /^(\[\d+\/\d+\] )?(STEP|Step) \d+|^#\d+ \[/.test(line));
  const said = decisiveLine(output);
  return step === undefined ? said : `${said} (${step})`;
}

function proxyNote({ proxies }: Failed, output: string): string {
  if (proxies.length === 0 || !/\b403\b|forbidden/i.test(output)) return "";
  return ` (set here: ${proxies.join(", ")}; a proxy may have answered)`;
}
