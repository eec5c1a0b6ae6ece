/**
 * Which commands fetch something from a network: installers of packages and programs that download, by their name and
 * arguments. An address on the machine itself or of a service beside it (`localhost`, a name without a dot) is none.
 * Pure; a command that is not listed is taken for one that needs nothing.
 */

interface Fetcher {
  /** First plain words that fetch; "" stands for none at all (`yarn`). Absent: every use does. */
  verbs?: string[];
  /** An option that keeps it local. */
  offline?: RegExp;
  /** Arguments that are all local files need nothing. */
  local?: RegExp;
}

const LOCAL_PATH = /^(?:\.{1,2}(?:\/.*)?|\/.*|~\/.*|.*\.(?:whl|tar\.gz|tgz|zip|deb|rpm|apk|gem))(?:\[.*\])?$/;
const SYSTEM_VERBS = [
  "install",
  "update",
  "upgrade",
  "dist-upgrade",
  "full-upgrade",
  "build-dep",
  "source",
  "download",
];
const RPM_VERBS = [
  "install",
  "update",
  "upgrade",
  "makecache",
  "groupinstall",
  "group",
  "download",
  "builddep",
  "copr",
];
const CONDA = { verbs: ["install", "create", "update", "env"], offline: /^--offline$/ };

const FETCHERS: Record<string, Fetcher> = {
  "apt": { verbs: SYSTEM_VERBS, offline: /^--no-download$/, local: LOCAL_PATH },
  "apt-get": { verbs: SYSTEM_VERBS, offline: /^--no-download$/, local: LOCAL_PATH },
  "aptitude": { verbs: SYSTEM_VERBS },
  "add-apt-repository": {},
  "apk": { verbs: ["add", "update", "upgrade", "fetch"], offline: /^--no-network$/, local: LOCAL_PATH },
  "dnf": { verbs: RPM_VERBS, offline: /^(?:-C|--cacheonly)$/, local: LOCAL_PATH },
  "yum": { verbs: RPM_VERBS, offline: /^(?:-C|--cacheonly)$/, local: LOCAL_PATH },
  "microdnf": { verbs: RPM_VERBS, local: LOCAL_PATH },
  "zypper": { verbs: ["install", "in", "refresh", "ref", "update", "up"], local: LOCAL_PATH },
  "brew": { verbs: ["install", "update", "upgrade", "tap"] },
  "snap": { verbs: ["install", "refresh"] },
  "pip": { verbs: ["install", "download", "wheel"], offline: /^--no-index$/, local: LOCAL_PATH },
  "pipx": { verbs: ["install", "run", "upgrade", "inject"], local: LOCAL_PATH },
  "uv": { verbs: ["sync", "add", "run", "lock", "build"], offline: /^(?:--offline|--no-index|--no-sync)$/ },
  "uvx": { offline: /^--offline$/ },
  "poetry": { verbs: ["install", "add", "update", "lock"] },
  "pdm": { verbs: ["install", "add", "update", "sync", "lock"] },
  "pipenv": { verbs: ["install", "sync", "update", "lock"] },
  "easy_install": {},
  "conda": CONDA,
  "mamba": CONDA,
  "micromamba": CONDA,
  "npm": { verbs: ["install", "i", "ci", "add", "update", "exec", "init", "create"], offline: /^--offline$/ },
  "npx": { offline: /^(?:--offline|--no-install|--no)$/ },
  "pnpm": { verbs: ["install", "i", "add", "dlx", "update", "up", "create"], offline: /^--offline$/ },
  "pnpx": {},
  "yarn": { verbs: ["", "install", "add", "dlx", "create", "up", "upgrade", "global"], offline: /^--offline$/ },
  "bun": { verbs: ["install", "i", "add", "create", "x", "update"] },
  "bunx": {},
  "corepack": { verbs: ["prepare", "install", "use"] },
  "cargo": { verbs: ["install", "fetch", "update", "add", "search", "generate-lockfile"], offline: /^--offline$/ },
  "rustup": { verbs: ["install", "update", "toolchain", "component", "target", "self"] },
  "go": { verbs: ["get"] },
  "gem": { verbs: ["install", "update", "fetch"], offline: /^(?:--local|-l)$/, local: LOCAL_PATH },
  "bundle": { verbs: ["", "install", "update", "add"], offline: /^--local$/ },
  "composer": { verbs: ["install", "require", "update", "create-project", "global"] },
  "mvn": { offline: /^(?:-o|--offline|-v|--version)$/ },
  "gradle": { offline: /^(?:--offline|-v|--version)$/ },
  "gradlew": { offline: /^(?:--offline|-v|--version)$/ },
  "dotnet": { verbs: ["restore", "add", "tool", "workload"] },
  "cpan": {},
  "cpanm": { local: LOCAL_PATH },
  "luarocks": { verbs: ["install", "build", "download"], local: LOCAL_PATH },
  "opam": { verbs: ["init", "install", "update", "upgrade"] },
  "cabal": { verbs: ["update", "install", "get"] },
  "stack": { verbs: ["setup", "install", "update"] },
  "playwright": { verbs: ["install", "install-deps"] },
  "nvm": { verbs: ["install"] },
  "pyenv": { verbs: ["install", "update"] },
  "docker": { verbs: ["pull", "push"] },
  "podman": { verbs: ["pull", "push"] },
  "hf": { verbs: ["download", "upload"] },
  "huggingface-cli": { verbs: ["download", "upload"] },
  "gdown": {},
  "aria2c": {},
};

