#!/usr/bin/env bash
# `make test` where machines are not as quiet, as free or as privileged as the one that it was
# written on. Nothing may fail in any of these conditions; what cannot be tested there says so.
#
#   tests/conditions.sh idle [TIMES]   one after the other, with nothing else running
#   tests/conditions.sh busy LOOPS     beside busy loops
#   tests/conditions.sh quota          with half a CPU for everything (cgroups of any version; root)
#   tests/conditions.sh spaces         in a clone whose path has spaces
#   tests/conditions.sh user           in a clone of a user without privilege (root becomes it)
#
# Virtual CPUs that are stopped at random are a guest of tests/vm.sh (check `tests`).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}

fail() {
  printf 'tests/conditions.sh: %s\n' "$*" >&2
  exit 1
}
needs_root() { [[ $(id -u) == 0 ]] || fail "$condition takes root"; }
# Builds beforehand need no timeout of a test.
build() { $cargo build --workspace --locked --lib --bins --tests; }

here=$(mktemp -d)
cleanup=("rm -rf '$here'")
at_end() {
  local i
  for ((i = ${#cleanup[@]} - 1; i >= 0; i--)); do eval "${cleanup[i]}" || true; done
}
trap at_end EXIT
trap 'exit 130' INT TERM

# A clone of what is committed; git looks at nothing else of this checkout.
clone() { git clone --quiet --no-hardlinks . "$1"; }

condition=${1-}
case $condition in
  idle)
    for ((time = 1; time <= ${2:-1}; time++)); do
      printf '\n== idle, %s of %s\n' "$time" "${2:-1}"
      tests/all.sh
    done
    ;;
  busy)
    build
    for ((loop = 0; loop < ${2:?busy takes a number of loops}; loop++)); do
      # They end by themselves where this script is killed.
      timeout 3h sh -c 'while :; do :; done' &
      cleanup+=("kill $!")
    done
    tests/all.sh
    ;;
  quota)
    needs_root
    build
    if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
      group=/sys/fs/cgroup/half-a-cpu.$$
      grep -qw cpu /sys/fs/cgroup/cgroup.subtree_control || fail "no group has the cpu controller of version 2"
      mkdir "$group"
      echo '50000 100000' >"$group/cpu.max"
    else
      group=/sys/fs/cgroup/cpu/half-a-cpu.$$
      mkdir "$group"
      echo 100000 >"$group/cpu.cfs_period_us"
      echo 50000 >"$group/cpu.cfs_quota_us"
    fi
    cleanup+=("rmdir '$group'" "echo $$ >'$(dirname "$group")/cgroup.procs'")
    echo $$ >"$group/cgroup.procs"
    tests/all.sh
    ;;
  spaces)
    clone "$here/a path with spaces"
    make -C "$here/a path with spaces" test
    ;;
  user)
    needs_root
    clone "$here/gangd"
    # A user has a Rust of their own. This one is shown the files of root's.
    toolchain=$(rustc --print sysroot)
    mkdir -p "$here/cargo" "$here/toolchain"
    cp -r "${CARGO_HOME:-$HOME/.cargo}/registry" "$here/cargo"
    mount --bind -o ro "$toolchain" "$here/toolchain"
    cleanup+=("umount '$here/toolchain'")
    chmod 755 "$here"
    chown -R 65534:65534 "$here/cargo" "$here/gangd"
    mkdir -m 700 "$here/home" "$here/tmp"
    chown 65534:65534 "$here/home" "$here/tmp"
    setpriv --reuid 65534 --regid 65534 --clear-groups env -i HOME="$here/home" TMPDIR="$here/tmp" \
      CARGO_HOME="$here/cargo" PATH="$here/toolchain/bin:/usr/local/bin:/usr/bin:/bin" LANG=C.UTF-8 \
      make -C "$here/gangd" test
    ;;
  *) fail "there are the conditions idle, busy, quota, spaces and user, not '$condition'" ;;
esac
