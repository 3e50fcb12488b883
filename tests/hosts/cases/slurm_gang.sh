# shellcheck shell=bash disable=SC2154,SC2016
# CASE slurm-gang: two MPI jobs and a short third one, by Slurm's own gang scheduling and as gangs

# The work of each job, in steps between two barriers, and that of the short one. Alone, a step
# takes some 0.3 ms.
STEPS=${STEPS:-20000}
SHORT_STEPS=$((STEPS / 20))

want_worker() {
  cat >"$BED/worker.c" <<'END'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
/* So many steps of 200 us of CPU time, each with a barrier at its end. */
int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (long step = atol(argv[1]); step > 0; step--) {
        struct timespec now, from;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        do
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        while ((now.tv_sec - from.tv_sec) * 1000000000L + now.tv_nsec - from.tv_nsec < 200000);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    return MPI_Finalize();
}
END
  mpicc.mpich -O2 -Wall -Werror -o "$BED/home/worker" "$BED/worker.c"
}

# run_worker NAME STEPS OPTION… : prints how long the job took, from its submission on, in ms. A
# step of srun alone is not created while Slurm has its job suspended, and is tried again minutes
# later.
run_worker() {
  local name=$1 steps=$2 began
  shift 2
  printf '#!/bin/sh\nsrun --mpi=pmi2 ./worker %s && date +%%s%%N >%s.end\n' "$steps" "$name" >"$BED/home/$name.sh"
  began=$(date +%s%N)
  on_as_user node1 timeout 600 sbatch --wait -o "$name.out" -J "$name" -N "$HOSTS" -n $((HOSTS * CPUS_OF_HOST)) \
    "$@" "$name.sh" >"$BED/log/sbatch.$name" 2>&1 ||
    fail "$name failed: $(cat "$BED/log/sbatch.$name" "$BED/home/$name.out")"
  # sbatch looks every ten seconds.
  echo $((($(cat "$BED/home/$name.end") - began) / 1000000))
}

# together WAY OPTION… : two jobs, and a third, short one a few seconds later.
declare -A short_ms all_ms
together() {
  local way=$1 began all short
  shift
  began=$(date +%s%N)
  run_worker "$way-a" "$STEPS" "$@" >"$BED/$way-a" &
  local a=$!
  run_worker "$way-b" "$STEPS" "$@" >"$BED/$way-b" &
  local b=$!
  sleep 4
  short=$(run_worker "$way-short" "$SHORT_STEPS" "$@")
  wait $a || fail "the first job failed"
  wait $b || fail "the second job failed"
  all=$((($(sort -n "$BED"/home/"$way"-*.end | tail -n 1) - began) / 1000000))
  say "$way: the short job took $short ms, the two long ones $(cat "$BED/$way-a") and $(cat "$BED/$way-b") ms, all $all ms"
  short_ms[$way]=$short all_ms[$way]=$all
}

restart_slurm() {
  local name
  for name in "${hosts[@]}"; do stop "$name" slurmd; done
  stop node1 slurmctld
  start node1 slurmctld slurmctld -D
  for name in "${hosts[@]}"; do start "$name" slurmd slurmd -D -N "$name"; done
  wait_until "all nodes are idle" nodes_are_idle
}

case_slurm_gang() {
  local program
  for program in slurmctld slurmd munged srun mpicc.mpich; do
    PATH=$PATH:/usr/sbin has $program || skip_case "$program is not here: scripts/deps hosts"
  done
  [[ -e /usr/include/slurm/spank.h ]] || skip_case "slurm/spank.h is not here: scripts/deps hosts"
  want_cluster one
  start_slurm
  want_worker
  say "one alone: $(run_worker alone-long "$STEPS") ms, the short one alone: $(run_worker alone-short "$SHORT_STEPS") ms"
  together gangs --gang
  together linux
  # As a site has it before the plugin: slurm.conf(5), SchedulerTimeSlice of 5 s, its least.
  sed -i -e 's/^PreemptMode=.*/PreemptMode=GANG\nSchedulerTimeSlice=5/' /etc/slurm/slurm.conf
  restart_slurm
  together slurm
  sed -i -e '/^SchedulerTimeSlice=/d; s/^PreemptMode=.*/PreemptMode=OFF/' /etc/slurm/slurm.conf
  restart_slurm
  ((short_ms[gangs] < short_ms[slurm])) || fail "the short job took longer than with Slurm's own gang scheduling"
  ((all_ms[gangs] < all_ms[slurm])) || fail "all jobs took longer than with Slurm's own gang scheduling"
}
