# shellcheck shell=bash disable=SC2154,SC2034
# A machine that systemd has booted with version 1 of cgroups, and version 2 without controllers
# beside it: what a unit or a container limits stays in force for the gang that is called there.
unset GANG_SOCKET
groups=/sys/fs/cgroup/unified
# shellcheck source=tests/vm/runc.sh
. ./runc.sh

is_up() { systemctl is-active gangd; }
log() { journalctl -u gangd -n 6 --no-pager -o cat; }
# group_of CONTROLLER PID: the group of version 1 that a process is in.
group_of() { sed -n "s/^[0-9]*:\([a-z_,]*,\)\?$1\(,[a-z_,]*\)\?://p" "/proc/$2/cgroup"; }
first_of() { spinners_of "$1" | head -n 1; }
is_called() { (($(spinners_of "$1" | wc -l) == 1)); }
# is_in CONTROLLER JOB GROUP: the program is there, or below.
is_in() { [[ $(group_of "$1" "$(first_of "$2")")/ == "$3"/* ]]; }
# has_value CONTROLLER JOB FILE VALUE
has_value() {
  [[ $(cat "/sys/fs/cgroup/$1$(group_of "$1" "$(first_of "$2")")/$3") == "$4" ]]
}
throttled() { sed -n 's/^nr_throttled //p' "/sys/fs/cgroup/cpu$1/cpu.stat"; }
is_throttled() { (($(throttled "$1") > $2 + 3)); }
called() { # called UNIT PROPERTY… : a unit that calls a gang of one that spins
  systemd-run -q --unit="$1" "${@:2}" gang run -q -n 1 --name "$1" -- bash -c "bash -c '$spin' & wait"
}

for controller in cpu memory pids devices freezer cpuset; do
  check "version 1 has the controller $controller" test -d "/sys/fs/cgroup/$controller"
done
check "the package is installed" dpkg -i /vm/gangd.deb
becomes "the daemon runs" systemctl is-active gangd
check "its backend is rt" test "$(gang status --json | jq -r .status.backend)" = rt
useradd --create-home someone
as=(setpriv --reuid=someone --regid=someone --clear-groups)
start_gang one
all=("${spinners[@]}")
start_gang other
all+=("${spinners[@]}")
as=()
go_on "gangs of a user" one other
check "they are raised" raised "${all[@]}"
check "the invariants hold" gang check

check "a unit with limits calls a gang" called limited -p MemoryMax=96M -p TasksMax=20 -p DevicePolicy=closed
becomes "it runs" is_called limited
becomes "it has slots" has_more_slots limited 0
for controller in memory pids devices; do
  check "it stays in its unit's group of $controller" is_in "$controller" limited /system.slice/limited.service
done
check "its limit of memory holds" has_value memory limited memory.limit_in_bytes $((96 << 20))
check "its limit of processes holds" has_value pids limited pids.max 20
check "another limit of memory is set" systemctl set-property --runtime limited MemoryMax=64M
becomes "it has that one" has_value memory limited memory.limit_in_bytes $((64 << 20))
check "systemctl stop" systemctl stop limited
becomes "ends the gang" is_gone limited

check "a unit with a quota calls one" called quota -p CPUQuota=20%
becomes "it runs" is_called quota
becomes "it has slots" has_more_slots quota 0
check "it stays in its unit's group of cpu" is_in cpu quota /system.slice/quota.service
before=$(throttled /system.slice/quota.service)
becomes "its quota holds" is_throttled /system.slice/quota.service "$before"
check "systemctl kill" systemctl kill -s KILL quota
becomes "kills the gang" is_gone quota

in_box=(env GANG_SOCKET=/run/gangd/gangd.sock gang run -q -n 1 --name boxed -- bash -c "bash -c '$spin' & wait")
socket='.mounts += [{destination: "/run/gangd", type: "bind", source: "/run/gangd", options: ["rbind"]}]'
check "a container with a quota calls a gang" container box "$same_pids | $quota | $socket" "${in_box[@]}"
becomes "it runs" is_called boxed
becomes "it has slots" has_more_slots boxed 0
check "it stays in its container's group of cpu" is_in cpu boxed /box
before=$(throttled /box)
becomes "its quota holds" is_throttled /box "$before"
check "runc pause" runtime pause box
is_frozen() { has_value freezer boxed freezer.state FROZEN; }
becomes "freezes the gang" is_frozen
go_on "beside one that stands still" one
check "runc resume" runtime resume box
go_on "after that" boxed one
check "runc kill" runtime kill --all box KILL
becomes "the gang is over" is_gone boxed
becomes "runc delete" runtime delete --force box

systemctl stop gangd.service 2>/dev/null
becomes "systemctl stop releases all" are_released "${all[@]}"
becomes "no group is left" no_groups_are_left
left_of_version_1() { find /sys/fs/cgroup -mindepth 2 -type d -name '*gangd*' ! -name '*.s*'; }
are_none() { [[ ! $(left_of_version_1) ]]; }
becomes "nor one of version 1" are_none
kill -KILL "${all[@]}"
