#!/usr/bin/env bash
# The programs and libraries as `make build` leaves them, but not optimised: those that the tests
# have built.
#
#   tests/stage.sh BUILT STAGE       from one directory into another one, which is made
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
built=$1 stage=$2
mkdir "$stage"
for name in gang gangd gang-doctor gang-lab gang-trace libgang.a libgang_fabric.a; do
  [[ -e $built/$name ]] || {
    printf 'FAILED: there is no %s: cargo build --workspace --lib --bins\n' "$built/$name" >&2
    exit 1
  }
  ln -s "$built/$name" "$stage/$name"
done
scripts/link-libgang "$stage/libgang.a" "$stage"
scripts/link-preload "$stage/libgang.a" "$stage"
scripts/link-fabric "$stage/libgang_fabric.a" "$stage"
