#!/usr/bin/env bash
# Makes the one file: type check, compile, run what was made, print its path, size and SHA-256.
#
#   compile.sh [--bun | --deno] [--target TARGET]... [--output FILE]
#
#   --bun            Bun's --compile (default)
#   --deno           deno compile; taken by itself where denort is at hand (DENORT_BIN, or its zip in DENO_DIR)
#   --target TARGET  linux-x64, linux-x64-baseline (CPUs without AVX2), linux-arm64, linux-x64-musl, linux-arm64-musl,
#                    darwin-arm64, darwin-x64; default: this machine. More than one may be given.
#   --output FILE    default dist/gym-harbor, or dist/gym-harbor-TARGET for a target that was named
#
# Needs npm and nothing else: the pinned toolchain comes by `npm ci --prefix tools`. Nothing outside this folder and the
# usual caches is written. Only a file that has been run counts as made; for a foreign target it says "not run here".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

say() { printf '%s\n' "compile: $*" >&2; }
die() { say "$*"; exit 1; }

tool=auto output='' targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --bun) tool=bun ;;
    --deno) tool=deno ;;
    --target) targets+=("${2:?--target needs a value}"); shift ;;
    --target=*) targets+=("${1#*=}") ;;
    --output) output=${2:?--output needs a value}; shift ;;
    --output=*) output=${1#*=} ;;
    -h | --help) sed -n '2,/^set -/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '/^set -/d'; exit 0 ;;
    *) say "unknown option '$1' (see compile.sh -h)"; exit 2 ;;
  esac
  shift
done
[ ${#targets[@]} -le 1 ] || [ -z "$output" ] || { say "--output names one file, but there are ${#targets[@]} targets"; exit 2; }

toolchain() {
  [ -x tools/node_modules/.bin/deno ] && [ -d tools/node_modules/@oven ] && return
  command -v npm >/dev/null || die "npm is missing: install Node.js with npm, or put pinned deno and bun into tools/node_modules"
  say "getting the pinned toolchain (npm ci --prefix tools)"
  npm ci --prefix tools --no-audit --no-fund --loglevel=error >&2
}
toolchain
deno=$PWD/tools/node_modules/.bin/deno
# Where npm was told to run no install scripts, bun's command is a stub; the program itself lies in its platform package.
bun=
for candidate in "$PWD"/tools/node_modules/.bin/bun "$PWD"/tools/node_modules/@oven/*/bin/bun; do
  if "$candidate" --version >/dev/null 2>&1; then bun=$candidate; break; fi
done
[ -n "$bun" ] || die "no bun in tools/node_modules runs on this machine"
export NO_COLOR=1
unset BUN_OPTIONS BUN_BE_BUN

[ -d node_modules ] || "$deno" install --frozen --quiet >&2
"$deno" check --quiet main.ts >&2

version=$(sed -nE 's/^ *"version": *"([^"]+)".*/\1/p' deno.json | head -n 1)
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || :)
[ -z "$commit" ] || [ -z "$(git status --porcelain --untracked-files=no 2>/dev/null)" ] || commit=$commit-dirty

mkdir -p dist
scratch=$(mktemp -d "$PWD/dist/.compile-XXXXXX")
trap 'rm -rf "$scratch"' EXIT

by_bun() { # TARGET FILE
  # Bytecode halves the start; splitting leaves what a command does not need unread; with the map, a stack trace of a bug
  # names our files. The autoload switches keep .env and bunfig.toml (whose preload is code) of the folder we are started
  # in from being read.
  local main=$PWD/main.ts
  (cd "$scratch" && "$bun" build "$main" --compile --outfile "$2" ${1:+--target="bun-$1"} \
    --format=esm --bytecode --splitting --sourcemap=linked \
    --no-compile-autoload-dotenv --no-compile-autoload-bunfig \
    --no-compile-autoload-tsconfig --no-compile-autoload-package-json \
    ${commit:+--define globalThis.GYM_HARBOR_COMMIT="\"$commit\""}) >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; return 1; }
}

denort_triple() { # TARGET
  case $1 in
    '' | linux-x64 | linux-arm64) local arch=${1#linux-}; [ -n "$arch" ] || arch=$(uname -m)
      case $arch in x64 | x86_64) echo x86_64-unknown-linux-gnu ;; *) echo aarch64-unknown-linux-gnu ;; esac ;;
    darwin-arm64) echo aarch64-apple-darwin ;;
    darwin-x64) echo x86_64-apple-darwin ;;
    *) return 1 ;;
  esac
}

