#!/usr/bin/env bash
# Whether storms find the faults that are kept in tests/storm/faults: mistakes that break one
# invariant or one order of effects each. The commit is copied, and each fault is built into
# the copy by itself. Some seed of the first ten thousand must fail.
#
#   tests/storm/faults.sh [NAME…]     all faults unless some are named
#
# SEEDS=N runs another number of seeds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cargo=${CARGO:-cargo}
top=$PWD
seeds=${SEEDS:-10000}

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
trap 'exit 130' INT TERM
git archive HEAD | tar -x -m -C "$copy"

names=("$@")
if ((${#names[@]} == 0)); then
  for patch in tests/storm/faults/*.patch; do names+=("$(basename "$patch" .patch)"); done
fi

# No git directory is above the copy, so paths are those of the patch.
change() { (cd "$copy" && git apply "$@"); }
build() {
  (cd "$copy" && CARGO_PROFILE_DEV_DEBUG=none CARGO_TARGET_DIR=$top/target/faults \
    "$top/tests/bounded.sh" 20 "$cargo" build --quiet --locked --package gang-storm)
}
storm() { tests/bounded.sh 10 target/faults/debug/gang-storm "0..$seeds" first; }

found=0
missed=()
line() { printf '%-32s %6s  %.110s\n' "$@"; }
line fault seed violation
for name in "${names[@]}"; do
  patch=$top/tests/storm/faults/$name.patch
  if ! change "$patch"; then
    line "$name" - "its patch does not apply"
    missed+=("$name")
    continue
  fi
  if ! build; then
    line "$name" - "it does not build"
    missed+=("$name")
  elif outcome=$(storm 2>&1); then
    line "$name" - "not found in $seeds seeds"
    missed+=("$name")
  elif [[ $outcome =~ seed\ ([0-9]+):\ ([^$'\n']*) ]]; then
    line "$name" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
    found=$((found + 1))
  else
    line "$name" - "no violation: ${outcome##*$'\n'}"
    missed+=("$name")
  fi
  change --reverse "$patch"
done
printf '%s found, %s not found%s\n' "$found" "${#missed[@]}" "${missed[*]:+: ${missed[*]}}"
((${#missed[@]} == 0))
