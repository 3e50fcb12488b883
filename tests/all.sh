#!/usr/bin/env bash
# All tests. One that fails keeps none of the others from running; at the end there is one list:
# failed, skipped on this machine and why, left to the nightly target, passed. `make test` has
# installed what they need.
#
#   tests/all.sh [--nightly] [PACKAGE…]
#
# --nightly runs those that are ignored otherwise: they judge figures, and need quiet or much time.
# With packages named, it runs only their tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Signals that the caller ignores, as nohup and jobs in the background do, the programs under test
# would ignore as well.
if [[ ! ${GANG_SIGNALS_HEARD-} ]] && env --default-signal true 2>/dev/null; then
  GANG_SIGNALS_HEARD=1 exec env --default-signal bash tests/all.sh "$@"
fi
cargo=${CARGO:-cargo}
scripts=(deps install deb units web hosts)
packages=(--workspace)
of_libtest=()
if [[ ${1-} == --nightly ]]; then
  shift
  scripts=()
  # Measurements run by themselves.
  of_libtest=(-- --ignored --test-threads=1)
fi
if (($#)); then
  scripts=()
  packages=("${@/#/--package=}")
fi

# Tests append to it (tests/harness), those that are somebody else by then as well.
GANG_SKIPS=$(mktemp)
chmod a+rw "$GANG_SKIPS"
export GANG_SKIPS
output=$(mktemp)
failed_scripts=()
passed_scripts=()

# All that was built here, was started since, and still runs. Each of these ends with the test that
# has started it; a guardian, or a daemon that nobody asks any more, some seconds later.
left_behind() {
  local exe pid
  for exe in /proc/[0-9]*/exe; do
    pid=$(basename "$(dirname "$exe")")
    if [[ $(readlink "$exe" 2>/dev/null) == "$built"/@(debug|release)/* ]]; then
      ps -o pid=,ppid=,etimes=,args= -p "$pid" | awk -v since="$SECONDS" '$3 < since' || true
    fi
  done
}
built=$(realpath -m "${CARGO_TARGET_DIR:-target}")

end() {
  local ended=$? left tries tally skipped nightly failed
  for ((tries = 60; tries > 0; tries--)); do
    left=$(left_behind)
    [[ $left ]] || break
    sleep 1
  done
  if [[ $left ]]; then
    printf '\nTests left these behind, which are ended now:\n%s\n' "$left" >&2
    awk '{ print $1 }' <<<"$left" | xargs kill -KILL || true
  fi

  tally=$(awk -f tests/tally.awk "$output")
  list() { sed -n "s/^$1 //p" <<<"$tally"; }
  failed=$(
    list failed
    ((${#failed_scripts[@]} == 0)) || printf 'tests/%s.sh\n' "${failed_scripts[@]}"
    [[ ! $left ]] || echo "programs were left behind: see above"
  )
  # A program of tests that could not be built or started says so itself.
  if [[ ! $failed ]] && ((ended)); then failed="see above: it ended with $ended"; fi
  skipped=$(sort -u "$GANG_SKIPS")
  nightly=$(list nightly)
  passed=$(list passed)
  rm -f "$GANG_SKIPS" "$output"

  count() { grep -c . <<<"$1" || true; }
  part() { [[ ! $2 ]] || printf '\n%s: %s\n  %s\n' "$1" "$(count "$2")" "${2//$'\n'/$'\n'  }"; }
  part "Failed" "$failed"
  part "Skipped on this machine, wholly or in part" "$skipped"
  part "Left to 'make test-nightly'" "$nightly"
  printf '\nPassed: %s tests%s\n' "$passed" "${passed_scripts[*]:+, and the scripts ${passed_scripts[*]}}"
  printf '\n%s passed, %s failed, %s skipped\n' "$((passed + ${#passed_scripts[@]}))" "$(count "$failed")" \
    "$(count "$skipped")"
  [[ ! $failed ]] || exit 1
  exit 0
}
trap end EXIT
trap 'exit 130' INT TERM

# Built before, so that tests of whole programs find them side by side.
$cargo build --workspace --locked --lib --bins --tests
# Each program of tests for itself. A path in a configuration is a string of TOML.
runner=$PWD/tests/one.sh
runner=${runner//\\/\\\\}
runner=${runner//\"/\\\"}
failed_tests=
$cargo test "${packages[@]}" --locked --no-fail-fast --config "target.'cfg(all())'.runner=[\"$runner\"]" \
  "${of_libtest[@]}" 2>&1 | tee "$output" || failed_tests=yes
for script in "${scripts[@]}"; do
  if tests/bounded.sh 30 "tests/$script.sh"; then
    passed_scripts+=("$script")
  else
    failed_scripts+=("$script")
  fi
done
[[ ! $failed_tests ]] || exit 1
