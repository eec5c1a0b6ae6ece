/** What we read off a Dockerfile is what an engine makes of it: environment, working directory, user and command. */
import { test } from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, posix } from "node:path";
import process from "node:process";
import { envOf, type ImageConfig } from "../../lib/images/config.ts";
import { systemClock } from "../../lib/runtime/clock.ts";
import { systemRunner } from "../../lib/runtime/runner.ts";
import { classifyDockerfile, resolveDockerfile } from "../../lib/task/dockerfile_mode.ts";
import { type Stage, stagesOf } from "../../lib/task/dockerfile_stages.ts";
import { BuildContext } from "../../providers/_build_context.ts";
import { planStage } from "../../providers/_build_plan.ts";
import { chooseBuilder } from "../../providers/builders/mod.ts";
import { engineSkip } from "../support/engines.ts";

const BASE = "gym-base:busybox";
const soon = () => AbortSignal.timeout(120_000);

/** Each begins from `BASE`; `{}` stands for it. */
const dockerfiles: Record<string, string> = {
  "a pull file": 'FROM {}\nENV A=1 B="two words" C=$PATH:/x\nWORKDIR srv\nWORKDIR app/../$A\nUSER 1000:10\nLABEL x=y\n',
  "the legacy ENV": "FROM {}\nENV A one  two \nENV B=${A:-x}${NONE:-none}${A:+set}\nWORKDIR /a/./b/\n",
  "quotes and escapes": 'FROM {}\nENV A=\'$PATH\' B="\\$PATH \\"q\\"" C=a\\ b D=\\$x\nWORKDIR "/with space"\n',
  "continuations": "FROM {}\nENV A=1 \\\n# why\n\n   B=2 \\\n   C=3\nUSER nobody\n",
  "an overlay file": "FROM {}\nWORKDIR /w\nENV V=1\nRUN echo $V > f\nENV V=2$V\nUSER 12\n",
  "arguments": "ARG V=1\nARG W=w\nFROM {}\nARG V\nARG X=$V-x\nENV A=$V B=$X C=[$W]\nWORKDIR /$X\n",
  // What buildah and BuildKit see differently (an ARG after an ENV, or of the stage below) is left to unit tests.
  "ENV over ARG": "FROM {}\nARG A=1\nENV A=2\nENV B=$A\n",
  "stages": "FROM {} AS one\nENV A=1\nWORKDIR /one\nUSER 5\nFROM one\nENV B=$A\nWORKDIR two\n",
  "commands":
    'FROM {}\nENTRYPOINT ["/bin/echo", "$A"]\nCMD ["x"]\nEXPOSE 80 90/udp\nVOLUME /data /more\nSTOPSIGNAL SIGINT\n',
  "commands in shell form": "FROM {}\nENTRYPOINT exec top -b\nCMD echo hi\n", // buildah 1.28 knows no SHELL for them
  "an entrypoint that takes the base's command away": 'FROM {}\nENTRYPOINT ["/bin/cat"]\n',
};

const wanted = ({ WorkingDir, User, Env, Entrypoint, Cmd }: ImageConfig) => ({
  env: envOf({ Env }),
  // Old builders keep `/a/./b/` as it was written; it is the same folder.
  workdir: posix.normalize(WorkingDir || "/").replace(/(.)\/$/, "$1"),
  user: User ?? "",
  entrypoint: Entrypoint ?? [],
  cmd: Cmd ?? [],
});

for (const engine of ["docker", "podman"] as const) {
  test(`${engine} makes of a Dockerfile what we read off it`, { skip: engineSkip(engine) ?? false }, async () => {
    const folder = mkdtempSync(join(tmpdir(), "gh-settings-"));
    const names: string[] = [];
    try {
      const deps = { provider: engine, runner: systemRunner(), clock: systemClock, env: process.env };
      const options = { tool: engine, platform: "linux/amd64" } as const;
      const builder = await chooseBuilder(options, { ...deps, scratch: join(folder, "scratch") }, soon());
      const build = async (text: string) => {
        const context = mkdtempSync(join(folder, "context-"));
        writeFileSync(join(context, "Dockerfile"), text);
        const name = `hb__${crypto.randomUUID().replaceAll("-", "")}`;
        names.push(name);
        const request = { context, dockerfile: join(context, "Dockerfile"), name, logFile: join(folder, "log") };
        const settled = { ...request, platform: "linux/amd64", args: {}, timeoutMs: 120_000, push: false };
        return wanted((await builder.build(settled, soon(), () => {})).config);
      };
      const base = await build(`FROM ${BASE}\nLABEL base=1\n`);
      for (const [what, template] of Object.entries(dockerfiles)) {
        const text = template.replace("{}", BASE);
        const made = await build(text);
        assert.deepEqual(planned(text, base, join(folder, "log")), made, what);
        const found = classifyDockerfile(text);
        if (found.mode === "build") continue;
        const { env, workdir = base.workdir, user = base.user } = resolveDockerfile(found.changes, base);
        assert.deepEqual([{ ...base.env, ...env }, workdir, user], [made.env, made.workdir, made.user], what);
      }
    } finally {
      spawnSync(engine, ["rmi", "-f", ...names]);
      rmSync(folder, { recursive: true, force: true });
    }
  });
}

type Settings = ReturnType<typeof wanted>;

/** As builds.tool=namespace sees it, stage on stage. */
function planned(text: string, base: Settings, scratch: string): Settings {
  const { stages, escape } = stagesOf(text, { baseEnv: () => base.env });
  const context = new BuildContext(join(scratch, ".."), "");
  const settle = (stage: Stage): Settings => {
    const below = stage.base.kind === "stage" ? settle(stages[stage.base.index]!) : base;
    const { settings } = planStage({ taskId: "t", on: "test", stage, escape, context, base: below, stages: true });
    const { env, workdir, user, entrypoint = below.entrypoint, cmd = below.cmd } = settings;
    return { env: { ...below.env, ...env }, workdir, user, entrypoint, cmd };
  };
  return settle(stages.at(-1)!);
}
