/**
 * Which parts of a RUN line only install packages. On this machine's own root they are left out by default (spec/
 * decisions 17): programs come from the machine, and a package manager would work for minutes on what is thrown away.
 * Pure, and no shell: a line whose structure is not a plain chain is judged whole.
 */

export interface Judged {
  /** What is left to run; "" when the line only installs. */
  rest: string;
  /** The commands that were left out, shortened for a note. */
  left: string[];
}

/** Program → the first plain words that mean installing; an empty list means any use of it does. */
const INSTALLERS: Record<string, string[]> = {
  apt: [
    "install",
    "update",
    "upgrade",
    "clean",
    "autoremove",
    "autoclean",
    "purge",
    "remove",
    "dist-upgrade",
    "full-upgrade",
  ],
  "apt-get": [
    "install",
    "update",
    "upgrade",
    "clean",
    "autoremove",
    "autoclean",
    "purge",
    "remove",
    "dist-upgrade",
    "build-dep",
  ],
  aptitude: [],
  apk: ["add", "update", "upgrade", "del", "cache"],
  dnf: ["install", "update", "upgrade", "clean", "makecache", "remove", "groupinstall", "module"],
  microdnf: ["install", "update", "upgrade", "clean", "remove"],
  yum: ["install", "update", "upgrade", "clean", "makecache", "remove", "groupinstall"],
  zypper: ["install", "in", "refresh", "ref", "clean", "update", "up"],
  pacman: [],
  "add-apt-repository": [],
  "apt-key": [],
  pip: ["install", "download", "cache"],
  pip3: ["install", "download", "cache"],
  pipx: ["install", "ensurepath"],
  uv: ["sync", "add", "tool", "pip", "python", "venv"],
  poetry: ["install", "add"],
  pipenv: ["install", "sync"],
  conda: ["install", "create", "update", "clean", "init", "config"],
  mamba: ["install", "create", "update", "clean"],
  micromamba: ["install", "create", "clean"],
  npm: ["install", "i", "ci", "add", "cache"],
  pnpm: ["install", "i", "add"],
  yarn: ["install", "add", "global"],
  corepack: [],
  gem: ["install", "update"],
  bundle: ["install"],
  cargo: ["install", "fetch"],
  rustup: [],
  go: ["install", "get", "mod"],
  composer: ["install", "require", "global"],
  cpan: [],
  cpanm: [],
  luarocks: ["install"],
  opam: ["init", "install"],
  playwright: ["install", "install-deps"],
  nvm: ["install"],
  "dpkg": ["-i", "--install", "--add-architecture"],
  "locale-gen": [],
};

/** Commands that go with an installation and mean nothing without one. */
const COMPANIONS = [
  /^rm\s+(-\S+\s+)*((\/var\/lib\/apt\/lists|\/var\/cache\/(apt|apk|yum|dnf)|\/root\/\.cache|~\/\.cache|\/tmp|\/var\/tmp)\/?\S*\s*)+$/,
  /^export\s+DEBIAN_FRONTEND=/,
  /^(:|true)$/,
];

/** Splits a chain of `&&`, `;` and newlines outside quotes. Undefined when the line has any other structure. */
export function splitChain(command: string): { text: string; before: string }[] | undefined {
  const parts: { text: string; before: string }[] = [];
  let text = "";
  let before = "";
  let quote = "";
  const push = (separator: string) => {
    if (text.trim() !== "") parts.push({ text: text.trim(), before });
    text = "";
    before = separator;
  };
  for (let at = 0; at < command.length; at++) {
    const char = command[at]!;
    if (quote !== "") {
      if (char === quote) quote = "";
      else if (char === "\\" && quote === '"') text += command[at++];
      text += command[at] ?? "";
      continue;
    }
    if (char === "'" || char === '"') {
      quote = char;
      text += char;
    } else if (char === "\\") {
      text += char + (command[++at] ?? "");
    } else if (char === "#" && /(^|\s)$/.test(text)) {
      while (at + 1 < command.length && command[at + 1] !== "\n") at++;
    } else if (command.startsWith("&&", at)) {
      push("&&");
      at++;
    } else if (char === ";" || char === "\n") {
      push(";");
    } else if (
      char === "`" || char === "(" || char === ")" || command.startsWith("<<", at) || command.startsWith("||", at)
    ) {
      return undefined;
    } else if (char === "&" && !/[<>]$/.test(text)) {
      return undefined;
    } else text += char;
  }
  if (quote !== "") return undefined;
  push("");
  return parts.some(({ text }) =>
      /^(if|then|else|elif|fi|for|while|until|do|done|case|esac|function|\{|\}|!)(\s|$)/.test(text)
    )
    ? undefined
    : parts;
}

