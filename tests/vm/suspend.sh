# shellcheck shell=bash disable=SC2154,SC2034
# The machine is suspended while two gangs take turns: they go on when it wakes.

# suspend : the machine sleeps (ACPI S3, with all CPUs but one offline) until an alarm of its clock
# wakes it. s2idle is no state that a virtual PC comes back from by itself.
suspend() {
  local before after
  before=$(date +%s)
  rtcwake --mode mem --seconds 5 || return
  after=$(date +%s)
  ((after - before >= 4)) || { echo "awake after $((after - before)) s"; return 1; }
}

for backend in rt weight freeze signal; do
  start_daemon --backend "$backend" --slice 20ms
  start_gang one
  all=("${spinners[@]}")
  start_gang other
  all+=("${spinners[@]}")
  go_on "$backend" one other
  for time in first second; do
    check "$backend: the machine sleeps for the $time time" suspend
    go_on "$backend, awake for the $time time" one other
  done
  check "$backend: the invariants hold" gang check
  stop_daemon
  becomes "$backend: gang shutdown releases all" are_released "${all[@]}"
  kill -KILL "${all[@]}"
done
