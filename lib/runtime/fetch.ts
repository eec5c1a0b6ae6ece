/** fetch as a command-line tool means it: proxies of the environment count, but never for this machine itself. */
import process from "node:process";

const LOOPBACK = ["localhost", "127.0.0.1", "::1", "[::1]"];
const PROXIES = ["http_proxy", "https_proxy", "all_proxy"];

let isSpared = false;

/**
 * curl, docker and podman ask no proxy for loopback; Bun 1.4.5 and Deno 2.9.6 do, unless NO_PROXY says otherwise. It is
 * read when the first request is made, so it is completed before that.
 */
export const systemFetch: typeof fetch = (input, init) => {
  if (!isSpared) spareLoopback();
  isSpared = true;
  return globalThis.fetch(input, init);
};

function spareLoopback(): void {
  if (!PROXIES.some((name) => process.env[name] || process.env[name.toUpperCase()])) return;
  const name = process.env.no_proxy === undefined ? "NO_PROXY" : "no_proxy";
  process.env[name] = [process.env[name], ...LOOPBACK].filter(Boolean).join(",");
}
