/**
 * Hidden: the inner end of a sandbox's way out. It listens on loopback of the network namespace it was started in and
 * hands each connection to a unix socket outside, byte for byte. It ends with its standard input, which its starter holds.
 */
import { createConnection, createServer } from "node:net";
import type { Context } from "../lib/context.ts";
import { EXIT, HarborError } from "../lib/errors.ts";
import { stdinEnded } from "../lib/runtime/stdin.ts";

export interface Options {
  port: number;
  socket: string;
}

/** `relay PORT SOCKET`; no parser library, since each sandbox slot waits for its start. */
export function parse(argv: string[]): Options {
  const port = Number(argv[0]);
  const socket = argv[1];
  if (!Number.isInteger(port) || port < 1 || port > 65535 || socket === undefined) {
    throw new HarborError("usage", "relay PORT SOCKET: started by sandboxes, not by hand");
  }
  return { port, socket };
}

export async function run(options: Options, ctx: Context): Promise<number> {
  const server = createServer({ allowHalfOpen: true }, (inner) => {
    const outer = createConnection({ path: options.socket, allowHalfOpen: true });
    for (const [one, other] of [[inner, outer], [outer, inner]] as const) {
      one.on("error", () => other.destroy());
      one.on("close", () => other.destroy());
      one.pipe(other);
    }
  });
  await new Promise<void>((resolve, reject) => {
    server.once(
      "error",
      (cause) => reject(new HarborError("machine.lacks", `Cannot relay: ${cause.message}`, { cause })),
    );
    server.listen(options.port, "127.0.0.1", () => resolve());
  });
  ctx.out("ready");
  const interrupted = new Promise<void>((resolve) => {
    ctx.signal.addEventListener("abort", () => resolve(), { once: true });
  });
  await Promise.race([stdinEnded(), interrupted]);
  return EXIT.ok;
}
