#!/usr/bin/env bash
# The Debian package of the programs that the tests have built. It is installed on a copy of this
# machine, its daemon starts there and serves, and after a purge nothing of it is left but the user
# gang-doctor, as packages of Debian leave theirs: files may have its number. The copy is an overlay
# in mounts of its own, which end with this script. A virtual machine shows how systemd treats the
# package (tests/vm/systemd.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}
skipped() {
  echo "skipped: $1"
  echo "tests/deb.sh: $1" >>"${GANG_SKIPS:-/dev/null}"
  exit 0
}

# Runs a command on the copy, whose changes are in $changes.
if [[ ${1-} == on-the-copy ]]; then
  changes=$2/changes copy=$2/copy package=$3
  mount -t tmpfs tmpfs "$2"
  mkdir "$changes" "$2/work" "$copy"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$changes,workdir=$2/work" "$copy" || exit 9
  for own in proc sys dev; do mount --rbind "/$own" "$copy/$own"; done
  cp "$package" "$copy/gangd.deb"
  # Not the machine's own, whose groups a daemon of this machine may have.
  socket=/run/gangd/try-$$.sock
  printf '[history]\npath = "/var/lib/gangd/history.db"\n' >"$copy/try.toml"
  on_copy() {
    chroot "$copy" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive GANG_SOCKET="$socket" \
      GANG_TIMEOUT=180 "$@"
  }
  # The files besides those that dpkg and ldconfig keep for themselves. A file that is gone of this
  # machine is a device there.
  left() {
    (cd "$changes" && find . ! -type d ! -type c ! -path './var/lib/dpkg/*' ! -path './var/log/dpkg.log' \
      ! -path ./etc/.pwd.lock ! -path './etc/passwd*' ! -path './etc/group*' ! -path './etc/shadow*' ! -path './etc/gshadow*' \
      ! -path './etc/ld.so.cache' ! -path './var/cache/*' ! -path ./gangd.deb ! -path ./try.toml -printf '%P\n' | LC_ALL=C sort)
  }
  # shellcheck disable=SC2016 # dpkg-query's own.
  state() { on_copy dpkg-query -W -f '${db:Status-Abbrev}' gangd 2>/dev/null || true; }
  [[ ! $(state) ]] || { echo "gangd is installed on this machine already" >&2; exit 9; }
  before=$(left)

  on_copy dpkg -i /gangd.deb >"$2/log" 2>&1 || { cat "$2/log" >&2; fail "it is not installed"; }
  [[ $(state) == ii* ]] || fail "it is installed, and its state is $(state)"
  on_copy gangd --check-config >/dev/null || fail "the configuration that comes with it is not accepted"
  on_copy gangd --socket "$socket" --config /try.toml --backend signal --no-measure </dev/null >"$2/log" 2>&1 &
  daemon=$!
  trap 'kill "$daemon" 2>/dev/null || true' EXIT
  for _ in $(seq 1800); do
    on_copy gang status >/dev/null 2>&1 && break
    kill -0 "$daemon" 2>/dev/null || { cat "$2/log" >&2; fail "the daemon ended"; }
    sleep 0.1
  done
  [[ $(on_copy gang run -q -n 1 -- echo ran) == ran ]] || fail "gang run ran nothing"
  seen() { [[ $(on_copy gang history --json) == *'"echo"'* ]]; }
  for _ in $(seq 1800); do seen && break; sleep 0.1; done
  seen || fail "the job is not in the history"
  on_copy gang shutdown || fail "the daemon does not end"
  wait "$daemon" || fail "the daemon ended badly: $(<"$2/log")"
  trap - EXIT
  echo "ok: it is installed, and its daemon serves"

  on_copy dpkg -i /gangd.deb >"$2/log" 2>&1 || { cat "$2/log" >&2; fail "it is not installed over itself"; }
  on_copy dpkg --remove gangd >"$2/log" 2>&1 || { cat "$2/log" >&2; fail "it is not removed"; }
  [[ -e $copy/etc/gangd/gangd.toml && -e $copy/var/lib/gangd/history.db && -e $copy/run/gangd ]] ||
    fail "configuration and history are gone before a purge"
  [[ ! -e $copy/usr/bin/gang && ! -e $copy/usr/sbin/gangd ]] || fail "programs are left of it"
  on_copy dpkg --purge gangd >"$2/log" 2>&1 || { cat "$2/log" >&2; fail "it is not purged"; }
  [[ $(left) == "$before" ]] || fail "a purge leaves: $(comm -13 <(echo "$before") <(left))"
  for own in /etc/gangd /var/lib/gangd /run/gangd /usr/libexec/gangd; do
    [[ ! -e $copy$own ]] || fail "a purge leaves the directory $own"
  done
  echo "ok: it is removed, and nothing of it is left after a purge"
  exit 0
fi

[[ $(id -u) == 0 ]] || skipped "needs root"
for tool in dpkg dpkg-deb dpkg-shlibdeps unshare; do
  command -v $tool >/dev/null || skipped "$tool is not here"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
built=$(cd "${CARGO_TARGET_DIR:-target}/debug" && pwd)
stage=$work/built
mkdir "$work/mounts"
tests/stage.sh "$built" "$stage"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# It need not be small.
DPKG_DEB_COMPRESSOR_TYPE=none MAKEFLAGS="-- BUILT=${stage// /\\ }" scripts/make-deb "$version" "$work" >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; fail "no package is made"; }
package=$(echo "$work"/*.deb)
# Made again a moment later, by another person, elsewhere.
sleep 1
mkdir "$work/again"
(umask 077 && DPKG_DEB_COMPRESSOR_TYPE=none MAKEFLAGS="-- BUILT=${stage// /\\ }" TZ=Pacific/Chatham \
  scripts/make-deb "$version" "$work/again" >"$work/log" 2>&1) || { cat "$work/log" >&2; fail "no second package is made"; }
cmp "$package" "$work"/again/*.deb || fail "a package that is made again is another one"
echo "ok: a package that is made again is the same"
[[ $(dpkg-deb -f "$package" Package Version) == "Package: gangd"*"Version: $version" ]] || fail "its name or version"
echo "ok: the package is made"
status=0
unshare --mount "$BASH" tests/deb.sh on-the-copy "$work/mounts" "$package" || status=$?
[[ $status != 9 ]] || skipped "no overlay of this machine can be mounted, or gangd is installed on it"
exit $status
