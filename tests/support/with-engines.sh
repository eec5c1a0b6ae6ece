#!/usr/bin/env bash
# Runs COMMAND with a Docker engine, podman and the images that tests use; ends what it started.
#   with-engines.sh COMMAND [ARG...]        for example: with-engines.sh deno test -A tests/live
# What runs already is used as it is: DOCKER_HOST for Docker, CONTAINERS_CONF for podman. What is not installed is left
# out, and the tests say so. The scripts come from tests/support/kit.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
kit=$(cd "$(dirname "$0")/kit" && pwd)
work=${GYM_HARBOR_ENGINES:-/tmp/gym-harbor-engines}
started=
cleanup() { [ -z "$started" ] || bash "$kit/start-dockerd.sh" --stop "$work/dk" || :; }
trap cleanup EXIT

if command -v podman >/dev/null && [ -z "${CONTAINERS_CONF:-}" ]; then export CONTAINERS_CONF=$kit/containers.conf; fi
if command -v dockerd >/dev/null && ! docker version >/dev/null 2>&1; then
  mkdir -p "$work"
  DOCKERD_NET=${DOCKERD_NET:-nat} bash "$kit/start-dockerd.sh" "$work/dk" >&2 && started=1
  . "$work/dk/env"; export DOCKER_HOST
fi
if command -v podman >/dev/null || docker version >/dev/null 2>&1; then
  bash "$kit/make-base-images.sh" "$work/images" busybox host >&2
fi
"$@"
