#!/usr/bin/env bash
# The tests that `make test` leaves out: they take hours, quiet, root, or other systems. A part that
# fails does not keep the others from running; the list of failures comes last.
#
#   tests/nightly.sh [PART…]     all parts unless some are named
#
#   figures   tests that judge a measured figure, one at a time: they need an idle machine with
#             root and BPF
#   busy      `make test` beside two and beside eight busy loops
#   quota     `make test` with half a CPU for everything
#   spaces    `make test` in a clone whose path has spaces
#   user      `make test` without root
#   stopped   all tests in a guest whose virtual CPUs are stopped at random for 1 to 20 ms
#   starts    1,000 killed starts with each backend, of which nothing may stay
#   surroundings  all cases of tests/surroundings with all backends
#   storms    a million seeds of tests/storm, and twenty thousand of clusters
#   faults    tests/storm/faults.sh: storms find the faults that are kept beside them
#   hosts     tests/hosts.sh all: clusters with etcd, MPI and Slurm
#   vm        tests/vm.sh: other kernels, clocks, suspends, systemd
#   distros   the two commands of the README in fresh roots of Debian and Ubuntu
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

part() {
  case $1 in
    figures) tests/all.sh --nightly ;;
    busy) tests/conditions.sh busy 2 && tests/conditions.sh busy 8 ;;
    quota | spaces | user) tests/conditions.sh "$1" ;;
    stopped) tests/vm.sh tests ;;
    starts)
      cargo build --quiet --locked --package gang --package gangd
      GANG_STARTS=1000 cargo test --quiet --locked --package gangd --test starts
      ;;
    surroundings) GANG_SURROUNDINGS=all tests/all.sh gang-surroundings ;;
    storms)
      cargo run --quiet --locked --package gang-storm -- 0..1000000
      SEEDS=0..20000 cargo test --quiet --locked --package gang-cluster --test storm
      ;;
    faults) tests/storm/faults.sh ;;
    hosts)
      cargo build --quiet --workspace --locked --lib --bins
      tests/hosts.sh all
      HOSTS=3 tests/hosts.sh kills cut-off
      ;;
    vm) tests/vm.sh ;;
    distros) tests/distros.sh ;;
    *) printf 'tests/nightly.sh: there is no part %s\n' "$1" >&2 && return 2 ;;
  esac
}

parts=("$@")
((${#parts[@]})) || parts=(figures busy quota spaces user stopped starts surroundings storms faults hosts vm distros)
outcomes=()
failures=0
for part in "${parts[@]}"; do
  printf '\n== %s\n' "$part"
  began=$SECONDS
  # In a shell of its own, so that the part ends where something in it fails.
  if bash -c "$(declare -f part); set -euo pipefail; part $(printf %q "$part")"; then
    outcomes+=("passed $part, $((SECONDS - began)) s")
  else
    outcomes+=("FAILED $part, $((SECONDS - began)) s")
    failures=$((failures + 1))
  fi
done
printf '\n'
printf '%s\n' "${outcomes[@]}"
printf '%s passed, %s failed\n' "$((${#parts[@]} - failures))" "$failures"
((failures == 0))
