# shellcheck shell=bash disable=SC2154,SC2034
# All tests, in a guest whose virtual CPUs are stopped from outside at random: for 1 to 20 ms,
# several times a second. Programs are those that the machine outside has built; its compilers and
# interpreters are there as well.

# shellcheck source=tests/vm/copy.sh
. ./copy.sh

all_tests() {
  local environment
  mapfile -t environment </vm/environment
  chroot "$copy" env -i HOME=/root LANG=C.UTF-8 CARGO_NET_OFFLINE=true "${environment[@]}" \
    bash -c "cd $(printf %q "$(cat /vm/checkout)") && tests/all.sh $(asked of | tr , ' ')" 2>&1
}

take_machine
if all_tests; then ok "all tests"; else failed "all tests"; fi
