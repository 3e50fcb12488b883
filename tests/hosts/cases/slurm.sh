# shellcheck shell=bash disable=SC2154,SC2016
# CASE slurm: steps of srun and sbatch become gangs, and scancel ends them everywhere
# CASE slurm-accounts: time out of slot stands in Slurm's accounts, and stretches the limits of jobs
# CASE layouts: the plugin reads layouts of steps within bounds, and refuses others

case_layouts() {
  [[ -e /usr/include/slurm/spank.h ]] || skip_case "slurm/spank.h is not here: scripts/deps hosts"
  cc -g -fsanitize=address,undefined -Wall -Wextra -Werror -I"$BED/src" -o "$BED/layouts" "$BED/src/layouts.c" \
    -L"$BED/lib" -lgang -Wl,-rpath,"$BED/lib"
  timeout 60 "$BED/layouts"
}

# A database of its own, with slurmdbd in front of it, on the first host.
start_accounts() {
  on node1 mkdir -p /run/mysqld
  on node1 mariadb-install-db --no-defaults --user=root --datadir=/run/mysqld/data --skip-test-db \
    --auth-root-authentication-method=normal --innodb-log-file-size=8M >"$BED/log/node1.mariadb-install" 2>&1
  start node1 mariadbd mariadbd --no-defaults --user=root --datadir=/run/mysqld/data --skip-networking \
    --socket=/run/mysqld/mysqld.sock --innodb-log-file-size=8M --innodb-buffer-pool-size=32M \
    --innodb-flush-log-at-trx-commit=0
  wait_until "MariaDB answers" on node1 test -S /run/mysqld/mysqld.sock
  cat >/etc/slurm/slurmdbd.conf <<END
DbdHost=node1
SlurmUser=root
AuthType=auth/munge
PidFile=/run/slurm/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
END
  chmod 600 /etc/slurm/slurmdbd.conf
  start node1 slurmdbd slurmdbd -D
  wait_until "slurmdbd answers" on node1 sacctmgr -n list cluster
  on node1 sacctmgr -i add cluster bed
}
has_accounts() {
  local program
  for program in slurmdbd mariadbd mariadb-install-db my_print_defaults sacctmgr sacct; do
    PATH=$PATH:/usr/sbin has $program || return 1
  done
}

start_slurm() {
  local host line
  [[ ! -e $BED/slurm ]] || return 0
  # The page's words, for the places of this bed.
  line=$(block slurm.md Install 2 | sed -e "s|/usr/lib/slurm|$BED/lib|g; s|/usr/share/gangd/slurm|$BED/src|g")
  [[ $line == *"cc -shared"* ]] || fail "the second block of docs/slurm.md builds no plugin: $line"
  PKG_CONFIG_PATH=$BED/lib bash -ec "$line -Wall -Wextra -Werror -Wl,-rpath,/run/bed/lib"
  block slurm.md Install 4 | while read -r line; do
    grep -Fxq "$line" "$BED/src/slurm.conf" || fail "integrations/slurm/slurm.conf has no line $line"
  done
  sed 's|/usr/lib/slurm/|/run/bed/lib/|' "$BED/src/plugstack.conf" >/etc/slurm/plugstack.conf
  {
    # The lines of a site, but for memory, which the hosts share here.
    sed -e 's/CR_Core_Memory/CR_Core/' -e "s/node\[1-2\]/node[1-$HOSTS]/" "$BED/src/slurm.conf"
    cat <<END
ClusterName=bed
SlurmctldHost=node1
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
MpiDefault=none
ReturnToService=2
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmdSpoolDir=/run/slurm/spool
StateSaveLocation=/run/slurm/state
SlurmdParameters=config_overrides
KillWait=5
NodeName=node[1-$HOSTS] CPUs=$CPUS_OF_HOST State=UNKNOWN
END
    ! has_accounts || cat <<END
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=node1
AccountingStoreFlags=job_comment
END
  } >/etc/slurm/slurm.conf
  printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' >/etc/slurm/cgroup.conf
  head -c 1024 /dev/urandom >/etc/munge/munge.key
  chown munge: /etc/munge /etc/munge/munge.key
  chmod 400 /etc/munge/munge.key
  for host in "${hosts[@]}"; do
    # shellcheck disable=SC2016
    start "$host" munged bash -c 'chown munge: /run/munge && exec setpriv --reuid munge --regid munge \
      --clear-groups munged --foreground --force --socket /run/munge/munge.socket.2 \
      --pid-file /run/munge/pid --seed-file /run/munge/seed --log-file /run/munge/log'
    wait_until "munged answers on $host" on "$host" munge -n
  done
  ! has_accounts || start_accounts
  start node1 slurmctld slurmctld -D
  for host in "${hosts[@]}"; do start "$host" slurmd slurmd -D -N "$host"; done
  wait_until "all nodes are idle" nodes_are_idle
  touch "$BED/slurm"
}
nodes_are_idle() { (($(on node1 sinfo -h -N -t idle -o %N | wc -l) == HOSTS)); }

