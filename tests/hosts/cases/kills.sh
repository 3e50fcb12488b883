# shellcheck shell=bash disable=SC2154,SC2016
# CASE kills: members of etcd and hosts are killed and come back, time and again
# CASE cut-off: a host whose network is gone for longer than hosts may be away, and comes back

ROUNDS=${ROUNDS:-20}

# Another process of the job on a host, which uses all CPUs it gets.
join_spinner() {
  on "$1" env GANG_JOB="$2" gang run --join timeout 1500 sh -c "$SPIN" >>"$BED/log/spinner" 2>&1 &
  wait_until "job $2 has a process on $1" has_process "$2" "$1"
}
has_process() { on "$2" gang show "$1" --json | grep -q '"processes": *[1-9]'; }
local_spinner() {
  on "$1" gang run --name "of-$1" -- timeout 1500 sh -c "$SPIN" >>"$BED/log/spinner" 2>&1 &
  wait_until "$1 has a job of its own" has_job "$1" "of-$1"
}
has_job() { on "$1" gang ls | grep -q " $2 "; }

# No invariant is broken on any host, and the cluster has its job.
is_well() {
  local name
  for name in "${hosts[@]}"; do
    on "$name" gang check >"$BED/log/check" 2>&1 || fail "gang check on $name: $(cat "$BED/log/check")"
  done
  [[ $(job_named lu) == "$1" ]] || fail "job lu is not there any more: $(on node1 gang hosts)"
}

# All processes of a host end at once, and what it has in memory is lost, as by its power. It comes
# back as a machine that was just started.
power_off() {
  local name=$1 pid=${pid_of[$1]}
  kill -KILL "$pid"
  timeout 20 tail --pid="$pid" -f /dev/null
  wait_until "the processes of $name have ended" is_off "$name"
  find "$GROUPS_OF_HOSTS/$name" -mindepth 1 -depth -type d -exec rmdir {} +
}
is_off() {
  local group
  while read -r group; do [[ ! -s $group ]] || return 1; done < <(find "$GROUPS_OF_HOSTS/$1" -name cgroup.procs)
}
power_on() {
  local name=$1
  host "$name" "${cpus_of[$name]}"
  start_gangd "$name"
  wait_until "all hosts are in the cluster" all_hosts_are_alive
}

case_kills() {
  local id name round weight=100
  want_cluster three
  start_spanning_spinner lu
  id=$(job_named lu)
  for name in "${hosts[@]}"; do local_spinner "$name"; done
  has_slots_everywhere "$id"
  for ((round = 0; round < ROUNDS; round++)); do
    name=${MEMBERS[round % 3]}
    stop "$name" etcd KILL
    has_slots_everywhere "$id"
    weight=$((weight == 100 ? 90 : 100))
    wait_until "a change is made by two of three" changes_are_made "$id" "$weight"
    start_member "$name"
    wait_until "$name is of the three again" etcd_answers "http://$name:2379"
    is_well "$id"
  done
  say "$ROUNDS times one of three etcd was killed, and came back"
  for ((round = 0; round < ROUNDS; round++)); do
    name=${hosts[round % number_of_hosts]}
    power_off "$name"
    power_on "$name"
    join_spinner "$name" "$id"
    local_spinner "$name"
    has_slots_everywhere "$id"
    is_well "$id"
  done
  say "$ROUNDS times one of $number_of_hosts hosts was killed, and came back"
  on node1 gang kill "$id"
  wait_until "the job is gone" is_gone_everywhere lu
}

lost_hosts() { on "$2" gang show "$1" --json | tr -d ' \n' | grep -o '"lost":\[[^]]*\]'; }
is_lost() { [[ $(lost_hosts "$1" "$2") == *"\"$3\""* ]]; }
is_suspended_everywhere() {
  local name
  for name in "${hosts[@]}"; do on "$name" gang show "$1" --json | grep -q '"wanted": *"suspend"' || return 1; done
}
# A host that nobody reaches, and that reaches nobody.
cut_off() { ip link set "v-$1" down; }
join_again() { ip link set "v-$1" up; }

case_cut_off() {
  local id other last=${hosts[-1]}
  want_cluster three
  start_spanning_spinner lu
  id=$(job_named lu)
  has_slots_everywhere "$id"
  cut_off "$last"
  has_slots_everywhere "$id"
  wait_until "the others know that $last is lost" is_lost "$id" node1 "$last"
  has_slots_everywhere "$id"
  on "$last" gang hosts | grep -q "etcd cannot be reached" || fail "$last does not say why"
  ! on "$last" gang set "$id" --weight 50 2>"$BED/log/refused" || fail "a change is taken without etcd"
  grep -q "cannot be reached" "$BED/log/refused" || fail "$(cat "$BED/log/refused")"
  join_again "$last"
  wait_until "all hosts are in the cluster" all_hosts_are_alive
  wait_until "it is lost no more" is_not_lost "$id" node1 "$last"
  has_slots_everywhere "$id"
  is_well "$id"
  on node1 gang kill "$id"
  wait_until "the job is gone" is_gone_everywhere lu

  say "a job that is to stand still without a host"
  on node1 gang run --name careful --on-host-lost suspend --hosts "$(all_cpus)" -- timeout 600 sh -c "$SPIN" \
    >>"$BED/log/spinner" 2>&1 &
  wait_until "job careful spans the hosts" is_spanning careful
  other=$(job_named careful)
  join_spinner "$last" "$other"
  has_slots_everywhere "$other"
  cut_off "$last"
  wait_until "it stands still" has_state "$other" suspend
  join_again "$last"
  wait_until "all hosts have it so" is_suspended_everywhere "$other"
  on node1 gang resume "$other"
  has_slots_everywhere "$other"
  on node1 gang kill "$other"
  wait_until "the job is gone" is_gone_everywhere careful
}
is_not_lost() { ! is_lost "$@"; }
has_state() { on node1 gang show "$1" --json | grep -q "\"wanted\": *\"$2\""; }
