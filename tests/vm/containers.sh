# shellcheck shell=bash disable=SC2154,SC2034
# Containers of runc(8), as Docker and podman have them: gangs called within, and who manages the
# container.

# shellcheck source=tests/vm/runc.sh
. ./runc.sh
has_ended() { [[ $(runtime state "$1" | jq -r .status) == stopped ]]; }
is_called() { (($(spinners_of "$1" | wc -l) == 1)); }
stays_in() { [[ $(job "$1" .cgroup) == "$groups/$2"/* ]]; }
kept_by() { grep -q "$2" <<<"$(job "$1" .kept_by)"; }
throttled() { sed -n 's/^nr_throttled //p' "$groups/$1/cpu.stat"; }
is_throttled() { (($(throttled "$1") > $2 + 3)); }
# end_container NAME JOB : runc tries for a third of a second to remove a group, so nobody is in it
# by then.
end_container() {
  check "runc kill" runtime kill --all "$1" KILL
  becomes "the gang is over" is_gone "$2"
  becomes "its program has ended" has_ended "$1"
  check "runc delete" runtime delete "$1"
  becomes "its group is gone" test ! -e "$groups/$1"
}

start_daemon
start_gang outside
gang_of_one() { # gang_of_one NAME : the command that calls it in a container
  called=(env "GANG_SOCKET=$GANG_SOCKET" gang run -q -n 1 --name "$1" -- bash -c "bash -c '$spin' & wait")
}

gang_of_one boxed
check "a container with a quota calls a gang" container box "$same_pids | $quota" "${called[@]}"
becomes "it runs" is_called boxed
check "it stays in its container" stays_in boxed box
check "gang show says why" kept_by boxed 'cpu.max of'
go_on "in its container" boxed outside
before=$(throttled box)
becomes "its quota holds" is_throttled box "$before"
check "runc pause" runtime pause box
frozen() { grep -qx "frozen 1" "$(job boxed .cgroup)/cgroup.events"; }
becomes "the gang stands still" frozen
go_on "beside one that stands still" outside
check "runc resume" runtime resume box
go_on "after that" boxed outside
check "a larger quota is set" runtime update --cpu-quota 150000 box
before=$(throttled box)
go_on "with the larger one" boxed
end_container box boxed

gang_of_one filtered
check "a container with the usual filter of devices calls a gang" container filter "$same_pids" "${called[@]}"
becomes "it runs" is_called filtered
check "it stays in its container" stays_in filtered filter
check "gang show says why" kept_by filtered 'a BPF program of'
go_on "in its container" filtered outside
end_container filter filtered

# Containers whose processes have numbers of their own.
gang_of_one apart
check "one with a PID namespace calls a gang of the machine's daemon" container apart "$quota" "${called[@]}"
becomes "it runs" is_called apart
check "it stays in its container" stays_in apart apart
go_on "in its container" apart outside
call=(env "GANG_SOCKET=$GANG_SOCKET" gang adopt 1 -n 1 --name other)
check "another one names a process" container names . "${call[@]}"
becomes "it ends" has_ended names
check "it is told what to do" grep -q 'give the container a daemon of its own' /run/vm/names.log
check "nothing came of it" is_gone other
check "runc delete" runtime delete --force names
end_container apart apart
# Its own daemon has a file system of its own to put its socket into.
own='.mounts += [{destination: "/tmp", type: "tmpfs", source: "tmpfs"}]'
call=(env GANG_SOCKET=/tmp/gangd.sock gang run -q -n 1 -- sh -c 'echo within; exit 7')
check "one whose first program is a gang" container own "$own" "${call[@]}"
becomes "it ends" has_ended own
check "its program ran" grep -qx within /run/vm/own.log
check "runc delete" runtime delete --force own
becomes "its group is gone" test ! -e "$groups/own"

go_on "at last" outside
end_gang outside
stop_daemon
is_left() { compgen -G "$groups/*gangd*"; }
check "no group is left" test -z "$(is_left)"
