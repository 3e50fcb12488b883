# shellcheck shell=bash disable=SC2154,SC2034
# Every experiment of the lab runs to its end on a machine of 16 CPUs. Its compilers, libraries and
# interpreters are those of the machine that it runs on, of which it sees the files; what it writes
# stays in memory. Its CPUs are emulated, sixteen by the few that there are, so that no figure says
# anything.

# shellcheck source=tests/vm/copy.sh
. ./copy.sh

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

take_machine
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