runs_a_step() { on node1 squeue -h -s -n "$1" | grep -q .; }
job_of_slurm() { on node1 squeue -h -n "$1" -o %A | head -n 1; }
# has_jobs_named NAME COUNT : of those that span hosts.
has_jobs_named() { (($(job_named "$1" | wc -l) == $2)); }
is_local_job() { on node1 gang ls | grep -q " $1 "; }
no_spinner_is_left() {
  local host
  for host in "${hosts[@]}"; do ! on "$host" pgrep -u "$UID_OF_BED" -f "of-slurm" || return 1; done
}

case_slurm() {
  local program
  for program in slurmctld slurmd munged srun; do
    PATH=$PATH:/usr/sbin has $program || skip_case "$program is not here: scripts/deps hosts"
  done
  [[ -e /usr/include/slurm/spank.h ]] || skip_case "slurm/spank.h is not here: scripts/deps hosts"
  want_cluster one
  start_slurm
  local id spin=(timeout 600 sh -c 'while :; do :; done' of-slurm) nodes=(-N "$HOSTS" -n $((HOSTS * CPUS_OF_HOST)))

  on_as_user node1 srun --help | grep -q -- '--gang-class' || fail "srun --help has no --gang-class"
  say "a step without --gang is none"
  on_as_user node1 timeout 300 srun "${nodes[@]}" hostname | sort | uniq -c
  [[ ! $(on node1 gang hosts | sed -n '/^ *ID /,$p') ]] || fail "there is a spanning job"

  say "srun --gang ${nodes[*]}: one spanning job, and scancel"
  on_as_user node1 srun --gang "${nodes[@]}" -J lu "${spin[@]}" >"$BED/log/srun" 2>&1 &
  wait_until "the step is a spanning job" is_spanning lu
  id=$(job_named lu)
  on node1 gang hosts
  on node1 gang hosts | grep -Eq "^ *$id +lu +$USER_OF_BED " || fail "the job is not the user's"
  has_slots_everywhere "$id"
  wait_until "etcd has its record and its entries" has_keys_of "$id"
  on_as_user node1 scancel "$(job_of_slurm lu)"
  wait_until "the job is gone everywhere" is_gone_everywhere lu
  wait_until "no task is left" no_spinner_is_left
  wait_until "etcd has no key of it" has_no_keys_of "$id"

  say "two steps share the hosts"
  local other
  on_as_user node1 srun --gang "${nodes[@]}" -J lu "${spin[@]}" >"$BED/log/srun" 2>&1 &
  on_as_user node1 srun --gang "${nodes[@]}" -J mg "${spin[@]}" >"$BED/log/srun.other" 2>&1 &
  wait_until "one step is a spanning job" is_spanning lu
  wait_until "the other step is one, too" is_spanning mg
  id=$(job_named lu) other=$(job_named mg)
  has_slots_everywhere "$id"
  has_slots_everywhere "$other"
  on node1 gang hosts | sed -n '/^ *ID /,$p'
  on_as_user node1 scancel -u "$USER_OF_BED"
  wait_until "the jobs are gone everywhere" is_gone_everywhere lu
  wait_until "the jobs are gone everywhere" is_gone_everywhere mg
  wait_until "no task is left" no_spinner_is_left

  say "salloc --gang: the steps within"
  on_as_user node1 salloc --gang -J sp "${nodes[@]}" srun -J sp "${spin[@]}" >"$BED/log/salloc" 2>&1 &
  wait_until "the step is a spanning job" is_spanning sp
  on_as_user node1 scancel -n sp
  wait_until "the job is gone everywhere" is_gone_everywhere sp

  say "sbatch --gang --gang-class=interactive: the steps of the script"
  printf '#!/bin/sh\nsrun %s\n' "$(printf '%q ' "${spin[@]}")" >"$BED/home/script.sh"
  on_as_user node1 sbatch -J mg "${nodes[@]}" --gang --gang-class=interactive script.sh
  wait_until "the step is a spanning job" is_spanning mg
  on node1 gang hosts | grep -E ' mg +ada +interactive ' || fail "its class is not interactive"
  on_as_user node1 scancel "$(job_of_slurm mg)"
  wait_until "the job is gone everywhere" is_gone_everywhere mg
  wait_until "no task is left" no_spinner_is_left

  say "a step of one node is a job of that host"
  on_as_user node1 srun --gang -w node1 -N 1 -n 1 -J ep "${spin[@]}" >"$BED/log/srun.one" 2>&1 &
  wait_until "the step is a job" is_local_job ep
  ! is_spanning ep || fail "it spans hosts"
  on node1 gang ls
  on_as_user node1 scancel "$(job_of_slurm ep)"
  wait_until "the job is gone" is_gone_everywhere ep

  say "more tasks than CPUs: the gang has the CPUs of the step"
  on_as_user node1 srun --gang -w node1 -N 1 -n $((CPUS_OF_HOST + 2)) --overcommit -J is "${spin[@]}" >"$BED/log/srun.over" 2>&1 &
  wait_until "the step is a job" is_local_job is
  on node1 gang ls | awk -v cpus="$CPUS_OF_HOST" '$2 == "is" && $6 != cpus { exit 1 }' || fail "it wants other CPUs: $(on node1 gang ls)"
  on_as_user node1 scancel -n is
  wait_until "the job is gone" is_gone_everywhere is

  say "a heterogeneous job runs without"
  on_as_user node1 timeout 300 srun --gang -N 1 -n 1 hostname : --gang -N 1 -n 1 hostname >"$BED/log/srun.het" 2>&1 ||
    fail "the step failed: $(cat "$BED/log/srun.het")"
  sed 's/^/    /' "$BED/log/srun.het"
  grep -q 'heterogeneous' "$BED/log/srun.het" || fail "nothing says that it is no gang"

  say "the script of one node is a job of that host"
  printf '#!/bin/sh\n%s\n' "$(printf '%q ' "${spin[@]}")" >"$BED/home/script.sh"
  on_as_user node1 sbatch -J ft -w node1 -N 1 -n 1 --gang script.sh
  wait_until "the script is a job" is_local_job ft
  on_as_user node1 scancel -n ft
  wait_until "the job is gone" is_gone_everywhere ft

  say "an array: each of its tasks is a job"
  printf '#!/bin/sh\nsrun %s\n' "$(printf '%q ' "${spin[@]}")" >"$BED/home/script.sh"
  id=$(on_as_user node1 sbatch --parsable --array=0-1 -J ua "${nodes[@]}" --gang script.sh)
  wait_until "both tasks are spanning jobs" has_jobs_named ua 2
  on_as_user node1 scancel "${id}_1"
  wait_until "one of them is gone" has_jobs_named ua 1
  has_slots_everywhere "$(job_named ua)"
  on_as_user node1 scancel "$id"
  wait_until "the other one is gone everywhere" is_gone_everywhere ua
  wait_until "no task is left" no_spinner_is_left

  say "a partition makes gangs of its steps, unless --no-gang says otherwise"
  sed -i 's/gang_spank.so$/& partitions=other,shared/' /etc/slurm/plugstack.conf
  on_as_user node1 srun "${nodes[@]}" -J bt "${spin[@]}" >"$BED/log/srun.partition" 2>&1 &
  wait_until "the step is a spanning job" is_spanning bt
  on_as_user node1 scancel -n bt
  wait_until "the job is gone everywhere" is_gone_everywhere bt
  on_as_user node1 timeout 300 srun --no-gang "${nodes[@]}" -J cg bash -c 'sleep 1; cat /proc/self/cgroup' |
    tee "$BED/log/srun.no" | grep -q '/job-' && fail "--no-gang made a gang: $(cat "$BED/log/srun.no")"
  sed -i 's/ partitions=.*//' /etc/slurm/plugstack.conf

  if has mpicc.mpich; then
    say "srun starts the ranks of MPICH"
    rm -f "$BED/home/stop"
    mpicc.mpich -O2 -Wall -Werror -o "$BED/home/of-mpich" "$BED/src/barrier.c"
    on_as_user node1 timeout 600 srun --gang --mpi=pmi2 "${nodes[@]}" -J is ./of-mpich >"$BED/log/srun.mpich" 2>&1 &
    local running=$!
    (wait_for_span is $running) || fail "the step said: $(cat "$BED/log/srun.mpich")"
    has_slots_everywhere "$(job_named is)"
    touch "$BED/home/stop"
    wait $running || fail "the step failed: $(cat "$BED/log/srun.mpich")"
    sed 's/^/    /' "$BED/log/srun.mpich"
    wait_until "the job is gone everywhere" is_gone_everywhere is
  fi

  say "express is for administrators, and the step runs without"
  on_as_user node1 timeout 300 srun --gang --gang-class=express "${nodes[@]}" hostname >"$BED/log/srun.express" 2>&1 ||
    fail "the step failed: $(cat "$BED/log/srun.express")"
  sed 's/^/    /' "$BED/log/srun.express"
  grep -q 'is no gang' "$BED/log/srun.express" || fail "nothing says that it is no gang"

  say "without a daemon the step runs, and one line says why"
  on node2 bash -c 'kill -KILL "$(cat /run/gangd.pid)"; rm -f /run/gangd.pid'
  rm -f "$BED/cluster"
  on_as_user node1 timeout 300 srun --gang "${nodes[@]}" hostname >"$BED/log/srun.without" 2>&1 ||
    fail "the step failed: $(cat "$BED/log/srun.without")"
  sed 's/^/    /' "$BED/log/srun.without"
  on node2 systemctl restart gangd
  wait_until "the job is gone everywhere" is_gone_everywhere hostname
}

