// SPDX-License-Identifier: GPL-2.0-only
/*
 * The threads of one program: where they are at each tick of the clock, and what they sleep for.
 *
 * Problem: whether threads wait for each other cannot be seen in how much CPU they use. Those that
 * spin use all of it, and those that block leave it to others. A thread that waits for a partner
 * without a CPU looks like one whose partner has more to do.
 *
 * Approach: at each tick of each CPU a record says who runs there and at which instruction, with
 * the code around it. It has the program's threads that run and wait for a CPU at that moment. How
 * long they run, and how long they wait, is known without ticks, and summed up. Sleeps are summed
 * up by the system call that the thread sleeps in.
 *
 * Properties: ticks come at the same rate whatever runs, nothing included, so that shares of ticks
 * are shares of time. All time is booked once, without a lock. Two CPUs that change something in
 * the same hundred nanoseconds may book as much by the numbers of one of them. A thread that came
 * to a CPU without a report of the kernel counts as waiting until the next tick there. A program is
 * a cgroup (version 2); threads outside of it cost a look-up. Code is read where it is in memory: a
 * page that is not there is left out, and nobody waits for whoever would have to fetch it.
 */
#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "states.h"

char LICENSE[] SEC("license") = "GPL";

/* The structures below are repeated in shared.rs, which a test compares. */

#define SLEEPS_MAX 16384
#define TICKS_BYTES (1 << 22)

/* Of the code of a thread, so many bytes before its instruction, and from there on. */
#define CODE_BYTES 64
#define PAGE_LEAST 4096

/* A thread that waits for a CPU for less than this was woken: its partners hardly notice. */
#define APART_NS 100000

/* Threads that meet have met once all of them have run for so long. */
#define MEET_NS 1000000

/*
 * The kinds of moments: one thread waits for a CPU; none does; none did for long since so many ran
 * at once.
 */
enum { APART, CLEAR, MET };
#define CPUS_MAX 1024
#define SUMS_MAX (MET + CPUS_MAX)

enum { NOBODY, OTHERS, IN_PROGRAM, IN_KERNEL };

struct tick {
	__u64 at_ns;
	/* Where the thread is in its program, also while the kernel works for it. */
	__u64 ip;
	__u32 tgid;
	__u32 tid;
	/* The system call it is in; negative outside of one. */
	__s32 call;
	/* Of the program's threads, as they are at the tick. */
	__u16 running;
	__u16 waiting;
	__u32 who;
	/* Which sum its moment is part of. */
	__u16 sum;
	/* Threads that want this CPU, and anybody's. */
	__u16 here;
	/* Zero where it is not in memory, and where the thread is not in its program. */
	__u8 code[2 * CODE_BYTES];
};

struct program {
	__u64 group;
	/* Another one for each group: what was known of its threads holds no more. */
	__u64 epoch;
	__s64 running;
	__s64 waiting;
	/* Ticks for which there was no room. */
	__u64 lost;
	/* The most that ran at once since one last waited for a CPU, and since when. */
	__s64 at_once;
	__u64 since_ns;
	/* All time before is summed up. */
	__u64 booked_ns;
};

/*
 * For how long threads did something, and for how long they ran meanwhile: a sum over all of them.
 */
struct sum {
	__u64 ns;
	__u64 ran_ns;
};

struct thread {
	__u32 state;
	__s32 call;
	__u32 uninterruptible;
	/* A thread of the program waited for a CPU when it fell asleep. */
	__u32 apart;
	/* Asleep, and waiting for a CPU. */
	__u64 since_ns;
	__u64 waits_since_ns;
	__u64 epoch;
};

struct cause {
	__u32 tid;
	__s32 call;
	__u32 uninterruptible;
};

struct sleeps {
	__u64 count;
	__u64 ns;
	/* Of those at whose beginning and end no thread of the program waited for a CPU. */
	__u64 clear_count;
	__u64 clear_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct program);
} programs SEC(".maps");

/* By what the threads did; from MET on by how many of them ran at once. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SUMS_MAX);
	__type(key, __u32);
	__type(value, struct sum);
} sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, TICKS_BYTES);
} ticks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, SLEEPS_MAX);
	__type(key, struct cause);
	__type(value, struct sleeps);
} sleeping SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

static __always_inline struct program *the_program(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&programs, &zero);
}

static __always_inline bool is_in(struct program *p, struct task_struct *task)
{
	return task->pid && task->cgroups->dfl_cgrp->kn->id == p->group;
}

/* The system call a thread is in; negative where it is in none. */
static __always_inline __s32 call_of(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

	return regs ? (__s32)regs->CALL : -1;
}

