/**
 * What was left out of a copied folder, and why. The first are kept by name and the rest are counted, so that a folder
 * of a million bad entries costs no memory.
 */
export interface LeftOut {
  path: string;
  reason: string;
}

const KEPT = 100;

export class Refusals {
  #kept: LeftOut[] = [];
  #more = 0;

  add(path: string, reason: string): void {
    if (this.#kept.length < KEPT) this.#kept.push({ path, reason });
    else this.#more++;
  }

  /** At most 101 entries: the last one counts those without a name. */
  list(): LeftOut[] {
    return this.#more === 0
      ? [...this.#kept]
      : [...this.#kept, { path: "…", reason: `${this.#more} more entries were left out` }];
  }
}
