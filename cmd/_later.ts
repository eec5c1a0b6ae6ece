/** Commands of the whole contract that this version does not have: they answer by name, so a script learns why. */
import type { Entry } from "./mod.ts";

const LATER: Record<string, string> = {
  "eval plan": "show which attempts a run would make",
  "eval aggregate": "merge shards of rollouts and recompute their metrics",
  "eval profile": "reward and timing statistics per task",
  "eval compare": "compare two runs",
  "eval compare-suite": "compare two suites of runs",
  "eval health-check": "find rollouts that look broken",
  "eval status": "progress of runs",
  "eval export": "hand rollouts to other tools (atif, mlflow, wandb)",
  "eval reverify": "grade kept rollouts again",
  "eval submit": "submit runs to a cluster",
  "eval resubmit": "submit what is still owed",
  "dataset pull": "fetch a published dataset",
  "dataset publish": "copy a dataset out, ready to publish",
  "dataset render": "fill prompts into rows",
  "dataset collate": "validate and merge declared datasets",
  "dataset upload": "put a dataset file on a hub",
  "dataset download": "get a dataset file from a hub",
  "dataset rm": "remove a published dataset",
  "dataset migrate": "move a dataset between hubs",
  proxy: "serve model calls for agents and record them",
  view: "look at runs in a browser",
  search: "search the catalogue",
  "list benchmarks": "benchmarks of the catalogue",
  "list environments": "environments of the catalogue",
  "list models": "model connectors",
  "list resources-servers": "resources servers of the catalogue",
  "env resolve": "print the merged configuration",
  "env validate": "check a configuration offline",
  "env status": "what runs now",
  "dev compare": "compare run folders of two implementations",
};

/** Parts of NeMo Gym that are about Python packages and servers: never part of this program (spec/evaluation §19). */
const NEVER = [
  "env init",
  "env test",
  "env publish",
  "env packages",
  "env prefetch",
  "env schema",
  "env start",
  "eval prepare",
  "dev test",
];

export const LATER_COMMANDS: Entry[] = [
  ...Object.entries(LATER).map(([name, about]) => ({ name, aliases: [], about, section: "" })),
  ...NEVER.map((name) => ({ name, aliases: [], about: "part of NeMo Gym's Python servers", section: "", never: true })),
];
