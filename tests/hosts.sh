#!/usr/bin/env bash
# Hosts of a cluster on this one machine, each with its own daemon and its share of the CPUs, and
# what runs on clusters: etcd, Open MPI, MPICH, Slurm. Needs root, and a CPU for each host.
#
#   tests/hosts.sh [CASE…]      the cases named; page alone, the smoke test, where none is
#   tests/hosts.sh all          all cases
#   tests/hosts.sh list         the cases, each with what it shows
#   tests/hosts.sh shell        a shell on node1, with a cluster, until it ends
#
# HOSTS=N makes N hosts (2). GANG_BIN is the directory with gang, gangd, gang-trace and libgang.a,
# by default that of the tests. KEEP=DIRECTORY keeps the logs.
#
# All of it lives in namespaces below one process: with this process everything else ends. The
# cgroups are made and removed by this script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

skip() {
  echo "skipped: $1"
  echo "tests/hosts.sh: $1" >>"${GANG_SKIPS:-/dev/null}"
  exit 0
}
# A case, and what it needs beyond the rest, are in tests/hosts/cases.
list() { sed -n 's/^# CASE \([a-z0-9-]*\): */\1  /p' tests/hosts/cases/*.sh; }

if [[ ${1-} == list ]]; then
  list
  exit 0
fi
cases=("$@")
((${#cases[@]})) || cases=(page)
if [[ ${cases[0]} == all ]]; then mapfile -t cases < <(list | cut -d ' ' -f 1); fi
for case in "${cases[@]}"; do
  [[ $case == shell ]] || list | grep -q "^$case " || {
    echo "there is no case $case: tests/hosts.sh list" >&2
    exit 2
  }
done

export HOSTS=${HOSTS:-2}
built=${GANG_BIN:-${CARGO_TARGET_DIR:-target}/debug}
[[ $(id -u) == 0 ]] || skip "hosts of namespaces take root"
for program in unshare nsenter setpriv taskset ip etcd cc; do
  command -v "$program" >/dev/null || skip "$program is not here: scripts/deps hosts"
done
mapfile -t online < <(taskset -cp $$ | sed 's/.*: //' | tr , '\n' |
  awk -F - '{ for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i }')
((${#online[@]} >= HOSTS)) || skip "$HOSTS hosts take as many CPUs, and here are ${#online[@]}"
unified=$(findmnt -n -t cgroup2 -o TARGET | head -n 1)
[[ $unified ]] || skip "no cgroups of version 2 are mounted"
inner=(unshare --mount --net --uts --ipc --pid --fork --kill-child=KILL --mount-proc)
timeout 20 "${inner[@]}" true 2>/dev/null || skip "namespaces cannot be made here"
for program in gang gangd gang-trace libgang.a; do
  [[ -e $built/$program ]] || {
    echo "$built lacks $program: cargo build --workspace --lib --bins" >&2
    exit 1
  }
done

BED=$(mktemp -d /tmp/gang-hosts.XXXXXX)
chmod 755 "$BED"
export BED UNIFIED=$unified GROUPS_OF_HOSTS=$unified/${BED##*/} ONLINE="${online[*]}"
clean_up() {
  # Processes that were killed leave their groups a moment later.
  local tries
  for ((tries = 50; tries > 0; tries--)); do
    find "$GROUPS_OF_HOSTS" -depth -type d -exec rmdir {} + 2>/dev/null || true
    [[ -d $GROUPS_OF_HOSTS ]] || break
    sleep 0.2
  done
  [[ ! -d $GROUPS_OF_HOSTS ]] || echo "$GROUPS_OF_HOSTS could not be removed" >&2
  if [[ ${KEEP-} ]]; then mkdir -p "$KEEP" && cp -r "$BED/log/." "$KEEP"; fi
  rm -rf "$BED"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
mkdir "$GROUPS_OF_HOSTS" 2>/dev/null || skip "cgroups cannot be made below $unified"

mkdir "$BED"/{bin,lib,log,home,src}
install -s -t "$BED/bin" "$(realpath "$built/gang")" "$(realpath "$built/gangd")" "$(realpath "$built/gang-trace")"
scripts/link-libgang "$(realpath "$built/libgang.a")" "$BED/lib"
scripts/link-preload "$(realpath "$built/libgang.a")" "$BED/lib"
sed -e "s|@PREFIX@|$BED|; s|@LIBDIR@|$BED/lib|; s|@VERSION@|0|" crates/libgang/gang.pc.in >"$BED/lib/gang.pc"
ln -s src "$BED/include"
cp crates/libgang/include/gang.h integrations/slurm/* "$BED/src"
cp docs/*.md tests/hosts/*.c "$BED/src"

inside=("${inner[@]}" bash tests/hosts/inside.sh "${cases[@]}")
if [[ ${cases[0]} == shell ]]; then
  "${inside[@]}"
else
  # In the background, so that a signal is heard at once.
  timeout --kill-after=20 "${LIMIT:-1700}" "${inside[@]}" &
  child=$!
  trap 'kill "$child"; wait "$child" || true; exit 130' INT TERM
  wait "$child"
fi