/* The kind of a moment, with so many that have met. */
static __always_inline __u32 sum_of(__s64 waiting, __s64 met)
{
	if (waiting > 0)
		return APART;
	if (met <= 0)
		return CLEAR;
	return MET - 1 + (met < CPUS_MAX ? met : CPUS_MAX);
}

static __always_inline void add(__u32 which, __u64 ns, __s64 running)
{
	struct sum *sum = bpf_map_lookup_elem(&sums, &which);

	if (!sum)
		return;
	__sync_fetch_and_add(&sum->ns, ns);
	if (running > 0)
		__sync_fetch_and_add(&sum->ran_ns, ns * running);
}

/*
 * Sums up the time until now, in which the threads have done what they do yet. Which sum the moment
 * is part of.
 */
static __always_inline __u32 book(struct program *p, __u64 now)
{
	__s64 running = p->running, waiting = p->waiting, at_once = p->at_once;
	__u64 met_ns = p->since_ns + MEET_NS;
	__u64 before = p->booked_ns;
	__u32 is = sum_of(waiting, now >= met_ns ? at_once : 0), was;

	/* Another CPU was here first, or is: what it does not book is the next one's. */
	if (before >= now || !__sync_bool_compare_and_swap(&p->booked_ns, before, now) || !before)
		return is;
	was = sum_of(waiting, before >= met_ns ? at_once : 0);
	if (was != is) {
		add(was, met_ns - before, running);
		before = met_ns;
	}
	add(is, now - before, running);
	return is;
}

static __always_inline void count(struct program *p, __u32 was, __u32 is, __u64 now)
{
	__s64 running;

	if (was == is)
		return;
	book(p, now);
	if (was == RUNNING)
		__sync_fetch_and_add(&p->running, -1);
	if (was == WAITING)
		__sync_fetch_and_add(&p->waiting, -1);
	if (is == RUNNING)
		__sync_fetch_and_add(&p->running, 1);
	if (is == WAITING)
		__sync_fetch_and_add(&p->waiting, 1);
	running = p->running;
	if (running > p->at_once) {
		p->at_once = running;
		p->since_ns = now;
	}
}

/* A thread that waited for a CPU for long has kept its partners waiting. */
static __always_inline void move(struct program *p, struct thread *t, __u32 state, __u64 now)
{
	/* Somebody may be looking around. */
	__u32 was = __sync_lock_test_and_set(&t->state, state);

	if (was == WAITING && now - t->waits_since_ns > APART_NS)
		p->at_once = 0;
	if (was != WAITING)
		t->waits_since_ns = now;
	count(p, was, state, now);
}

/* The state of a thread; empty for one that was last seen when another group was watched. */
static __always_inline struct thread *known(struct program *p, struct task_struct *task,
					    __u64 flags)
{
	struct thread *t = bpf_task_storage_get(&threads, task, 0, flags);

	if (t && t->epoch != p->epoch) {
		t->epoch = p->epoch;
		t->state = SLEEPING;
		t->since_ns = 0;
	}
	return t;
}

