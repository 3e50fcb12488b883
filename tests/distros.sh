#!/usr/bin/env bash
# The two commands of the README, tried in a fresh root of each distribution, as its root: a clone,
# `make demo`, `make test`. The kernel is this machine's. Some twenty minutes and 4 GB each.
#
#   tests/distros.sh [NAME…]     bookworm, trixie (Debian 12 and 13), noble (Ubuntu 24.04);
#                                all unless some are named
#
# Where a distribution's Rust is too old, that of this machine stands in for the one that rustup
# would install. VM_MIRROR and UBUNTU_MIRROR name other mirrors.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Mounts are this script's own, and end with it.
if [[ ! ${DISTROS_APART-} ]]; then
  DISTROS_APART=1 exec unshare --mount --propagation private -- "$0" "$@"
fi

names=("$@")
((${#names[@]})) || names=(bookworm trixie noble)
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
roots=$target/distros

fail() {
  printf 'tests/distros.sh: %s\n' "$*" >&2
  exit 1
}
for tool in debootstrap git; do
  PATH=$PATH:/usr/sbin command -v "$tool" >/dev/null || fail "$tool is missing: scripts/deps distros installs it"
done

wanted_rust=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
at_least() { [[ $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$2" ]]; }

# bootstrap NAME: a minimal root with what a person has who clones a repository.
bootstrap() {
  local root=$roots/$1 mirror=${VM_MIRROR:-http://deb.debian.org/debian} options=(--components=main)
  if [[ $1 == noble ]]; then
    mirror=${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}
    options=("--components=main,universe")
    # Debian 12 has no package of Ubuntu's keys. The root is thrown away, and nothing of it is
    # installed.
    local keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
    if [[ -e $keys ]]; then options+=("--keyring=$keys"); else options+=(--no-check-gpg); fi
    # The debootstrap of an older Debian may not know the suite; all of Ubuntu's are alike.
    [[ -e /usr/share/debootstrap/scripts/noble ]] || local script=/usr/share/debootstrap/scripts/gutsy
  fi
  rm -rf "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase --include=ca-certificates,git,make "${options[@]}" "$1" "$root" "$mirror" \
    ${script:+"$script"} >"$root.log" 2>&1 || { tail -n 5 "$root.log" >&2; return 1; }
}

inside() {
  local root=$1
  shift
  chroot "$root" env -i HOME=/root LANG=C.UTF-8 TERM=dumb DEBIAN_FRONTEND=noninteractive \
    PATH=/root/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

try() {
  local name=$1 root=$roots/$1 own version
  bootstrap "$name" || return
  for own in proc sys dev; do mount --rbind "/$own" "$root/$own"; done
  for own in run tmp; do mount -t tmpfs tmpfs "$root/$own"; done
  # Names and certificates are this machine's, as on any machine that reaches the registries.
  cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
  cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
  inside "$root" update-ca-certificates >/dev/null 2>&1 || true
  inside "$root" apt-get -q update >>"$root.log" 2>&1 || return
  version=$(inside "$root" apt-cache policy rustc | sed -n 's/.*Candidate: \([0-9.]*\).*/\1/p')
  if at_least "${version:-0}" "$wanted_rust"; then
    printf 'its Rust: %s\n' "$version"
  else
    printf 'its Rust, %s, is too old: this machine'"'"'s stands in for that of rustup\n' "${version:-none}"
    mkdir -p "$root/root/.cargo/bin" "$root/opt/rust"
    mount --bind -o ro "$(rustc --print sysroot)" "$root/opt/rust"
    local tool
    for tool in "$root"/opt/rust/bin/*; do ln -sf "/opt/rust/bin/${tool##*/}" "$root/root/.cargo/bin/"; done
  fi
  git clone --quiet --no-hardlinks . "$root/root/gangd"
  inside "$root" make -C /root/gangd demo || { printf 'FAILED: make demo\n'; return 1; }
  inside "$root" make -C /root/gangd test || { printf 'FAILED: make test\n'; return 1; }
}

mkdir -p "$roots"
failed=()
for name in "${names[@]}"; do
  [[ " bookworm trixie noble " == *" $name "* ]] || fail "there is no distribution $name; there are bookworm, trixie, noble"
  printf '== %s\n' "$name"
  if try "$name"; then
    printf 'ok: %s\n' "$name"
  else
    printf 'FAILED: %s\n' "$name"
    failed+=("$name")
  fi
  # The mounts go first: what is below them is this machine's.
  for own in opt/rust tmp run dev sys proc; do
    ! mountpoint -q "$roots/$name/$own" || umount -R -l "$roots/$name/$own"
  done
  ! grep -q " $roots/$name/" /proc/self/mounts || fail "$roots/$name still has mounts"
  rm -rf --one-file-system "${roots:?}/$name"
done
((${#failed[@]} == 0)) || fail "failed: ${failed[*]}"
