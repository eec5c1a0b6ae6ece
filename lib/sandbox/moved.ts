/** A sandbox with other defaults than it was opened with. */
import type { Command, Running, Sandbox } from "./provider.ts";

/** Commands that name no folder and no user run in `workdir` as `user`; everything else is the inner sandbox's. */
export class MovedSandbox implements Sandbox {
  constructor(private readonly inner: Sandbox, private readonly user: string, readonly workdir: string) {}

  get id(): string {
    return this.inner.id;
  }
  get enterArgv(): readonly string[] {
    return this.inner.enterArgv;
  }
  get notes(): readonly string[] {
    return this.inner.notes;
  }
  get limits(): Sandbox["limits"] {
    return this.inner.limits;
  }
  get network(): Sandbox["network"] {
    return this.inner.network;
  }

  exec: Sandbox["exec"] = (command, signal) => this.inner.exec(this.#placed(command), signal);
  spawn = (command: Parameters<Sandbox["spawn"]>[0]): Promise<Running> => this.inner.spawn(this.#placed(command));
  download: Sandbox["download"] = (...given) => this.inner.download(...given);
  read: Sandbox["read"] = (...given) => this.inner.read(...given);
  alive: Sandbox["alive"] = () => this.inner.alive();
  keep(): void {
    this.inner.keep();
  }
  [Symbol.asyncDispose](): PromiseLike<void> {
    return this.inner[Symbol.asyncDispose]();
  }

  #placed<C extends Pick<Command, "cwd" | "user">>(command: C): C {
    return { ...command, cwd: command.cwd ?? this.workdir, user: command.user ?? this.user };
  }
}
