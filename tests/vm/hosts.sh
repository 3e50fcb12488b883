# shellcheck shell=bash disable=SC2154,SC2034
# Two guests, each with a clock of its own, are a cluster, by the files of docs/cluster.md. chrony
# has the second follow the first, which has etcd. A job that spans both writes a byte at each of
# its switches, which the machine outside stamps (stamps.py).

slice_ns=100000000 seconds=60
timeout_s=300
number=$(sed -n 's/.*vm\.host=\([12]\).*/\1/p' /proc/cmdline)
config=/run/vm/gangd.toml
# shellcheck source=tests/hosts/block.sh
. /vm/block.sh
block() { block_of /vm/cluster.md "From two machines to a job" "$1" | sed 's/HOST/node1/g'; }

join_network() {
  local module
  for module in failover net_failover virtio_net; do insmod "/vm/modules/$module.ko" || return; done
  reached test -e /sys/class/net/eth0 || return
  ip address add "10.78.0.$number/24" dev eth0
  ip link set eth0 up
  echo "node$number" >/proc/sys/kernel/hostname
  printf '127.0.0.1 localhost\n10.78.0.1 node1\n10.78.0.2 node2\n' >/etc/hosts
}

# The first one has the time, and needs nobody for it. Both clocks tick by that of the machine
# outside; this one is made to drift by 50 ppm.
start_chrony() {
  if [[ $number == 1 ]]; then
    echo '50.0 0.1' >/run/vm/drift
    {
      block 3
      echo 'driftfile /run/vm/drift'
    } >/run/vm/chrony.conf
    grep -q '^local ' /run/vm/chrony.conf || return
  else
    block 4 >/run/vm/chrony.conf
    grep -q '^server ' /run/vm/chrony.conf || return
  fi
  chronyd -u root -f /run/vm/chrony.conf </dev/null >/run/vm/chrony.log 2>&1
}
# Nearer to the time than a twentieth of a slice, with room to spare.
is_synchronised() {
  chronyc -c tracking | awk -F , -v within="$((slice_ns / 40))" '
    { bound = ($5 < 0 ? -$5 : $5) + $12 + $11 / 2 }
    END { exit !($14 == "Normal" && bound * 1e9 < within) }'
}
bound() {
  chronyc -c tracking | awk -F , '{ printf "%.0f µs\n", (($5 < 0 ? -$5 : $5) + $12 + $11 / 2) * 1e6 }'
}

etcd_answers() { bash -c 'exec 3<>/dev/tcp/node1/2379'; }
cluster() { gang hosts --json | jq -er ".cluster | $1"; }
both_take_part() { cluster '.hosts | length == 2 and all(.is_alive and .unwilling == null)'; }
# spanning NAME : the number of the job.
spanning() { cluster ".jobs[] | select(.name == \"$1\") | .id"; }
is_over() { ! spanning probe; }

# in_job NAME COMMAND… : a part of a job on each of the two.
in_job() {
  local name=$1
  shift
  if [[ $number == 1 ]]; then
    gang run -q --name "$name" --hosts node1:1,node2:1 -- "$@"
  else
    reached spanning "$name"
    GANG_JOB=$(spanning "$name") gang run -q --join "$@"
  fi </dev/null >>"/run/vm/$name.log" 2>&1
}

check "node$number is on the network" join_network
check "chronyd starts" start_chrony
becomes "the clock is near enough: chrony" is_synchronised
printf 'an empty timer of this guest: %s\n' "$(chrt --fifo 50 /vm/edge --timer $slice_ns 10)"
if [[ $number == 1 ]]; then
  etcd --data-dir /run/etcd --unsafe-no-fsync --log-level error --listen-client-urls http://0.0.0.0:2379 \
    --advertise-client-urls http://node1:2379 </dev/null >/run/vm/etcd.log 2>&1 &
fi
becomes "etcd answers" etcd_answers
# A filler begins to run at other moments, too.
{
  printf 'slice = "%sms"\nfill = false\n' $((slice_ns / 1000000))
  block 2
} >"$config"
start_daemon --config "$config"
[[ $number != 1 ]] || check "there is a cluster" gang cluster init --config "$config"
becomes "both hosts take part" both_take_part
printf 'the clock is within %s, as chrony says\n' "$(bound)"
# Without another job there is nothing to switch.
in_job beside sh -c 'while :; do :; done' &
in_job probe /vm/edge $slice_ns $seconds &
probe=$!
becomes "the job spans both" spanning probe
wait $probe || failed "the program of the job ends well" "$(cat /run/vm/probe.log)" "$(log)"
printf 'the clock is within %s, as chrony says\n' "$(bound)"
becomes "the job is over on both" is_over
check "the invariants hold" gang check
is_up || log
if [[ $number == 1 ]]; then
  gang kill "$(spanning beside)" >/dev/null
  # The other one has its time from here.
  sleep 5
fi
