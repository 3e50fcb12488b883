# shellcheck shell=bash disable=SC2154,SC2034
# The guest sees the files of the machine that it runs on, and what it writes stays in memory.

copy=/run/copy

# The files of the machine outside, and what is ours over them.
mount_copy() {
  local module
  while read -r module; do insmod "/vm/modules/$module.ko" || return; done </vm/modules/order
  mkdir -p /run/host /run/changes "$copy"
  mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose host /run/host || return
  mount -t tmpfs tmpfs /run/changes
  mkdir /run/changes/{upper,work}
  mount -t overlay overlay -o lowerdir=/run/host,upperdir=/run/changes/upper,workdir=/run/changes/work "$copy" || return
  local own
  for own in proc sys dev; do mount --rbind "/$own" "$copy/$own"; done
  for own in run tmp dev/shm; do mkdir -p "$copy/$own"; mount -t tmpfs tmpfs "$copy/$own"; done
  mkdir -p "$copy/opt/gangd"
  mount --rbind /opt/gangd "$copy/opt/gangd"
}

# The daemon's measuring begins and ends to read tracepoints of the scheduler, for which the kernel
# patches its own code. An emulated CPU may run the old code, and panic. With two other readers
# nothing is patched.
hold_tracepoints() {
  local reader event
  mount -t tracefs tracefs /sys/kernel/tracing || return
  for reader in one other; do
    mkdir "/sys/kernel/tracing/instances/$reader" || return
    for event in sched_stat_runtime sched_switch sched_wakeup sched_wakeup_new; do
      echo 1 >"/sys/kernel/tracing/instances/$reader/events/sched/$event/enable" || return
    done
  done
}

asked() { sed -n "s/.*vm\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
take_machine() {
  check "the tracepoints of the scheduler have two readers" hold_tracepoints
  check "the files of the machine outside" mount_copy
  check "it has $(asked cpus) CPUs" test "$(nproc)" = "$(asked cpus)"
}