/** Whether one simple command or pipeline installs. */
export function installs(command: string): boolean {
  const nested = /^(?:\S*\/)?(?:ba|da|z)?sh\s+(?:-\w+\s+)*-\w*c\s+(['"])([^]*)\1$/.exec(command.trim());
  if (nested !== null) return withoutInstalls(nested[2]!).rest === "";
  const stages = command.split("|").map((stage) => words(stage));
  // `curl … | sh`: an installer fetched from somewhere.
  const fetched = ["curl", "wget"].includes(stages[0]?.[0] ?? "");
  if (
    stages.length > 1 && fetched &&
    stages.slice(1).some((stage) => /^(ba|da|z)?sh$|^python3?$|^tar$|^gpg$|^tee$/.test(stage[0] ?? ""))
  ) {
    return true;
  }
  return stages.some(isInstaller);
}

function words(stage: string): string[] {
  const all = stage.trim().split(/\s+/).filter((word) => word !== "");
  while (
    all.length > 0 &&
    (/^[A-Za-z_][A-Za-z0-9_]*=/.test(all[0]!) || all[0] === "sudo" || all[0] === "env" || all[0] === "-E")
  ) {
    all.shift();
  }
  return all;
}

function isInstaller(stage: string[]): boolean {
  let [program = "", ...rest] = stage;
  program = program.slice(program.lastIndexOf("/") + 1);
  if (/^python[0-9.]*$/.test(program) && rest[0] === "-m") [program = "", ...rest] = rest.slice(1);
  if (/^pip[0-9.]+$/.test(program)) program = "pip";
  const verbs = Object.hasOwn(INSTALLERS, program) ? INSTALLERS[program] : undefined;
  if (verbs === undefined) return false;
  const verb = program === "dpkg" ? rest[0] : rest.find((word) => !word.startsWith("-") && !/^\d+$/.test(word));
  return verbs.length === 0 || (verb !== undefined && verbs.includes(verb));
}

const short = (command: string): string => {
  const line = command.replace(/\s+/g, " ").trim();
  return line.length > 80 ? `${line.slice(0, 77)}…` : line;
};

/** Takes the installing parts out of a RUN line. */
export function withoutInstalls(command: string): Judged {
  const chain = splitChain(command);
  if (chain === undefined) {
    const pieces = command.split(/&&|\|\||[;\n(){}]|\bthen\b|\bdo\b/).filter((piece) => piece.trim() !== "");
    return pieces.some((piece) => installs(piece)) ? { rest: "", left: [short(command)] } : { rest: command, left: [] };
  }
  const left = chain.filter(({ text }) => installs(text));
  if (left.length === 0) return { rest: command, left: [] };
  const kept = chain.filter(({ text }) => !installs(text) && !COMPANIONS.some((companion) => companion.test(text)));
  const alone = kept.every(({ text }) => /^(set\s+[-+]\S+|cd\s+\S+|mkdir\s+-p\s+\/etc\/apt\/\S+)$/.test(text));
  const rest = kept.map(({ text, before }, at) => (at === 0 ? text : ` ${before} ${text}`)).join("");
  return { rest: alone ? "" : rest, left: left.map(({ text }) => short(text)) };
}