# The last job of a name that has ended, as the history of a host has it: one field.
history_of() {
  on "$3" gang history --json | tr -d ' \n' | grep -o "{[^{}]*\"name\":\"$1\"[^{}]*}" | head -n 1 |
    grep -o "\"$2\":\"*[0-9_]*" | grep -o '[0-9_]*$'
}
is_in_history() { [[ $(history_of "$1" ended_at_ns "$2") ]]; }
# sacct_of JOB FIELD
sacct_of() { on node1 sacct -n -P -X -j "$1" -o "$2"; }
has_admin_comment() { sacct_of "$1" AdminComment | grep -Eq "$2"; }
limit_min() { on node1 squeue -h -j "$1" -o %l | awk -F : '{ print NF == 3 ? $1 * 60 + $2 : $1 }'; }
is_stretched() { (($(limit_min "$1") > 1)); }

case_slurm_accounts() {
  local program name host
  for program in slurmctld slurmd munged srun; do
    PATH=$PATH:/usr/sbin has $program || skip_case "$program is not here: scripts/deps hosts"
  done
  has_accounts || skip_case "slurmdbd or MariaDB is not here: scripts/deps hosts"
  want_cluster one
  start_slurm
  for host in "${hosts[@]}"; do
    # The jobs are to share with each other, and not with what else runs on this machine.
    printf '[history]\npath = "/run/history.db"\n[slurm]\naccount_time = true\n[limits]\nweight = 10000\n' | on "$host" tee -a /etc/gangd/gangd.toml >/dev/null
    on "$host" systemctl restart gangd
  done
  rm -f "$BED/cluster"
  wait_until "all hosts are in the cluster" all_hosts_are_alive
  local spin=(timeout 600 sh -c 'while :; do :; done' of-slurm) nodes=(-N "$HOSTS" -n $((HOSTS * CPUS_OF_HOST)))
  local gang=(--gang --gang-weight=10000) started ended out_s in_s limit
  local -A id_of=()
  # The jobs last for some minutes.
  # shellcheck disable=SC2034
  local WITHIN=400

  say "two jobs with a limit of one minute share the hosts"
  started=$SECONDS
  on_as_user node1 srun "${gang[@]}" -t 1 --comment="of $USER_OF_BED" "${nodes[@]}" -J lu "${spin[@]}" >"$BED/log/srun.lu" 2>&1 &
  on_as_user node1 srun "${gang[@]}" -t 1 "${nodes[@]}" -J mg "${spin[@]}" >"$BED/log/srun.mg" 2>&1 &
  wait_until "one step is a spanning job" is_spanning lu
  wait_until "the other step is one, too" is_spanning mg
  for name in lu mg; do id_of[$name]=$(job_of_slurm $name); done
  wait_until "the limit is stretched" is_stretched "${id_of[lu]}"
  on node1 scontrol update JobId="${id_of[lu]}" AdminComment="paid by physics"
  on node1 scontrol show job "${id_of[lu]}" | grep -E 'TimeLimit|Comment'
  for name in lu mg; do
    wait_until "Slurm ends the job" is_gone_everywhere $name
    wait_until "the history has the job" is_in_history $name node1
  done
  ended=$SECONDS
  say "both ended within $((ended - started)) s"
  for name in lu mg; do
    out_s=$(($(history_of $name out_of_slot_ns node1) / 1000000000))
    in_s=$(($(history_of $name in_slot_ns node1) / 1000000000))
    [[ $(history_of $name slurm_job node1) == "${id_of[$name]}" ]] || fail "the history has another job of Slurm"
    wait_until "sacct has the time" has_admin_comment "${id_of[$name]}" "gangd: $out_s s out of slot, [0-9]+ min added"
    limit=$(sacct_of "${id_of[$name]}" TimelimitRaw)
    say "$name: $in_s s in slot, $out_s s out of slot, limit of $limit min: $(sacct_of "${id_of[$name]}" State,Elapsed,AdminComment)"
    ((in_s >= 60)) || fail "it was cut before it had its minute"
    (((limit - 1) * 60 <= out_s + 90)) || fail "it got more than it waited"
    [[ $(sacct_of "${id_of[$name]}" State) == TIMEOUT ]] || fail "the limit did not end it"
  done
  on node1 gang history | head -n 5
  [[ $(sacct_of "${id_of[lu]}" Comment) == "of $USER_OF_BED" ]] || fail "the user's own comment is gone"
  has_admin_comment "${id_of[lu]}" '^paid by physics; gangd: ' || fail "the administrator's own comment is gone"

  say "the task of an array has its own time"
  name=$(on_as_user node1 sbatch --parsable --array=0-0 -J ua -t 1 "${gang[@]}" -w node1 -N 1 -n 1 --wrap "sleep 20")
  wait_until "the history has the job" is_in_history ua node1
  [[ $(history_of ua slurm_job node1) == "${name}_0" ]] || fail "the history has $(history_of ua slurm_job node1)"
  wait_until "sacct has the time" has_admin_comment "${name}_0" "gangd: [0-9]+ s out of slot"

  say "a user may not name a job of Slurm"
  on_as_user node1 srun --gang -t 1 -w node1 -N 1 -n 1 -J ep "${spin[@]}" >"$BED/log/srun.ep" 2>&1 &
  wait_until "the step is a job" is_local_job ep
  cat >"$BED/name.c" <<'END'
#include <gang.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    gang_result result = gang_set_slurm_job(atoi(argv[1]), argv[2]);
    if (result != GANG_OK)
        puts(gang_error());
    return argc != 3 || result != GANG_NOT_PERMITTED;
}
END
  cc -I"$BED/src" -o "$BED/bin/name" "$BED/name.c" -L"$BED/lib" -lgang -Wl,-rpath,/run/bed/lib
  on_as_user node1 name "$(on node1 pgrep -u "$UID_OF_BED" -f of-slurm | head -n 1)" "${id_of[lu]}" || fail "it was not refused"
  on_as_user node1 scancel -n ep
  wait_until "the job is gone" is_gone_everywhere ep
}
