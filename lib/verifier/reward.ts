/**
 * Reward files become a number or the reason why not (task-format §5.6, decisions 12). Pure.
 *
 * reward.json counts before reward.txt. An unusable reward.json falls back to reward.txt, and says so; two files that
 * both hold a reward but differ say so as well. Nothing is guessed: what is not plainly a finite number is refused.
 */
import type { Collected } from "../sandbox/provider.ts";

/** Bytes of a reward file that are read at most. */
export const REWARD_MAX_BYTES = 1024 * 1024;

export type RewardName = "reward.json" | "reward.txt";
export const REWARD_FILES: readonly RewardName[] = ["reward.json", "reward.txt"];

/** What the two files say together. */
export type Reading =
  | { kind: "reward"; reward: number; rewards: Record<string, number>; notes: string[] }
  | { kind: "absent" }
  /** `rewards`: keys that were read although no headline could be chosen. */
  | { kind: "invalid"; reason: string; rewards: Record<string, number> | null };

type FileReading = { rewards: Record<string, number> } | { fault: string } | null;

/** Reads the two files together; a file that is absent says nothing. */
export function readRewards(files: Readonly<Record<RewardName, Collected>>): Reading {
  const json = readFile("reward.json", files["reward.json"]);
  const text = readFile("reward.txt", files["reward.txt"]);
  const faults = [json, text].flatMap((one) => (one !== null && "fault" in one ? [one.fault] : []));
  const used = usable(json) ?? usable(text);
  if (used === undefined) {
    if (faults.length === 0) return { kind: "absent" };
    return { kind: "invalid", reason: faults.join("; "), rewards: null };
  }
  const reward = headline(used);
  if (reward === undefined) {
    const keys = Object.keys(used).map((key) => JSON.stringify(key)).join(", ");
    const reason = `reward.json has several keys and none named "reward": ${keys}`;
    return { kind: "invalid", reason, rewards: used };
  }
  const notes = faults.map((fault) => (used === usable(text) ? `${fault}; reward.txt counts instead` : fault));
  const other = usable(text)?.reward;
  if (used === usable(json) && other !== undefined && other !== reward) {
    notes.push(`reward.json says ${reward} and reward.txt says ${other}; reward.json counts`);
  }
  return { kind: "reward", reward, rewards: used, notes };
}

const usable = (reading: FileReading): Record<string, number> | undefined =>
  reading !== null && "rewards" in reading ? reading.rewards : undefined;

/** `reward` if there is such a key, else the only key. */
function headline(rewards: Record<string, number>): number | undefined {
  if (Object.hasOwn(rewards, "reward")) return rewards.reward;
  const values = Object.values(rewards);
  return values.length === 1 ? values[0] : undefined;
}

function readFile(name: RewardName, file: Collected): FileReading {
  if (file.kind === "absent") return null;
  if (file.kind === "refused") return { fault: `${name} was not read: it is ${file.reason}` };
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(file.data);
  } catch {
    return { fault: `${name} is not UTF-8` };
  }
  if (trimmed(text) === "") return { fault: `${name} is empty` };
  return name === "reward.json" ? parseJson(text) : parseText(text);
}

/** White space as ASCII has it: a no-break space is content. */
const trimmed = (text: string): string => text.replace(/^[ \t\n\v\f\r]+|[ \t\n\v\f\r]+$/g, "");

const NUMBER = /^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$/;

function parseText(text: string): FileReading {
  const word = trimmed(text);
  if (!NUMBER.test(word)) return { fault: `reward.txt does not hold one number: ${quoted(word)}` };
  const value = Number(word);
  if (!Number.isFinite(value)) return { fault: `reward.txt is not a finite number: ${quoted(word)}` };
  return { rewards: { reward: value } };
}

function parseJson(text: string): FileReading {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { fault: `reward.json is not valid JSON: ${quoted(text)}` };
  }
  if (typeof value !== "object" || value === null || Array.isArray(value) || Object.keys(value).length === 0) {
    return { fault: `reward.json must hold a non-empty JSON object, not ${quoted(trimmed(text))}` };
  }
  const entries = Object.entries(value);
  const odd = entries.find(([, one]) => typeof one !== "number" || !Number.isFinite(one));
  if (odd !== undefined) {
    return { fault: `reward.json: '${odd[0]}' is not a finite number (diagnostics belong into reward-details.json)` };
  }
  return { rewards: Object.fromEntries(entries) as Record<string, number> };
}

/** The first characters of a file, on one line and without control characters. */
function quoted(text: string): string {
  const head = Array.from(text.slice(0, 80)).slice(0, 40).join("");
  return JSON.stringify(head) + (head.length < text.length ? "…" : "");
}
