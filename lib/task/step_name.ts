/**
 * Step names become folders (`steps/<name>/`) on every system a task may travel to, so Harbor 0.25.0 takes only what
 * is one portable folder name, and no two that some file system would take for one (spec/harbor-upstream, 0.25.0 A).
 */
import { Buffer } from "node:buffer";

const DEVICE = /^(con|prn|aux|nul|conin\$|conout\$|com[1-9¹²³]|lpt[1-9¹²³])$/i;

/** Why `name` cannot be a step's folder, or undefined when it can. */
export function stepNameFault(name: string): string | undefined {
  if (name.trim() === "") return "is blank";
  if (name === "." || name === "..") return "is not a folder of its own";
  if (/[. ]$/.test(name)) return "ends in a dot or a space";
  // deno-lint-ignore no-control-regex -- control characters are what is looked for
  const bad = /[<>:"/\\|?*\u0000-\u001f\u007f]/.exec(name);
  if (bad !== null) return `holds ${JSON.stringify(bad[0])}`;
  if (DEVICE.test(name.split(".")[0]!.trimEnd())) return "is a device name on Windows";
  if (Buffer.byteLength(name) > 255) return "is longer than 255 bytes";
  return undefined;
}

/** Names with the same key collide. NFC before and after folding, as the fold may compose anew. */
export function stepNameKey(name: string): string {
  return foldCase(name.normalize("NFC")).normalize("NFC");
}

/**
 * Unicode case folding with what JavaScript has: upper-casing first makes `ß` `SS` and `ﬁ` `FI`, a second round reaches
 * `ẞ`; letter by letter, so that no final sigma appears. The dotless `ı` folds to itself, though its upper case is `I`.
 */
function foldCase(text: string): string {
  const fold = (char: string): string => char === "ı" ? char : char.toUpperCase().toLowerCase();
  return [...[...text].map(fold).join("")].map(fold).join("");
}
