# shellcheck shell=bash disable=SC2154,SC2034
# The system clock steps, by more than any timetable reaches, while two gangs take turns: they go
# on.

none_is_frozen_for_good() {
  local pid
  for pid in "$@"; do reached has_state "$pid" R || return; done
}

# step BY
step() {
  local from to
  from=$(date +%s)
  date -s "@$((from + $1))" >/dev/null
  to=$(date +%s)
  (((to - from) * 10 / $1 >= 9)) || failed "the clock steps by $1 s" "from $from to $to"
}

for backend in rt weight freeze signal; do
  start_daemon --backend "$backend" --slice 20ms
  start_gang one
  all=("${spinners[@]}")
  start_gang other
  all+=("${spinners[@]}")
  go_on "$backend" one other
  for by in 3600 -3600 7 -7; do
    step "$by"
    go_on "$backend, after $by s" one other
    if [[ $backend == rt ]]; then
      check "$backend, after $by s: each thread is raised in its slot" raised "${all[@]}"
    fi
    check "$backend, after $by s: each thread runs" none_is_frozen_for_good "${all[@]}"
  done
  check "$backend: the invariants hold" gang check
  stop_daemon
  becomes "$backend: gang shutdown releases all" are_released "${all[@]}"
  kill -KILL "${all[@]}"
done
