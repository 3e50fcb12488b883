#!/usr/bin/env bash
# scripts/deps on machines that are made up: a directory of programs is all that it finds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

machine=$(mktemp -d)
trap 'rm -rf "$machine"' EXIT
wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
failures=0

# A new machine with the programs named, each of them a fake; what it shares with every system is
# there already. NAME=TEXT: the fake prints TEXT.
machine_with() {
  rm -rf "${machine:?}"/*
  local program
  for program in bash cut dirname env grep head id sed sort; do
    ln -s "$(command -v "$program")" "$machine/$program"
  done
  for program in "$@"; do
    local name=${program%%=*} text=
    [[ $program != *=* ]] || text=${program#*=}
    printf '#!/bin/sh\ncat <<"END"\n%s\nEND\n' "$text" >"$machine/$name"
    chmod +x "$machine/$name"
  done
  ln -s "$(command -v cat)" "$machine/cat"
}

# expect WHAT CODE TEXT ARGUMENTS… : scripts/deps ends with the code, and says the text.
expect() {
  local what=$1 code=$2 text=$3 output ended=0
  output=$(PATH=$machine scripts/deps "${@:4}" 2>&1) || ended=$?
  if [[ $ended != "$code" || $output != *"$text"* || (! $text && $output) ]]; then
    printf 'FAILED: %s: ended with %s instead of %s, saying:\n%s\ninstead of: %s\n' \
      "$what" "$ended" "$code" "$output" "$text"
    failures=$((failures + 1))
  else
    printf 'ok: %s\n' "$what"
  fi
}

rust=("cargo=cargo $wanted.0" "rustc=rustc $wanted.0 (of a test)")
built=(make pkg-config protoc clang)
packaged() { printf 'apt-cache=%s:\n  Installed: (none)\n  Candidate: %s' "$1" "$2"; }

machine_with cc "${built[@]}" "${rust[@]}" apt-get
expect "a machine that has everything is not touched" 0 "" build

machine_with "${built[@]}" "${rust[@]}" apt-get sudo
expect "packages are installed" 0 \
  "apt-get install -q -y --no-install-recommends --no-remove gcc libc6-dev libelf-dev libfabric-dev zlib1g-dev" --dry-run build

machine_with cc "${built[@]}" apt-get sudo "$(packaged rustc "$wanted.0+dfsg1-3")"
expect "Rust is the distribution's where that is new enough" 0 \
  "ca-certificates cargo rust-clippy rustc rustfmt" --dry-run build

machine_with cc "rustup" "rustc=rustc 1.60.0" cargo
expect "rustup brings a newer Rust" 0 "would run: rustup update stable" --dry-run build

machine_with cc "${built[@]}" apt-get sudo "$(packaged rustc '(none)')"
expect "without a Rust in the distribution, it is said where Rust comes from" 1 \
  "https://rustup.rs" build

machine_with "${rust[@]}"
expect "elsewhere it is said what is missing" 1 \
  "missing: a C compiler (on Debian and Ubuntu: the package gcc)" build

machine_with cc "${built[@]}" "${rust[@]}" apt-get sudo
printf '#!/bin/sh\ncase " $* " in *" -fopenmp "*) exit 1 ;; esac\n' >"$machine/clang"
expect "clang without its OpenMP is not Clang with OpenMP" 0 "clang libomp-dev" --dry-run test

machine_with cc "${built[@]}" "${rust[@]}"
expect "what a task can do without is no failure" 0 "missing: shellcheck" check
expect "a task that is not there" 2 "there is no task dance" dance

exit $((failures > 0))
