# Hosts of namespaces: made, entered, and given what a cluster has. Sourced.
# shellcheck shell=bash disable=SC2016

SKIPPED=77
DOMAIN=10.77.0
USER_OF_BED=ada
UID_OF_BED=4711
# Of the caller: BED, HOSTS, ONLINE (CPUs), GROUPS_OF_HOSTS.
# shellcheck disable=SC2153
online_cpus=$ONLINE number_of_hosts=$HOSTS
declare -A cpus_of=() pid_of=() address_of=()
hosts=()

say() { printf '    %s\n' "$*"; }
fail() {
  printf '    failed: %s\n' "$*" >&2
  exit 1
}
skip_case() {
  echo "skipped: ${FUNCNAME[1]#case_}: $1"
  echo "tests/hosts.sh: ${FUNCNAME[1]#case_}: $1" >>"${GANG_SKIPS:-/dev/null}"
  exit "$SKIPPED"
}
has() { command -v "$1" >/dev/null; }

# A machine may be slow.
WITHIN=${GANG_TIMEOUT:-180}
# wait_until WHAT COMMAND… : the command is tried until it holds.
wait_until() {
  local end=$((SECONDS + WITHIN))
  until "${@:2}" >/dev/null 2>&1; do
    ((SECONDS < end)) || fail "not within $WITHIN s: $1"
    sleep 0.1
  done
}

# on HOST COMMAND… : as root of a host, in its cgroup and on its CPUs.
on() {
  local host=$1
  shift
  (
    echo "$BASHPID" >"$GROUPS_OF_HOSTS/$host/cgroup.procs"
    exec taskset -c "${cpus_of[$host]}" nsenter -t "${pid_of[$host]}" -m -n -u -i -p -C \
      env -i PATH=/run/bed/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      LANG=C.UTF-8 TERM="${TERM:-dumb}" HOME=/root GANG_SOCKET="/run/gangd/$host.sock" \
      bash -c 'cd /run/bed/home && exec "$@"' bash "$@"
  )
}
# As the user of the bed, who has a home that all hosts share.
on_as_user() {
  local host=$1
  shift
  on "$host" setpriv --reuid $UID_OF_BED --regid $UID_OF_BED --init-groups \
    env HOME=/run/bed/home USER=$USER_OF_BED LOGNAME=$USER_OF_BED "$@"
}
# A daemon of a host; it ends with the host, or by stop.
start() {
  local host=$1 name=$2
  shift 2
  on "$host" bash -c 'echo $$ >"/run/$0.pid" && exec "$@"' "$name" "$@" \
    >>"$BED/log/$host.$name" 2>&1 </dev/null &
}
stop() {
  on "$1" bash -c 'file=/run/$0.pid
    [[ -e $file ]] && kill "-$1" "$(cat "$file")" && timeout 20 tail --pid="$(cat "$file")" -f /dev/null
    rm -f "$file"' "$2" "${3:-TERM}" || true
}

# Has the daemons release their jobs, so that nothing that ends waits for a slot.
end_hosts() {
  local name
  for name in "${hosts[@]}"; do
    on "$name" timeout 30 bash -c '[[ ! -e /run/gangd.pid ]] || { kill "$(cat /run/gangd.pid)" &&
      timeout 20 tail --pid="$(cat /run/gangd.pid)" -f /dev/null; }' || true
  done
}

