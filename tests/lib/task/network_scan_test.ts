import assert from "node:assert/strict";
import { test } from "node:test";
import { languageOf, networkUses } from "../../../lib/task/network_scan.ts";

const shell: Record<string, string[]> = {
  "apt-get update && apt-get install -y curl": ["1 apt-get update"],
  "DEBIAN_FRONTEND=noninteractive sudo -E apt-get -qq install -y jq": ["1 apt-get install"],
  "apt-get install -y ./local.deb": [],
  "apt-get remove -y curl; apt-get clean": [],
  "apk add --no-cache bash": ["1 apk add"],
  "apk add --no-network ./x.apk": [],
  "dnf -y install gcc\nyum install gcc": ["1 dnf install", "2 yum install"],
  "pip install pytest==8.4.1": ["1 pip install"],
  "pip3.12 install -q \\\n  --no-cache-dir \\\n  pytest": ["1 pip install"],
  "python3 -m pip install --break-system-packages -q pytest 2>/dev/null || true": ["1 python -m pip install"],
  "pip install --no-index --find-links /wheels pytest": [],
  "pip install -e . && pip install ./pkg /wheels/a.whl": [],
  "pip install -r requirements.txt": ["1 pip install"],
  "pip list; pip --version; pip show x": [],
  "uvx --with pytest==8.4.1 pytest /tests": ["1 uvx"],
  "uv pip install x\nuv venv\nuv run --offline pytest": ["1 uv pip install"],
  "if command -v uvx >/dev/null 2>&1; then\n  uv run pytest\nfi": ["2 uv run"],
  "npm ci\nnpm test\nnpx jest\nyarn\nyarn test\nnpm install --offline": ["1 npm ci", "3 npx", "4 yarn"],
  "cargo test && cargo install ripgrep": ["1 cargo install"],
  "go test ./... && go get x.org/y && go install ./cmd && go install x.org/y@latest": ["1 go get"],
  "go install golang.org/x/tools@latest": ["1 go install golang.org/x/tools@latest"],
  "gem install rake; gem install --local x.gem": ["1 gem install"],
  "curl -LsSf https://astral.sh/uv/0.9.7/install.sh | sh": ["1 curl https://astral.sh/uv/0.9.7/install.sh"],
  'curl -fs http://localhost:8000/health; curl http://127.0.0.1/; curl http://api:80/x; curl "$URL"': [],
  "curl \\\n  -o out.txt \\\n  'https://example.org/x'": ["1 curl https://example.org/x"],
  "curl -sSf sh.rustup.rs | sh": ["1 curl sh.rustup.rs"],
  "wget -q -O data.dev https://data.org/a.tgz": ["1 wget https://data.org/a.tgz"],
  "git clone --depth 1 https://github.com/a/b": ["1 git clone https://github.com/a/b"],
  "git clone git@github.com:a/b.git": ["1 git clone git@github.com:a/b.git"],
  "git clone /srv/repo.git x && git fetch origin && git commit -m 'git clone https://a.org/b'": [],
  "# apt-get install curl\necho 'pip install x' # pip install y\nprintf \"curl https://a.org\\n\"": [],
  "x=$(curl -s https://a.org/v)": ["1 curl https://a.org/v"],
  'echo "version $(curl -s https://a.org/v)"': ["1 curl https://a.org/v"],
  "bash -lc 'apt-get update; pip install x'": ["1 apt-get update"],
  "timeout -k 5 60 pip install x": ["1 pip install"],
  "cat > run.sh <<'EOF'\nset -e\npip install x\nEOF\ncat > notes.txt <<EOF\npip install y\nEOF\npip list": [
    "3 pip install",
  ],
  "bash <<-X\n\tpip install x\n\tX\npip install y": ["2 pip install", "4 pip install"],
  "python3 - <<'PY'\nimport urllib.request\nurllib.request.urlopen(\"https://a.org/x\")\nPY": ["3 https://a.org/x"],
  "python3 -c \"import os; os.system('pip install x')\"": ["1 pip install"],
  "ls 2>&1 | grep apt-get; grep -q 'pip install' README.md": [],
  "find . -name '*.sh' | xargs -n 1 wget https://a.org": ["1 wget https://a.org"],
  "for i in 1 2; do apt-get update; done": ["1 apt-get update"],
  "f() { pip install x; }": ["1 pip install"],
};

