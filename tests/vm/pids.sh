# shellcheck shell=bash disable=SC2154,SC2034
# The number of a process of a job is given to another process: nobody takes that one for the old
# one. Only root can bring a number back so soon; otherwise the kernel goes through all others
# first.

# born PID COMMAND… : a program that is no gang's has that number.
born() {
  local wanted=$1
  shift
  for _ in {1..20}; do
    echo $((wanted - 1)) >/proc/sys/kernel/ns_last_pid
    "$@" </dev/null >/dev/null 2>&1 &
    other=$!
    disown "$other"
    [[ $other != "$wanted" ]] || return 0
    kill -KILL "$other"
  done
  failed "a process has the number $wanted again"
  return 1
}
is_alive() { [[ $(state "$1") == [RS] ]]; }
is_reaped() { [[ ! -e /proc/$1 ]]; }
has_processes() { job "$1" ".processes == $2"; }

# is_left_alone WHAT PID : over some slices it is nobody's but Linux'.
is_left_alone() {
  local before
  before=$(slots other)
  reached has_more_slots other "$before"
  check "$1: it runs, as an ordinary process" eval "is_alive $2 && has_policy $2 0"
  check "$1: it is in no job's group" test "$(group "$2")" = "$groups/"
  check "$1: no job has it" eval "! { processes one; processes other; } | grep -qx $2"
}

for backend in rt freeze signal; do
  start_daemon --backend "$backend" --slice 20ms
  start_gang other
  start_gang one
  mapfile -t others < <(processes other)
  was=${spinners[1]}

  kill -KILL "$was"
  reached is_reaped "$was"
  becomes "$backend: the job has a process less" has_processes one 2
  born "$was" bash -c "$spin"
  is_left_alone "$backend, a number that comes back" "$was"
  check "$backend: gang kill of the job" gang kill -s KILL one
  reached is_gone one
  is_left_alone "$backend, when the job was killed" "$was"
  kill -KILL "$was"
  reached is_reaped "$was"

  start_gang one
  first=$(processes one | head -n 1)
  guardian=$(gang status --json | jq .status.guardian_pid)
  kill -KILL "$daemon" "$guardian"
  wait "$daemon" 2>/dev/null
  daemon=
  mapfile -t one < <(pgrep -P "$first")
  kill -KILL "$first" "${one[@]}"
  reached is_reaped "$first"
  born "$first" chrt --batch 0 bash -c "$spin"
  start_daemon --backend "$backend" --slice 20ms
  becomes "$backend: a daemon that is started again does not find the job whose number is another's" is_gone one
  check "$backend: that one runs" is_alive "$first"
  check "$backend: that one is as it chose to be" has_policy "$first" 3
  check "$backend: that one is in no job's group" test "$(group "$first")" = "$groups/"
  stop_daemon
  check "$backend: gangd ends, and it runs as it chose to be" eval "is_alive $first && has_policy $first 3"
  kill -KILL "$first" "${others[@]}"
done

# Where jobs are trees of processes, the number is all there is on file, with the time at which it
# began.
as=(setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/tmp)
export GANG_SOCKET=/tmp/of-user/gangd.sock
"${as[@]}" mkdir /tmp/of-user
# Nobody asks the daemon of somebody else.
gang() { "${as[@]}" "$(type -P gang)" "$@"; }
start_of_user() {
  "${as[@]}" gangd --socket "$GANG_SOCKET" --backend signal </dev/null >>/run/vm/gangd.log 2>&1 &
  daemon=$!
  reached gang status || failed "the daemon of a user answers" "$(log)"
}
start_of_user
start_gang one
first=$(processes one | head -n 1)
was=${spinners[1]}
kill -KILL "$was"
reached is_reaped "$was"
becomes "a tree: the job has a process less" has_processes one 2
born "$was" "${as[@]}" bash -c "$spin"
before=$(slots one)
becomes "a tree: the job goes on" has_more_slots one "$before"
check "a tree, a number that comes back: no job has it" eval "! processes one | grep -qx $was"
check "a tree, a number that comes back: it runs" is_alive "$was"
check "a tree: gang kill of the job" gang kill -s KILL one
reached is_gone one
check "a tree, when the job was killed: it runs" is_alive "$was"
kill -KILL "$was"

start_gang one
mapfile -t one < <(processes one)
first=${one[0]}
kill -KILL "$daemon" "$(gang status --json | jq .status.guardian_pid)"
wait "$daemon" 2>/dev/null
kill -KILL "${one[@]}"
reached is_reaped "$first"
born "$first" "${as[@]}" bash -c "$spin"
kill -STOP "$first"
reached has_state "$first" T
start_of_user
becomes "a tree: the next daemon does not find the job whose number is another's" is_gone one
check "a tree: that one is as its user left it" has_state "$first" T
kill "$daemon"
wait "$daemon"
check "a tree: gangd ends, and it is as its user left it" has_state "$first" T
kill -KILL "$first"
