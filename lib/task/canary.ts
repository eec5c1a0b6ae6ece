/**
 * Canary lines at the top of instruction.md mark a task against training data and are not for the agent
 * (task-format §1.4).
 */
const CANARY = /^(<!--.*canary.*-->|#.*canary.*)$/i;

/**
 * The instruction without its canary lines and, when there were any, without the blank lines that follow them. All
 * else is kept byte for byte. (Harbor also drops leading blank lines where there is no canary.)
 */
export function withoutCanary(text: string): string {
  const lines = text.split("\n");
  let first = 0;
  while (first < lines.length && CANARY.test(lines[first]!.trim())) first++;
  if (first === 0) return text;
  while (first < lines.length && lines[first]!.trim() === "") first++;
  return lines.slice(first).join("\n");
}
