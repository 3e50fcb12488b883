#!/usr/bin/env bash
# All tests; at the end those that were skipped on this machine, each with its reason. `make test` has
# installed what they need.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What the caller ignores, as nohup and jobs in the background do, the programs under test would ignore as well.
if [[ ! ${GANG_SIGNALS_HEARD-} ]] && env --default-signal true 2>/dev/null; then
  GANG_SIGNALS_HEARD=1 exec env --default-signal bash tests/all.sh
fi
cargo=${CARGO:-cargo}

# Tests append to it (tests/harness), those that are somebody else by then as well.
GANG_SKIPS=$(mktemp)
chmod a+rw "$GANG_SKIPS"
export GANG_SKIPS
# Whatever was built here, was started since, and still runs: all of it ends with the test that has started it, a
# guardian or a daemon that nobody asks any more some seconds later.
left_behind() {
  local exe pid
  for exe in /proc/[0-9]*/exe; do
    pid=$(basename "$(dirname "$exe")")
    if [[ $(readlink "$exe" 2>/dev/null) == "$built"/* ]]; then
      ps -o pid=,ppid=,etimes=,args= -p "$pid" | awk -v since="$SECONDS" '$3 < since' || true
    fi
  done
}
built=$(realpath -m "${CARGO_TARGET_DIR:-target}")
end() {
  local ended=$? left tries
  for ((tries = 60; tries > 0; tries--)); do
    left=$(left_behind)
    [[ $left ]] || break
    sleep 1
  done
  if [[ $left ]]; then
    printf '\nTests left these behind, which are ended now:\n%s\n' "$left" >&2
    awk '{ print $1 }' <<<"$left" | xargs kill -KILL || true
    ((ended)) || ended=1
  fi
  if [[ -s $GANG_SKIPS ]]; then
    printf '\nSkipped, or not run as a whole, on this machine:\n'
    sort -u "$GANG_SKIPS" | sed 's/^/  /'
  elif ((ended == 0)); then
    printf '\nNo test was skipped.\n'
  fi
  rm -f "$GANG_SKIPS"
  exit "$ended"
}
trap end EXIT

# Built before, so that tests of whole programs find them side by side.
$cargo build --workspace --locked --lib --bins --tests
# Each program of tests for itself.
$cargo test --workspace --locked --no-fail-fast --config "target.'cfg(all())'.runner=['$PWD/tests/bounded.sh', '15']"
for script in deps install deb units web; do
  tests/bounded.sh 15 "tests/$script.sh"
done
