/** Our standard input, for programs that end with whoever holds it. */
import process from "node:process";

/** Resolves when it ends, by its holder's will or by his end. What arrives before is thrown away. */
export function stdinEnded(): Promise<void> {
  return new Promise((resolve) => {
    process.stdin.on("end", () => resolve()).on("close", () => resolve()).resume();
  });
}

/** All of it as text. */
export async function stdinText(): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of process.stdin) text += decoder.decode(chunk as Uint8Array, { stream: true });
  return text + decoder.decode();
}
