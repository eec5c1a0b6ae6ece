/**
 * Host templates in `environment.env`, `verifier.env` and `solution.env` (task-format §2.11): a value that is as a
 * whole `${NAME}` or `${NAME:-default}` stands for the host's variable. Resolved at use, never in rows or digests.
 */
import { HarborError } from "../errors.ts";

type Variables = Readonly<Record<string, string | undefined>>;

const TEMPLATE = /^\$\{([^}:]+)(?::-(.*))?\}$/;

/** The host variable that `value` names, with its default; undefined for a literal. */
export function template(value: string): { name: string; fallback: string | undefined } | undefined {
  const match = TEMPLATE.exec(value);
  return match === null ? undefined : { name: match[1]!, fallback: match[2] };
}

/**
 * `values` with every template replaced from `host`. A variable that is set but empty wins over its default. Throws
 * HarborError "task.invalid" naming the variable that has neither value nor default; `where` says which table it is.
 */
export function resolveTemplates(
  values: Readonly<Record<string, string>>,
  host: Variables,
  where = "env",
): Record<string, string> {
  const resolved: Record<string, string> = {};
  for (const [key, value] of Object.entries(values)) {
    const found = template(value);
    const actual = found === undefined ? value : host[found.name] ?? found.fallback;
    if (actual === undefined) {
      throw new HarborError(
        "task.invalid",
        `${where}.${key} wants the host's variable ${found!.name}, which is not set`,
        {
          hint: `export ${found!.name}=…, or give a default: \${${found!.name}:-…}`,
        },
      );
    }
    resolved[key] = actual;
  }
  return resolved;
}

/** Host variables that `values` need and `host` does not have. */
export function missingVariables(values: Readonly<Record<string, string>>, host: Variables): string[] {
  const names = Object.values(values).map(template)
    .filter((one) => one !== undefined && one.fallback === undefined && host[one.name] === undefined)
    .map((one) => one!.name);
  return [...new Set(names)];
}
