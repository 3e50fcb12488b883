#!/usr/bin/env bash
# The systemd units are correct, and how exposed the service is. Needs systemd-analyze.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v systemd-analyze >/dev/null; then
  echo "skipped: systemd-analyze is not here"
  echo "tests/units.sh: systemd-analyze is not here" >>"${GANG_SKIPS:-/dev/null}"
  exit 0
fi
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
# The programs that it starts have to exist.
install -m 755 /bin/true "$directory/gangd"
sed -e "s|@SBINDIR@|$directory|" integrations/systemd/gangd.service.in > "$directory/gangd.service"
cp integrations/systemd/gangd.socket "$directory"
systemd-analyze verify --man=no "$directory/gangd.service" "$directory/gangd.socket"
echo "ok: the units are correct"
# The drop-in for sites that have the socket for one group alone, as SECURITY.md has it.
mkdir "$directory/gangd.socket.d"
sed -n '/^    \[Socket\]/,/^$/s/^    //p' SECURITY.md >"$directory/gangd.socket.d/group.conf"
sed -i 's/=gang$/=root/' "$directory/gangd.socket.d/group.conf"
grep -q '^SocketGroup=' "$directory/gangd.socket.d/group.conf"
systemd-analyze verify --man=no "$directory/gangd.service" "$directory/gangd.socket"
echo "ok: the socket can be that of a group"
exposure=$(systemd-analyze security --offline=true "$directory/gangd.service" |
  sed -n 's/.*exposure level.*: \([0-9.]*\) .*/\1/p')
echo "ok: exposure level $exposure"
# Of these, 1.1 are the network and the clock of hosts in a cluster.
awk -v exposure="$exposure" 'BEGIN { exit !(exposure > 0 && exposure <= 4.3) }'
