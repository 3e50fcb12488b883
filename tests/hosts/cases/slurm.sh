# shellcheck shell=bash disable=SC2154,SC2016
# CASE slurm: steps of srun and sbatch become gangs, and scancel ends them everywhere
# CASE layouts: the plugin reads layouts of steps within bounds, and refuses others

case_layouts() {
  [[ -e /usr/include/slurm/spank.h ]] || skip_case "slurm/spank.h is not here: scripts/deps hosts"
  cc -g -fsanitize=address,undefined -Wall -Wextra -Werror -I"$BED/src" -o "$BED/layouts" "$BED/src/layouts.c" \
    -L"$BED/lib" -lgang -Wl,-rpath,"$BED/lib"
  timeout 60 "$BED/layouts"
}

start_slurm() {
  local host line
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
  start node1 slurmctld slurmctld -D
  for host in "${hosts[@]}"; do start "$host" slurmd slurmd -D -N "$host"; done
  wait_until "all nodes are idle" nodes_are_idle
}
nodes_are_idle() { (($(on node1 sinfo -h -N -t idle -o %N | wc -l) == HOSTS)); }

runs_a_step() { on node1 squeue -h -s -n "$1" | grep -q .; }
job_of_slurm() { on node1 squeue -h -n "$1" -o %A | head -n 1; }
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
  on_as_user node1 scancel "$(job_of_slurm lu)"
  wait_until "the job is gone everywhere" is_gone_everywhere lu
  wait_until "no task is left" no_spinner_is_left

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
