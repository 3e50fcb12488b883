#!/usr/bin/env bash
# gangd on machines that the builder's own need not be: with only version 2 of cgroups, with
# systemd, suspended, with a clock that steps. They are virtual (QEMU, without KVM where there is
# none), so this takes minutes, and is no part of `make test`.
#
#   tests/vm.sh [--deb FILE] [CHECK…]      checks: see tests/vm/README.md;
#                                          all but hosts, lab and tests unless some are named
#
# Downloads, a kernel and a small Debian, stay in target/vm.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=(cgroup2 clock suspend cpus isolated pids systemd containers hybrid)
# Take long, or compare clocks, and so have to be named.
more=(hosts lab tests)
suite=trixie
mirror=${VM_MIRROR:-http://deb.debian.org/debian}
# Of trixie-backports; it has sched_ext, too.
kernel_package=${VM_KERNEL:-linux-image-6.18.15+deb13-amd64}
packages=dbus,init-system-helpers,jq,kmod,libelf1t64,procps,runc,systemd,systemd-sysv,util-linux,zlib1g
# The last Debian whose kernel and systemd have the controllers of version 1 of cgroups.
suite_of_hybrid=bookworm
packages_of_hybrid=${packages/libelf1t64/libelf1}
# A guest of the check `hosts` has these besides.
packages_of_hosts=$packages,chrony,etcd-server,iproute2
# By these the guest of the lab sees the files of this machine, and guests have a network.
modules=(netfs 9pnet 9pnet_virtio 9p overlay)
modules_of_hosts=(failover net_failover virtio_net)

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
target=${CARGO_TARGET_DIR:-target}
deb=$target/debian/gangd_${version}_amd64.deb
cache=$PWD/target/vm

fail() {
  printf 'tests/vm.sh: %s\n' "$*" >&2
  exit 1
}

if [[ ${1-} == --deb ]]; then
  deb=${2:?--deb takes a file}
  shift 2
fi
checks=("$@")
((${#checks[@]})) || checks=("${all[@]}")
for check in "${checks[@]}"; do
  [[ " ${all[*]} ${more[*]} " == *" $check "* ]] || fail "there is no check $check; there are ${all[*]} ${more[*]}"
done
[[ $(uname -m) == x86_64 ]] || fail "the guests are of x86_64, this machine is of $(uname -m)"
[[ -e $deb ]] || fail "there is no package $deb: make deb makes it"
for tool in qemu-system-x86_64 debootstrap cpio dpkg-deb; do
  PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || fail "$tool is missing: scripts/deps vm installs it"
done

root() {
  if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi
}
archive() { (cd "$1" && find . -mount | root cpio -o -H newc --quiet -R 0:0); }

# fetch_kernel PACKAGE SUITE… : of a Debian, into $cache/apt, by a state of apt's own: neither the
# machine's sources nor its packages change. Of a package without files, the one that it names.
fetch_kernel() {
  local apt=$cache/apt package=$1 named
  mkdir -p "$apt/lists/partial" "$apt/archives/partial"
  printf "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror %s main\n" \
    "${@:2}" >"$apt/sources.list"
  local options=(-q -o "Dir::State::Lists=$apt/lists" -o "Dir::Etc::SourceList=$apt/sources.list"
    -o Dir::Etc::SourceParts=- -o "Dir::Cache::archives=$apt/archives" -o Dir::Cache::pkgcache=
    -o Dir::Cache::srcpkgcache= -o APT::Architecture=amd64 -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  named=$(apt-cache "${options[@]}" show "$package" | sed -n 's/^Depends: .*\(linux-image-[0-9][^ ,]*\).*/\1/p' | head -n 1)
  (cd "$apt" && apt-get "${options[@]}" download "${named:-$package}")
}
vmlinuz() { dpkg-deb --fsys-tarfile "$cache"/apt/linux-image-*.deb | tar -x --to-stdout --wildcards './boot/vmlinuz-*'; }

get_kernel() {
  local apt=$cache/apt
  fetch_kernel "$kernel_package" "$suite" "$suite-backports"
  rm -rf "$cache/modules" "$cache/modules.new"
  mkdir "$cache/modules.new"
  local wanted=("${modules[@]/#/*/}" "${modules_of_hosts[@]/#/*/}")
  dpkg-deb --fsys-tarfile "$apt/$kernel_package"_*.deb |
    tar -x -C "$cache/modules.new" --wildcards "${wanted[@]/%/.ko*}" --transform 's:.*/::'
  xz -d "$cache"/modules.new/*.xz
  vmlinuz >"$cache/kernel.new"
  mv "$cache/kernel.new" "$cache/kernel"
  mv "$cache/modules.new" "$cache/modules"
  echo "${modules[*]} ${modules_of_hosts[*]}" >"$cache/modules.of"
  rm -r "$apt"
}

# Of its modules none is needed.
get_kernel_of_hybrid() {
  fetch_kernel linux-image-amd64 "$suite_of_hybrid"
  vmlinuz >"$cache/kernel-of-hybrid.new"
  mv "$cache/kernel-of-hybrid.new" "$cache/kernel-of-hybrid"
  rm -r "$cache/apt"
}

# want_system NAME PACKAGES [SUITE] : a Debian that fits into memory. Parts by which a
# package or a page is read are left out.
want_system() {
  local system=$cache/$1 suite=${3:-$suite}
  [[ ! -s $system.cpio || $(cat "$system.of" 2>/dev/null) != "$2" ]] || return 0
  root rm -rf "$system"
  root debootstrap --variant=minbase --include="$2" "$suite" "$system" "$mirror" \
    >"$cache/debootstrap.log" || fail "debootstrap failed: $cache/debootstrap.log"
  (cd "$system" && root rm -rf usr/share/{doc,locale,man}/* var/lib/apt/lists/* var/cache/apt/*)
  archive "$system" >"$system.cpio.new"
  echo "$2" >"$system.of"
  mv "$system.cpio.new" "$system.cpio"
  root rm -rf "$system"
}

mkdir -p "$cache"
[[ -s $cache/kernel && $(cat "$cache/modules.of" 2>/dev/null) == "${modules[*]} ${modules_of_hosts[*]}" ]] ||
  get_kernel
[[ ${checks[*]} == hosts || ${checks[*]} == hybrid ]] || want_system system "$packages"
if [[ " ${checks[*]} " == *" hybrid "* ]]; then
  [[ -s $cache/kernel-of-hybrid ]] || get_kernel_of_hybrid
  want_system hybrid "$packages_of_hybrid" "$suite_of_hybrid"
fi
[[ " ${checks[*]} " != *" hosts "* ]] || want_system hosts "$packages_of_hosts"

# Our files, unpacked over the system when the guest starts.
ours=$(mktemp -d)
trap 'rm -rf "$ours"' EXIT
chmod 755 "$ours"
mkdir -p "$ours"/{vm/modules,opt/gangd,etc/systemd/system/multi-user.target.wants}
cp tests/vm/{init,report,*.sh} tests/hosts/block.sh docs/cluster.md "$ours/vm"
# With these, cargo finds in the guest that everything is built.
env | grep -E '^(PATH|CARGO_[A-Z_]*|RUST[A-Z]*_HOME|RUSTFLAGS)=' >"$ours/vm/environment" || true
echo "$PWD" >"$ours/vm/checkout"
chmod 755 "$ours"/vm/*
cp "$cache"/modules/*.ko "$ours/vm/modules"
printf '%s\n' "${modules[@]}" >"$ours/vm/modules/order"
cp "$deb" "$ours/vm/gangd.deb"
dpkg-deb -x "$deb" "$ours/opt/gangd"
cp tests/vm/check.service "$ours/etc/systemd/system"
ln -s ../check.service "$ours/etc/systemd/system/multi-user.target.wants"
trap 'rm -rf "$ours" "$ours.cpio" "$ours".edge*' EXIT
[[ " ${checks[*]} " != *" hosts "* ]] || cc -O2 -Wall -Werror -static -o "$ours/vm/edge" tests/vm/edge.c
# initrd SYSTEM : what a guest starts from.
initrd() {
  {
    cat "$cache/$1.cpio"
    archive "$ours"
  } >"$ours.cpio"
}

accel=tcg,thread=multi
[[ ! ${VM_KVM-} ]] || accel=kvm

# stop_at_random PIDFILE: the virtual CPUs of a guest stand still for 1 to 20 ms, some ten times a
# second, until it ends.
stop_at_random() {
  python3 - "$1" <<'END'
import os, random, signal, sys, time

while not (os.path.exists(sys.argv[1]) and (text := open(sys.argv[1]).read())):
    time.sleep(0.1)
guest = os.pidfd_open(int(text))
stops = random.Random(1)
try:
    while True:
        time.sleep(stops.uniform(0.01, 0.2))
        signal.pidfd_send_signal(guest, signal.SIGSTOP)
        time.sleep(stops.uniform(0.001, 0.02))
        signal.pidfd_send_signal(guest, signal.SIGCONT)
except ProcessLookupError:
    pass
END
}

# guest CHECK: its second serial line is what the check says; the first one goes into a file.
guest() {
  local check=$1 init=/vm/init kernel=kernel cpus=2 memory_mib=2048 limit=1800 files=()
  local host=(-virtfs "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap")
  case $check in
    # Without udev no unit hears of a serial line.
    systemd) init="/sbin/init systemd.getty_auto=no" ;;
    hybrid)
      kernel="kernel-of-hybrid"
      init="/sbin/init systemd.getty_auto=no systemd.unified_cgroup_hierarchy=0"
      ;;
    isolated) cpus=3 init="/vm/init isolcpus=2" ;;
    lab)
      cpus=${VM_CPUS:-16} memory_mib=8192 limit=10800
      # Where the kernel doubts the emulated clock, at boot or later, it patches its own code: see
      # lab.sh.
      init="/vm/init tsc=reliable vm.cpus=$cpus vm.of=${VM_OF-} vm.ways=${VM_WAYS:-quick,paper}"
      files=("${host[@]}")
      ;;
    tests)
      memory_mib=12288 limit=14400
      init="/vm/init tsc=reliable vm.cpus=$cpus vm.of=${VM_OF-}"
      files=("${host[@]}" -pidfile "$ours/pid")
      rm -f "$ours/pid"
      stop_at_random "$ours/pid" &
      ;;
  esac
  local boot
  for boot in 1 2 3; do
    timeout -k 5 "${VM_LIMIT:-$limit}" qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
      -m "$memory_mib" -smp "$cpus" -accel "$accel" -cpu max -rtc base=utc \
      -serial "file:$cache/$check.console" -serial stdio "${files[@]}" \
      -kernel "$cache/$kernel" -initrd "$ours.cpio" \
      -append "console=ttyS0 panic=-1 loglevel=4 vm.check=$check rdinit=$init" </dev/null || return
    # Of many emulated CPUs one may run what stood where the kernel patches its own code as it
    # boots, and panics.
    grep -qE '^\[ *[0-9]{1,2}\.[0-9]+\] Kernel panic' "$cache/$check.console" && [[ $check == lab ]] || return 0
    printf 'the guest panicked as it booted, %s of 3 times\n' "$boot"
  done
}

# The two guests of the check `hosts`, on a network of their own. The byte that each writes to the
# debug port at a switch is stamped by one process of this machine. A busy machine lets a guest
# find a wrong rate of its time stamp counter, by more than chrony corrects; that of hpet is known.
guests_of_hosts() {
  local stamps number net ended=0
  timeout -k 5 "${VM_LIMIT:-1800}" python3 tests/vm/stamps.py "$ours.edge1" "$ours.edge2" &
  stamps=$!
  for number in 1 2; do
    until [[ -S $ours.edge$number ]]; do sleep 0.1; done
    net=local.type=unix,local.path=$ours.edge-net$number
    net+=,remote.type=unix,remote.path=$ours.edge-net$((3 - number))
    timeout -k 5 "${VM_LIMIT:-1800}" qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
      -m 2048 -smp 1 -accel "$accel" -cpu max -rtc base=utc -serial "file:$cache/hosts.console$number" \
      -serial stdio -netdev "dgram,id=net,$net" -device "virtio-net-pci,netdev=net,mac=52:54:00:78:00:0$number" \
      -chardev "socket,id=edge,path=$ours.edge$number" -device isa-debugcon,iobase=0xe9,chardev=edge \
      -kernel "$cache/kernel" -initrd "$ours.cpio" \
      -append "console=ttyS0 panic=-1 loglevel=4 clocksource=hpet vm.check=hosts vm.host=$number rdinit=/vm/init" \
      </dev/null 2>&1 | tr -d '\r' | sed -u "s/^/node$number: /" | tee "$ours.edge-said$number" &
  done
  wait $stamps || ended=1
  wait
  for number in 1 2; do grep -q "^node$number: ended: 0$" "$ours.edge-said$number" || ended=1; done
  printf 'ended: %s\n' "$ended"
}

# The guest finds everything built, of the packages that it tests with the features that these have
# by themselves.
build_tests() {
  local packages=(--workspace) of=()
  IFS=, read -ra of <<<"${VM_OF-}"
  ((${#of[@]} == 0)) || packages=("${of[@]/#/--package=}")
  ${CARGO:-cargo} build --workspace --locked --lib --bins --tests
  ${CARGO:-cargo} test "${packages[@]}" --locked --no-run
}

failures=0
for check in "${checks[@]}"; do
  printf '== %s\n' "$check"
  [[ $check != tests ]] || build_tests
  if [[ $check == @(hosts|hybrid) ]]; then initrd "$check"; else initrd system; fi
  ended=
  while IFS= read -r line; do
    line=${line%$'\r'}
    if [[ $line == "ended: "* ]]; then ended=${line#ended: }; else printf '%s\n' "$line"; fi
  done < <(if [[ $check == hosts ]]; then guests_of_hosts; else guest "$check"; fi 2>&1)
  if [[ ! $ended ]]; then
    printf 'FAILED: %s: the guest did not come to its end; what it said: %s\n' "$check" "$cache/$check.console"
    tail -n 20 "$cache/$check".console*
  fi
  [[ $ended == 0 ]] || failures=$((failures + 1))
done
((failures == 0)) || fail "$failures of ${#checks[@]} checks failed"
