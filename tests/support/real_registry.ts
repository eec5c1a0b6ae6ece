/** Debian's `docker-registry` on a free port of 127.0.0.1, with everything in a folder of the test's own. */
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";

export interface RealRegistry extends AsyncDisposable {
  /** `127.0.0.1:port`. */
  host: string;
}

/** Why there can be none here; undefined where there can. */
export function registrySkip(): string | undefined {
  return spawnSync("docker-registry", ["--version"]).error === undefined ? undefined : "docker-registry: not installed";
}

/** With `login`, only that account may read and write. */
export async function startRegistry(
  folder: string,
  login?: { user: string; password: string },
): Promise<RealRegistry> {
  mkdirSync(folder, { recursive: true });
  const port = await freePort();
  const config: Record<string, unknown> = {
    version: "0.1",
    log: { level: "warn", accesslog: { disabled: true } },
    storage: { filesystem: { rootdirectory: join(folder, "data") }, delete: { enabled: true } },
    http: { addr: `127.0.0.1:${port}`, secret: "of a test" },
    ...(login !== undefined && { auth: { htpasswd: { realm: "test", path: join(folder, "htpasswd") } } }),
  };
  if (login !== undefined) writeFileSync(join(folder, "htpasswd"), `${login.user}:${bcrypt(login.password)}\n`);
  writeFileSync(join(folder, "registry.yml"), JSON.stringify(config)); // JSON is YAML
  const server = spawn("docker-registry", ["serve", join(folder, "registry.yml")], { stdio: "ignore" });
  const ended = new Promise<void>((resolve) => void server.once("exit", () => resolve()));
  while (!await answers(port)) {
    if (server.exitCode !== null) throw new Error(`docker-registry ended with ${server.exitCode}`);
    await new Promise((later) => setTimeout(later, 50));
  }
  return {
    host: `127.0.0.1:${port}`,
    async [Symbol.asyncDispose]() {
      server.kill("SIGTERM");
      await ended;
    },
  };
}

/** By the crypt(3) of perl, which every Debian has. */
function bcrypt(password: string): string {
  const script = 'print crypt($ENV{PW}, "\\$2y\\$05\\$abcdefghijklmnopqrstuu")';
  return spawnSync("perl", ["-e", script], { env: { PW: password }, encoding: "utf8" }).stdout;
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => (socket.destroy(), resolve(true)));
    socket.once("error", () => resolve(false));
  });
}
