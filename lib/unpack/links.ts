/** Links of a layer, followed by a table of our own instead of by this machine. Pure. */

const MAX_HOPS = 40;

/**
 * Where a path leads by these links (path → target), from the layer's top; undefined when it climbs above that or goes
 * round in a circle. An absolute target begins at the root of the image, which is the layer's top.
 */
export function follow(path: string, links: ReadonlyMap<string, string>): string | undefined {
  const todo = path.split("/").reverse();
  const at: string[] = [];
  for (let hops = 0; todo.length > 0;) {
    const part = todo.pop()!;
    if (part === "" || part === ".") continue;
    if (part === "..") {
      if (at.pop() === undefined) return undefined;
      continue;
    }
    at.push(part);
    const target = links.get(at.join("/"));
    if (target === undefined) continue;
    if (++hops > MAX_HOPS) return undefined;
    at.pop();
    if (target.startsWith("/")) at.length = 0;
    todo.push(...target.split("/").reverse());
  }
  return at.join("/");
}
