/**
 * The way out of a public sandbox: an HTTP proxy (CONNECT and absolute-form requests) of this process on a unix socket.
 * It lets a sandbox reach other machines and nothing of this one: loopback, link-local and this machine's own
 * addresses are refused after the name was resolved, and the address that was judged is the one that is connected to,
 * so no second answer of a name server leads elsewhere. Where this machine itself goes out through a proxy
 * (HTTP_PROXY, HTTPS_PROXY, NO_PROXY), requests are passed on to that.
 */
import { lookup } from "node:dns/promises";
import { createServer, isIP, type Server, Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { Buffer } from "node:buffer";
import { messageOf } from "../lib/errors.ts";

const HEAD_LIMIT = 64 * 1024;
const CONNECT_MS = 30_000;

/** Why an address is not for sandboxes; undefined when it is. `own`: this machine's addresses. */
export function refusedAddress(address: string, own: ReadonlySet<string>): string | undefined {
  const plain = address.toLowerCase().replace(/^::ffff:(?=\d+\.)/, "").replace(/%.*$/, "");
  if (isIP(plain) === 0) return "not an address";
  if (/^(127\.|0\.)/.test(plain) || plain === "::1" || plain === "::") return "a loopback address of this machine";
  if (/^169\.254\./.test(plain) || /^fe[89ab]/.test(plain)) return "a link-local address";
  if (/^(22[4-9]|23\d|24\d|25[0-5])\./.test(plain) || plain.startsWith("ff")) return "a multicast or reserved address";
  if (/^::ffff:/.test(plain) || /^::[0-9a-f]/.test(plain)) return "an IPv4 address in an unusual spelling";
  if (own.has(plain)) return "an address of this machine";
  return undefined;
}

function ownAddresses(): Set<string> {
  const own = new Set<string>();
  for (const list of Object.values(networkInterfaces())) {
    for (const { address } of list ?? []) own.add(address.toLowerCase().replace(/%.*$/, ""));
  }
  return own;
}

export interface Request {
  method: string;
  host: string;
  port: number;
  /** What goes to the other side before the client's remaining bytes; "" for CONNECT. */
  head: string;
}

/** The head of a proxy request (RFC 9110 and 9112); a string says what is wrong with it. */
export function parseRequest(head: string): Request | string {
  const [first = "", ...headers] = head.split("\r\n");
  const match = /^([A-Z]+) (\S+) (HTTP\/1\.[01])$/.exec(first);
  if (match === null) return "not an HTTP/1 request";
  const [, method, target, version] = match as unknown as [string, string, string, string];
  if (method === "CONNECT") {
    const authority = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:\s]+)):(\d+)$/.exec(target);
    const port = Number(authority?.[3]);
    if (authority === null || port < 1 || port > 65535) return "CONNECT wants host:port";
    return { method, host: authority[1] ?? authority[2]!, port, head: "" };
  }
  let url: URL;
  try {
    url = new URL(target);
  } catch {
    return "this is a proxy: the request must name the whole http:// address";
  }
  if (url.protocol !== "http:") return `cannot forward ${url.protocol} requests; use CONNECT`;
  const kept = headers.filter((line) => line !== "" && !/^(proxy-[^:]*|connection|keep-alive):/i.test(line));
  const lines = [`${method} ${url.pathname}${url.search} ${version}`, ...kept, "Connection: close"];
  const host = url.hostname.replace(/^\[|\]$/g, "");
  return { method, host, port: Number(url.port || 80), head: lines.join("\r\n") + "\r\n\r\n" };
}

/** The proxy that this machine itself uses for a host, by its environment; undefined for a direct way. */
export function upstreamFor(
  request: Pick<Request, "method" | "host">,
  env: Readonly<Record<string, string | undefined>>,
): URL | undefined {
  const value = request.method === "CONNECT"
    ? env.HTTPS_PROXY || env.https_proxy || env.ALL_PROXY || env.all_proxy
    : env.http_proxy || env.HTTP_PROXY || env.ALL_PROXY || env.all_proxy;
  if (!value) return undefined;
  const host = request.host.toLowerCase();
  for (const entry of (env.NO_PROXY || env.no_proxy || "").split(",")) {
    const name = entry.trim().toLowerCase().replace(/^\*?\.?/, "").replace(/:\d+$/, "");
    if (entry.trim() === "*" || (name !== "" && (host === name || host.endsWith(`.${name}`)))) return undefined;
  }
  try {
    const url = new URL(value.includes("://") ? value : `http://${value}`);
    return url.protocol === "http:" ? url : undefined;
  } catch {
    return undefined;
  }
}

