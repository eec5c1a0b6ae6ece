/** Values that came from this machine's environment through `${NAME}` in a task do not reach rows or log files. */
import { Buffer } from "node:buffer";
import { createReadStream, createWriteStream } from "node:fs";
import { lstat, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { walkTree } from "../files/tree.ts";
import { type Secret, secretsAmong, withoutSecrets } from "../secrets.ts";

export class Redactor {
  readonly #secrets: Secret[];

  /** `values`: name → value of what was taken from the host. */
  constructor(values: Readonly<Record<string, string>>) {
    this.#secrets = secretsAmong(values);
  }

  get empty(): boolean {
    return this.#secrets.length === 0;
  }

  text(text: string): string {
    return withoutSecrets(text, this.#secrets);
  }

  /** A copy with every string in it redacted; keys stay. */
  value<T>(value: T): T {
    if (this.empty) return value;
    return JSON.parse(JSON.stringify(value), (_key, one) => (typeof one === "string" ? this.text(one) : one)) as T;
  }

  /** Rewrites every regular file below a folder that nobody else writes to. Throws what walking and writing may throw. */
  async folder(path: string): Promise<void> {
    if (this.empty) return;
    const files: string[] = [];
    walkTree(path, (entry) => void (entry.kind === "file" && files.push(entry.path)));
    for (const file of files) await this.file(join(path, file));
  }

  /** Rewrites a regular file in place, in constant memory. A file that is absent or a link is left alone. */
  async file(path: string): Promise<void> {
    if (this.empty) return;
    const stat = await lstat(path).catch(() => undefined);
    if (stat?.isFile() !== true) return;
    const temp = `${path}.redacted.tmp`;
    try {
      await pipeline(
        createReadStream(path),
        (chunks) => this.#chunks(chunks),
        createWriteStream(temp, { mode: 0o644 }),
      );
      await rename(temp, path);
    } catch (error) {
      await rm(temp, { force: true });
      throw error;
    }
  }

  /** Bytes as Latin-1 text: one character a byte, so that nothing but the secrets changes. */
  async *#chunks(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
    const secrets = this.#secrets.map(([value, name]): Secret => [Buffer.from(value).toString("latin1"), name]);
    const longest = Math.max(...secrets.map(([value]) => value.length));
    let held = "";
    for await (const chunk of chunks) {
      held = withoutSecrets(held + Buffer.from(chunk).toString("latin1"), secrets);
      const ready = held.length - longest + 1; // the rest may be the beginning of a secret
      if (ready <= 0) continue;
      yield Buffer.from(held.slice(0, ready), "latin1");
      held = held.slice(ready);
    }
    if (held !== "") yield Buffer.from(held, "latin1");
  }
}
