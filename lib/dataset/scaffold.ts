/** A new dataset with one task, as `dataset init` writes it (task-format §11.2). Pure: a name goes in, files come out. */
import { HarborError } from "../errors.ts";

export const DEFAULT_IMAGE = "python:3.12-slim";

export interface DatasetName {
  org: string;
  /** Also the folder's name. */
  name: string;
}

const SEGMENT = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;

/** `org/name`, or a bare name, which belongs to `local`. Throws HarborError "usage" naming the rule. */
export function parseDatasetName(text: string): DatasetName {
  const segments = text.split("/");
  if (segments.length > 2 || segments.some((one) => !SEGMENT.test(one) || one.includes(".."))) {
    throw new HarborError("usage", `'${text}' is no dataset name; wanted NAME or ORG/NAME`, {
      hint: "each part begins with a letter or digit and holds only letters, digits, '.', '_' and '-', no '..'",
    });
  }
  const [org, name] = segments.length === 2 ? segments as [string, string] : ["local", text];
  return { org, name };
}

export interface ScaffoldFile {
  /** POSIX path below the dataset folder; a folder ends with a slash. */
  path: string;
  text: string;
  executable?: boolean;
}

/** The files of a dataset whose one task starts from `image`. Throws HarborError "usage" for what is no image name. */
export function datasetFiles({ org, name }: DatasetName, image = DEFAULT_IMAGE): ScaffoldFile[] {
  // An image's name needs no escapes in TOML, and what does is none.
  if (!/^[\w][\w./:@-]*$/.test(image)) {
    throw new HarborError("usage", `'${image}' is no image name`, { hint: `name one such as ${DEFAULT_IMAGE}` });
  }
  return [
    { path: "dataset.toml", text: datasetToml(org, name) },
    { path: "hello/task.toml", text: taskToml(org, image) },
    { path: "hello/instruction.md", text: INSTRUCTION },
    { path: "hello/environment/", text: "" },
    { path: "hello/tests/test.sh", text: TEST, executable: true },
    { path: "hello/solution/solve.sh", text: SOLVE, executable: true },
  ];
}

const datasetToml = (org: string, name: string): string =>
  `[dataset]
name = "${org}/${name}"
version = "0.1.0"
description = "One line that says what these tasks measure."

# What the whole dataset changes. Where it runs (sandbox, mirrors, credentials) does not belong here: that is said when
# it is run.
[gym.defaults]
timeout_multiplier = 1.0
resource_multiplier = 1.0

# What one task changes, by the name of its folder:
# [gym.tasks."hello".environment]
# memory_mb = 4096
`;

const taskToml = (org: string, image: string): string =>
  `schema_version = "1.4"

[task]
name = "${org}/hello"

[environment]
docker_image = "${image}"
cpus = 1
memory_mb = 2048
storage_mb = 10240

[agent]
timeout_sec = 600.0

[verifier]
timeout_sec = 120.0
`;

const INSTRUCTION = `Create a file \`hello.txt\` in the working directory that holds the line \`hello\`.
`;

const TEST = `#!/bin/bash
# Runs in the working directory after the agent. Whatever happens, write a reward.
if [ "$(cat hello.txt 2>/dev/null)" = "hello" ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo "hello.txt must hold the line 'hello'"
  echo 0 > /logs/verifier/reward.txt
fi
`;

const SOLVE = `#!/bin/bash
# The reference solution: \`validate\` runs it and expects a reward of 1.
echo "hello" > hello.txt
`;
