/** Our own image store with the test image in it, for `--sandbox namespace`; made once per test process. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { runCli } from "./cli.ts";
import type { SandboxName } from "./kit.ts";
import { rootfsTar } from "./rootfs.ts";
import { IMAGE } from "./tasks.ts";

let store: Promise<string> | undefined;

/** Words for the command line that let a sandbox find the test image. */
export async function imageArgs(sandbox: SandboxName): Promise<string[]> {
  return sandbox === "namespace" ? ["--image-store", await (store ??= makeStore())] : [];
}

async function makeStore(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "gh-store-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  const made = await runCli(["images", "import", rootfsTar("host"), "--name", IMAGE, "--image-store", folder]);
  if (made.code !== 0) throw new Error(`no image for namespace: ${made.stderr}`);
  return folder;
}
