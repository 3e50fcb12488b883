# shellcheck shell=bash disable=SC2154,SC2034
# The common part of the checks in the guest; bash sources it. Each check prints a line for each
# thing that it looked at.
#
# A gang here is two loops of the shell, so that the guest needs no compiler. A guest is slow: what
# is waited for may take long, and nothing is judged by how long it took.
set -u
export GANG_SOCKET=/run/vm/gangd.sock
mkdir -p /run/vm
failures=0
groups=/sys/fs/cgroup
timeout_s=60
daemon=

ok() { printf 'ok: %s\n' "$*"; }
skipped() { printf 'skipped: %s\n' "$*"; }
# Of what follows a failure, the last lines are shown.
failed() {
  printf 'FAILED: %s\n' "$1"
  failures=$((failures + 1))
  printf '%s\n' "${@:2}" | tail -n 12 | sed 's/^/    /'
}

# check WHAT COMMAND… : it succeeds.
check() {
  local output
  if output=$("${@:2}" 2>&1); then ok "$1"; else failed "$1" "${*:2}" "$output"; fi
}

# Seconds since boot, which no step of the system clock changes.
uptime_s() { cut -d . -f 1 /proc/uptime; }

# reached COMMAND… : it succeeds in the end.
reached() {
  local end=$(($(uptime_s) + timeout_s))
  until "$@" >/dev/null 2>&1; do
    (($(uptime_s) < end)) || return 1
    sleep 0.05
  done
}
becomes() {
  if reached "${@:2}"; then
    ok "$1"
  else
    # Without a daemon, gang would undo what is to be seen.
    failed "$1: not within $timeout_s s" "$(is_up && gang ls 2>&1)" "$(log)" \
      "$([[ $2 != are_* ]] || looks "${@:3}")"
  fi
}
# looks PID… : how each is scheduled, and its group.
looks() {
  local pid
  for pid in "$@"; do
    printf 'process %s: policy %s, state %s, group %s, frozen %s, %s\n' "$pid" \
      "$(policy "$pid")" "$(state "$pid")" "$(group "$pid")" \
      "$(cat "$(group "$pid")/cgroup.freeze" 2>&1)" "$(chrt -p "$pid" 2>&1 | tr '\n' ' ')"
  done
}

is_up() { [[ $daemon ]] && kill -0 "$daemon"; }
log() { tail -n 6 /run/vm/gangd.log; }
start_daemon() {
  gangd --socket "$GANG_SOCKET" "$@" </dev/null >>/run/vm/gangd.log 2>&1 &
  daemon=$!
  reached gang status || failed "gangd $* answers" "$(log)"
}
stop_daemon() {
  gang shutdown >/dev/null || kill "$daemon"
  wait "$daemon"
  daemon=
}
kill_daemon() {
  kill -KILL "$daemon"
  wait "$daemon" 2>/dev/null
  daemon=
}

# The user that starts gangs, as a prefix of commands.
as=()
# Two that spin, until they are killed.
spin='while :; do :; done'
# start_gang NAME OPTIONS… ; the numbers of those that spin are then in $spinners.
start_gang() {
  "${as[@]}" gang run -q -n 2 --name "$1" "${@:2}" -- bash -c "bash -c '$spin' & bash -c '$spin' & wait" \
    </dev/null >/dev/null 2>&1 &
  disown $!
  reached two_spin "$1" || failed "gang run --name $1 makes a job" "$(gang ls 2>&1)"
  mapfile -t spinners < <(spinners_of "$1")
}
spinners_of() {
  local pid
  for pid in $(processes "$1"); do
    [[ $(tr '\0' ' ' <"/proc/$pid/cmdline") != "bash -c $spin "* ]] || echo "$pid"
  done
}
two_spin() { (($(spinners_of "$1" | wc -l) == 2)); }
end_gang() {
  gang kill -s KILL "$1" >/dev/null
  reached is_gone "$1" || failed "gang kill ends $1" "$(gang ls 2>&1)"
}
is_gone() { ! gang show "$1"; }

# job NAME FILTER: of what gang show says of a job.
job() { gang show "$1" --json | jq -er ".details | $2"; }
# processes NAME: the numbers of its processes.
processes() { gang show "$1" --json | jq -r '.processes[].pid'; }
slots() { job "$1" .slots; }
cpu_time() { job "$1" .cpu_time_ns; }

# has_more_slots NAME BEFORE
has_more_slots() { (($(slots "$1") > $2 + 20)); }
has_more_cpu() { (($(cpu_time "$1") > $2 + 200000000)); }
# go_on WHAT NAME… : all of these gangs have further slots, and CPU time in them.
go_on() {
  local what=$1 name
  shift
  declare -A slots_before cpu_before
  for name in "$@"; do
    slots_before[$name]=$(slots "$name")
    cpu_before[$name]=$(cpu_time "$name")
  done
  for name in "$@"; do
    becomes "$what: $name has further slots" has_more_slots "$name" "${slots_before[$name]}"
    becomes "$what: $name has further CPU time" has_more_cpu "$name" "${cpu_before[$name]}"
  done
}

# The scheduling policy of a process as the kernel has it: 0 OTHER, 1 FIFO, 3 BATCH, 5 IDLE.
policy() { sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 39; }
state() { sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 1; }
has_policy() { [[ " ${*:2} " == *" $(policy "$1") "* ]]; }
# raised PID… : each is SCHED_FIFO at some time. The observer stands above gangs, which have all
# CPUs then, and looks often: a slot is short.
raised() {
  local pid
  for pid in "$@"; do
    # shellcheck disable=SC2016
    timeout "$timeout_s" chrt --fifo 50 bash -c 'while read -r line <"/proc/$1/stat"; do
      fields=(${line##*) })
      [[ ${fields[38]} != 1 ]] || exit 0
      sleep 0.003
    done; exit 1' bash "$pid" || return
  done
}
has_state() { [[ " ${*:2} " == *" $(state "$1") "* ]]; }
# group PID: its cgroup's directory.
group() { printf '%s%s' "$groups" "$(sed -n 's/^0:://p' "/proc/$1/cgroup")"; }

# are_released PID… : plain Linux schedules them; they run, with everybody else's rights.
are_released() {
  local pid at
  for pid in "$@"; do
    has_policy "$pid" 0 || return
    ! has_state "$pid" T || return
    at=$(group "$pid")
    while [[ $at != "$groups" && $at != "$groups/" ]]; do
      [[ $(cat "$at/cgroup.freeze") == 0 ]] || return
      [[ ! -e $at/cpu.idle || $(cat "$at/cpu.idle") == 0 ]] || return
      at=${at%/*}
    done
  done
}
# are_lowered PID… : none of them is above others. Their group may be below, for a daemon that
# hangs.
are_lowered() {
  local pid
  for pid in "$@"; do has_policy "$pid" 0 || return; done
}
no_groups_are_left() { [[ ! $(find "$groups" -mindepth 1 -type d -name '*gangd*' ! -name '*.s*') ]]; }
