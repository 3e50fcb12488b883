#!/usr/bin/env bash
# tests/hosts.sh, inside the namespaces: makes the hosts and runs cases on them.
set -Eeuo pipefail
trap '((BASH_SUBSHELL > 1)) || printf "    failed: %s:%s: %s\n" "${BASH_SOURCE[0]}" "$LINENO" "${BASH_COMMAND:0:200}" >&2' ERR
. tests/hosts/bed.sh
# shellcheck source=/dev/null
for file in tests/hosts/cases/*.sh; do . "$file"; done

trap end_hosts EXIT
make_bed
[[ ! " $* " =~ " "(etcd-of-three|kills|cut-off)" " ]] || make_members
if [[ $1 == shell ]]; then
  want_cluster one
  echo "This is node1. ssh node2 is another host, and 'exit' ends all of them."
  on node1 bash -i || true
  exit 0
fi

failures=0
for case in "$@"; do
  set +e
  (
    set -e
    "case_${case//-/_}"
  )
  ended=$?
  set -e
  case $ended in
    0) echo "ok: $case" ;;
    "$SKIPPED") ;;
    *)
      echo "FAILED: $case" >&2
      failures=$((failures + 1))
      show_logs >&2
      ;;
  esac
done
exit $((failures > 0))
