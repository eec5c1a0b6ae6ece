/** Did-you-mean: the one notion of "near" for commands, options, keys and names. */
import { distance } from "fastest-levenshtein";

/**
 * The candidate nearest to `word`, or undefined when none is close: at most a third of the longer word may differ, and
 * never more than three letters. Case does not count. The first of several equally near ones wins.
 */
export function nearest(word: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined;
  let least = Infinity;
  for (const candidate of candidates) {
    const far = distance(word.toLowerCase(), candidate.toLowerCase());
    const allowed = Math.min(3, Math.max(1, Math.floor(Math.max(word.length, candidate.length) / 3)));
    if (far <= allowed && far < least) [best, least] = [candidate, far];
  }
  return best;
}
