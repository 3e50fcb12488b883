# shellcheck shell=bash disable=SC2154,SC2034
# Containers of runc(8); checks source it.

runtime() { runc --root /run/vm/runc "$@"; }
mkdir -p /run/vm/root
mount --bind / /run/vm/root
# container NAME FILTER COMMAND… : starts one that has the files, the network and the daemon's
# socket of this machine. The filter changes what `runc spec` says; its words are in NAME.log.
container() {
  local name=$1 filter=$2 bundle=/run/vm/$1
  shift 2
  mkdir -p "$bundle"
  runc spec --bundle "$bundle" || return
  jq "$filter"' | .process.terminal = false | .root = {path: "/run/vm/root", readonly: true}
    | .process.args = $ARGS.positional | .linux.cgroupsPath = "/'"$name"'"
    | .process.env += ["PATH=/opt/gangd/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    | .mounts += [{destination: "/run/vm", type: "bind", source: "/run/vm", options: ["rbind"]}]
    | .linux.namespaces -= [{type: "network"}]' \
    "$bundle/config.json" --args -- "$@" >"$bundle/new" || return
  mv "$bundle/new" "$bundle/config.json"
  # The root of a guest that runs from memory cannot be pivoted.
  runtime run --no-pivot --detach --bundle "$bundle" "$name" \
    </dev/null >"/run/vm/$name.log" 2>&1 || { cat "/run/vm/$name.log"; return 1; }
}
# Docker's --pid=host.
same_pids='.linux.namespaces -= [{type: "pid"}]'
quota='.linux.resources.cpu = {quota: 20000, period: 100000}'
