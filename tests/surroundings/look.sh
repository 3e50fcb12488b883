#!/bin/sh
# A program that says what it sees of its surroundings, computes for some slices, and ends with the
# code that is its first argument.
#
# Absent on purpose, because gangd changes it (README.md, gang-run(1)): the policy and cgroup of the
# process, the variables GANG_* and KMP_BLOCKTIME, and the nice value of a child until gangd has
# seen the child (the kernel's `sched_fork` begins anew). Lines that begin with "own" are left out
# with the backend `signal`, where gang stays as the parent of the program.
printf 'arguments: %s:' "$#"
printf ' <%s>' "$@"
echo
echo "directory: $(pwd -P 2>&1)"
echo "user: $(id -u):$(id -g), umask $(umask)"
ulimit -a
env | grep -vE '^(GANG|KMP_BLOCKTIME|RUN|_)' | sort
for stream in 0 1 2; do
  if [ -t $stream ]; then echo "$stream is a terminal"; fi
done
if [ -r /proc/$$/status ]; then
  # Read by this process alone: while a shell waits for another one, it blocks other signals.
  while read -r field value; do
    case $field in
      # Signals 32 and 33 are the C library's own: whom posix_spawn(3) of glibc starts ignores them.
      SigIgn:) printf '%s %x\n' $field $((0x$value & ~0x180000000)) ;;
      Uid: | Gid: | Groups: | NoNewPrivs: | Seccomp: | SigBlk: | Cap???: | Cpus_allowed_list:)
        echo "$field $value"
        ;;
    esac
  done </proc/$$/status
  printf 'descriptors:'
  for descriptor in /proc/$$/fd/[0-9]*; do
    printf ' %s' "${descriptor##*/}"
  done
  echo
  for stream in 0 1 2; do
    echo "$stream: $(stat -L -c %F /proc/$$/fd/$stream 2>/dev/null)"
  done
  echo "out of memory: $(cat /proc/$$/oom_score_adj)"
  [ ! -r /proc/$$/personality ] || echo "personality: $(cat /proc/$$/personality)"
  read -r pid name state parent group session tty foreground rest </proc/$$/stat
  [ "$tty" = 0 ] || echo "own terminal, in front: $([ "$group" = "$foreground" ] && echo yes)"
  echo "own group: $([ "$group" = $$ ] && echo yes)"
  echo "own session: $([ "$session" = $$ ] && echo yes)"
  echo "own parent: $(cat "/proc/$parent/comm" 2>/dev/null)"
fi
[ -t 0 ] || echo "input: $(cat 2>&1 | wc -c)"
i=0
while [ $i -lt 20000 ]; do i=$((i + 1)); done
echo "some error" >&2
exit "${1-0}"
