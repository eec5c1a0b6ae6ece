/** A part of a text, as rows and messages carry it: at most so many UTF-16 units, never half a character. */

/** Its beginning, with a sign where something was cut off. */
export const beginning = (text: string, limit: number): string =>
  text.length <= limit ? text : `${text.slice(0, limit - 1).replace(/[\ud800-\udbff]$/, "")}…`;

/** Its end, where the cause of a failure stands. */
export const ending = (text: string, limit: number): string => text.slice(-limit).replace(/^[\udc00-\udfff]/, "");
