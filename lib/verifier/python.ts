/**
 * Python verifiers (task-format §5.2): `verify` of `verifier.py` runs inside the sandbox, never here, through a
 * `test.sh` that we put over `/tests` together with a runner and the helper package `nemo_gym.verifiers`. All three are
 * ours, use Python's standard library only and need Python 3.8.
 */
import { shellQuote } from "../runtime/runner.ts";
import type { HostTree } from "../sandbox/provider.ts";
import { TESTS } from "./stage.ts";

export interface PythonVerifier {
  /** Content of the module. */
  source: string;
  /** Where it lies below /tests: its own place, or below `.ng/` for a dataset's. */
  path: "verifier.py" | ".ng/dataset/verifier.py";
  /** The task's own fields. */
  taskData: Record<string, unknown>;
  /** The agent's final response; null when there is none. */
  response: unknown;
}

/** The files of the shim, by their place below /tests. */
export function shimFiles(verifier: PythonVerifier, workspace: string): NonNullable<HostTree["extra"]> {
  const fields = Object.entries(verifier.taskData).filter(([key]) => !key.startsWith("_ng_"));
  return {
    "test.sh": { data: shim(verifier.path, workspace), mode: 0o755 },
    [verifier.path]: { data: verifier.source },
    ".ng/run_verifier.py": { data: RUNNER },
    ".ng/task_data.json": { data: JSON.stringify(Object.fromEntries(fields)) },
    ...(verifier.response === null ? {} : { ".ng/response.json": { data: JSON.stringify(verifier.response) } }),
    ".ng/nemo_gym/__init__.py": { data: "" },
    ".ng/nemo_gym/verifiers/__init__.py": { data: HELPERS },
  };
}

function shim(path: string, workspace: string): string {
  return `#!/bin/sh
# Runs verifier.py with the first Python that is new enough.
found=
for python in python3 python /usr/local/bin/python3 /usr/bin/python3; do
  command -v "$python" >/dev/null 2>&1 || continue
  # What it prints is kept for the message; its exit code says whether it is new enough.
  if version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 8))' 2>/dev/null); then
    exec "$python" -B ${TESTS}/.ng/run_verifier.py --verifier ${TESTS}/${path} --workspace ${shellQuote(workspace)}
  fi
  found="$found $version"
done
if [ -n "$found" ]; then
  echo "verifier.py needs Python 3.8 or newer; the image has$found" >&2
else
  echo "verifier.py needs Python 3.8 or newer; the image has no python3" >&2
fi
exit 127
`;
}

const RUNNER = `"""Calls verify() of a verifier module and writes what it returns as a reward file."""
import argparse
import asyncio
import importlib.util
import inspect
import json
import math
import os
import sys
from pathlib import Path

LOGS = Path(os.environ.get("GYM_VERIFIER_LOGS", "/logs/verifier"))
HERE = Path(__file__).resolve().parent


def load(path):
    for folder in (HERE.parent, path.parent, HERE):
        name = str(folder)
        if name in sys.path:
            sys.path.remove(name)
        sys.path.insert(0, name)
    spec = importlib.util.spec_from_file_location("verifier", str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules["verifier"] = module
    spec.loader.exec_module(module)
    verify = getattr(module, "verify", None)
    if not callable(verify):
        raise SystemExit("%s defines no function verify" % path)
    return verify


def read(name, default):
    path = HERE / name
    if not path.exists():
        return default
    return json.loads(path.read_text(encoding="utf-8"))


def arguments(verify, values):
    positional, named = [], {}
    for parameter in inspect.signature(verify).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            for key, value in values.items():
                named.setdefault(key, value)
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        required = parameter.default is parameter.empty
        if parameter.name not in values:
            if required:
                raise SystemExit("verify() asks for %r; it may ask for %s" % (parameter.name, ", ".join(values)))
            continue
        value = values[parameter.name]
        if parameter.name == "response" and value is None and required:
            raise SystemExit("verify() requires response, and there is none")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(value)
        else:
            named[parameter.name] = value
    return positional, named


def number(value):
    if isinstance(value, bool):
        return float(value)
    if hasattr(value, "item") and not isinstance(value, (int, float)):
        value = value.item()
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise SystemExit("verify() returned %r, which is not a finite number" % (value,))
    return value


def write(result):
    LOGS.mkdir(parents=True, exist_ok=True)
    if isinstance(result, dict):
        if "reward" not in result:
            raise SystemExit("verify() returned a dict without the key reward: %r" % (sorted(map(str, result)),))
        name, text = "reward.json", json.dumps({str(key): number(value) for key, value in result.items()})
    else:
        name, text = "reward.txt", repr(number(result))
    part = LOGS / (name + ".part")
    part.write_text(text + "\\n", encoding="utf-8")
    os.replace(str(part), str(LOGS / name))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--verifier", required=True, type=Path)
    parser.add_argument("--workspace", required=True, type=Path)
    options = parser.parse_args()
    values = {
        "workspace": options.workspace,
        "task_data": read("task_data.json", {}),
        "response": read("response.json", None),
        "state": {"workspace": options.workspace},
    }
    verify = load(options.verifier.resolve())
    positional, named = arguments(verify, values)
    result = verify(*positional, **named)
    if inspect.isawaitable(result):
        async def wait():
            return await result
        result = asyncio.run(wait())
    write(result)


main()
`;

const HELPERS = `"""Helpers for verifier.py, standard library only.

verify() may ask for workspace, task_data, response and state, and returns a number or a dict with the key reward.
"""
import json
import re

__all__ = ["response_text", "tool_calls", "load_json", "normalized", "exact_match", "last_number", "fraction"]


def _parts(content):
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or [] if isinstance(part, dict) and isinstance(part.get("text"), str)]


def response_text(response):
    """The text of the assistant's last message, or '' without one."""
    for item in reversed((response or {}).get("output") or []):
        if item.get("type") == "message" and item.get("role", "assistant") == "assistant":
            return "\\n".join(_parts(item.get("content")))
    return ""


def tool_calls(response):
    """The function calls of a response, as (name, arguments) in order; arguments that are not JSON stay text."""
    calls = []
    for item in (response or {}).get("output") or []:
        if item.get("type") == "function_call":
            try:
                arguments = json.loads(item.get("arguments") or "{}")
            except ValueError:
                arguments = item.get("arguments")
            calls.append((item.get("name"), arguments))
    return calls


def load_json(path, default=None):
    """The JSON value in a file, or the default when it is missing or not JSON."""
    try:
        with open(str(path), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return default


def normalized(text):
    """Lower case, with runs of white space as one blank and none at the ends."""
    return " ".join(str(text).lower().split())


def exact_match(answer, expected):
    """1.0 when both are equal once normalized, else 0.0."""
    return 1.0 if normalized(answer) == normalized(expected) else 0.0


def last_number(text):
    """The last decimal number in a text, or None."""
    found = re.findall(r"[-+]?\\d[\\d,]*(?:\\.\\d+)?", str(text))
    return float(found[-1].replace(",", "")) if found else None


def fraction(checks):
    """The share of true values, 0.0 for none."""
    checks = list(checks)
    return sum(1 for check in checks if check) / len(checks) if checks else 0.0


def __getattr__(name):
    raise AttributeError("nemo_gym.verifiers has no helper %r here; it has %s" % (name, ", ".join(__all__)))
`;
