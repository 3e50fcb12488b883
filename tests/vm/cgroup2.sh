# shellcheck shell=bash disable=SC2154,SC2034
# Version 2 of cgroups, mounted without version 1: every backend shares the machine among two gangs,
# and leaves it as it was.

# see_turns BACKEND PID : the process is in its slot at times, and out of it at times.
see_turns() {
  local pid=$2 at
  at=$(group "$pid")
  case $1 in
    rt)
      check "rt: in its slot it is SCHED_FIFO" raised "$pid"
      becomes "rt: out of it, it fills" has_policy "$pid" 3 5
      check "rt: the group above all gangs is idle" test "$(cat "${at%/*}/cpu.idle")" = 1
      ;;
    weight)
      becomes "weight: in its slot it has the highest weight" grep -qx 10000 "$at/cpu.weight"
      becomes "weight: out of it, it is idle" grep -qx 1 "$at/cpu.idle"
      check "weight: its threads are not touched" has_policy "$pid" 0
      ;;
    # By signals only where a job has no group.
    freeze | signal)
      becomes "$1: in its slot it runs" grep -qx "frozen 0" "$at/cgroup.events"
      becomes "$1: out of it, it is frozen" grep -qx "frozen 1" "$at/cgroup.events"
      ;;
  esac
}

# Everything that is not Linux' own is gone from them, and they are back in the root of the
# hierarchy.
at_home() {
  local pid
  for pid in "$@"; do [[ $(group "$pid") == "$groups/" ]] || return; done
}

# see_memory BACKEND : a job that takes more than it asked for ends, and no other one.
see_memory() {
  local at greedy
  mkfifo /run/vm/go
  gang run -q -n 1 --name greedy --mem 64M -- sh -c '
    read go </run/vm/go; head -c 256M /dev/zero | tail -c 256M >/dev/null' &
  greedy=$!
  becomes "$1: a job with --mem begins" job greedy '.processes > 0'
  check "$1: gang show says that its memory is enforced" job greedy .memory.enforced
  at=$(group "$(processes greedy | head -n 1)")
  check "$1: memory.max is what it asked for" grep -qx $((64 << 20)) "$at/memory.max"
  echo go >/run/vm/go
  wait "$greedy"
  check "$1: more than that ends it" test $? = 137
  becomes "$1: its group is gone" test ! -e "$at"
  rm /run/vm/go
}

# see_clamps BACKEND : what clamps the utilisation of a thread (uclampset(1)) stays as its owner has
# set it, before it is a gang and while it is one, in its slots and after.
see_clamps() {
  local pid
  as=(uclampset -m 200 -M 700)
  start_gang clamped
  as=()
  pid=${spinners[0]}
  go_on "$1, clamped" clamped one
  becomes "$1: it is clamped as it was called" is_clamped "$pid" 200 700
  check "$1: uclampset -p clamps a gang otherwise" uclampset -m 300 -M 600 -p "$pid"
  go_on "$1, clamped otherwise" clamped one
  check "$1: it is clamped so" is_clamped "$pid" 300 600
  check "$1: another of its threads is as it was" is_clamped "${spinners[1]}" 200 700
  check "$1: gang set clamped --policy none" gang set clamped --policy none
  becomes "$1: plain Linux schedules it" are_released "$pid"
  check "$1: it is clamped as its owner has set it" is_clamped "$pid" 300 600
  end_gang clamped
}
# is_clamped PID MIN MAX
is_clamped() {
  local said
  said=$(uclampset -p "$1" 2>&1)
  printf '%s (%s)\n' "$said" $?
  grep -qE "min: *$2 max: *$3" <<<"$said"
}

for controller in cpu memory cpuset; do
  check "the kernel has the controller $controller" grep -qw "$controller" "$groups/cgroup.controllers"
done
for backend in rt weight freeze signal; do
  start_daemon --backend "$backend" --slice 20ms
  start_gang one
  one=("${spinners[@]}")
  start_gang other
  all=("${one[@]}" "${spinners[@]}")
  go_on "$backend" one other
  see_turns "$backend" "${one[0]}"
  check "$backend: the invariants hold" gang check

  check "$backend: gang set one --policy none" gang set one --policy none
  becomes "$backend: plain Linux schedules it" are_released "${one[@]}"
  before=$(slots one)
  go_on "$backend, one of policy none" other
  check "$backend: it had no slot meanwhile" test "$(slots one)" -le $((before + 1))
  check "$backend: gang set one --policy gang" gang set one --policy gang
  go_on "$backend, both gangs again" one other
  see_memory "$backend"
  see_clamps "$backend"

  kill_daemon
  becomes "$backend: kill -9 of the daemon releases all" are_released "${all[@]}"
  start_daemon --backend "$backend" --slice 20ms
  go_on "$backend, with another daemon" one other
  stop_daemon
  becomes "$backend: gang shutdown releases all" are_released "${all[@]}"
  becomes "$backend: they are where they were" at_home "${all[@]}"
  becomes "$backend: no group is left" no_groups_are_left
  kill -KILL "${all[@]}"
done

# A daemon that a program starts has nothing of that program's. Nor are its jobs others than those
# of their callers.
as=(uclampset -m 200 -M 700)
start_gang first
as=()
check "a gang starts a daemon" gang status
check "the gang is clamped as it was called" is_clamped "${spinners[0]}" 200 700
check "the daemon is not clamped" is_clamped "$(gang status --json | jq .status.pid)" 0 1024
check "a group is idle as a whole" mkdir "$groups/slow"
check "it is" tee "$groups/slow/cpu.idle" <<<1
echo $BASHPID >"$groups/slow/cgroup.procs"
start_gang slow
echo $BASHPID >"$groups/cgroup.procs"
check "a gang that was called there is standby" test "$(job slow .class)" = standby
end_gang slow
end_gang first
becomes "the group is gone" rmdir "$groups/slow"
