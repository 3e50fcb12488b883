# shellcheck shell=bash disable=SC2154,SC2016
# CASE openmpi: mpirun with the preload library: the ranks of two hosts are one gang
# CASE mpich: mpiexec with the preload library: the ranks of two hosts are one gang

# ranks_are_one_gang NAME COMMAND… : the command, as the user, starts ranks on all hosts.
ranks_are_one_gang() {
  local name=$1 host id running
  shift
  rm -f "$BED/home/stop"
  on_as_user node1 timeout 600 "$@" >"$BED/log/$name" 2>&1 &
  running=$!
  (wait_for_span "$name" $running) || fail "the program said: $(cat "$BED/log/$name")"
  id=$(job_named "$name")
  on node1 gang hosts
  wait_until "there are ranks on all hosts" has_ranks "$name"
  has_slots_everywhere "$id"
  touch "$BED/home/stop"
  wait $running || fail "the program failed: $(cat "$BED/log/$name")"
  sed 's/^/    /' "$BED/log/$name"
  for host in "${hosts[@]}"; do grep -q " on $host: " "$BED/log/$name" || fail "no rank was on $host"; done
  wait_until "the job is gone" is_gone_everywhere "$name"
}

case_openmpi() {
  if ! has mpirun.openmpi || ! has mpicc.openmpi; then skip_case "Open MPI is not here"; fi
  has sshd || skip_case "sshd is not here"
  want_cluster one
  mpicc.openmpi -O2 -Wall -Werror -o "$BED/home/of-openmpi" "$BED/src/barrier.c"
  printf "%s slots=$CPUS_OF_HOST\n" "${hosts[@]}" >"$BED/home/hosts.openmpi"
  ranks_are_one_gang of-openmpi mpirun.openmpi --bind-to none --hostfile hosts.openmpi -x GANG=1 \
    -x LD_PRELOAD=/run/bed/lib/libgang-preload.so ./of-openmpi
}

case_mpich() {
  if ! has mpiexec.mpich || ! has mpicc.mpich; then skip_case "MPICH is not here"; fi
  has sshd || skip_case "sshd is not here"
  want_cluster one
  mpicc.mpich -O2 -Wall -Werror -o "$BED/home/of-mpich" "$BED/src/barrier.c"
  printf "%s:$CPUS_OF_HOST\n" "${hosts[@]}" >"$BED/home/hosts.mpich"
  ranks_are_one_gang of-mpich mpiexec.mpich -launcher ssh -f hosts.mpich -n $((CPUS_OF_HOST * HOSTS)) \
    -genv GANG 1 -genv LD_PRELOAD /run/bed/lib/libgang-preload.so ./of-mpich
}
