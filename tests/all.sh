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

# Tests append to it (tests/skips), those that are somebody else by then as well.
GANG_SKIPS=$(mktemp)
chmod a+rw "$GANG_SKIPS"
export GANG_SKIPS
summary() {
  local ended=$?
  if [[ -s $GANG_SKIPS ]]; then
    printf '\nSkipped, or not run as a whole, on this machine:\n'
    sort -u "$GANG_SKIPS" | sed 's/^/  /'
  elif ((ended == 0)); then
    printf '\nNo test was skipped.\n'
  fi
  rm -f "$GANG_SKIPS"
}
trap summary EXIT

# Built before, so that tests of whole programs find them side by side.
$cargo build --workspace --locked --lib --bins --tests
$cargo test --workspace --locked --no-fail-fast
tests/deps.sh
tests/install.sh
tests/deb.sh
tests/units.sh
tests/web.sh