# host NAME CPUS : CPUs as in 0-3,5. One that was there before is known by its address.
host() {
  local name=$1 cpus=$2 outer tries
  if [[ ! ${address_of[$name]-} ]]; then
    address_of[$name]=$DOMAIN.$((${#address_of[@]} + 1))
    echo "${address_of[$name]} $name" >>/etc/hosts
    mkdir "$GROUPS_OF_HOSTS/$name"
  fi
  cpus_of[$name]=$cpus
  (
    echo "$BASHPID" >"$GROUPS_OF_HOSTS/$name/cgroup.procs"
    exec taskset -c "$cpus" unshare --mount --net --uts --ipc --pid --cgroup --fork --kill-child=KILL \
      bash tests/hosts/init.sh "$name" "$cpus"
  ) >>"$BED/log/$name.init" 2>&1 </dev/null &
  outer=$!
  for ((tries = 100; tries > 0; tries--)); do
    pid_of[$name]=$(ps -o pid= --ppid "$outer" | tr -d ' ' || true)
    if [[ ${pid_of[$name]} ]] && nsenter -t "${pid_of[$name]}" -m test -e /run/is-up 2>/dev/null; then break; fi
    sleep 0.1
  done
  ((tries > 0)) || fail "host $name is not up: $(cat "$BED/log/$name.init")"
  ip link add "v-$name" type veth peer name eth0 netns "${pid_of[$name]}"
  ip link set "v-$name" master bridge up
  nsenter -t "${pid_of[$name]}" -n ip link set lo up
  nsenter -t "${pid_of[$name]}" -n ip address add "${address_of[$name]}/24" dev eth0
  nsenter -t "${pid_of[$name]}" -n ip link set eth0 up
}

# Files that all hosts share, and a network between them.
make_etc() {
  cp -a /etc "$BED/etc"
  mount --bind "$BED/etc" /etc
  mkdir -p /etc/gangd /etc/slurm /etc/munge
  rm -f /etc/nologin
  printf '127.0.0.1 localhost\n' >/etc/hosts
  printf 'passwd: files\ngroup: files\nhosts: files\n' >/etc/nsswitch.conf
  echo "$USER_OF_BED:x:$UID_OF_BED:$UID_OF_BED::/run/bed/home:/bin/bash" >>/etc/passwd
  echo "$USER_OF_BED:x:$UID_OF_BED:" >>/etc/group
  echo "$USER_OF_BED:*:19000:0:99999:7:::" >>/etc/shadow
  chown $UID_OF_BED:$UID_OF_BED "$BED/home"
}
make_network() {
  ip link set lo up
  ip link add bridge type bridge
  ip link set bridge up
}

# ssh between the hosts, as root and as the user, without questions.
make_ssh() {
  if ! has sshd; then return; fi
  mkdir -m 700 "$BED/home/.ssh"
  ssh-keygen -q -t ed25519 -N '' -f "$BED/home/.ssh/id_ed25519"
  cp "$BED/home/.ssh/id_ed25519.pub" "$BED/home/.ssh/authorized_keys"
  cat >/etc/ssh/ssh_config <<END
Host *
  IdentityFile /run/bed/home/.ssh/id_ed25519
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
END
  chown -R $UID_OF_BED:$UID_OF_BED "$BED/home/.ssh"
  mkdir -m 700 "$BED/sshd"
  ssh-keygen -q -t ed25519 -N '' -f "$BED/sshd/key"
  local host sshd
  sshd=$(command -v sshd)
  for host in "${hosts[@]}"; do
    cat >"$BED/sshd/$host" <<END
HostKey /run/bed/sshd/key
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
AuthorizedKeysFile /run/bed/home/.ssh/authorized_keys
PasswordAuthentication no
SetEnv PATH=/run/bed/bin:/usr/local/bin:/usr/bin:/bin GANG_SOCKET=/run/gangd/$host.sock
END
    start "$host" sshd "$sshd" -D -e -f "/run/bed/sshd/$host"
  done
}

# A page asks for systemctl restart gangd, which a namespace has not.
make_systemctl() {
  cat >"$BED/bin/systemctl" <<'END'
#!/usr/bin/env bash
# Of this test bed: restarts the daemon of a host, and waits until it answers.
set -euo pipefail
[[ $* == "restart gangd" ]] || { echo "systemctl of the test bed knows 'restart gangd' alone" >&2; exit 1; }
file=/run/gangd.pid
if [[ -e $file ]]; then
  kill "$(cat "$file")" || true
  timeout 20 tail --pid="$(cat "$file")" -f /dev/null
fi
setsid gangd --config /etc/gangd/gangd.toml >>"/run/bed/log/$(uname -n).gangd" 2>&1 </dev/null &
echo $! >"$file"
for ((tries = 200; tries > 0; tries--)); do
  ! gang status >/dev/null 2>&1 || exit 0
  sleep 0.1
done
echo "gangd does not answer" >&2
exit 1
END
  chmod 755 "$BED/bin/systemctl"
}

make_bed() {
  local i name share=0
  local -a online
  read -ra online <<<"$online_cpus"
  make_etc
  make_network
  make_systemctl
  for ((i = 0; i < number_of_hosts; i++)); do
    name=node$((i + 1))
    hosts+=("$name")
    # Neighbours, as many for each; what is left over stays free.
    share=$((${#online[@]} / number_of_hosts))
    host "$name" "$(IFS=, && echo "${online[*]:i*share:share}")"
  done
  CPUS_OF_HOST=$share
  make_ssh
}

# Every host's CPUs, as gang run --hosts has them.
all_cpus() {
  local name list=
  for name in "${hosts[@]}"; do list+=,$name:$CPUS_OF_HOST; done
  echo "${list#,}"
}

# want_cluster one|three : daemons in a cluster over an etcd, or over three that are one.
want_cluster() {
  [[ $(cat "$BED/cluster" 2>/dev/null) != "$1" ]] || return 0
  local name endpoints
  case $1 in
    one)
      stop node1 etcd
      on node1 rm -rf /run/etcd
      start node1 etcd etcd --data-dir /run/etcd --unsafe-no-fsync --log-level error \
        --listen-client-urls http://0.0.0.0:2379 --advertise-client-urls http://node1:2379
      endpoints='"http://node1:2379"'
      wait_until "etcd answers" etcd_answers http://node1:2379
      ;;
    three)
      start_members
      endpoints='"http://etcd1:2379", "http://etcd2:2379", "http://etcd3:2379"'
      wait_until "the three etcd answer" etcd_answers http://etcd1:2379 http://etcd2:2379 http://etcd3:2379
      ;;
  esac
  printf '[cluster]\nname = "bed"\nendpoints = [%s]\n' "$endpoints" >"$BED/gangd.toml"
  for name in "${hosts[@]}"; do start_gangd "$name"; done
  on node1 gang cluster init
  wait_until "all hosts are in the cluster" all_hosts_are_alive
  echo "$1" >"$BED/cluster"
}

start_gangd() {
  on "$1" cp /run/bed/gangd.toml /etc/gangd/gangd.toml
  on "$1" systemctl restart gangd
}

# By HTTP, which needs no etcdctl.
etcd_answers() {
  local url name
  for url in "$@"; do
    name=${url#http://}
    on node1 timeout 5 bash -c 'exec 3<>"/dev/tcp/${0%:*}/${0#*:}"
      printf "GET /health HTTP/1.0\r\nHost: x\r\n\r\n" >&3; grep -q "\"health\":\"true\"" <&3' "$name" || return 1
  done
}

all_hosts_are_alive() {
  local name text
  text=$(on node1 gang hosts)
  for name in "${hosts[@]}"; do
    grep -Eq "^$name +[0-9]+ +(alive|this host) " <<<"$text" || return 1
  done
}

# The keys of etcd on the one host that has it, one a line. By HTTP, which needs no etcdctl.
etcd_keys() {
  on node1 timeout 5 bash -c 'exec 3<>/dev/tcp/node1/2379
    body="{\"key\":\"AA==\",\"range_end\":\"AA==\",\"keys_only\":true}"
    printf "POST /v3/kv/range HTTP/1.0\r\nContent-Length: ${#body}\r\n\r\n$body" >&3; cat <&3' |
    grep -o '"key":"[^"]*"' | cut -d '"' -f 4 | while read -r key; do base64 -d <<<"$key" && echo; done
}
# The keys of a spanning job: its record, and its entries in the matrix.
has_keys_of() { (($(etcd_keys | grep -c "/jobs/$1\$") == 2)); }
has_no_keys_of() {
  etcd_keys | grep -q /registry/ && ! etcd_keys | grep -q "/jobs/$1\$"
}

# The number of the spanning job of a name; none where there is none, as some host sees it.
job_named() { on "${2:-node1}" gang hosts | awk -v name="$1" '/^ *ID +NAME/ { jobs = 1 } jobs && $2 == name { print $1 }'; }
is_spanning() { [[ $(job_named "$1") ]]; }
is_gone_everywhere() {
  local name
  for name in "${hosts[@]}"; do
    [[ ! $(job_named "$1" "$name") ]] || return 1
    ! on "$name" gang ls | grep -q " $1 " || return 1
  done
}
# wait_for_span NAME PID : until the job spans hosts, while the program that starts it runs.
wait_for_span() {
  wait_until "job $1 spans the hosts" is_spanning_or_over "$@"
  is_spanning "$1" || fail "the program ended before job $1 was there"
}
is_spanning_or_over() { is_spanning "$1" || ! kill -0 "$2"; }
# has_ranks PROGRAM : on all hosts.
has_ranks() {
  local host
  for host in "${hosts[@]}"; do on "$host" pgrep -u $UID_OF_BED -x "$1" || return 1; done
}
# slots JOB HOST : how many it has had there.
slots() { on "$2" gang show "$1" --json | grep -o '"slots": *[0-9]*' | head -n 1 | grep -o '[0-9]*$'; }
has_more_slots() {
  local now
  now=$(slots "$1" "$2")
  [[ $now ]] && ((now > $3))
}
has_slots_everywhere() {
  local name before
  for name in "${hosts[@]}"; do
    before=$(slots "$1" "$name") || fail "job $1 has no part on $name"
    (wait_until "job $1 has slots on $name" has_more_slots "$1" "$name" $((before + 5))) || {
      on "$name" gang show "$1" || true
      on "$name" gang why "$1" || true
      on "$name" gang ls || true
      exit 1
    } >&2
  done
}

show_logs() {
  local file name
  for name in "${hosts[@]}"; do
    printf -- '--- gang hosts on %s\n' "$name"
    on "$name" timeout 20 gang hosts || true
  done
  for file in "$BED"/log/*; do
    [[ ! -s $file ]] || { printf -- '--- %s\n' "${file##*/}" && tail -n 15 "$file"; }
  done
}
