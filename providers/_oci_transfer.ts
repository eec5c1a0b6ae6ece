/**
 * Files in and out of a container, over the line to its control shell where the image has tar, else by the engine's own
 * copy. Nothing here trusts what lies inside.
 */
import { type Archive, unpackInto } from "../lib/files/tar.ts";
import { HarborError } from "../lib/errors.ts";
import { HeadTail } from "../lib/runtime/head_tail.ts";
import { decisiveLine } from "../lib/sandbox/failure.ts";
import type { Collected, DownloadLimits, DownloadReport } from "../lib/sandbox/provider.ts";
import type { Control } from "./_oci_control.ts";
import type { BoxDeps } from "./_oci_deps.ts";
import { beforeScript, bringScript, collectScript } from "./_oci_scripts.ts";

export const BEFORE_MS = 600_000;
const COLLECT_MS = 60_000;
const BRING_MS = 600_000;

export class Transfer {
  #oomKills: number | null;

  /** `tar`: whether the image has it. `oomKills`: the kernel's count so far; null where it cannot be read. */
  constructor(
    private readonly id: string,
    private readonly tar: boolean,
    oomKills: number | null,
    private readonly control: Control,
    private readonly deps: BoxDeps,
  ) {
    this.#oomKills = oomKills;
  }

  /** Root's script, then real folders for the archive, before a command. Throws "sandbox.failed", "transfer.failed". */
  async before(script: string | undefined, archive: Archive | undefined, signal: AbortSignal): Promise<void> {
    const said = new HeadTail(16 * 1024);
    const codes: Record<string, number> = {};
    await this.control.ask(
      (n) => beforeScript(n, script, archive?.folders ?? []),
      "folders",
      { onMarker: ([verb, code]) => codes[verb!] = Number(code), onData: (chunk) => said.push(chunk) },
      BEFORE_MS,
      signal,
    );
    if (codes.script !== 0) {
      throw new HarborError(
        "sandbox.failed",
        `A step before the command failed with exit code ${codes.script} in ${this.id}: ${decisiveLine(said.text())}`,
      );
    }
    if (codes.folders !== 0) {
      throw new HarborError(
        "transfer.failed",
        `Cannot make the folders for an upload in ${this.id}: ${decisiveLine(said.text())}`,
      );
    }
  }

  /** An archive where the image has no tar: the engine unpacks it. */
  copyIn(archive: Archive, signal: AbortSignal): Promise<void> {
    return copyIn(this.deps, this.id, archive, signal);
  }

  /** Small regular files, and whether the kernel ended something for want of memory since the last time. */
  async collect(
    files: readonly { path: string; maxBytes: number }[],
    signal?: AbortSignal,
  ): Promise<{ collected: Record<string, Collected>; oomKilled: boolean | null }> {
    const collected: Record<string, Collected> = {};
    const chunksOf = new Map<string, Uint8Array[]>();
    let oomKills: number | null = null;
    let chunks: Uint8Array[] | undefined;
    const onMarker = ([verb, index, ...reason]: string[]) => {
      chunks = undefined;
      const path = files[Number(index)]?.path;
      if (verb === "oom") oomKills = index ? Number(index) : null;
      else if (path === undefined) return;
      else if (verb === "absent") collected[path] = { kind: "absent" };
      else if (verb === "refused") collected[path] = { kind: "refused", reason: reason.join(" ") };
      else if (verb === "file") chunksOf.set(path, chunks = []);
    };
    await this.control.ask(
      (n) => collectScript(n, files),
      "collected",
      { onMarker, onData: (chunk) => chunks?.push(chunk) },
      COLLECT_MS,
      signal,
    );
    for (const { path, maxBytes } of files) {
      const came = chunksOf.get(path);
      if (came === undefined) {
        collected[path] ??= { kind: "refused", reason: "it could not be read" };
        continue;
      }
      const data = joined(came);
      collected[path] = data.length > maxBytes
        ? { kind: "refused", reason: `larger than ${maxBytes} bytes` }
        : { kind: "file", data };
    }
    const before = this.#oomKills;
    this.#oomKills = oomKills;
    return { collected, oomKilled: oomKills === null || before === null ? null : oomKills > before };
  }