/* A thread sleeps, waits or runs from now on. */
static __noinline void set(struct program *p, struct task_struct *task, __u32 state,
			   __u32 uninterruptible)
{
	struct sleeps *sum, first = {};
	struct cause cause = {};
	struct thread *t;
	__u64 now;

	if (!p)
		return;
	t = known(p, task, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return;
	now = bpf_ktime_get_ns();
	if (state == SLEEPING) {
		t->since_ns = now;
		t->call = call_of(task);
		t->uninterruptible = uninterruptible;
		t->apart = p->waiting > 0;
	} else if (t->state == SLEEPING && t->since_ns) {
		cause.tid = task->pid;
		cause.call = t->call;
		cause.uninterruptible = t->uninterruptible;
		sum = bpf_map_lookup_elem(&sleeping, &cause);
		if (!sum) {
			bpf_map_update_elem(&sleeping, &cause, &first, BPF_NOEXIST);
			sum = bpf_map_lookup_elem(&sleeping, &cause);
		}
		if (sum) {
			__sync_fetch_and_add(&sum->count, 1);
			__sync_fetch_and_add(&sum->ns, now - t->since_ns);
			if (!t->apart && p->waiting <= 0) {
				__sync_fetch_and_add(&sum->clear_count, 1);
				__sync_fetch_and_add(&sum->clear_ns, now - t->since_ns);
			}
		}
		t->since_ns = 0;
	}
	move(p, t, state, now);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	struct program *p = the_program();

	if (!p)
		return 0;
	if (is_in(p, prev))
		set(p, prev, left_for(preempt, prev_state),
		    !!(prev_state & TASK_UNINTERRUPTIBLE));
	if (is_in(p, next))
		set(p, next, RUNNING, 0);
	return 0;
}

static __noinline void wake(struct task_struct *task)
{
	struct program *p = the_program();
	struct thread *t;

	if (!p || !is_in(p, task))
		return;
	t = known(p, task, 0);
	if (!t || t->state == SLEEPING)
		set(p, task, WAITING, 0);
}

/*
 * Looks at all threads once: those that wait for a CPU already are not seen otherwise until they
 * get one.
 */
SEC("iter/task")
int look_around(struct bpf_iter__task *context)
{
	struct program *p = the_program();
	struct task_struct *task = context->task;
	struct thread *t;

	if (!p || !task || !is_in(p, task))
		return 0;
	t = known(p, task, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (t && t->state == SLEEPING && !t->since_ns && !task->__state)
		set(p, task, task->on_cpu ? RUNNING : WAITING, 0);
	return 0;
}

/* How many threads want this CPU, on which a thread runs or which is idle. */
static __always_inline __u32 wanted_here(struct task_struct *task)
{
	struct rq *rq = task->se.cfs_rq->rq;
	__u32 queued = rq->nr_running, asleep = 0;

	if (bpf_core_field_exists(rq->cfs.h_nr_runnable)) {
		__u32 of_groups = rq->cfs.h_nr_queued, runnable = rq->cfs.h_nr_runnable;

		asleep = of_groups > runnable ? of_groups - runnable : 0;
	} else if (bpf_core_field_exists(struct cfs_rq___delayed, h_nr_delayed)) {
		asleep = ((struct cfs_rq___delayed *)&rq->cfs)->h_nr_delayed;
	}
	return queued > asleep ? queued - asleep : 0;
}

/* The program's threads at a tick. Not inline: so BTF has struct tick, which a test compares. */
static __noinline void note_threads(struct program *p, struct tick *tick, __u32 here)
{
	__s64 running = p->running, waiting = p->waiting;

	tick->running = running < 0 ? 0 : running > 65535 ? 65535 : running;
	tick->waiting = waiting < 0 ? 0 : waiting > 65535 ? 65535 : waiting;
	tick->sum = book(p, tick->at_ns);
	tick->here = here > 65535 ? 65535 : here;
}

/*
 * The code around the instruction of the thread that runs. Not inline: the verifier has less to
 * follow.
 */
static __noinline void note_code(struct tick *tick)
{
	__u64 ip = tick->ip;
	/* Of the page that it is in, which is there: the next one may not be. */
	__u32 rest = PAGE_LEAST - (ip & (PAGE_LEAST - 1));

	/* Bytes that cannot be read are zero after that. */
	bpf_probe_read_user(tick->code, CODE_BYTES, (void *)(ip - CODE_BYTES));
	if (bpf_probe_read_user(tick->code + CODE_BYTES, CODE_BYTES, (void *)ip) &&
	    rest < CODE_BYTES)
		bpf_probe_read_user(tick->code + CODE_BYTES, rest, (void *)ip);
}

SEC("perf_event")
int on_tick(struct bpf_perf_event_data *context)
{
	struct program *p = the_program();
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs;
	struct thread *t;
	struct tick *tick;

	if (!p)
		return 0;
	tick = bpf_ringbuf_reserve(&ticks, sizeof(*tick), 0);
	if (!tick) {
		__sync_fetch_and_add(&p->lost, 1);
		return 0;
	}
	tick->at_ns = bpf_ktime_get_ns();
	tick->ip = 0;
	tick->tgid = task->tgid;
	tick->tid = task->pid;
	tick->call = -1;
	tick->who = task->pid ? OTHERS : NOBODY;
	if (is_in(p, task)) {
		t = known(p, task, BPF_LOCAL_STORAGE_GET_F_CREATE);
		/* It ran before anybody looked, or its coming was not reported. */
		if (t && t->state != RUNNING)
			move(p, t, RUNNING, tick->at_ns);
		regs = (struct pt_regs *)bpf_task_pt_regs(task);
		tick->ip = regs->IP;
		tick->call = (__s32)regs->CALL;
		/* The kernel has the upper half of the addresses. */
		tick->who = context->ip >> 63 ? IN_KERNEL : IN_PROGRAM;
	}
	if (tick->who == IN_PROGRAM)
		note_code(tick);
	else
		__builtin_memset(tick->code, 0, sizeof(tick->code));
	note_threads(p, tick, wanted_here(task));
	bpf_ringbuf_submit(tick, BPF_RB_NO_WAKEUP);
	return 0;
}
