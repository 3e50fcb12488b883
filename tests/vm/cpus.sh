# shellcheck shell=bash disable=SC2154,SC2034
# A CPU goes offline while two gangs take turns, and comes back: they go on, on the CPUs that there
# are. Not a test of the machine that builds: what is kept to a CPU that goes, or in a cpuset of
# version 1, loses it for good.

online() { echo "$1" >/sys/devices/system/cpu/cpu1/online; }
has_cpus() { gang status --json | jq -e ".status.cpus == $1"; }
may_run_on() {
  local cpus=$1 pid
  shift
  for pid in "$@"; do grep -qx "Cpus_allowed_list:[[:space:]]*$cpus" "/proc/$pid/status" || return; done
}

for backend in rt weight freeze signal; do
  start_daemon --backend "$backend" --slice 20ms
  start_gang one --min 1
  all=("${spinners[@]}")
  start_gang other --min 1
  all+=("${spinners[@]}")
  go_on "$backend" one other
  for time in first second; do
    check "$backend: a CPU goes offline for the $time time" online 0
    becomes "$backend: gangd knows of one CPU" has_cpus 1
    go_on "$backend, with one CPU" one other
    check "$backend, with one CPU: the invariants hold" gang check
    check "$backend: the CPU comes back for the $time time" online 1
    becomes "$backend: gangd knows of two CPUs" has_cpus 2
    go_on "$backend, with two CPUs again" one other
    check "$backend, with two CPUs again: the invariants hold" gang check
  done
  # A gang that comes with one CPU may run on the other one once that is back.
  check "$backend: a CPU goes offline before a gang is called" online 0
  becomes "$backend: gangd knows of one CPU" has_cpus 1
  start_gang late --min 1
  all+=("${spinners[@]}")
  go_on "$backend: one that came with one CPU" late
  online 1
  becomes "$backend: gangd knows of two CPUs" has_cpus 2
  go_on "$backend: it, with two CPUs" late
  # One that may run on that CPU alone: the kernel has it run elsewhere while there is none.
  as=(taskset -c 1)
  start_gang bound --min 1
  as=()
  all+=("${spinners[@]}")
  bound=("${spinners[@]}")
  go_on "$backend: one that is bound to a CPU" bound one
  check "$backend: that CPU goes offline" online 0
  becomes "$backend: gangd knows of one CPU" has_cpus 1
  go_on "$backend: others, when its CPU is gone" one other
  check "$backend: gang why tells of it" gang why bound
  check "$backend: the invariants hold" gang check
  online 1
  becomes "$backend: gangd knows of two CPUs" has_cpus 2
  go_on "$backend: it, when its CPU is back" bound one
  # The last thing that it hears of is that there are fewer.
  check "$backend: a CPU goes offline before the daemon is killed" online 0
  becomes "$backend: gangd knows of one CPU" has_cpus 1
  kill_daemon
  becomes "$backend: kill -9 of the daemon releases all" are_released "${all[@]}"
  online 1
  for pid in "${all[@]}"; do
    [[ " ${bound[*]} " == *" $pid "* ]] ||
      check "$backend: it may run on both CPUs when the other one is back" may_run_on 0-1 "$pid"
  done
  kill -KILL "${all[@]}"
  reached no_groups_are_left
done
