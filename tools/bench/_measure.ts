/** Runs one program and measures it: wall time and the highest resident memory it had. */
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";

export interface Measured {
  ms: number;
  /** MB (10^6 bytes) of resident memory at its highest; NaN where the kernel does not tell. */
  maxMb: number;
  stdout: string;
}

const TIME = "/usr/bin/time";

/** Throws when it ends with anything but `exitCode`. */
export async function measure(
  argv: string[],
  options: { cwd?: string; env?: NodeJS.ProcessEnv; exitCode?: number } = {},
) {
  const timed = existsSync(TIME) ? [TIME, "-f", "\nmax %M", ...argv] : argv;
  const began = performance.now();
  const child = spawn(timed[0]!, timed.slice(1), { ...options, stdio: ["ignore", "pipe", "pipe"] });
  let high = NaN;
  // Without time(1): VmHWM only grows, so the last look before the end is close.
  const poll = timed === argv ? setInterval(() => high = highWater(child.pid!) ?? high, 20) : undefined;
  const [stdout, stderr, code] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    new Promise<number | null>((resolve) => child.on("close", resolve)),
  ]);
  clearInterval(poll);
  const ms = performance.now() - began;
  if (code !== (options.exitCode ?? 0)) throw new Error(`${argv.join(" ")} ended with ${code}: ${stderr.slice(-500)}`);
  const told = /\nmax (\d+)\s*$/.exec(stderr)?.[1];
  return { ms, maxMb: told === undefined ? high : Number(told) * 1024 / 1e6, stdout } satisfies Measured;
}

function highWater(pid: number): number | undefined {
  try {
    const kib = /^VmHWM:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "latin1"))?.[1];
    return kib === undefined ? undefined : Number(kib) * 1024 / 1e6;
  } catch {
    return undefined;
  }
}

async function text(stream: AsyncIterable<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let all = "";
  for await (const chunk of stream) all += decoder.decode(chunk, { stream: true });
  return all;
}
