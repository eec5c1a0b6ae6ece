/** From what a task asks to an image file that apptainer or enroot can start, or a refusal with its reason. */
import { existsSync } from "node:fs";
import type { Emit } from "../lib/events.ts";
import { HarborError } from "../lib/errors.ts";
import { envOf, thisPlatform } from "../lib/images/config.ts";
import { Shared } from "../lib/runtime/pool.ts";
import { decisiveLine } from "../lib/sandbox/failure.ts";
import type { ImageNeed, PreparedImage, ProviderDeps } from "../lib/sandbox/provider.ts";
import { cacheFolder } from "../lib/store/folder.ts";
import { type FileImageDeps, imageFile, namedFile, withTree } from "./_cluster_image.ts";
import type { ClusterTool, ToolFacts } from "./_cluster_tool.ts";
import { findImage, type Found } from "./_layers_find.ts";
import { asRoot } from "./_oci_verdict.ts";

const CONVERT_MS = 1_800_000;
const PROBE_MS = 60_000;

/** What the provider keeps of a prepared image. */
export interface FileImage {
  path: string;
}

export class ClusterImages {
  readonly #shared = new Shared<unknown>();

  constructor(private readonly tool: ClusterTool, private readonly deps: ProviderDeps) {}

  /** What a task asks and this tool cannot do. Throws "task.unsupported". */
  refuse({ taskId, source, network, limits, users }: ImageNeed, facts: ToolFacts): void {
    const refuse = (why: string, hint?: string): never => {
      throw new HarborError("task.unsupported", `${taskId} ${why}`, { hint });
    };
    if (source.kind === "none") {
      refuse(
        `has no image, and --sandbox ${this.tool.name} starts from one`,
        "--sandbox host runs it on this machine's root",
      );
    }
    if (network === "no-network" && this.tool.probeNoNetwork === undefined) {
      refuse(
        `asks for no network: ${this.tool.name} shares this machine's`,
        "use --sandbox namespace, podman or docker",
      );
    }
    if (limits.gpus && !facts.gpus) refuse(`asks for ${limits.gpus} GPU(s): there is none here`);
    this.refuseUsers(taskId, users, facts);
  }

  /** Where there is one id only. Throws "task.unsupported". */
  refuseUsers(taskId: string, users: readonly (string | undefined)[], facts: ToolFacts): void {
    const other = facts.users === "any" ? undefined : users.find((user) => asRoot(user) !== undefined);
    if (other === undefined) return;
    throw new HarborError(
      "task.unsupported",
      `${taskId} runs commands as ${other}, and ${this.tool.name} has one id only here (${facts.usersReason})`,
      { hint: facts.faults.find(({ what }) => what === facts.usersReason)?.fix ?? "use --sandbox podman or docker" },
    );
  }

  /** The image as a file, made when it is not there. Throws "image.failed", "task.unsupported". */
  async get(need: ImageNeed, facts: ToolFacts, signal: AbortSignal, emit: Emit): Promise<PreparedImage> {
    const { source } = need;
    const { name, suffix } = this.tool;
    const given = source.kind === "named" ? namedFile(source.reference, suffix) : undefined;
    if (given !== undefined) {
      const notes = [`${given} says nothing of its user, working directory and entrypoint: root, / and none`];
      return { reference: given, workdir: "/", env: {}, user: "", entrypoint: [], notes, handle: { path: given } };
    }
    const { reference, stored } = await this.#find(need, signal, emit).catch((error) => {
      if (source.kind !== "dockerfile" || !(error instanceof HarborError) || error.code !== "image.failed") throw error;
      throw new HarborError("task.unsupported", `${need.taskId}: ${name} cannot build environment/Dockerfile`, {
        hint: "build it where docker, buildah or podman are and carry it here: gym-harbor bundle export there, " +
          "gym-harbor bundle import here",
        cause: error,
      });
    });
    const { store } = this.deps;
    const path = await (this.#shared.get(`file ${stored.config.digest}`, () => {
      const files = this.#files();
      const make = async (to: string) => {
        emit({ kind: "note", text: `${name}: ${reference} becomes a .${suffix} file in ${files.cache}` });
        await withTree(stored, store!, (tree) => this.#squash(reference, tree, to, facts, signal), files, signal);
      };
      return imageFile(stored.config.digest, suffix, make, files, signal);
    }) as Promise<string>);
    const config = stored.file.config ?? {};
    return {
      reference,
      workdir: config.WorkingDir || "/",
      env: envOf(config),
      user: config.User ?? "",
      entrypoint: config.Entrypoint ?? [],
      config,
      notes: [],
      handle: { path } satisfies FileImage,
    };
  }

  #find(need: ImageNeed, signal: AbortSignal, emit: Emit): Promise<Found> {
    const { source } = need;
    const { store, registry, offline = false, platform = thisPlatform() } = this.deps;
    const key = source.kind === "named" ? source.reference : source.kind === "dockerfile" ? source.tag : need.taskId;
    return this.#shared.get(
      `find ${key}`,
      () => findImage(need, { store, registry, offline, platform }, signal, emit),
    ) as Promise<Found>;
  }

  #files(): FileImageDeps {
    const { runner, clock, env, scratch } = this.deps;
    const { suffix, cacheVariable } = this.tool;
    return { runner, clock, cache: env[cacheVariable] || cacheFolder(env, suffix), scratch };
  }

  async #squash(reference: string, tree: string, to: string, facts: ToolFacts, signal: AbortSignal): Promise<void> {
    const { runner, env, scratch } = this.deps;
    const options = { env: { ...env, ...this.tool.env(scratch, false) }, signal, deadlineMs: CONVERT_MS };
    const done = await runner.run(this.tool.squash(facts, tree, to), options);
    signal.throwIfAborted();
    if (done.exitCode === 0 && existsSync(to)) return;
    const why = done.ended === "deadline" ? `no end within ${CONVERT_MS / 1000} s` : decisiveLine(done.stderr);
    throw new HarborError("image.failed", `Cannot make a .${this.tool.suffix} file of ${reference}: ${why}`);
  }

  /** Tries it for real, once. Throws "task.unsupported". */
  async probeNoNetwork(taskId: string, image: PreparedImage, facts: ToolFacts, signal: AbortSignal): Promise<void> {
    const { runner, env, scratch } = this.deps;
    const why = await (this.#shared.get("no-network", async () => {
      const argv = this.tool.probeNoNetwork!(facts, (image.handle as FileImage).path);
      const tried = await runner.run(argv, {
        env: { ...env, ...this.tool.env(scratch, false) },
        signal,
        deadlineMs: PROBE_MS,
      });
      signal.throwIfAborted();
      return tried.exitCode === 0 ? "" : decisiveLine(tried.stderr);
    }) as Promise<string>);
    if (why === "") return;
    throw new HarborError(
      "task.unsupported",
      `${taskId} asks for no network, which ${this.tool.name} cannot give: ${why}`,
      {
        hint: "use --sandbox namespace, podman or docker",
      },
    );
  }
}
