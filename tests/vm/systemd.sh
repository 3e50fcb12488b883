# shellcheck shell=bash disable=SC2154,SC2034
# A machine that systemd has booted: the package, its units, and a user who is not root.
unset GANG_SOCKET

is_up() { systemctl is-active gangd; }
log() { journalctl -u gangd -n 6 --no-pager -o cat; }
main_pid() { systemctl show -P MainPID gangd; }
restarts() { systemctl show -P NRestarts gangd; }
has_restarted() { (($(restarts) > $1)) && [[ $(systemctl is-active gangd) == active ]]; }
is_inactive() { [[ $(systemctl is-active "$1") == inactive ]]; }
is_found() { (($(job "$1" .id) == $2)); }

check "the package is installed" dpkg -i /vm/gangd.deb
becomes "the daemon runs" systemctl is-active gangd
check "it starts with the machine" systemctl is-enabled gangd.service gangd.socket
check "its backend is rt" test "$(gang status --json | jq -r .status.backend)" = rt

systemctl stop gangd.service 2>/dev/null
becomes "the daemon has stopped" is_inactive gangd.service
check "gang ls starts it, by its socket" gang ls
check "then it runs" systemctl is-active gangd

useradd --create-home someone
as=(setpriv --reuid=someone --regid=someone --clear-groups)
start_gang one
all=("${spinners[@]}")
start_gang other
all+=("${spinners[@]}")
check "the job of a user is the user's" test "$(job one .owner_uid)" = "$(id -u someone)"
go_on "gangs of a user" one other
check "they are raised" raised "${all[@]}"
check "the invariants hold" gang check
measuring() { [[ $(gang status --json | jq -r .status.measuring) == yes ]]; }
becomes "gangs are measured" measuring
check "their memory can be enforced" "${as[@]}" gang run -q -n 1 --name small --mem 64M -- true