export interface Proxy {
  readonly socket: string;
  close(): void;
}

/** Listens on a unix socket of mode 0600 in a folder of ours. */
export async function startProxy(
  socket: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<Proxy> {
  const clients = new Set<Socket>();
  const server: Server = createServer((client) => {
    clients.add(client);
    client.on("error", () => client.destroy());
    client.on("close", () => clients.delete(client));
    readHead(client, (head, rest) => void serve(client, head, rest, env));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(socket, () => resolve());
  });
  server.unref();
  return {
    socket,
    close() {
      server.close();
      for (const client of clients) client.destroy();
    },
  };
}

function readHead(client: Socket, then: (head: string, rest: Buffer) => void): void {
  let seen = Buffer.alloc(0);
  const onData = (chunk: Buffer) => {
    seen = Buffer.concat([seen, chunk]);
    const end = seen.indexOf("\r\n\r\n");
    if (end < 0) {
      if (seen.length > HEAD_LIMIT) {
        answer(client, "431 Request Header Fields Too Large", "the request's head is too long");
      }
      return;
    }
    client.off("data", onData);
    client.pause();
    then(seen.subarray(0, end).toString("latin1"), seen.subarray(end + 4));
  };
  client.on("data", onData);
}

function answer(client: Socket, status: string, text: string): void {
  const body = `gym-harbor: ${text}\n`;
  client.end(
    `HTTP/1.1 ${status}\r\nContent-Type: text/plain\r\nContent-Length: ${Buffer.byteLength(body)}\r\n` +
      `Connection: close\r\n\r\n${body}`,
  );
}

async function serve(
  client: Socket,
  head: string,
  rest: Buffer,
  env: Readonly<Record<string, string | undefined>>,
): Promise<void> {
  const request = parseRequest(head);
  if (typeof request === "string") return answer(client, "400 Bad Request", request);
  const upstream = upstreamFor(request, env);
  try {
    let target = upstream && { host: upstream.hostname, port: Number(upstream.port || 80) };
    // A name may be known to the upstream proxy alone; an address or this machine's own name is judged here.
    if (target === undefined || isIP(request.host) !== 0 || /^(.*\.)?localhost\.?$/i.test(request.host)) {
      const { address } = await lookup(request.host);
      const reason = refusedAddress(address, ownAddresses());
      if (reason !== undefined) {
        return answer(client, "403 Forbidden", `${request.host} is ${reason}; a sandbox reaches other machines only`);
      }
      target ??= { host: address, port: request.port };
    }
    const server = await connect(target, client);
    if (upstream !== undefined) server.write(`${head}${authorization(upstream)}\r\n\r\n`);
    else if (request.head === "") client.write("HTTP/1.1 200 Connection established\r\n\r\n");
    else server.write(request.head);
    if (rest.length > 0) server.write(rest);
    client.pipe(server);
    server.pipe(client);
    client.resume();
  } catch (error) {
    answer(client, "502 Bad Gateway", `cannot reach ${request.host}: ${messageOf(error)}`);
  }
}

function authorization(upstream: URL): string {
  if (upstream.username === "") return "";
  const pair = `${decodeURIComponent(upstream.username)}:${decodeURIComponent(upstream.password)}`;
  return `\r\nProxy-Authorization: Basic ${Buffer.from(pair).toString("base64")}`;
}

function connect(target: { host: string; port: number }, client: Socket): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const server = new Socket();
    const timer = setTimeout(() => server.destroy(new Error("no answer within 30 s")), CONNECT_MS);
    server.once("connect", () => {
      clearTimeout(timer);
      resolve(server);
    });
    server.on("error", (error) => {
      clearTimeout(timer);
      reject(error); // after the connection stood, nobody listens: the pipes below end both sides
    });
    server.on("close", () => client.writableEnded || client.end());
    client.on("close", () => server.destroy());
    server.connect(target);
  });
}
