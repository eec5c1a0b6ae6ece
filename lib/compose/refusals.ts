/**
 * Why a Compose file is refused, in one text that names every service and key (spec/images-and-sandboxes §6.4). Values
 * taken from this machine's environment never stand in it.
 */
import { secretsAmong, withoutSecrets } from "../secrets.ts";

export class Refusals {
  #found = new Set<string>();

  /** `service` null: the file as a whole. `key` as a path inside the service: `ports[0]`. */
  add(service: string | null, key: string, why: string): void {
    this.#found.add(`${service === null ? "" : `service '${service}': `}${key === "" ? "" : `${key} `}${why}`);
  }

  get any(): boolean {
    return this.#found.size > 0;
  }

  /** The reason, entries sorted; `secrets` (name → value) do not come through. */
  text(secrets: Readonly<Record<string, string>> = {}): string {
    return withoutSecrets(`Compose file was refused: ${[...this.#found].sort().join("; ")}`, secretsAmong(secrets));
  }
}

/** What a reader of one key gets: its value, and where to say what is wrong. */
export class Field {
  constructor(
    private readonly refusals: Refusals,
    readonly service: string,
    readonly key: string,
    private readonly notes: string[],
  ) {}

  refuse(why: string): void {
    this.refusals.add(this.service, this.key, why);
  }

  /** Something that is done otherwise than written. */
  note(text: string): void {
    this.notes.push(`service '${this.service}': ${this.key} ${text}`);
  }

  /** A key below this one, or an entry of its list. */
  at(part: string | number): Field {
    const key = typeof part === "number" ? `${this.key}[${part}]` : `${this.key}.${part}`;
    return new Field(this.refusals, this.service, key, this.notes);
  }
}