# Units whose programs are gangs. Limits of memory and processes go with a job; for others it stays.
group_of() { systemctl show -P ControlGroup "$1"; }
# A unit that was killed has failed, and would keep its name.
called() { # called UNIT PROPERTY… : a unit that calls a gang of one that spins
  systemd-run -q --collect --unit="$1" "${@:2}" gang run -q -n 1 --name "$1" -- bash -c "bash -c '$spin' & wait"
}
is_called() { (($(spinners_of "$1" | wc -l) == 1)); }
stays() { [[ $(job "$1" .cgroup) == "$groups$(group_of "$1")"/* ]]; }
check "a unit calls a gang" called plain -p TasksMax=20
becomes "it runs" is_called plain
becomes "it has slots" has_more_slots plain 0
check "its limit of processes goes with it" test "$(cat "$(job plain .cgroup)/pids.max")" = 20
in_unit() { systemctl set-property --runtime plain "$@"; }
is_limited() { [[ $(cat "$(job plain .cgroup)/$1") == "$2" ]]; }
check "a smaller limit is set" in_unit TasksMax=15
becomes "it has that one" is_limited pids.max 15
check "a limit of memory is set" in_unit MemoryMax=128M
becomes "it has that one, too" is_limited memory.max 134217728
check "both are lifted" in_unit TasksMax=infinity MemoryMax=infinity
becomes "it has none of them" is_limited pids.max max
becomes "nor of memory" is_limited memory.max max
check "a quota is set" in_unit CPUQuota=20%
becomes "it comes back to its unit" stays plain
is_kept() { grep -q 'cpu.max of' <<<"$(job plain .kept_by)"; }
becomes "gang show says why" is_kept
becomes "it has slots in it" has_more_slots plain "$(slots plain)"
check "the quota is lifted" in_unit CPUQuota=
has_left() { [[ $(job plain .cgroup) != "$groups$(group_of plain)"/* ]]; }
becomes "it leaves its unit" has_left
becomes "it has slots again" has_more_slots plain "$(slots plain)"
check "a unit with a quota calls one" called quota -p CPUQuota=20%
becomes "it runs" is_called quota
check "it stays in its unit" stays quota
check "gang show says why" grep -q 'cpu.max of' <<<"$(job quota .kept_by)"
becomes "it has slots in it" has_more_slots quota 0
throttled() { sed -n 's/^nr_throttled //p' "$groups$(group_of quota)/cpu.stat"; }
is_throttled() { (($(throttled) > 3)); }
becomes "its quota holds" is_throttled
check "a unit with a filter of devices calls one" called filter -p DevicePolicy=closed
becomes "it runs" is_called filter
check "it stays in its unit" stays filter
check "gang show says why" grep -q 'a BPF program of' <<<"$(job filter .kept_by)"
sends() { systemd-run -q --wait "$@" bash -c 'echo x >/dev/udp/127.0.0.1/9'; }
sends_not() { ! sends "$@" gang run -q -n 1 --policy none --; }
check "a unit sends a packet" sends
check "one without a network sends none as a gang" sends_not -p IPAddressDeny=any
check "a unit with a cpuset calls one" called cpuset -p AllowedCPUs=0
becomes "it runs" is_called cpuset
becomes "it has slots" has_more_slots cpuset 0
has_slots_on() { [[ $(job cpuset '.cpu_list | join(",")') == "$1" ]]; }
becomes "it has them on its CPU" has_slots_on 0
check "it is given the other one alone" systemctl set-property --runtime cpuset AllowedCPUs=1
becomes "it has its slots there" has_slots_on 1
check "systemctl stop" systemctl stop cpuset
becomes "ends it" is_gone cpuset
# A process of a job that has systemd start a scope of it leaves the job.
gang run -q -n 1 --name scoped -- bash -c "bash -c '$spin' & systemd-run -q --scope --unit=apart bash -c '$spin'" \
  </dev/null >/dev/null 2>&1 &
disown $!
in_scope() { grep -l "/apart.scope" /proc/[0-9]*/cgroup | cut -d / -f 3; }
has_scope() { [[ $(in_scope) ]]; }
becomes "a scope is started within a job" has_scope
mapfile -t apart < <(in_scope)
becomes "it is of no job, and released" are_released "${apart[@]}"
becomes "the job goes on" has_more_slots scoped "$(slots scoped)"
check "systemctl stop" systemctl stop apart.scope
end_gang scoped

check "systemctl freeze" systemctl freeze plain
is_suspended() { [[ $(job plain .state) == suspended ]]; }
becomes "freezes the gang" is_suspended
check "systemctl thaw" systemctl thaw plain
goes_on() { ! is_suspended; }
becomes "thaws it" goes_on
for unit in plain quota filter; do
  check "systemctl stop ends the gang of $unit" systemctl stop "$unit"
  becomes "it is over" is_gone "$unit"
done
check "a unit calls one again" called plain
becomes "it runs" is_called plain
becomes "it has slots" has_more_slots plain 0
mapfile -t killed < <(spinners_of plain)
at_ns=$(date +%s%N)
check "its unit is killed" tee "$groups$(group_of plain)/cgroup.kill" <<<1
while kill -0 "${killed[@]}" 2>/dev/null && (($(date +%s%N) - at_ns < 60000000000)); do :; done
printf '  none of it was there %s ms later\n' $((($(date +%s%N) - at_ns) / 1000000))
becomes "it is over" is_gone plain
becomes "a unit calls one again" called plain
becomes "it runs" is_called plain
check "systemctl kill" systemctl kill -s KILL plain
becomes "kills the gang" is_gone plain

one=$(job one .id)
before=$(restarts)
systemctl kill -s KILL gangd
becomes "daemon and guardian killed: systemd starts another daemon" has_restarted "$before"
becomes "it finds the jobs again" is_found one "$one"
go_on "with the next daemon" one other

# Nobody comes after it: what is released now, is so by ExecStopPost. No gang command meanwhile,
# which would start a daemon by the socket.
mkdir -p /run/systemd/system/gangd.service.d
printf '[Service]\nRestart=no\n' >/run/systemd/system/gangd.service.d/no-restart.conf
systemctl daemon-reload
check "they are raised before nobody comes" raised "${all[@]}"
# By their numbers: systemd kills a whole group by cgroup.kill, and Linux 6.18 then kills whatever
# systemd starts in that group later, ExecStopPost too.
mapfile -t service < <(cat "$groups/system.slice/gangd.service/cgroup.procs")
check "daemon and guardian are the service" test "${#service[@]}" = 2
# The guardian stands still, and so releases nobody before it is killed.
main=$(main_pid)
for pid in "${service[@]}"; do [[ $pid == "$main" ]] || kill -STOP "$pid"; done
kill -KILL "$main" "${service[@]}"
has_failed() { [[ $(systemctl is-active gangd.service) == failed ]]; }
becomes "daemon and guardian killed, and no other daemon is started" has_failed
becomes "ExecStopPost releases all" are_released "${all[@]}"
check "it was no other daemon" has_failed
check "it ended well" grep -q 'code=exited ; status=0' <<<"$(systemctl show -p ExecStopPost gangd)"
rm -r /run/systemd/system/gangd.service.d
systemctl daemon-reload
systemctl reset-failed gangd.service
becomes "the next gang command starts a daemon" gang ls
becomes "it has the jobs that ExecStopPost left on file" is_found one "$one"
go_on "after ExecStopPost" one other

before=$(restarts)
kill -STOP "$(main_pid)"
becomes "a daemon that hangs: its guardian releases all" are_lowered "${all[@]}"
becomes "the watchdog of systemd starts another one" has_restarted "$before"
go_on "after the watchdog" one other

systemctl stop gangd.service 2>/dev/null
becomes "systemctl stop releases all" are_released "${all[@]}"
becomes "no group is left" no_groups_are_left
check "the journal has its log" grep -q 'gangd is ready' <<<"$(journalctl -u gangd --no-pager -o cat)"
exposure=$(systemd-analyze security gangd --no-pager | sed -n 's/.*exposure level.*: \([0-9.]*\) .*/\1/p')
# As in tests/units.sh.
check "systemd-analyze security: exposure $exposure, at most 4.3" \
  awk -v exposure="$exposure" 'BEGIN { exit !(exposure > 0 && exposure <= 4.3) }'

check "it starts again" systemctl start gangd.service
start_gang last
all+=("${spinners[@]}")
go_on "before it is purged" last
check "the package is purged" dpkg --purge gangd
becomes "the programs run on" are_released "${all[@]}"
becomes "no group is left" no_groups_are_left
left() { ls -d /etc/gangd /var/lib/gangd /run/gangd /usr/bin/gang /usr/sbin/gangd "$(find /etc/systemd /lib/systemd -name 'gangd*')"; }
check "nothing of it is left" test -z "$(left 2>/dev/null)"
kill -KILL "${all[@]}"
