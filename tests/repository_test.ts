/** The rules that keep the code in shape (CONTRIBUTING.md), as far as a program can check them. */
import { test } from "node:test";
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

const root = join(import.meta.dirname!, "..");
const config = JSON.parse(readFileSync(join(root, "deno.json"), "utf8")) as { imports: Record<string, string> };

interface Source {
  path: string;
  text: string;
  /** Without comments and without what stands in strings. */
  code: string;
  imports: string[];
}

const sources = ["main.ts", "cmd", "lib", "providers"].flatMap((name) =>
  existsSync(join(root, name)) ? read(name) : []
);

function read(path: string): Source[] {
  const full = join(root, path);
  if (!path.endsWith(".ts")) {
    return readdirSync(full, { withFileTypes: true })
      .filter((entry) => entry.isDirectory() || entry.name.endsWith(".ts"))
      .flatMap((entry) => read(`${path}/${entry.name}`));
  }
  const text = readFileSync(full, "utf8");
  const code = text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/(^|\s)\/\/.*/g, "");
  const imports = [
    ...code.matchAll(/^(?:import|export)\b[^"'`;]*?from\s*"([^"]+)"|^import\s*"([^"]+)"|\bimport\("([^"]+)"\)/gm),
  ].map((match) => match[1] ?? match[2] ?? match[3]!);
  return [{ path, text, code: code.replace(/(["'`])(?:\\.|(?!\1)[^\\])*\1/g, '""'), imports }];
}

const area = (path: string): string => path.split("/")[0]!;

function offenders(bad: (source: Source) => string[]): string[] {
  return sources.flatMap((source) => bad(source).map((what) => `${source.path}: ${what}`));
}

test("there is code to look at", () => assert.ok(sources.length > 20));

test("no program lies loose at the top level but main.ts", () => {
  assert.deepEqual(readdirSync(root).filter((name) => /\.[cm]?[jt]s$/.test(name)), ["main.ts"]);
});

test("imports point one way: main, cmd, providers, lib", () => {
  const allowed: Record<string, string[]> = {
    "main.ts": ["cmd", "lib"],
    cmd: ["cmd", "providers", "lib"],
    providers: ["providers", "lib"],
    lib: ["lib"],
  };
  assert.deepEqual(
    offenders(({ path, imports }) =>
      imports.filter((name) => name.startsWith(".") && name.endsWith(".ts"))
        .map((name) => relative(root, join(root, dirname(path), name)))
        .filter((target) => !allowed[area(path)]!.includes(area(target)))
    ),
    [],
  );
});

test("within lib, errors, runtime and files know nothing of tasks, and tasks nothing of episodes", () => {
  const bottom = ["runtime", "files"];
  const top = ["agent", "verifier", "episode", "rollouts", "report"];
  const levelOf = (path: string): number => {
    const [, folder, file] = path.split("/");
    return file === undefined || bottom.includes(folder!) ? 0 : top.includes(folder!) ? 2 : 1;
  };
  assert.deepEqual(
    offenders(({ path, imports }) =>
      !path.startsWith("lib/") ? [] : imports.filter((name) => name.startsWith(".") && name.endsWith(".ts"))
        .map((name) => relative(root, join(root, dirname(path), name)))
        .filter((target) => levelOf(target) > levelOf(path))
    ),
    [],
  );
});

test("what is imported is relative, node: or declared in deno.json", () => {
  const declared = Object.keys(config.imports);
  const known = (name: string) =>
    name.startsWith(".") || name.startsWith("node:") ||
    declared.some((one) => name === one || name.startsWith(`${one}/`));
  assert.deepEqual(offenders(({ imports }) => imports.filter((name) => !known(name))), []);
});

test("runtimes are named in lib/runtime only", () => {
  assert.deepEqual(
    offenders(({ path, code }) => path.startsWith("lib/runtime/") ? [] : code.match(/\b(Deno|Bun)\.\w+/g) ?? []),
    [],
  );
});

test("nothing prints but by Context, nothing ends the process but main.ts and lib/runtime", () => {
  assert.deepEqual(
    offenders(({ path, code }) => [
      ...(code.match(/\bconsole\.\w+/g) ?? []),
      ...(path === "main.ts" || path.startsWith("lib/runtime/")
        ? []
        : code.match(/\bprocess\.(exit|stdout|stderr)\b/g) ?? []),
    ]),
    [],
  );
});

test("time comes from the Clock", () => {
  const own = (path: string) => path.startsWith("lib/runtime/") || path.startsWith("providers/");
  const clocks = /\b(setTimeout|setInterval|Date\.now|new Date\(\)|performance\.now)\b/g;
  assert.deepEqual(offenders(({ path, code }) => own(path) ? [] : code.match(clocks) ?? []), []);
});

test("this process is asked in main.ts and lib/runtime only", () => {
  const mayAsk = (path: string) =>
    path === "main.ts" || path.startsWith("lib/runtime/") || path.startsWith("providers/");
  assert.deepEqual(offenders(({ path, code }) => mayAsk(path) ? [] : code.match(/\bprocess\.\w+/g) ?? []), []);
});

test("every module says what it promises", () => {
  assert.deepEqual(offenders(({ text }) => /^(import [^;]+;\s*)*\/\*\*/.test(text) ? [] : ["no header"]), []);
});

test("no note to self is left", () => {
  assert.deepEqual(offenders(({ text }) => text.match(/\b(TODO|FIXME|XXX|HACK)\b.*/g) ?? []), []);
});

test("versions are pinned", () => {
  const loose = Object.values(config.imports).filter((one) => !/^npm:(@[\w-]+\/)?[\w-]+@\d+\.\d+\.\d+$/.test(one));
  assert.deepEqual(loose, []);
});
