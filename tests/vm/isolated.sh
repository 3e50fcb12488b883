# shellcheck shell=bash disable=SC2154,SC2034
# A kernel that keeps its last CPU for those who ask for it (isolcpus=2): gangs have the others, and
# whoever binds itself to that CPU has it as a gang as well.

may_run_on() {
  local cpus=$1 pid
  shift
  for pid in "$@"; do grep -qx "Cpus_allowed_list:[[:space:]]*$cpus" "/proc/$pid/status" || return; done
}
# was_on CPU PID… : one of them ran there last.
was_on() {
  local cpu=$1 pid
  shift
  for pid in "$@"; do
    [[ $(sed 's/.*) //' "/proc/$pid/stat" | cut -d ' ' -f 37) != "$cpu" ]] || return 0
  done
  return 1
}
# stays_off CPU PID… : of many looks none sees one of them there.
stays_off() {
  local look
  for look in {1..200}; do
    ! was_on "$@" || return
    sleep 0.005
  done
}

check "the kernel keeps CPU 2 for those who ask for it" grep -qx 2 /sys/devices/system/cpu/isolated
check "a program has the others" may_run_on 0-1 $$
for backend in rt weight freeze signal; do
  start_daemon --backend "$backend" --slice 20ms
  start_gang one
  usual=("${spinners[@]}")
  start_gang other
  usual+=("${spinners[@]}")
  go_on "$backend" one other
  check "$backend: gangs that ask for nothing stay off CPU 2" stays_off 2 "${usual[@]}"
  as=(taskset -c 2)
  start_gang bound --min 1
  bound=("${spinners[@]}")
  as=(taskset -c 0-2)
  start_gang free
  free=("${spinners[@]}")
  as=()
  go_on "$backend, beside those that ask for it" one other bound free
  check "$backend: a gang that is bound to CPU 2 runs there" was_on 2 "${bound[@]}"
  check "$backend: and nowhere else" stays_off 0 "${bound[@]}"
  check "$backend: the others stay off it still" stays_off 2 "${usual[@]}"
  check "$backend: the invariants hold" gang check
  kill_daemon
  all=("${usual[@]}" "${bound[@]}" "${free[@]}")
  becomes "$backend: kill -9 of the daemon releases all" are_released "${all[@]}"
  check "$backend: who asked for nothing may run on the usual CPUs" may_run_on 0-1 "${usual[@]}"
  check "$backend: who was bound is bound" may_run_on 2 "${bound[@]}"
  check "$backend: who chose all has all" may_run_on 0-2 "${free[@]}"
  kill -KILL "${all[@]}"
  reached no_groups_are_left
done
