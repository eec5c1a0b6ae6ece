/** How sandboxes are made on this machine: what its kernel or disk refused once is not tried again. */
import { HarborError } from "../lib/errors.ts";
import type { Storage } from "./_namespace_mounts.ts";

export interface Way {
  storage: Storage;
  sysfs: boolean;
}

export class Ways {
  current: Way;
  #proven = false;

  /** `storages` in the order they are tried; `fixed` by an option is never left. */
  constructor(private readonly storages: readonly Storage[], private readonly fixed: Storage | undefined) {
    this.current = { storage: fixed ?? storages[0]!, sysfs: true };
  }

  /** The current way has worked: later failures have other reasons. */
  prove(): void {
    this.#proven = true;
  }

  /** After a refused mount: whether another way is to be tried. What was left out is noted by whoever opens. */
  tryAnother(failed: Way, error: unknown): boolean {
    if (this.#proven || !(error instanceof HarborError) || error.code !== "sandbox.failed") return false;
    if (failed !== this.current) return true; // somebody else found out meanwhile
    const said = String(error.details?.stderr ?? "");
    if (failed.sysfs && /\/root(\/box)?\/sys\b/.test(said)) {
      this.current = { ...failed, sysfs: false };
      return true;
    }
    const next = this.storages[this.storages.indexOf(failed.storage) + 1];
    if (this.fixed !== undefined || next === undefined || !/mount/.test(said)) return false;
    this.current = { ...failed, storage: next };
    return true;
  }
}
