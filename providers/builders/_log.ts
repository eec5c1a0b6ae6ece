/** Everything that a build said, in a file and as events. */
import { createWriteStream, mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { finished } from "node:stream/promises";
import type { Emit } from "../../lib/events.ts";
import type { BuildRequest } from "../../lib/images/builder.ts";

export class BuildLog implements AsyncDisposable {
  readonly #file;
  readonly #text = new TextDecoder();

  constructor(private readonly request: BuildRequest, private readonly emit: Emit) {
    mkdirSync(dirname(request.logFile), { recursive: true });
    this.#file = createWriteStream(request.logFile, { mode: 0o600 });
    // A log that cannot be written must not end a build; the events and the reason still tell.
    this.#file.on("error", () => {});
  }

  write(chunk: Uint8Array): void {
    this.#file.write(chunk);
    this.emit({ kind: "build-output", image: this.request.name, text: this.#text.decode(chunk, { stream: true }) });
  }

  /** A line of ours. */
  say(line: string): void {
    this.write(new TextEncoder().encode(`gym-harbor: ${line}\n`));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#file.end();
    await finished(this.#file).catch(() => {});
  }
}