denort_at_hand() { # TARGET
  [ -n "${DENORT_BIN:-}" ] && return
  local triple; triple=$(denort_triple "$1") || return 1
  [ -s "${DENO_DIR:-${HOME:-/nonexistent}/.cache/deno}/dl/release/v$("$deno" --version | awk 'NR == 1 {print $2}')/denort-$triple.zip" ]
}

by_deno() { # TARGET FILE
  local triple status=0 entry=$scratch/entry.ts
  triple=$(denort_triple "$1") || { say "deno compile has no target '$1'"; return 1; }
  printf 'import "./commit.ts";\nimport "../../main.ts";\n' >"$entry"
  printf 'globalThis.GYM_HARBOR_COMMIT = "%s" || undefined;\n' "$commit" >"$scratch/commit.ts"
  "$deno" compile --quiet --no-check -A ${1:+--target "$triple"} --output "$2" "$entry" >"$scratch/log" 2>&1 || status=$?
  [ $status -eq 0 ] || { cat "$scratch/log" >&2; return 1; }
}

runs_here() { # TARGET
  case $1 in
    '') return 0 ;;
    *-musl) return 1 ;;
    linux-x64*) [ "$(uname -sm)" = 'Linux x86_64' ] ;;
    linux-arm64*) [ "$(uname -sm)" = 'Linux aarch64' ] ;;
    darwin-arm64) [ "$(uname -sm)" = 'Darwin arm64' ] ;;
    darwin-x64) [ "$(uname -sm)" = 'Darwin x86_64' ] ;;
    *) return 1 ;;
  esac
}

smoke() { # FILE: what it says of itself, then a task from its folder to its reward
  local file=$1 said status=0 fixtures=$PWD/fixtures/tasks
  said=$(cd "$scratch" && env -i "$file" --version) || { say "$file --version failed: $said"; return 1; }
  [ "$said" = "gym-harbor $version" ] || { say "$file says '$said', not 'gym-harbor $version'"; return 1; }
  (cd "$scratch" && "$file" validate "$fixtures" --only-tasks hello --sandbox host --quiet --output "$scratch/out/rollouts.jsonl") \
    >"$scratch/log" 2>&1 </dev/null || status=$?
  case $status in
    0) tried="--version and a validated task" ;;
    3) # no sandbox without an engine on this machine: loading is what can be tried
      (cd "$scratch" && "$file" check "$fixtures") >"$scratch/log" 2>&1 </dev/null || { cat "$scratch/log" >&2; return 1; }
      tried="--version and checked tasks; the host sandbox does not work here" ;;
    *) cat "$scratch/log" >&2; say "$file validate ended with exit $status"; return 1 ;;
  esac
}

make() { # TOOL TARGET FILE
  local made=$scratch/gym-harbor
  rm -f "$made"
  "by_$1" "$2" "$made" || return 1
  chmod 755 "$made"
  tried="not run here"
  ! runs_here "$2" || smoke "$made" || return 1
  mkdir -p "$(dirname "$3")"
  cp "$made" "$3.new" && mv -f "$3.new" "$3" # replaces a file that is running
}

for target in "${targets[@]:-}"; do
  file=${output:-dist/gym-harbor${target:+-$target}}
  used=$tool
  if [ "$tool" = auto ]; then
    used=bun
    if denort_at_hand "$target"; then
      if make deno "$target" "$file"; then used=deno
      else say "what deno compile made does not run: taking bun"; make bun "$target" "$file" || die "could not make $file"; fi
    else make bun "$target" "$file" || die "could not make $file"; fi
  else make "$tool" "$target" "$file" || die "could not make $file by $tool"; fi
  case $used in bun) by="bun $("$bun" --version)" ;; deno) by="deno $("$deno" --version | awk 'NR == 1 {print $2}')" ;; esac
  sum=$({ sha256sum "$file" 2>/dev/null || shasum -a 256 "$file"; } | cut -d' ' -f1)
  printf '%s  %s bytes  sha256:%s  by %s; tried: %s\n' "$file" "$(wc -c <"$file" | tr -d ' ')" "$sum" "$by" "$tried"
done
