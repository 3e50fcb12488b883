# shellcheck shell=bash disable=SC2154,SC2016
# CASE page: docs/cluster.md word by word, from two machines to a job that spans them

# shellcheck source-path=SCRIPTDIR source=../block.sh
. tests/hosts/block.sh
# block PAGE HEADING N
block() { block_of "$BED/src/$1" "$2" "$3"; }

# The page has two machines of four CPUs. Its words are taken as they are, but for names and
# numbers.
as_here() {
  sed -e 's/HOST/node1/g' -e "s/node1:4,node2:4/node1:$CPUS_OF_HOST,node2:$CPUS_OF_HOST/g"
}

case_page() {
  local page=cluster.md heading="From two machines to a job" name commands
  rm -f "$BED/cluster" "$BED/home/stop"
  stop node1 etcd
  on node1 rm -rf /run/default.etcd
  say "etcd"
  commands=$(block $page "$heading" 1 | as_here)
  [[ $commands == etcd* ]] || fail "the first block of the page starts no etcd: $commands"
  start node1 etcd bash -c "cd /run && exec $commands"
  wait_until "etcd answers" etcd_answers http://node1:2379

  say "the configuration of both"
  for name in node1 node2; do
    block $page "$heading" 2 | as_here | on "$name" tee /etc/gangd/gangd.toml >/dev/null
    on "$name" grep -q '^\[cluster\]' /etc/gangd/gangd.toml || fail "the second block of the page is no configuration"
    on "$name" systemctl restart gangd
  done

  # The hosts here are of one kernel, so they have one clock: chrony is for tests/vm/hosts.sh.
  commands=$(block $page "$heading" 5 | as_here)
  say "$(head -n 1 <<<"$commands")"
  [[ $commands == "gang cluster init"* ]] || fail "the fifth block of the page makes no cluster: $commands"
  on node1 bash -ec "$(head -n 1 <<<"$commands")"
  wait_until "both hosts are in the cluster" both_are_alive
  on node1 bash -ec "$(sed -n 2p <<<"$commands")"
  echo page >"$BED/cluster"

  if ! has mpirun.openmpi || ! has mpicc.openmpi || ! has sshd; then
    say "skipped: the page's program: Open MPI or sshd is not here"
    echo "tests/hosts.sh: the program of the page: Open MPI or sshd is not here" >>"${GANG_SKIPS:-/dev/null}"
    return 0
  fi
  mpicc.openmpi -O2 -Wall -Werror -o "$BED/home/program" "$BED/src/barrier.c"
  ln -sf "$(command -v mpirun.openmpi)" "$BED/bin/mpirun"
  commands=$(sed -n '3,$p' <<<"$commands")
  say "$(tail -n 1 <<<"$commands")"
  on_as_user node1 timeout 600 bash -ec "$commands" >"$BED/log/page" 2>&1 &
  local running=$! id
  (wait_for_span mpirun $running) || fail "the program said: $(cat "$BED/log/page")"
  id=$(job_named mpirun)
  on node1 gang hosts
  there_are_two
  has_slots_of_two "$id"
  touch "$BED/home/stop"
  wait $running || fail "the program failed: $(cat "$BED/log/page")"
  sed 's/^/    /' "$BED/log/page"
  for name in node1 node2; do
    grep -q " on $name: " "$BED/log/page" || fail "no rank was on $name"
  done
  wait_until "the job is gone" is_gone_everywhere mpirun
}

both_are_alive() {
  local text name
  text=$(on node1 gang hosts)
  for name in node1 node2; do grep -Eq "^$name +[0-9]+ +(alive|this host) " <<<"$text" || return 1; done
}
there_are_two() {
  # shellcheck disable=SC2034
  local -a hosts=(node1 node2)
  wait_until "there are ranks on both hosts" has_ranks program
}
has_slots_of_two() {
  # shellcheck disable=SC2034
  local -a hosts=(node1 node2)
  has_slots_everywhere "$1"
}
