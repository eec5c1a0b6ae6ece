import assert from "node:assert/strict";
import { test } from "node:test";
import { addedUser } from "../../../lib/task/dockerfile_users.ts";

const CASES: [text: string, found: { line: number; words: string } | undefined][] = [
  ["FROM a\nRUN useradd -m agent\n", { line: 2, words: "useradd -m agent" }],
  ["FROM a\nRUN apt-get update && \\\n    adduser --disabled-password  bob; true\n", {
    line: 2,
    words: "adduser --disabled-password bob",
  }],
  ['FROM a\nRUN ["useradd", "x"]\n', { line: 2, words: "useradd" }],
  ['FROM a\nRUN bash -c "id x || /usr/sbin/useradd x"\n', { line: 2, words: "/usr/sbin/useradd x" }],
  ["FROM a\nRUN if ! id x; then useradd x; fi\n", { line: 2, words: "then useradd x" }],
  ["FROM a\nRUN apt-get install -y adduser passwd && rm -rf /var/lib/apt/lists/*\n", undefined],
  ["FROM a\nRUN apt-get install -y adduser \\\n && adduser bob\n", { line: 2, words: "adduser bob" }],
  ["FROM a\nRUN <<EOF\nset -e\nuseradd x\nEOF\n", { line: 2, words: "useradd x" }],
  ["FROM a\n# RUN useradd x\nRUN true\n", undefined],
  ["FROM a\nRUN echo my-useradd.sh useradder\n", undefined],
  ["FROM a\nLABEL note=useradd\nCOPY adduser /x\n", undefined],
];

for (const [text, found] of CASES) {
  test(`addedUser() of ${JSON.stringify(text)}`, () => assert.deepEqual(addedUser(text), found));
}
