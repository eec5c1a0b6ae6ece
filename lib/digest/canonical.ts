/** Values and texts as bytes to hash, so that equal settings have equal digests on every machine (task-format §9). */
import { hash } from "node:crypto";
import { byCodePoint } from "../files/order.ts";

/** SHA-256 in lower-case hex; text as UTF-8. */
export function sha256(data: string | Uint8Array): string {
  return hash("sha256", data, "hex");
}

/**
 * JSON with keys in code-point order, no blanks and shortest round-trip numbers (`1.0` is `1`). Members that are
 * undefined are left out; big integers keep all digits. Throws TypeError for what JSON does not have: functions, NaN,
 * infinities.
 */
export function canonicalJson(value: unknown): string {
  if (value === null || typeof value === "boolean" || typeof value === "string") return JSON.stringify(value);
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new TypeError(`no JSON for ${value}`);
    return JSON.stringify(value);
  }
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (typeof value !== "object") throw new TypeError(`no JSON for a ${typeof value}`);
  if (value instanceof Date) return JSON.stringify(value.toString()); // TOML's dates keep their own spelling
  const members = Object.entries(value)
    .filter(([, member]) => member !== undefined)
    .sort(([a], [b]) => byCodePoint(a, b))
    .map(([key, member]) => `${JSON.stringify(key)}:${canonicalJson(member)}`);
  return `{${members.join(",")}}`;
}
