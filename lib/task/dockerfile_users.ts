/**
 * Whether a Dockerfile adds a user: somebody in the task means to become it, be it an entrypoint or a test that drops its
 * rights, where no setting of the task says so. Pure.
 */
import { parseDockerfile } from "./dockerfile.ts";

/** As the first word of a command; as another word it is a package or a name. */
const ADDS = /^(?:\s|then\b|do\b|else\b|sudo\b|[!{[])*(?:[\w/]*\/)?(?:useradd|adduser)(?:\s|$)/;
/** Where one command ends and another may begin, a shell's own argument included (`sh -c "…"`). */
const BETWEEN = /\n|&&|\|\||[;("']/;

/** The first RUN that adds one: its line, and the words that do it, shortened. */
export function addedUser(text: string): { line: number; words: string } | undefined {
  if (!/useradd|adduser/.test(text)) return undefined; // most files, at no cost
  for (const { name, rest, heredocs, line } of parseDockerfile(text).instructions) {
    if (name !== "RUN") continue;
    const script = [rest, ...heredocs.map(({ content }) => content)].join("\n");
    const found = script.split(BETWEEN).find((command) => ADDS.test(command));
    if (found !== undefined) return { line, words: found.trim().replace(/\s+/g, " ").slice(0, 80) };
  }
  return undefined;
}
