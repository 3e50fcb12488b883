#!/usr/bin/env bash
# The runner of cargo: announces a program of tests for tests/tally.awk, and bounds it.
set -euo pipefail

printf '\nprogram %s %s\n' "${CARGO_PKG_NAME:-of}" "$(basename "$1" | sed 's/-[0-9a-f]\{16\}$//')"
exec "$(dirname "${BASH_SOURCE[0]}")/bounded.sh" 30 "$@"
