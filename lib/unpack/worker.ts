/**
 * Unpacks in this process, or, where ids of a plain user's range must be written, in a copy of this program inside his
 * user namespace (`unshare --map-users=auto`, util-linux 2.38), with request and answer as JSON.
 */
import { z } from "zod";
import { HarborError, isDiskFull } from "../errors.ts";
import type { Runner } from "../runtime/runner.ts";
import { selfArgv } from "../runtime/self.ts";
import { decisiveLine } from "../sandbox/failure.ts";
import { shownIn } from "./hidden.ts";
import { type LayerBlob, type Unpacked, unpackFlat, unpackLayer } from "./layer.ts";
import { ownerMapText, parseOwnerMap } from "./owners.ts";

/** What is unpacked where: one layer with the trees below it, or all layers into one folder. */
export const UnpackRequest = z.strictObject({
  /** Absolute, empty. */
  root: z.string(),
  owners: z.string(),
  layers: z.array(
    z.strictObject({
      path: z.string(),
      digest: z.string(),
      diffId: z.string(),
      size: z.number(),
      readOnly: z.boolean(),
    }),
  ).min(1),
  flat: z.boolean(),
  /** Trees of lower layers, topmost first; byte strings in `opaque`. */
  below: z.array(z.strictObject({ folder: z.string(), opaque: z.array(z.string()) })),
});
export type UnpackRequest = z.infer<typeof UnpackRequest>;

const Answer = z.union([
  z.strictObject({
    unpacked: z.strictObject({
      entries: z.number(),
      bytes: z.number(),
      devices: z.number(),
      attributesLeftOut: z.number(),
      opaque: z.array(z.string()),
      hides: z.boolean(),
    }),
  }),
  z.strictObject({
    fault: z.strictObject({
      code: z.enum(["image.failed", "machine.lacks"]),
      message: z.string(),
      hint: z.string().optional(),
      diskFull: z.boolean(),
    }),
  }),
]);

/** Name of the hidden command that answers requests (cmd/unpack_layer.ts). */
const UNPACK_COMMAND = "unpack-layer";

/** In this process. Throws like unpackLayer(). */
function unpackHere(request: UnpackRequest, runner: Runner, signal: AbortSignal): Promise<Unpacked> {
  const { root, layers, flat } = request;
  const owners = parseOwnerMap(request.owners);
  if (flat) return unpackFlat(layers, root, { owners, runner }, signal);
  const below = shownIn(request.below);
  return unpackLayer(layers[0] as LayerBlob, root, { owners, runner, below }, signal);
}

/** Where the owner map needs it. Throws like unpackLayer(), and "machine.lacks" when the namespace cannot be had. */
export async function unpackWhereNeeded(
  request: UnpackRequest,
  runner: Runner,
  signal: AbortSignal,
): Promise<Unpacked> {
  const owners = parseOwnerMap(request.owners);
  if (owners.kind !== "range") return await unpackHere(request, runner, signal);
  const inside = ["unshare", "--user", "--map-root-user", "--map-users=auto", "--map-groups=auto"];
  const argv = [...inside, ...selfArgv([UNPACK_COMMAND])];
  const result = await runner.run(argv, { stdin: JSON.stringify(request), signal, keepBytes: 64 << 20 });
  signal.throwIfAborted();
  const answer = answerIn(result.stdout);
  if (answer === undefined) {
    const why = decisiveLine(result.stderr);
    throw new HarborError("machine.lacks", `Cannot unpack as ${ownerMapText(owners)}: ${why}`, {
      hint:
        "unshare of util-linux 2.38 and newuidmap with a range in /etc/subuid are needed; gym-harbor doctor tells more",
      details: { exitCode: result.exitCode, stderr: result.stderr.slice(-2000) },
    });
  }
  if ("unpacked" in answer) return answer.unpacked;
  const { code, message, hint, diskFull } = answer.fault;
  const cause = diskFull ? Object.assign(new Error(message), { code: "ENOSPC" }) : undefined;
  throw new HarborError(code, message, { hint, cause });
}

/** What the copy of this program prints: one line for any outcome but an abort. */
export async function answerTo(text: string, runner: Runner, signal: AbortSignal): Promise<string> {
  try {
    const request = UnpackRequest.parse(JSON.parse(text));
    return JSON.stringify({ unpacked: await unpackHere(request, runner, signal) });
  } catch (error) {
    if (!(error instanceof HarborError) || (error.code !== "image.failed" && error.code !== "machine.lacks")) {
      throw error;
    }
    const { code, message, hint } = error;
    return JSON.stringify({ fault: { code, message, hint, diskFull: isDiskFull(error) } });
  }
}

function answerIn(stdout: string): z.infer<typeof Answer> | undefined {
  try {
    return Answer.parse(JSON.parse(stdout));
  } catch {
    return undefined;
  }
}