  /** A folder, as Sandbox.download() does. */
  async bring(from: string, to: string, limits: DownloadLimits, signal: AbortSignal): Promise<DownloadReport> {
    if (!this.tar) return await bringByCopy(this.deps, this.id, { from, to, limits }, signal);
    const report: DownloadReport = { files: 0, bytes: 0, refused: [] };
    // A header, padding and a long name for every entry, beside the bytes that are wanted.
    const most = limits.maxBytes + limits.maxEntries * 3072 + 20_480;
    const bytes = new ByteQueue(() => this.control.pause(), () => this.control.resume());
    let unpacked: Promise<DownloadReport> | undefined;
    const onMarker = ([verb, ...reason]: string[]) => {
      if (verb === "tar") (unpacked = unpackInto(bytes, to, limits)).catch(() => {}); // awaited once all has come
      if (verb === "refused") report.refused.push({ path: ".", reason: reason.join(" ") });
      if (verb === "sent") bytes.end();
    };
    await this.control.ask(
      (n) => bringScript(n, from, most),
      "sent",
      { onMarker, onData: (chunk) => bytes.push(chunk) },
      BRING_MS,
      signal,
    ).catch((error) => {
      bytes.fail(error);
      throw error;
    });
    return await unpacked ?? report;
  }
}

/** An archive into a container without any program of its image. Throws "transfer.failed". */
export async function copyIn(
  { client, runner, env, gate }: BoxDeps,
  container: string,
  archive: Archive,
  signal: AbortSignal,
): Promise<void> {
  const argv = client.copyIn(container);
  if (argv === undefined) throw noTar(container);
  const copied = await gate.hold(() =>
    runner.run(argv, { env, signal, deadlineMs: BEFORE_MS, stdin: (to) => archive.writeTo(to) })
  );
  signal.throwIfAborted();
  if (copied.exitCode === 0) return;
  throw new HarborError(
    "transfer.failed",
    `Cannot upload to ${container} (its image has no tar, ${client.name} cp failed): ${decisiveLine(copied.stderr)}`,
  );
}

/** A folder out of a container without any program of its image; an absent one gives an empty report. */
export async function bringByCopy(
  { client, runner, env, gate }: BoxDeps,
  container: string,
  { from, to, limits }: { from: string; to: string; limits: DownloadLimits },
  signal: AbortSignal,
): Promise<DownloadReport> {
  return await gate.hold(async () => {
    const argv = client.copyOut(container, from);
    if (argv === undefined) throw noTar(container);
    const copying = await runner.start(argv, { env });
    const onAbort = () => copying.kill("SIGKILL");
    signal.addEventListener("abort", onAbort, { once: true });
    const said = new HeadTail(16 * 1024);
    copying.stderr.on("data", (chunk) => said.push(chunk));
    copying.stdin.end();
    try {
      const last = from.replace(/\/+$/, "").split("/").at(-1) ?? "";
      const report = await unpackInto(copying.stdout, to, limits, `${last}/`);
      const { exitCode } = await copying.ended;
      signal.throwIfAborted();
      if (exitCode === 0 || /no such|not found|could not find/i.test(said.text())) return report;
      throw new HarborError(
        "transfer.failed",
        `Cannot bring ${from} out of ${container}: ${decisiveLine(said.text())}`,
      );
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  });
}

const noTar = (container: string): HarborError =>
  new HarborError("transfer.failed", `Files cannot go in or out of ${container}: its image has no tar`, {
    hint: "install tar in the image, or use --sandbox docker or podman",
  });

function joined(chunks: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0));
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}

/** Bytes that arrive by events, read by iteration; asks its source to wait while more than 4 MiB lie unread. */
class ByteQueue implements AsyncIterable<Uint8Array> {
  #chunks: Uint8Array[] = [];
  #bytes = 0;
  #done = false;
  #error: unknown;
  #wake = () => {};

  constructor(private readonly pause: () => void, private readonly resume: () => void) {}

  push(chunk: Uint8Array): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes > 4 << 20) this.pause();
    this.#wake();
  }

  end(): void {
    this.#done = true;
    this.#wake();
  }

  fail(error: unknown): void {
    this.#error ??= error;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    for (;;) {
      const chunk = this.#chunks.shift();
      if (chunk !== undefined) {
        this.#bytes -= chunk.length;
        if (this.#bytes <= 4 << 20) this.resume();
        yield chunk;
      } else if (this.#error !== undefined) throw this.#error;
      else if (this.#done) return;
      else await new Promise<void>((wake) => this.#wake = wake);
    }
  }
}
