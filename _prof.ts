import { TaskTree } from "./lib/digest/tree.ts";
import { hashTask } from "./lib/digest/task.ts";
import { hashLargeTask } from "./lib/digest/large.ts";
import process from "node:process";
const f = "/tmp/digest-b/small/task-00000";
const cpu = () => {
  const c = process.cpuUsage();
  return (c.user + c.system) / 1000;
};
for (let i = 0; i < 4; i++) {
  let c = cpu();
  const t = (n: string) => {
    const d = cpu();
    console.log(n, (d - c).toFixed(1));
    c = d;
  };
  const tree = new TaskTree(f);
  tree.below("environment");
  t("walk");
  hashTask(tree);
  t("hash without dirhash");
  hashTask(f, { dirhash: true });
  t("all");
  await hashLargeTask(new TaskTree(f), { dirhash: true, signal: new AbortController().signal });
  t("large");
}
