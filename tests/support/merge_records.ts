/** A program that merges entries one by one: tests/lib/images/record_file_test.ts starts two of it at once. */
import process from "node:process";
import { updateRecordFile } from "../../lib/images/record_file.ts";
import { systemClock as clock } from "../../lib/runtime/clock.ts";

const [path, prefix, count] = process.argv.slice(2) as [string, string, string];
for (let index = 0; index < Number(count); index++) {
  await updateRecordFile(path, (found) => ({ ...found, [`${prefix}${index}`]: { image: prefix } }), { clock });
}
