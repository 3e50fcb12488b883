#!/usr/bin/env bash
# Becomes a program that ends by itself, or is killed after so many minutes. The processes that ran
# by then are shown, so that a test that hangs is known from one that is slow.
#
#   tests/bounded.sh MINUTES PROGRAM [ARGUMENT…]
set -euo pipefail

minutes=$1
shift
hangs() {
  printf '%s did not end within %s minutes. What runs:\n' "$1" "$minutes"
  ps --ppid 2 -p 2 --deselect -o pid,ppid,etimes,stat,cls,wchan:24,args --forest | cut -c -200
  kill -TERM $$
  timeout 10 tail --pid=$$ -f /dev/null || kill -KILL $$
} >&2 2>/dev/null
# Nobody's child, so that the program finds none that it has not started.
({ timeout "${minutes}m" tail --pid=$$ -f /dev/null || (($? != 124)) || hangs "$*"; } &)
exec "$@"
