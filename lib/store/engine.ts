/** Images that an engine has, brought into a store as it saves them, their configuration byte for byte. */
import { HarborError } from "../errors.ts";
import { isPinned } from "../images/reference.ts";
import { Producer } from "../runtime/producer.ts";
import type { Runner } from "../runtime/runner.ts";
import { decisiveLine, engineFailure } from "../sandbox/failure.ts";
import { importArchive } from "./archive_in.ts";
import type { ImageStore, StoredImage } from "./store.ts";

export type EngineName = "docker" | "podman" | "buildah";

/** argv that writes the image to standard output. A name without a tag would mean all of its tags. */
export function saveArgv(engine: EngineName, name: string): string[] {
  const isId = /^(sha256:)?[0-9a-f]{12,64}$/.test(name);
  const hasTag = isPinned(name) || name.lastIndexOf(":") > name.lastIndexOf("/");
  const whole = isId || hasTag ? name : `${name}:latest`;
  if (engine === "buildah") return [engine, "push", name, `docker-archive:/dev/stdout${isId ? "" : `:${whole}`}`];
  return [engine, "save", ...(engine === "podman" ? ["--format", "docker-archive"] : []), whole];
}

export interface FromEngine {
  runner: Runner;
  /** Names in the store; default: the image's name as it was given. */
  names?: string[];
  /** Another command that writes such an archive. */
  argv?: string[];
  /** The whole environment of the command; default: ours. */
  env?: Readonly<Record<string, string | undefined>>;
}

/** What an engine saves, straight into the store. Throws "image.failed" with what the engine says. */
export async function importFromEngine(
  engine: EngineName,
  name: string,
  store: ImageStore,
  { runner, names = [name], argv = saveArgv(engine, name), env }: FromEngine,
  signal: AbortSignal,
): Promise<StoredImage> {
  using program = await Producer.start(runner, argv, signal, env === undefined ? {} : { env });
  const what = `${engine}:${name}`;
  const taken = importArchive(program.stdout as AsyncIterable<Uint8Array>, store, { what, names }, signal);
  const images = await taken.catch(async (cause) => {
    program.kill();
    signal.throwIfAborted();
    const { exitCode, signal: ended } = await program.ended;
    throw exitCode !== 0 && ended === null ? refusal(engine, name, program.said, cause) : cause;
  });
  const { exitCode } = await program.ended;
  if (exitCode !== 0) throw refusal(engine, name, program.said, undefined);
  return images[0]!;
}

function refusal(engine: string, name: string, said: string, cause: unknown): HarborError {
  const why = engineFailure(said)?.line ?? decisiveLine(said);
  return new HarborError("image.failed", `Cannot import ${engine}:${name}: ${why}`, {
    cause,
    hint: `${engine} images   lists what it has`,
    details: { stderr: said },
  });
}
