//! The cases.
//!
//! `$RUN` stands where gang goes: before the program that a tool starts, before the tool, or both.
//! Scripts wait for files, never for a time; a time in them only ends what nothing else ends.

use crate::case::{BACKENDS, Case, Unlike, check};

/// Each case with what it needs and its script; `unlike` where it is not the same, with what
/// forbids that.
macro_rules! surroundings {
    ($($(#[$doc:meta])* $name:ident [$($need:literal),*] $script:literal
        $(unlike [$($backend:literal),*] $line:literal)?;)*) => {
        $(
            $(#[$doc])*
            #[test]
            fn $name() {
                check(CASES.iter().find(|case| case.name == stringify!($name)).unwrap());
            }
        )*

        const CASES: &[Case] = &[$(Case {
            name: stringify!($name),
            needs: &[$($need),*],
            script: $script,
            unlike: surroundings!(@unlike $([$($backend),*] $line)?),
        }),*];
    };
    (@unlike) => { None };
    (@unlike [$($backend:literal),*] $line:literal) => {
        Some(Unlike { backends: &[$($backend),*], line: $line })
    };
}

surroundings! {
    // Shells.

    alone [] r#"$RUN $LOOK 7"#;
    dies_by_a_signal [] r#"exec $RUN sh -c 'kill -TERM $$'"#;
    each_signal [] r#"
        for signal in HUP INT QUIT ABRT KILL SEGV PIPE ALRM TERM USR1 XCPU SYS; do
            $RUN sh -c "kill -$signal \$\$"
            echo $signal $?
        done 2>/dev/null"#;
    odd_arguments [] r#"$RUN $LOOK 0 '' 'a b' $'c\nd' 'ü' -- -q --help"#;
    many_arguments [] r#"
        export LARGE=$(head -c 100000 /dev/zero | tr '\0' x)
        $RUN sh -c 'echo $# ${#LARGE}' $(seq 20000)"#;
    between_pipes [] r#"
        printf 'some\ninput\n' | $RUN $LOOK 3 | cat
        echo ${PIPESTATUS[*]}"#;
    reader_that_leaves [] r#"
        $RUN sh -c 'while echo y; do :; done' | head -n 1
        echo ${PIPESTATUS[*]}"#;
    reader_that_leaves_ignored [] r#"
        trap '' PIPE
        $RUN sh -c 'while echo y; do :; done' 2>/dev/null | head -n 1
        echo ${PIPESTATUS[*]}"#;
    substituted [] r#"
        text=$($RUN sh -c '(until [ -e said ]; do :; done; echo late) & echo early; >said; exit 4')
        echo "$? $text""#;
    substituted_process [] r#"$RUN cat <($RUN echo one) - <<<two"#;
    in_background [] r#"
        $RUN $LOOK 5 &
        wait $!
        echo $?"#;
    under_each_shell [] r#"
        for shell in sh dash bash; do
            $shell -c '$RUN $LOOK 7; echo $?'
        done"#;
    of_busybox ["busybox"] r#"
        busybox sh -c '$RUN busybox sh -c "exit 7"; echo $?'
        echo x | busybox xargs $RUN echo"#;
    timed_by_the_shell [] r#"
        TIMEFORMAT=timed
        time $RUN $LOOK 7"#;
    within_itself [] r#"$RUN sh -c '$RUN $LOOK 7'"#;
    within_itself_unnamed [] r#"$RUN sh -c 'unset GANG_JOB; $RUN $LOOK 7'"#;

    // Streams and descriptors.

    closed_input [] r#"$RUN $LOOK 7 <&-"#;
    closed_output [] r#"
        $RUN sh -c 'echo lost' >&-
        echo $?"#;
    closed_errors [] r#"$RUN $LOOK 7 2>&-"#;
    closed_streams [] r#"
        $RUN sh -c 'ls /proc/$$/fd >seen' <&- >&- 2>&-
        echo $?; cat seen"#;
    inherited_descriptor [] r#"
        exec 9>nine
        $RUN sh -c 'echo to nine >&9'
        $RUN $LOOK 7
        cat nine"#;
    full_device [] r#"
        $RUN sh -c 'echo lost' >/dev/full
        echo $?"#;

    // Job control.

    at_a_terminal ["script"] r#"
        script -qec '$RUN $LOOK 7' /dev/null
        echo $?"#;
    interrupted_at_a_terminal ["script"] r#"
        (until [ -e ready ]; do sleep 0.01; done; printf '\003') |
            script -qec '$RUN sh -c ": >ready; exec sleep 1000"' /dev/null
        echo $?"#;
    // A stop in the middle of vfork(2) would hold a shell that waits for its child; so the programs
    // that are stopped start none.
    stopped_at_a_terminal ["script", "mkfifo"] r#"
        mkfifo go
        await() { until [ -e $1 ]; do sleep 0.01; done; }
        {
            echo '$RUN sh -c ": >ready; read line <go; exit 9"'
            await ready
            printf '\032'
            echo 'echo $? >stopped; (echo >go &); fg; echo $? >ended; exit'
            await ended
        } | script -qec 'bash --norc -i' /dev/null >/dev/null
        cat stopped ended"#;
    stopped_in_background ["mkfifo"] r#"
        mkfifo go
        set -m
        $RUN sh -c ': >ready; read line <go; exit 9' &
        until [ -e ready ]; do sleep 0.01; done
        kill -TSTP %1
        until [ "$(jobs -s)" ]; do sleep 0.01; done
        jobs
        kill -CONT %1
        echo >go
        wait $!
        echo $?"#;
    reads_in_background ["script"] r#"
        script -qec 'bash --norc -mc '\''
            $RUN sh -c "read line" &
            until [ "$(jobs -s)" ]; do sleep 0.01; done
            jobs -s >stopped
            kill -KILL %1'\''' /dev/null >/dev/null
        cat stopped"#;
    told_to_end [] r#"
        $RUN sh -c 'trap "echo heard; exit 4" TERM; : >ready; while :; do sleep 0.01; done' &
        until [ -e ready ]; do sleep 0.01; done
        kill $!
        wait $!
        echo $?"#;
    killed [] r#"
        $RUN sh -c ': >ready; exec sleep 1000' &
        until [ -e ready ]; do sleep 0.01; done
        exec 2>/dev/null
        kill -KILL $!
        wait $!
        echo $?"#;
    /// Gang becomes the program, by execve(2). With the backend `signal` gang stays as the
    /// program's parent: `wait_consider_task` tells a parent of every stop of its child, so the
    /// shell would take each turn for a stop by hand. `do_exit` gives the mark of a core only to
    /// the process that has dumped it, which is the program.
    is_the_process_that_was_started [] r#"
        $RUN sh -c 'echo $$ >pid; : >ready; exec sleep 1000' &
        until [ -e ready ]; do sleep 0.01; done
        [ $(cat pid) = $! ] && echo the same || echo another
        kill $!
        wait $!
        ulimit -c unlimited
        (exec $RUN sh -c 'kill -QUIT $$') 2>said
        grep -q dumped said && echo core || echo no core
        rm -f core* pid said"# unlike ["signal"] "another";

    // Processes that outlive it.

    daemon_is_left [] r#"
        $RUN sh -c 'setsid sleep 1000 </dev/null >/dev/null 2>&1 & exit 3'
        echo $?"#;
    child_is_left_without_a_hangup ["nohup"] r#"
        nohup $RUN sh -c ': >ready; until [ -e go ]; do sleep 0.01; done; echo survived' >said &
        until [ -e ready ]; do sleep 0.01; done
        kill -HUP $!
        : >go
        wait $!
        echo $?; cat said"#;
    nohup ["nohup"] r#"
        nohup $RUN $LOOK 7
        $RUN nohup $LOOK 8"#;
    session ["setsid"] r#"
        setsid -w $RUN $LOOK 7
        $RUN setsid -w $LOOK 8"#;
    start_stop_daemon ["start-stop-daemon"] r#"
        set -- $RUN sleep 1000
        start-stop-daemon -S -q -b -m -p $WORK/pid -a "$(command -v $1)" -- "${@:2}"
        until start-stop-daemon -T -q -p $WORK/pid; do sleep 0.01; done
        start-stop-daemon -K -q -p $WORK/pid -R 20
        echo $?
        rm pid"#;

    // Those that start many, or for others.

    cron ["setsid"] r#"
        env -i HOME=/ LOGNAME=root SHELL=/bin/sh PATH=/usr/bin:/bin \
            setsid -w /bin/sh -c "$RUN $LOOK 7; echo \$?" 2>&1 </dev/null | cat"#;
    at ["root", "at", "atd"] r#"
        # Not by its name: what it has started for a job that has ended has that name, too.
        if ! kill -0 "$(cat /run/atd.pid 2>/dev/null)" 2>/dev/null; then
            atd -f &
            daemon=$!
            until [ "$(cat /run/atd.pid 2>/dev/null)" = $daemon ]; do sleep 0.01; done
            # `at` sends it SIGHUP, which ends it until it has a handler.
            until grep -q 'SigCgt:.*[13579bdf]$' /proc/$daemon/status; do sleep 0.01; done
        fi
        echo "cd $WORK; $RUN $LOOK 7 >said 2>&1; echo \$? >code; mv code ended" |
            at -M now 2>/dev/null
        until [ -e ended ]; do sleep 0.05; done
        cat said ended
        [ ! "${daemon-}" ] || { kill $daemon; wait $daemon; }"#;
    timeout ["timeout"] r#"
        timeout 100 $RUN $LOOK 7
        $RUN timeout 100 $LOOK 8"#;
    timeout_that_ends_it ["timeout"] r#"
        for how in '' '-s KILL' --foreground; do
            timeout $how 0.2 $RUN sleep 1000
            echo $?
            $RUN timeout $how 0.2 sleep 1000
            echo $?
        done 2>/dev/null"#;
    xargs ["xargs"] r#"
        seq 6 | xargs -P 3 -I{} $RUN sh -c 'echo got {}' | sort
        seq 2 | xargs -n 1 $RUN $LOOK
        echo $?"#;
    gnu_parallel ["parallel --version"] r#"
        parallel -k -j 3 "$RUN sh -c 'echo got {}; exit {}'" ::: 0 1 2
        echo $?
        $RUN parallel -k -j 2 echo ::: 3 4"#;
    make ["make"] r#"
        cat >Makefile <<'END'
all: one two three sub
one two three:
	@$(RUN) sh -c 'echo $@ >$@'
sub:
	+@$(RUN) $(MAKE) -s four five
four five:
	@$(RUN) sh -c 'echo $@ >$@'
bad:
	@$(RUN) sh -c 'exit 3'
END
        make -s -j 3
        echo $?
        rm one two three four five
        $RUN make -s -j 3
        echo $?
        make -s bad
        echo $?"#;
    ninja ["ninja --version"] r#"
        cat >build.ninja <<'END'
rule run
  command = $$RUN sh -c 'echo $out >$out'
rule fail
  command = $$RUN sh -c 'exit 3'
build one: run
build two: run
build bad: fail
build all: phony one two
END
        ninja -j 3 all >/dev/null
        echo $?
        rm one two
        $RUN ninja -j 3 all >/dev/null
        echo $?
        ninja bad >said
        echo $?
        grep -c FAILED said
        rm -rf said .ninja*"#;
    ranks_of_mpich ["mpiexec.hydra -n 1 true"] r#"
        rank='echo rank $PMI_RANK of $PMI_SIZE'
        mpiexec.hydra -n 2 $RUN sh -c "$rank" | sort
        $RUN mpiexec.hydra -n 2 sh -c "$rank" | sort
        mpiexec.hydra -n 2 $RUN sh -c 'exit 3' >/dev/null 2>&1
        echo $?"#;
    screen ["screen -D -m true"] r#"
        mkdir -m 700 sockets
        export SCREENDIR=$WORK/sockets
        screen -D -m sh -c "$RUN $LOOK 7 >said 2>&1; echo \$? >ended"
        sed '/^STY=/d; /^WINDOW=/d; /^TERM=/d; /^TERMCAP=/d' said
        cat ended
        rm -r sockets"#;
    tmux ["tmux -V"] r#"
        export TMUX_TMPDIR=$WORK
        tmux -L own -f /dev/null new-session -d -x 80 -y 24 \
            "$RUN $LOOK 7 >said 2>&1; echo \$? >code; mv code ended"
        until [ -e ended ]; do sleep 0.01; done
        sed '/^TMUX/d; /^own/d' said
        cat ended
        tmux -L own kill-server 2>/dev/null
        rm -r tmux-*"#;
    ssh ["root", "ssh", "sshd", "unshare -m true"] r#"
        ssh-keygen -q -t ed25519 -N '' -f key
        cat >sshd_config <<END
HostKey $WORK/key
AuthorizedKeysFile $WORK/key.pub
StrictModes no
PermitRootLogin yes
UsePAM no
PidFile none
PrintMotd no
END
        cat >ssh_config <<END
Host here
  User root
  IdentityFile $WORK/key
  BatchMode yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  ProxyCommand $(command -v sshd) -i -f $WORK/sshd_config 2>/dev/null
END
        unshare -m bash -c 'mount -t tmpfs none /run; mkdir /run/sshd
            ssh -F ssh_config here "$RUN $LOOK 7"
            echo $?
            ssh -F ssh_config -tt here "$RUN $LOOK 8"
            echo $?' | sed 's,/dev/pts/.*,/dev/pts/N,'"#;
    systemd_run ["systemd-run --wait --quiet true"] r#"
        systemd-run --wait --pipe --quiet $RUN $LOOK 7 | grep -v INVOCATION_ID
        echo ${PIPESTATUS[*]}
        systemd-run --scope --quiet $RUN $LOOK 8 | grep -v INVOCATION_ID
        echo ${PIPESTATUS[*]}
        $RUN systemd-run --wait --pipe --quiet $LOOK 9 | grep -v INVOCATION_ID
        echo ${PIPESTATUS[*]}"#;

    // Those that look on.

    strace ["strace true"] r#"
        strace -f -o outside $RUN $LOOK 7
        $RUN strace -f -o inside $LOOK 8"#;
    gdb ["gdb --version"] r#"
        said() { grep -E 'received signal|exited|terminated' | sed 's/process [0-9]*/process N/'; }
        export DEBUGINFOD_URLS=
        for script in 'kill -SEGV $$' 'exit 3'; do
            gdb -nx -batch -ex run --args $RUN sh -c "$script" 2>&1 | said
            $RUN gdb -nx -batch -ex run --args sh -c "$script" 2>&1 | said
        done"#;
    perf ["perf stat -e task-clock true"] r#"
        perf stat -o outside -e task-clock $RUN $LOOK 7
        $RUN perf stat -o inside -e task-clock $LOOK 8"#;
    valgrind ["valgrind --version"] r#"
        valgrind -q $RUN sh -c 'exit 7'
        echo $?
        $RUN valgrind -q sh -c 'exit 8'
        echo $?"#;
    address_sanitizer ["echo 'int main(){}' | cc -fsanitize=address -x c - -o /dev/null"] r#"
        cat >program.c <<'END'
#include <stdlib.h>
int main(int count, char **words) {
    char *text = malloc(count), last = text[count];
    text = NULL;
    return last == words[0][0];
}
END
        cc -w -g -fsanitize=address program.c -o program
        $RUN ./program 2>said
        echo $?
        grep -oE \
            'ERROR: .* on|READ of size .|is located .*region|#[0-9]+ 0x[0-9a-f]* in main' said |
            sed 's/0x[0-9a-f]*//g; s/\[.*//'"#;
    leak_sanitizer ["echo 'int main(){}' | cc -fsanitize=leak -x c - -o /dev/null"] r#"
        cat >program.c <<'END'
#include <stdlib.h>
void *volatile kept;
int main(void) { kept = malloc(99); kept = malloc(9); kept = NULL; return 0; }
END
        cc -w -fsanitize=leak program.c -o program
        $RUN ./program 2>said
        echo $?
        grep SUMMARY said"#;
    memory_sanitizer ["echo 'int main(){}' | clang -fsanitize=memory -x c - -o /dev/null"] r#"
        echo 'int main(int count, char **words) { int a[9]; return a[count] ? 3 : 4; }' >program.c
        clang -w -g -fsanitize=memory program.c -o program
        $RUN ./program 2>said
        echo $?
        grep -c 'SUMMARY: MemorySanitizer' said"#;
    /// The accesses of the race come one after the other, unordered as the sanitizer sees it: it
    /// can miss two of the same moment.
    thread_sanitizer ["echo 'int main(){}' | cc -fsanitize=thread -x c - -o /dev/null"] r#"
        cat >program.c <<'END'
#include <pthread.h>
#include <sched.h>
int shared, told;
void *work(void *unused) {
    shared++;
    __atomic_store_n(&told, 1, __ATOMIC_RELAXED);
    return NULL;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    while (!__atomic_load_n(&told, __ATOMIC_RELAXED))
        sched_yield();
    shared++;
    pthread_join(thread, NULL);
    return 0;
}
END
        cc -w -g -fsanitize=thread program.c -o program -pthread
        $RUN ./program 2>said
        echo $?
        grep -c SUMMARY said"#;
    undefined_sanitizer ["echo 'int main(){}' | cc -fsanitize=undefined -x c - -o /dev/null"] r#"
        echo 'int main(int count, char **words) { return count + 0x7fffffff == 0; }' >program.c
        cc -w -fsanitize=undefined program.c -o program
        $RUN ./program
        echo $?"#;

    // Other users.

    sudo ["root", "sudo -n true"] r#"
        sudo -n $RUN $LOOK 7 | grep -v SUDO_COMMAND
        $RUN sudo -n $LOOK 8 | grep -v SUDO_COMMAND
        sudo -n -u nobody $RUN $LOOK 9 | grep -v SUDO_COMMAND
        $RUN sudo -n -u nobody $LOOK 10 | grep -v SUDO_COMMAND"#;
    su ["root", "su"] r#"
        su -s /bin/sh nobody -c "$RUN $LOOK 7"
        $RUN su -s /bin/sh nobody -c "$LOOK 8"
        su - root -c "$RUN $LOOK 9""#;
    runuser ["root", "runuser"] r#"
        runuser -u nobody -- $RUN $LOOK 7
        $RUN runuser -u nobody -- $LOOK 8"#;
    setpriv ["root", "setpriv"] r#"
        nobody='setpriv --reuid 65534 --regid 65534 --clear-groups'
        $nobody $RUN $LOOK 7
        $RUN $nobody $LOOK 8
        setpriv --no-new-privs --bounding-set -all $RUN $LOOK 9"#;
    set_user_id ["root", "setpriv"] r#"
        cp $(command -v id) own
        chown 65534 own
        chmod u+s own
        $RUN ./own
        setpriv --reuid 65533 --clear-groups $RUN ./own"#;
    fakeroot ["root", "fakeroot", "setpriv"] r#"
        setpriv --reuid 65534 --clear-groups fakeroot $RUN sh -c '
            id -u; : >made; chown 7 made; stat -c %u made'
        $RUN fakeroot sh -c ': >other; chown 7 other; stat -c %u other'"#;

    // Containers.

    /// With the backend `signal` gang is not the program, and has no number of it that means
    /// anything outside of the namespace: `pid_vnr` makes it. A daemon inside the namespace serves
    /// it (crates/gang/tests/containers.rs).
    pid_namespace_of_its_own ["root", "unshare -pf --mount-proc true"] r#"
        unshare -pf --mount-proc $RUN true
        echo $?"# unlike ["signal"] "125";
    pid_namespace_within ["root", "unshare -pf --mount-proc true"] r#"
        $RUN unshare -pf --mount-proc $LOOK 7"#;
    user_namespace ["unshare -Ur true"] r#"
        unshare -Ur $RUN $LOOK 7
        $RUN unshare -Ur $LOOK 8"#;
    other_namespaces ["root", "unshare -muin true", "nsenter"] r#"
        unshare -muin $RUN $LOOK 7
        $RUN unshare -muin $LOOK 8
        nsenter -t $$ -m -n $RUN $LOOK 9"#;
    namespaces_of_groups_and_time ["root", "unshare -C true", "unshare -T --boottime 9 true"] r#"
        unshare -C $RUN $LOOK 7
        $RUN unshare -C $LOOK 8
        unshare -T --boottime 1000000 --monotonic 1000000 $RUN $LOOK 9
        $RUN unshare -T --boottime 1000000 --monotonic 1000000 $LOOK 10"#;
    bubblewrap ["bwrap --dev-bind / / true"] r#"
        bwrap --dev-bind / / $RUN $LOOK 7
        $RUN bwrap --ro-bind / / --dev /dev --proc /proc --unshare-all $LOOK 8"#;
    podman ["root", "podman run --rm --rootfs / true"] r#"
        $RUN podman run --rm --network none --rootfs / sh -c 'echo within; exit 7'
        echo $?
        podman run --rm --network none --pid host --rootfs / $RUN sh -c 'echo within; exit 8'
        echo $?"#;
    chroot ["root", "chroot", "unshare -m true"] r#"
        mkdir root
        unshare -m sh -c '
            mount --rbind / root; chroot root $RUN $LOOK 7; $RUN chroot root $LOOK 8'"#;
    /// With the backend `signal` gang stays as the parent of a second gang, which it finds by its
    /// path or at /proc/self/exe. Neither is in a root without `/proc` and without gang: this is a
    /// limit of gang, not of the kernel.
    chroot_without_proc ["root", "chroot", "unshare -m true"] r#"
        mkdir root
        unshare -m sh -c '
            mount --bind / root; chroot root $RUN $LOOK 7; $RUN chroot root $LOOK 8'"#
        unlike ["signal"] "gang: cannot start a second gang: ENOENT: No such file or directory";

    group_of_version_1 ["root", "cgexec -g cpu:/ true"] r#"
        cgexec -g cpu:/ $RUN $LOOK 7
        $RUN cgexec -g cpu:/ $LOOK 8"#;

    // Limits, and what is missing.

    few_descriptors [] r#"
        ulimit -n 12
        $RUN $LOOK 7"#;
    no_file_size ["prlimit"] r#"
        prlimit --fsize=0 $RUN sh -c 'echo lost >file'
        echo $?
        rm -f file core*"#;
    little_memory [] r#"
        ulimit -v 300000
        ulimit -s 512
        $RUN $LOOK 7"#;
    little_cpu_time [] r#"
        (ulimit -St 1; $RUN sh -c 'while :; do :; done') 2>/dev/null
        echo $?"#;
    little_real_time ["prlimit"] r#"
        prlimit --rttime=200000:200000 $RUN sh -c '
            i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done; echo done'
        $RUN prlimit --rttime=200000:200000 $LOOK 8"#;
    few_processes ["root", "setpriv", "prlimit"] r#"
        prlimit --nproc=50 setpriv --reuid 65532 --clear-groups $RUN $LOOK 7"#;
    empty_environment [] r#"
        env -i $RUN $LOOK 7
        $RUN env -i $LOOK 8"#;
    nowhere [] r#"
        mkdir gone; cd gone; rmdir ../gone
        $RUN sh -c 'echo here'
        echo $?
        cd /
        env -u HOME -u PATH $RUN $LOOK 7"#;
    read_only_root ["root", "unshare -m true"] r#"
        unshare -m sh -c '
            mount -o remount,bind,ro /
            findmnt -no TARGET -T . | grep -qx / || mount -o bind,ro . .
            cd $WORK
            $RUN $LOOK 7
            $RUN touch made
            echo $?'"#;
    full_disk ["root", "unshare -m true"] r#"
        mkdir full
        unshare -m sh -c '
            mount -t tmpfs -o size=4k none full
            cd full
            head -c 9000 /dev/zero >filler
            $RUN sh -c "echo x >more"
            echo $?
            $RUN $LOOK 7'"#;
    missing_programs [] r#"
        : >plain
        echo 'echo a script of $1' >script
        printf '#!/no/such/interpreter\n' >other
        chmod +x script other
        for program in no-such-program ./no-such-program ./plain ./other / ./script; do
            env $RUN $program argument 2>/dev/null
            echo $?
        done"#;
    core_is_dumped [] r#"
        ulimit -c unlimited
        { $RUN sh -c 'kill -SEGV $$'; echo $?; } 2>/dev/null
        ls core* 2>/dev/null | sed 's/[0-9][0-9]*/N/g'
        rm -f core*"#;

    // Attributes.

    nice ["nice"] r#"
        nice -n 5 $RUN sh -c 'set -- $(cat /proc/$$/stat); echo ${19}'
        $RUN nice -n 6 sh -c 'set -- $(cat /proc/$$/stat); echo ${19}'"#;
    io_class ["ionice"] r#"
        ionice -c 3 $RUN ionice
        $RUN ionice -c 2 -n 6 ionice"#;
    cpus ["taskset"] r#"
        for code in 7 8; do
            taskset -c 0 $RUN $LOOK $code | grep -v Cpus_allowed
            $RUN taskset -c 0 $LOOK $code | grep -v Cpus_allowed
        done"#;
    nodes ["numactl -C 0 true"] r#"
        bound='grep -E "_allowed_list" /proc/self/status'
        numactl -C 0 $RUN sh -c "$bound"
        $RUN numactl -C 0 sh -c "$bound"
        numactl --localalloc $RUN $LOOK 7
        $RUN numactl -m 0 $LOOK 8"#;
    /// Where a program looks at one CPU after the other, as hwloc does, no slot can be made for it
    /// meanwhile, and it must go on.
    binds_itself ["taskset"] r#"
        $RUN sh -c '
            all=$(taskset -cp $$ | sed "s/.*: //")
            taskset -cp 0 $$ >/dev/null
            i=0
            while [ $i -lt 300000 ]; do i=$((i + 1)); done
            taskset -cp $all $$ >/dev/null
            echo "goes on"'"#;
    bound_ranks ["mpirun.openmpi --allow-run-as-root -n 1 true"] r#"
        ranks='mpirun.openmpi --allow-run-as-root --oversubscribe -q -n 2 --bind-to core'
        bound='grep Cpus_allowed_list /proc/self/status'
        $ranks $RUN sh -c "$bound" 2>/dev/null | sort
        $RUN $ranks sh -c "$bound" 2>/dev/null | sort
        $ranks $RUN sh -c 'exit 3' 2>/dev/null
        echo $?"#;
    /// Pools are as wide as without gangd, and no variable tells them otherwise.
    pools_of_threads ["/usr/bin/python3 -c 'import joblib'"] r#"
        sed 's/^ *|//' >pool.py <<<'
            |import os, joblib
            |from multiprocessing.pool import ThreadPool
            |names = [name for name in os.environ if name.endswith("_NUM_THREADS")]
            |print(joblib.cpu_count(), os.cpu_count(), len(os.sched_getaffinity(0)), names)
            |calls = [joblib.delayed(abs)(number) for number in range(-9, 0)]
            |print(joblib.Parallel(n_jobs=-1, prefer="threads")(calls))
            |print(joblib.Parallel(n_jobs=-1)(calls))
            |with ThreadPool() as pool:
            |    print(pool._processes, sum(pool.map(abs, range(-9, 0))))'
        $RUN /usr/bin/python3 pool.py"#;
    ranks_of_torch ["torchrun -r 1 -t 1 --nproc_per_node 1 /dev/null"] r#"
        sed 's/^ *|//' >rank.py <<<'
            |import os, torch
            |print(os.environ["OMP_NUM_THREADS"], torch.get_num_threads(), flush=True)'
        # Python 3.11 cannot tell torchrun of Debian 12 that no stream is redirected.
        $RUN torchrun --standalone -r 1 -t 1 --nproc_per_node 2 rank.py 2>/dev/null | sort
        echo ${PIPESTATUS[0]}"#;
    threads_of_gromacs ["gmx"] r#"
        printf 'box\n1\n    1ARG    AR    1   1.000   1.000   1.000\n 4.0 4.0 4.0\n' >conf.gro
        printf '[ defaults ]\n1 2 no 1 1\n[ atomtypes ]\n' >topol.top
        printf 'AR 39.948 0 A 0.00622 9.695e-06\n' >>topol.top
        printf '[ moleculetype ]\nARG 1\n[ atoms ]\n1 AR 1 ARG AR 1 0 39.948\n' >>topol.top
        printf '[ system ]\nx\n[ molecules ]\nARG 1\n' >>topol.top
        printf 'integrator = md\nnsteps = 10\nrcoulomb = 0.9\nrvdw = 0.9\n' >md.mdp
        printf 'verlet-buffer-tolerance = -1\nrlist = 0.9\n' >>md.mdp
        gmx -quiet grompp -f md.mdp -c conf.gro -p topol.top -o md.tpr >/dev/null 2>&1
        threads='-ntmpi 1 -ntomp 2'
        for pin in on off; do
            $RUN gmx -quiet mdrun -s md.tpr $threads -pin $pin -deffnm md >/dev/null 2>&1
            echo $?
            grep -E '^ *Using [0-9]+ OpenMP threads?' md.log
        done
        rm -f md.* \#*"#;
    policies ["chrt"] r#"
        chrt -b 0 $RUN $LOOK 7
        chrt -i 0 $RUN $LOOK 8
        $RUN chrt -i 0 $LOOK 9"#;
    /// Where the kernel groups real-time threads, `sched_rt_can_attach` keeps them out of the
    /// groups by which the backend `weight` weighs, and `__sched_setscheduler` refuses the policy
    /// in them.
    real_time ["root", "chrt -r 2 true"] r#"
        chrt -r 2 $RUN sh -c 'chrt -p $$ | sed s/[0-9]*.s/N/'
        $RUN chrt -r 2 sh -c 'chrt -p $$ | sed s/[0-9]*.s/N/'"#
        unlike ["weight"] "chrt: failed to set pid 0's policy: Operation not permitted";
    personality ["setarch"] r#"
        setarch -R $RUN $LOOK 7
        $RUN setarch -R $LOOK 8"#;
    out_of_memory ["choom"] r#"
        choom -n 500 -- $RUN $LOOK 7
        $RUN choom -n 600 -- $LOOK 8"#;
    utilisation ["uclampset -m 100 true"] r#"
        uclampset -m 100 $RUN $LOOK 7
        $RUN uclampset -m 100 $LOOK 8"#;
    signals_as_they_were [] r#"
        env --block-signal=USR1,TERM --ignore-signal=HUP,PIPE,CHLD,TSTP $RUN $LOOK 7
        $RUN env --block-signal=USR1 --ignore-signal=CHLD $LOOK 8"#;
    mode_of_files [] r#"
        umask 027
        $RUN sh -c ': >made; mkdir directory'"#;
    lock ["flock"] r#"
        flock lock $RUN $LOOK 7
        flock -n lock echo free
        $RUN flock lock $LOOK 8"#;
    buffers ["stdbuf"] r#"
        stdbuf -oL $RUN $LOOK 7
        $RUN stdbuf -oL $LOOK 8"#;
    faked_time ["faketime"] r#"
        faketime '2001-02-03 04:05:06' $RUN date +%F
        $RUN faketime '2001-02-03 04:05:06' date +%F"#;
}

#[test]
fn at_most_three_of_sixty_surroundings_differ() {
    let differs = CASES.iter().filter(|case| case.unlike.is_some()).count();
    assert!(CASES.len() >= 60 && 20 * differs <= CASES.len());
}

#[test]
fn backends_of_this_machine() {
    for backend in ["rt", "weight", "freeze", "signal"] {
        if !BACKENDS.iter().any(|usable| usable == backend) {
            gang_harness::skipped(format!("no surroundings with {backend}, which is not usable"));
        }
    }
}
