/** Images that an engine has, brought into a store as it saves them, their configuration byte for byte. */
import { HarborError } from "../errors.ts";
import { isPinned } from "./index_file.ts";
import type { Runner } from "../runtime/runner.ts";
import { decisiveLine, engineFailure } from "../sandbox/failure.ts";
import { importArchive } from "./archive_in.ts";
import type { ImageStore, StoredImage } from "./store.ts";

/** argv that writes the image to standard output. A name without a tag would mean all of its tags. */
export function saveArgv(engine: "docker" | "podman", name: string): string[] {
  const isId = /^(sha256:)?[0-9a-f]{12,64}$/.test(name);
  const hasTag = isPinned(name) || name.lastIndexOf(":") > name.lastIndexOf("/");
  const format = engine === "podman" ? ["--format", "docker-archive"] : [];
  return [engine, "save", ...format, isId || hasTag ? name : `${name}:latest`];
}

/**
 * `docker save` or `podman save` straight into the store, under `names` (default: `name` as it was given). `argv` may be
 * another command that writes such an archive. Throws "image.failed" with what the engine says.
 */
export async function importFromEngine(
  engine: "docker" | "podman",
  name: string,
  store: ImageStore,
  { runner, names = [name], argv = saveArgv(engine, name) }: { runner: Runner; names?: string[]; argv?: string[] },
  signal: AbortSignal,
): Promise<StoredImage> {
  const program = await runner.start(argv);
  const kill = () => program.kill("SIGKILL");
  signal.addEventListener("abort", kill, { once: true });
  let said = "";
  program.stderr.on("data", (chunk: Uint8Array) => (said = (said + new TextDecoder().decode(chunk)).slice(-8192)));
  try {
    const what = `${engine}:${name}`;
    const taken = importArchive(program.stdout as AsyncIterable<Uint8Array>, store, { what, names }, signal);
    const images = await taken.catch(async (cause) => {
      kill();
      signal.throwIfAborted();
      const { exitCode, signal: ended } = await program.ended;
      throw exitCode !== 0 && ended === null ? refusal(engine, name, said, cause) : cause;
    });
    const { exitCode } = await program.ended;
    if (exitCode !== 0) throw refusal(engine, name, said, undefined);
    return images[0]!;
  } finally {
    kill();
    signal.removeEventListener("abort", kill);
  }
}

function refusal(engine: string, name: string, said: string, cause: unknown): HarborError {
  const why = engineFailure(said)?.line ?? decisiveLine(said);
  return new HarborError("image.failed", `Cannot import ${engine}:${name}: ${why}`, {
    cause,
    hint: `${engine} images   lists what it has`,
    details: { stderr: said },
  });
}
