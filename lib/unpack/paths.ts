/** Names of a layer's entries, as byte strings (one character per byte), and the paths they become on this machine. */
import { Buffer } from "node:buffer";
import { isUtf8 } from "node:buffer";
import { HarborError } from "../errors.ts";
import { runtimeName } from "../runtime/self.ts";

// deno-lint-ignore no-control-regex -- all of ASCII, NUL is refused before
const ASCII = /^[\x00-\x7f]*$/;

/**
 * The path of a byte string as this runtime's file functions take it: text where it is UTF-8, else the bytes. Throws
 * "machine.lacks" under Deno 2.9, which turns bytes that are not UTF-8 into other names.
 */
export function systemPath(bytes: string): string | Buffer {
  if (ASCII.test(bytes)) return bytes;
  const raw = Buffer.from(bytes, "latin1");
  if (isUtf8(raw)) return raw.toString("utf8");
  if (runtimeName !== "deno") return raw;
  throw new HarborError("machine.lacks", `Cannot make '${shown(bytes)}': its name is not UTF-8`, {
    hint: "this only works in the compiled gym-harbor: bash compile.sh",
  });
}

/** A byte string for people. */
export const shown = (bytes: string): string => Buffer.from(bytes, "latin1").toString("utf8");

/** The byte string of a path of this machine. */
export const bytesOfPath = (path: string): string => ASCII.test(path) ? path : Buffer.from(path).toString("latin1");

/**
 * A name without `.`, empty parts and the slash at its end; "" for the top folder. Undefined when it leads out of the
 * layer: absolute, with `..`, or with a NUL.
 */
export function cleanName(name: string): string | undefined {
  if (CLEAN.test(name)) return name;
  if (name.includes("\0") || (name.startsWith("/") && /[^/]/.test(name))) return undefined;
  const parts = name.split("/").filter((part) => part !== "" && part !== ".");
  return parts.includes("..") ? undefined : parts.join("/");
}

/** The usual case at the cost of one test: no part that begins with a dot or is empty. */
// deno-lint-ignore no-control-regex -- NUL ends a name
const CLEAN = /^(?:[^./\x00][^/\x00]*)(?:\/[^./\x00][^/\x00]*)*$/;

export const parentOf = (path: string): string => {
  const at = path.lastIndexOf("/");
  return at < 0 ? "" : path.slice(0, at);
};

export const nameIn = (path: string): string => path.slice(path.lastIndexOf("/") + 1);
