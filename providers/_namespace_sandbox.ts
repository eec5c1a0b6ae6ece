/**
 * One running sandbox in namespaces of its own: its commands and files, what holds it, its end.
 */
import { mkdirSync, renameSync, rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { Buffer } from "node:buffer";
import { Readable } from "node:stream";
import { errno, HarborError, messageOf } from "../lib/errors.ts";
import { unpackInto } from "../lib/files/tar.ts";
import { HeadTail } from "../lib/runtime/head_tail.ts";
import { shellQuote, type Started } from "../lib/runtime/runner.ts";
import { type Owner, startTime } from "../lib/sandbox/owner.ts";
import type {
  Alive,
  Collected,
  Command,
  DownloadLimits,
  DownloadReport,
  ExecResult,
  HostTree,
  Network,
  Running,
  Sandbox,
} from "../lib/sandbox/provider.ts";
import { refuseVariables } from "../lib/sandbox/variables.ts";
import { type Groups, removeGroups, removeGroupsNow } from "./_namespace_limits.ts";
import { PATH } from "./_namespace_machine.ts";
import { type Network as HeldNetwork, proxyEnv } from "./_namespace_networks.ts";
import { removeBaseNow } from "./_namespace_state.ts";
import {
  collectFile,
  download,
  findInside,
  type FoundInside,
  isFolder,
  makeFolder,
  putTree,
} from "./_namespace_files.ts";
import { type Account, accountOf, rootEnterArgv } from "./_namespace_init.ts";
import { CONTROL, type Layer, type MountPlan } from "./_namespace_mounts.ts";
import type { OpenRequest } from "./_namespace_open.ts";
import type { Session } from "./_namespace_session.ts";
import type { BuildTool } from "./_namespace_tools.ts";
import { killAll } from "./_namespace_tree.ts";
import { MemoryWatch } from "./_namespace_watch.ts";

const CLOSE_MS = 10_000;
/** For transfers that have to run inside. */
const INSIDE_MS = 600_000;

export class NamespaceSandbox implements Sandbox {
  readonly id: string;
  readonly enterArgv: readonly string[];
  readonly workdir: string;
  readonly notes: readonly string[];
  readonly limits: Sandbox["limits"];
  readonly network: Network;
  readonly #root: string;
  #kept = false;
  #closed: Promise<void> | undefined;
  #watch: MemoryWatch | undefined;

  constructor(
    private readonly request: OpenRequest,
    private readonly plan: MountPlan,
    private readonly control: string,
    private readonly started: Started,
    private readonly session: Session,
    private readonly init: number,
    private readonly groups: Groups,
    private readonly held: HeldNetwork | undefined,
  ) {
    const { spec, machine, rootfs } = request;
    this.id = request.id;
    this.network = request.network;
    this.workdir = spec.workdir ?? (spec.image.workdir || "/");
    this.#root = `/proc/${init}/root`;
    const words = [...rootfs.tools.env, "-C", this.workdir, rootfs.shell];
    const joined = ["--user", "--preserve-credentials", "--mount", "--pid", "--ipc", "--uts", "--net", "--root"];
    this.enterArgv = machine.mode === "root"
      ? rootEnterArgv(init, words, machine.programs.setpriv, this.network === "host")
      : ["nsenter", "--target", String(init), ...joined, ...words];
    const asked = [spec.limits.memoryMb, spec.limits.cpus];
    const held_ = [groups.holds.memory, groups.holds.cpu];
    const open = asked.some((limit, at) => limit !== undefined && !held_[at]);
    this.limits = open ? "watched" : "enforced";
    this.notes = [...spec.image.notes, ...this.#ownNotes()];
    const { memoryMb } = spec.limits;
    if (memoryMb !== undefined && !groups.holds.memory) this.#watch = new MemoryWatch(init, memoryMb, request.clock);
  }

  #ownNotes(): string[] {
    const { spec, rootfs, network, machine } = this.request;
    const notes: string[] = [];
    if (machine.ids === "own") {
      notes.push(`users: one id only (${machine.idsReason}); a program that becomes another user fails`);
    }
    if (network === "host") {
      notes.push(`network: shares this machine's network (sandbox.${this.request.provider}.network=host)`);
    }
    if (network === "public") {
      notes.push(
        "network: out through an HTTP proxy (HTTP_PROXY, HTTPS_PROXY); this machine's own addresses are refused",
      );
    }
    notes.push(...rootfs.notes);
    if (spec.limits.memoryMb !== undefined && !this.groups.holds.memory) {
      notes.push("memory_mb: watched ten times a second, no control group may be written here");
    }
    if (spec.limits.cpus !== undefined && !this.groups.holds.cpu) {
      notes.push("cpus: by CPU affinity, no control group may be written here");
    }
    const { cpus } = spec.limits;
    if (cpus !== undefined && cpus > availableParallelism()) {
      notes.push(`cpus: ${cpus} asked for, this machine has ${availableParallelism()}`);
    }
    if (spec.limits.storageMb !== undefined && rootfs.storage !== "memory") notes.push("storage_mb: not enforced");
    if (spec.limits.gpus) notes.push("gpus: not assigned");
    return notes;
  }

  /** The seed's own script, then the working directory, which may belong to a user that the script made. */
  async seed(signal: AbortSignal): Promise<void> {
    const { spec } = this.request;
    if (spec.setup !== undefined) await this.#seedScript(spec.setup, signal);
    const made = await this.#inside(() => Promise.resolve(makeFolder(this.#root, this.workdir)));
    if (made.length === 0) return;
    const user = this.#userOf(undefined);
    if (user !== undefined) await this.#seedScript(`chown ${user.uid}:${user.gid} -- "$GYM_WORKDIR"`, signal);
  }

  async #seedScript(script: string, signal: AbortSignal): Promise<void> {
    const done = await this.session.run({
      run: { steps: script },
      env: { ...this.#environment(undefined, { GYM_WORKDIR: this.workdir }) },
      cwd: "/",
      purpose: "server",
      deadlineMs: this.request.spec.readyTimeoutMs,
      keepBytes: 64 * 1024,
    }, signal);
    if (done.ended === "exit" && done.exitCode === 0) return;
    const why = done.ended === "deadline" ? "it took too long" : `exit code ${done.exitCode}`;
    throw new HarborError("sandbox.failed", `The sandbox's setup failed: ${why}${said(done.stderr)}`);
  }

  /** `onOutput` sees both streams as they arrive. */
  async exec(
    command: Command & { onOutput?: (chunk: Uint8Array) => void },
    signal: AbortSignal,
  ): Promise<ExecResult> {
    const begun = this.request.clock.ticks();
    const kills = this.#oomKills();
    await this.#carryIn(command, signal);
    const account = this.#userOf(command.user);
    const done = await this.session.run({
      run: command.run,
      env: this.#environment(account, command.env),
      cwd: command.cwd ?? this.workdir,
      ...(account !== undefined && { account }),
      purpose: command.purpose,
      deadlineMs: command.deadlineMs,
      keepBytes: command.keepBytes ?? 1024 * 1024,
      ...(command.onOutput !== undefined && { onOutput: command.onOutput }),
    }, signal);
    const collected: Record<string, Collected> = {};
    for (const { path, maxBytes } of command.collect ?? []) collected[path] = await this.#collect(path, maxBytes);
    const brought: DownloadReport[] = [];
    for (const { from, to, limits } of command.bring ?? []) brought.push(await this.download(from, to, limits, signal));
    const after = this.#oomKills();
    return {
      ...done,
      durationMs: this.request.clock.ticks() - begun,
      collected,
      brought,
      oomKilled: kills === null || after === null ? null : after > kills,
    };
  }

  async #carryIn(command: Command, signal: AbortSignal): Promise<void> {
    if (command.before !== undefined) {
      const done = await this.session.run({
        run: { steps: command.before },
        env: this.#environment(undefined, {}),
        cwd: "/",
        purpose: "server",
        deadlineMs: Math.min(command.deadlineMs, 600_000),
        keepBytes: 64 * 1024,
      }, signal);
      if (done.ended !== "exit" || done.exitCode !== 0) {
        const why = done.ended === "deadline" ? "it took too long" : `exit code ${done.exitCode}`;
        throw new HarborError("sandbox.failed", `A step before the command failed: ${why}${said(done.stderr)}`);
      }
    }
    for (const tree of command.unpack ?? []) {
      signal.throwIfAborted();
      await this.#inside(() => this.#put(tree));
    }
  }

  async #put(tree: HostTree): Promise<void> {
    try {
      return await putTree(this.#root, tree);
    } catch (error) {
      if (errno(error) !== "EACCES") throw error;
    }
    // The target belongs to another id of our range: the sandbox's own root fetches the files from the control folder.
    const name = `tree-${this.request.clock.ticks()}`;
    await putTree(this.control, { ...tree, to: name });
    const done = await this.#asRoot(
      `mkdir -p "$GYM_TO" && cp -a --no-preserve=ownership "$GYM_FROM/." "$GYM_TO/"`,
      { GYM_TO: tree.to, GYM_FROM: `${CONTROL}/${name}` },
      () => {},
    );
    rmSync(join(this.control, name), { recursive: true, force: true });
    if (done.exitCode !== 0) {
      throw new HarborError("transfer.failed", `Cannot carry ${tree.from} to ${tree.to}: ${done.stderr.trim()}`);
    }
  }

  /** `onOutput` sees both streams as they arrive, `onStart` the first process as this machine counts it. */
  async spawn(
    command: Omit<Command, "unpack" | "collect" | "before" | "deadlineMs"> & {
      onOutput?: (chunk: Uint8Array) => void;
      onStart?: (pid: number) => void;
    },
  ): Promise<Running> {
    const account = this.#userOf(command.user);
    const stop = new AbortController();
    const output = new HeadTail(command.keepBytes ?? 1024 * 1024);
    let exitCode: number | null = null;
    const ended = this.session.run({
      run: command.run,
      env: this.#environment(account, command.env),
      cwd: command.cwd ?? this.workdir,
      ...(account !== undefined && { account }),
      purpose: command.purpose,
      deadlineMs: Infinity,
      keepBytes: 0,
      onOutput: command.onOutput ?? ((chunk) => output.push(chunk)),
      ...(command.onStart !== undefined && { onStart: command.onStart }),
    }, stop.signal).then((result) => (exitCode = result.exitCode), () => (exitCode = 137)).then(() => ({
      exitCode: exitCode!,
    }));
    await Promise.resolve();
    return {
      wait: () => ended,
      tail: (bytes) => Promise.resolve(output.text().slice(-bytes)),
      poll: () => Promise.resolve(exitCode),
      kill: async () => {
        stop.abort();
        await ended;
      },
    };
  }

  async download(from: string, to: string, limits: DownloadLimits, signal: AbortSignal): Promise<DownloadReport> {
    signal.throwIfAborted();
    return await this.#inside(async () => {
      try {
        return await download(this.#root, from, to, limits);
      } catch (error) {
        if (errno(error) !== "EACCES") throw error;
        const chunks: Uint8Array[] = [];
        const script = `tar -C "$GYM_PATH" -cf - . | head -c ${limits.maxBytes + 16 * 1024 * 1024}`;
        await this.#asRoot(script, { GYM_PATH: from }, (chunk) => void chunks.push(chunk.slice()));
        return await unpackInto(Readable.from(chunks), to, limits);
      }
    });
  }

  async read(path: string, maxBytes: number): Promise<Uint8Array> {
    const found = await this.#collect(path, maxBytes);
    if (found.kind === "file") return found.data;
    throw new HarborError(
      "transfer.failed",
      `Cannot read ${path} in the sandbox: ${found.kind === "absent" ? "it is not there" : found.reason}`,
    );
  }

  alive(): Promise<Alive> {
    if (this.session.lost === undefined && startTime(this.init) !== undefined) {
      return Promise.resolve({ state: "running" });
    }
    const kills = this.#oomKills();
    return Promise.resolve({
      state: "gone",
      oomKilled: kills === null ? null : kills > 0,
      exitCode: null,
      text: this.session.lost?.message ?? "its first process ended",
    });
  }

  keep(): void {
    this.#kept = true;
    this.session.keep();
  }

  [Symbol.asyncDispose](): Promise<void> {
    if (this.#kept) return Promise.resolve();
    return (this.#closed ??= this.#close());
  }

  /** Folders with their parents, links followed as its programs would; new ones belong to `user` ("" is root). */
  async makeFolders(paths: readonly string[], user: string, signal: AbortSignal): Promise<void> {
    const account = user === "" ? undefined : this.#userOf(user);
    for (const path of paths) {
      const made = await this.#inside(() => Promise.resolve(makeFolder(this.#root, path)));
      if (account === undefined || made.length === 0) continue;
      const words = made.map(shellQuote).join(" ");
      await this.#seedScript(`chown ${account.uid}:${account.gid} -- ${words}`, signal);
    }
  }

  find(jail: string, pattern: string): FoundInside[] {
    return findInside(this.#root, jail, pattern);
  }

  /** Runs a program of ours, not the image's, as root. */
  tool(name: BuildTool, args: readonly string[], deadlineMs: number, signal: AbortSignal): Promise<ExecResult> {
    const argv = [...this.request.rootfs.tools.build[name], ...args];
    return this.exec({ run: { argv }, purpose: "server", user: "root", cwd: "/", deadlineMs }, signal);
  }

  /** `--chown` as ids: a number alone is its group as well, a name brings its own (docs.docker.com, COPY --chown). */
  idsOf(owner: string): string {
    if (/^\d+$/.test(owner)) return `${owner}:${owner}`;
    const account = this.#lookUp(owner);
    if (account !== undefined) return `${account.uid}:${account.gid}`;
    throw new HarborError("sandbox.failed", `No user or group ${owner} in the sandbox's /etc/passwd and /etc/group`);
  }

  isFolder(path: string): boolean {
    return isFolder(this.#root, path);
  }

  /** Ends it and moves what it wrote to a folder beside it; undefined where writes do not lie on disk. */
  async harvest(): Promise<Layer | undefined> {
    if (this.request.rootfs.storage !== "disk") return undefined;
    await this.#end();
    const { base } = this.request;
    const to = `${base}.layer`;
    mkdirSync(join(to, "up"), { recursive: true, mode: 0o700 });
    const layer: Record<string, string> = {};
    for (const [folder, path] of Object.entries(this.plan.up)) {
      layer[folder] = join(to, path);
      renameSync(join(base, "tree", path), layer[folder]);
    }
    rmSync(join(layer["/"]!, ".old"), { force: true }); // the mark of its removal: the next one needs it to change roots
    return layer;
  }

  /** Whether it is gone, for whatever reason. */
  get lostNow(): boolean {
    return this.session.lost !== undefined;
  }

  get owner(): Owner {
    return this.request.spec.owner;
  }

  /** Ends everything at once, for the second interrupt. */
  closeNow(): void {
    if (this.#kept) return;
    killAll([this.init]);
    this.started.kill("SIGKILL");
    removeGroupsNow(this.groups.folders);
    removeBaseNow(this.request.base);
  }

  async #close(): Promise<void> {
    await this.#end();
    this.session.close();
    if (this.held !== undefined) this.request.lender!.give(this.held);
    await removeGroups(this.groups.folders, this.request.clock);
    if (this.session.idle) this.request.household.controls.push(this.control);
    await this.request.household.discard(this.request.base);
  }

  /** Kills everything inside and waits until it is gone. */
  async #end(): Promise<void> {
    this.#watch?.[Symbol.dispose]();
    this.session.lose("it was closed");
    killAll([this.init]);
    // PID 1 is only gone when all of its namespace are, and `unshare` only after it.
    const late = new Promise<void>((resolve) => setTimeout(resolve, CLOSE_MS).unref?.());
    await Promise.race([this.started.exited, late]);
    this.started.kill("SIGKILL");
  }

  async #collect(path: string, maxBytes: number): Promise<Collected> {
    try {
      return collectFile(this.#root, path, maxBytes);
    } catch (error) {
      if (errno(error) !== "EACCES" && errno(error) !== "EPERM") throw error;
      return await this.#collectInside(path, maxBytes);
    }
  }

  /** A file of another id of our range: only the sandbox's own root may read it. */
  async #collectInside(path: string, maxBytes: number): Promise<Collected> {
    const chunks: Uint8Array[] = [];
    const script = `[ -L "$GYM_PATH" ] && exit 40; [ -e "$GYM_PATH" ] || exit 41; [ -f "$GYM_PATH" ] || exit 42
head -c ${maxBytes + 1} <"$GYM_PATH"`;
    const done = await this.#asRoot(script, { GYM_PATH: path }, (chunk) => void chunks.push(chunk.slice()));
    const data = Buffer.concat(chunks);
    if (done.exitCode === 41) return { kind: "absent" };
    if (done.exitCode === 40) return { kind: "refused", reason: "a symbolic link" };
    if (done.exitCode !== 0) return { kind: "refused", reason: done.stderr.trim() || "not a regular file" };
    return data.length > maxBytes
      ? { kind: "refused", reason: `larger than ${maxBytes} bytes` }
      : { kind: "file", data };
  }

  async #asRoot(script: string, env: Record<string, string>, onStdout: (chunk: Uint8Array) => void) {
    return await this.session.run({
      run: { script },
      env: { PATH, ...env },
      cwd: "/",
      purpose: "server",
      deadlineMs: INSIDE_MS,
      keepBytes: 4096,
      onOutput: (chunk, stream) => stream === "stdout" && onStdout(chunk),
    }, new AbortController().signal);
  }

  /** A transfer that fails because the sandbox went says that. */
  async #inside<T>(step: () => Promise<T>): Promise<T> {
    try {
      return await step();
    } catch (cause) {
      if (this.session.lost !== undefined) throw this.session.lost;
      if (cause instanceof HarborError) throw cause;
      throw new HarborError("transfer.failed", `Cannot reach files of the sandbox: ${messageOf(cause)}`, { cause });
    }
  }

  #userOf(user: string | undefined): Account | undefined {
    const name = user ?? this.request.spec.user ?? this.request.spec.image.user;
    if (name === "" || name === "root" || name === "0" || name === "0:0" || name === "root:root") return undefined;
    const account = this.#lookUp(name);
    if (account === undefined) throw new HarborError("sandbox.failed", `No user ${name} in the sandbox's /etc/passwd`);
    if (this.request.machine.ids === "own" && account.uid !== 0) {
      throw new HarborError("sandbox.failed", `Cannot run as ${name}: this user namespace has one id, root`, {
        hint: `give this user a range of ids: ${this.request.machine.idsReason}`,
      });
    }
    return account;
  }

  #lookUp(name: string): Account | undefined {
    const text = (path: string) => {
      try {
        const found = collectFile(this.#root, path, 16 * 1024 * 1024);
        return found.kind === "file" ? Buffer.from(found.data).toString() : "";
      } catch (error) {
        if (errno(error) === "EACCES" || errno(error) === "EPERM") return ""; // a task took our own right to read it
        throw error;
      }
    };
    return accountOf(name, text("/etc/passwd"), text("/etc/group"));
  }

  #environment(
    account: Account | undefined,
    more: Readonly<Record<string, string>> | undefined,
  ): Record<string, string> {
    const { spec } = this.request;
    const env: Record<string, string> = {
      PATH,
      HOME: (account ?? this.#lookUp("root"))?.home ?? "/",
      ...(this.request.network === "public" && proxyEnv(this.request.direct)),
      ...this.request.rootfs.env,
      ...spec.image.env,
      ...spec.env,
      ...more,
    };
    refuseVariables(env);
    return env;
  }

  #oomKills(): number | null {
    return this.groups.oomKills() ?? this.#watch?.kills ?? null;
  }
}

const said = (stderr: string): string => (stderr.trim() === "" ? "" : `: ${stderr.trim()}`);
