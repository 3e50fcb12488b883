# shellcheck shell=bash disable=SC2154,SC2034
# Every experiment of the lab runs to its end on a machine of 16 CPUs. Its compilers, libraries and interpreters are
# those of the machine that it runs on, of which it sees the files; what it writes stays in memory. Its CPUs are
# emulated, sixteen by the few that there are, so that no figure says anything.

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
lab() {
  chroot "$copy" env -i HOME=/root LANG=C.UTF-8 PATH=/opt/gangd/usr/bin:/opt/gangd/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin \
    timeout 9000 gang lab "$@"
}
# Of one experiment, with a reason where it did not end.
ends() {
  local name=$1
  shift
  rm -rf "$copy/tmp/lab"
  lab all --only "$name" --noisy --runs 1 --out /tmp/lab "$@" || return
  jq -e --arg name "$name" '(.failures | length == 0) and .reports[0].experiment == $name' "$copy/tmp/lab/figures.json"
}

# The daemon's measuring begins and ends to read tracepoints of the scheduler, for which the kernel patches its own code,
# and an emulated CPU may run what stood there before: it panics. With two other readers nothing is patched.
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

check "the tracepoints of the scheduler have two readers" hold_tracepoints
check "the files of the machine outside" mount_copy
asked() { sed -n "s/.*vm\.$1=\([a-z0-9,]*\).*/\1/p" /proc/cmdline; }
check "it has $(asked cpus) CPUs" test "$(nproc)" = "$(asked cpus)"
experiments=$(asked of)
if [[ ! $experiments ]]; then
  experiments=$(lab all --only nothing 2>&1 | sed -n 's/.*there are //p' | tr -d ' ')
fi
[[ $experiments ]] || failed "gang lab names its experiments" "$(lab all --only nothing 2>&1)"
for way in $(asked ways | tr , ' '); do
  for experiment in ${experiments//,/ }; do
    began=$(uptime_s)
    # Barriers of 16 threads take a hundred times as long as on CPUs of their own.
    seconds=1
    case $experiment in
      holes) seconds=0.02 ;;
      # Programs are to be there still when the doctor has come, who takes half a minute.
      doctor | watching) seconds=60 ;;
      # And when the lab has had it measured, for which it starts some programs one after the other.
      auto) seconds=10 ;;
    esac
    check "$experiment --$way" ends "$experiment" "--$way" --seconds "$seconds"
    printf '    in %s s\n' $(($(uptime_s) - began))
  done
done