/** Verbs of two words, for programs that do local things under the first word as well. */
const TWO_WORDS: Record<string, Fetcher> = {
  "uv pip": {
    verbs: ["install", "sync", "compile", "download"],
    offline: /^(?:--offline|--no-index)$/,
    local: LOCAL_PATH,
  },
  "uv tool": { verbs: ["install", "run", "upgrade"], offline: /^--offline$/ },
  "uv python": { verbs: ["install"], offline: /^--offline$/ },
  "go mod": { verbs: ["download", "tidy"] },
  "go install": {},
};

/** Options of pip and apt whose value is the next word. */
const WITH_VALUE = /^(?:-[etoc]|--(?:target|prefix|root|option|constraint|find-links|python|with|from))$/;

/** Why a command fetches, in a few words of its own; undefined when it does not. `words` begins with the program. */
export function whyFetches(words: readonly string[]): string | undefined {
  const [program = "", ...rest] = words;
  const name = program.slice(program.lastIndexOf("/") + 1).replace(/^pip[0-9.]+$/, "pip");
  if (name === "curl" || name === "wget") return fetchesAddress(name, rest);
  if (name === "git") return clones(rest);
  if (name === "pacman") return rest.some((word) => /^-S/.test(word)) ? "pacman -S" : undefined;
  const plain = rest.filter((word) => !word.startsWith("-"));
  const both = TWO_WORDS[`${name} ${plain[0]}`];
  if (both !== undefined && Object.hasOwn(TWO_WORDS, `${name} ${plain[0]}`)) {
    if (name === "go" && plain[0] === "install") {
      return plain.slice(1).some((word) => word.includes("@")) ? `go install ${plain[1]}` : undefined;
    }
    return judge(`${name} ${plain[0]}`, rest.slice(rest.indexOf(plain[0]!) + 1), both);
  }
  return Object.hasOwn(FETCHERS, name) ? judge(name, rest, FETCHERS[name]!) : undefined;
}

function judge(name: string, rest: readonly string[], { verbs, offline, local }: Fetcher): string | undefined {
  if (rest.some((word) => offline?.test(word))) return undefined;
  if (rest.some((word) => /^(?:--help|-h|--version|-V)$/.test(word))) return undefined;
  if (verbs === undefined) return local !== undefined && onlyLocal(rest, local) ? undefined : name;
  const at = rest.findIndex((word) => !word.startsWith("-"));
  const verb = at < 0 ? "" : rest[at]!;
  if (!verbs.includes(verb)) return undefined;
  if (local !== undefined && onlyLocal(rest.slice(at + 1), local)) return undefined;
  return verb === "" ? name : `${name} ${verb}`;
}

/** At least one argument, and each is a path. What a list of requirements asks for is not known here. */
function onlyLocal(words: readonly string[], local: RegExp): boolean {
  const given: string[] = [];
  for (let at = 0; at < words.length; at++) {
    const word = words[at]!;
    if (/^(?:-r|--requirement)/.test(word)) return false;
    if (word === "-e" || word === "--editable") given.push(words[++at] ?? "");
    else if (WITH_VALUE.test(word)) at++;
    else if (!word.startsWith("-")) given.push(word);
  }
  return given.length > 0 && given.every((word) => local.test(word));
}

const ADDRESS = /^(?:https?|ftps?):\/\/(?:[^/@]*@)?(\[[^\]]*\]|[^/:?#]*)/i;
/** An address without its scheme, as `curl sh.rustup.rs`. */
const BARE = /^(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|sh|rs|ai|co|edu|gov|me|app)(?::\d+)?(?:\/\S*)?$/i;

/** Whether an address leads off this machine and its neighbours; one that begins with a variable is not known. */
export function isElsewhere(address: string): boolean {
  const host = ADDRESS.exec(address)?.[1]?.toLowerCase();
  if (host === undefined || host === "" || host.startsWith("$")) return false;
  if (/^(?:localhost|.*\.(?:localhost|local|internal|test|invalid|example))$/.test(host)) return false;
  if (/^(?:127\.|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|169\.254\.|0\.0\.0\.0$|\[::1?\]$)/.test(host)) {
    return false;
  }
  return host.includes(".");
}

function fetchesAddress(name: string, rest: readonly string[]): string | undefined {
  const address = rest.find((word, at) =>
    isElsewhere(word) || (BARE.test(word) && !/^(?:-o|-O|--output|--output-document)$/.test(rest[at - 1] ?? ""))
  );
  return address === undefined ? undefined : `${name} ${address}`;
}

function clones(rest: readonly string[]): string | undefined {
  const verb = rest.find((word, at) => !word.startsWith("-") && !/^(?:-C|-c)$/.test(rest[at - 1] ?? ""));
  if (!["clone", "fetch", "pull", "push", "ls-remote", "submodule"].includes(verb ?? "")) return undefined;
  const address = rest.find((word) => isElsewhere(word.replace(/^git(?:\+\w+)?:\/\//, "https://")) || SSH.test(word));
  return address === undefined ? undefined : `git ${verb} ${address}`;
}

const SSH = /^(?:ssh:\/\/|[\w.-]+@[\w-]+(?:\.[\w-]+)+:)/;
