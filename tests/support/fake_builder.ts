/** A builder that builds nothing: it records what it was asked and answers as the test says. */
import type { Builder, BuildRequest, BuiltImage } from "../../lib/images/builder.ts";

export interface FakeBuilderOptions {
  /** By image name: thrown instead of an image. */
  fails?: Record<string, Error>;
  /** Awaited in every build. */
  during?: (request: BuildRequest) => Promise<unknown>;
}

export class FakeBuilder implements Builder {
  readonly tool = "docker";
  readonly requests: BuildRequest[] = [];
  /** Names that this "machine" has. */
  readonly store = new Set<string>();
  preflights: { heredocs: boolean; platform: string }[] = [];
  running = 0;
  mostRunning = 0;

  constructor(readonly options: FakeBuilderOptions = {}) {}

  preflight(plan: { heredocs: boolean; platform: string }): Promise<string[]> {
    this.preflights.push(plan);
    return Promise.resolve([]);
  }

  async build(request: BuildRequest, signal: AbortSignal): Promise<BuiltImage> {
    signal.throwIfAborted();
    this.requests.push(request);
    this.mostRunning = Math.max(this.mostRunning, ++this.running);
    try {
      await this.options.during?.(request);
      signal.throwIfAborted();
      const failure = this.options.fails?.[request.name];
      if (failure !== undefined) throw failure;
      this.store.add(request.name);
      const digest = `sha256:${request.name.replace(/[^0-9a-f]/g, "").padEnd(64, "0").slice(0, 64)}`;
      return {
        reference: request.push ? `${request.name}@${digest}` : request.name,
        configDigest: digest,
        config: { User: "built" },
        platform: "linux/amd64",
        pushed: request.push,
      };
    } finally {
      this.running--;
    }
  }

  has = (name: string): Promise<boolean> => Promise.resolve(this.store.has(name));
}