for (const [script, wanted] of Object.entries(shell)) {
  test(`networkUses() of the shell script ${JSON.stringify(script)}`, () => {
    assert.deepEqual(networkUses(script, "shell").map(({ line, why }) => `${line} ${why}`), wanted);
  });
}

const python: Record<string, string[]> = {
  'subprocess.run(["pip", "install", "x"], check=True)': ["1 pip install"],
  'subprocess.check_call([sys.executable, "-m", "pip", "install", "x"])': ["1 pip install"],
  'os.system("apt-get update && apt-get install -y jq")': ["1 apt-get update"],
  'subprocess.run("curl -s https://a.org/x", shell=True)': ["1 curl https://a.org/x"],
  'r = requests.get("https://a.org/x", timeout=3)': ["1 https://a.org/x"],
  'r = requests.get("http://localhost:5000/x")\nr = requests.post("http://web:80/")': [],
  '# requests.get("https://a.org")\nprint("pip install x")\nraise RuntimeError("run pip install x first")': [],
  '"""\nrequests.get("https://a.org")\n"""\nx = 1': [],
  'URL = "https://a.org/x"': [],
  'nltk.download("punkt")': ["1 nltk.download"],
  'AutoTokenizer.from_pretrained("org/model")\nAutoModel.from_pretrained("/models/x")': ["1 from_pretrained"],
  'subprocess.run(\n    ["npm", "ci"],\n)': ["2 npm ci"],
  'assert "pip install x" in text': [],
};

for (const [script, wanted] of Object.entries(python)) {
  test(`networkUses() of the Python program ${JSON.stringify(script)}`, () => {
    assert.deepEqual(networkUses(script, "python").map(({ line, why }) => `${line} ${why}`), wanted);
  });
}

test("networkUses() shortens what it quotes and names a line once", () => {
  const [use, ...more] = networkUses(`curl https://a.org/${"x".repeat(500)} && pip install y`, "shell");
  assert.equal(use!.why.length, 120);
  assert.deepEqual(more, []);
});

test("networkUses() reads nested substitutions, and gives up on depths that no person writes", () => {
  const nested = (depth: number) => `x=${"$(echo ".repeat(depth)}$(curl https://a.org/v)${")".repeat(depth)}`;
  assert.deepEqual(networkUses(nested(10), "shell"), [{ line: 1, why: "curl https://a.org/v" }]);
  assert.deepEqual(networkUses(`${"$(".repeat(20_000)}`, "shell"), []);
});

test("networkUses() takes time in proportion to a line's length", () => {
  const line = `${" ".repeat(100_000)}run('pip install x')`;
  assert.deepEqual(networkUses(`${line}\nrun('pip install y')`, "other"), [{ line: 2, why: "pip install" }]);
});

test("languageOf() goes by the name, then by the first line", () => {
  const wanted = {
    "tests/test.sh": "shell",
    "tests/run": "shell",
    "tests/verifier.py": "python",
    "solution/tool": "python",
    "Makefile": "shell",
    "tests/a.js": "other",
    "tests/data.json": undefined,
    "README.md": undefined,
  };
  const heads: Record<string, string> = {
    "tests/run": "#!/usr/bin/env bash\n",
    "solution/tool": "#!/usr/bin/python3 -u\n",
  };
  for (const [path, language] of Object.entries(wanted)) {
    assert.equal(languageOf(path, heads[path] ?? ""), language, path);
  }
});
