/** Reads `sandbox.<name>.…` overrides: an option or value that there is not is named. */
import { HarborError } from "../lib/errors.ts";

export interface OptionReader {
  one<T extends string>(name: string, values: readonly T[]): T | undefined;
  /** A whole number above 0. */
  count(name: string): number | undefined;
}

/** Throws "usage" for a name outside `known`; so do the readers for a value that does not fit. */
export function optionReader(
  sandbox: string,
  options: Readonly<Record<string, unknown>>,
  known: readonly string[],
): OptionReader {
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown !== undefined) {
    throw new HarborError("usage", `unknown option sandbox.${sandbox}.${unknown}`, {
      hint: `there are ${known.join(", ")}`,
    });
  }
  const refuse = (name: string, wanted: string): never => {
    const found = JSON.stringify(options[name]);
    throw new HarborError("usage", `sandbox.${sandbox}.${name} is ${found}, must be ${wanted}`);
  };
  return {
    one<T extends string>(name: string, values: readonly T[]) {
      const value = options[name];
      if (value === undefined || values.includes(value as T)) return value as T | undefined;
      return refuse(name, values.join(" or "));
    },
    count(name) {
      const value = options[name];
      if (value === undefined || (typeof value === "number" && Number.isInteger(value) && value > 0)) return value;
      return refuse(name, "a whole number above 0");
    },
  };
}
