# shellcheck shell=bash disable=SC2154,SC2016
# CASE etcd-of-three: one of three etcd dies and comes back; slots go on, and so do changes

MEMBERS=(etcd1 etcd2 etcd3)

# Hosts of their own, without a daemon.
make_members() {
  local name
  for name in "${MEMBERS[@]}"; do host "$name" "${ONLINE// /,}"; done
}

start_member() {
  local name=$1 all='' member
  for member in "${MEMBERS[@]}"; do all+=,$member=http://$member:2380; done
  start "$name" etcd etcd --name "$name" --data-dir /run/etcd --unsafe-no-fsync --log-level error \
    --listen-client-urls http://0.0.0.0:2379 --advertise-client-urls "http://$name:2379" \
    --listen-peer-urls "http://${address_of[$name]}:2380" --initial-advertise-peer-urls "http://$name:2380" \
    --initial-cluster "${all#,}"
}
start_members() {
  local name
  for name in "${MEMBERS[@]}"; do start_member "$name"; done
}

# A job over all hosts whose processes use all CPUs they get, for two minutes at most.
SPIN='while :; do :; done'
start_spanning_spinner() {
  local name id
  on node1 gang run --name "$1" --hosts "$(all_cpus)" -- timeout 600 sh -c "$SPIN" >>"$BED/log/spinner" 2>&1 &
  wait_until "job $1 spans the hosts" is_spanning "$1"
  id=$(job_named "$1")
  for name in "${hosts[@]:1}"; do
    wait_until "job $1 has a part on $name" on "$name" gang show "$id"
    on "$name" env GANG_JOB="$id" gang run --join timeout 600 sh -c "$SPIN" >>"$BED/log/spinner" 2>&1 &
  done
}

# Through the registry, so it takes a majority of etcd.
changes_are_made() {
  local id=$1
  on node1 gang set "$id" --weight "$2" && on node2 gang show "$id" --json | grep -q "\"weight\": *$2\b"
}

case_etcd_of_three() {
  want_cluster three
  start_spanning_spinner lu
  local id
  id=$(job_named lu)
  has_slots_everywhere "$id"
  say "one of three is killed"
  stop etcd1 etcd KILL
  has_slots_everywhere "$id"
  wait_until "a change is made by two of three" changes_are_made "$id" 70
  say "it comes back, and another one is killed"
  start_member etcd1
  wait_until "etcd1 is of the three again" etcd_answers http://etcd1:2379
  stop etcd2 etcd KILL
  has_slots_everywhere "$id"
  wait_until "a change is made by the other two of three" changes_are_made "$id" 80
  say "all three are there"
  start_member etcd2
  wait_until "etcd2 is of the three again" etcd_answers http://etcd2:2379
  on node2 gang kill "$id"
  wait_until "the job is gone" is_gone_everywhere lu
}
