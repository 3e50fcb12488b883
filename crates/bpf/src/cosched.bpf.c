// SPDX-License-Identifier: GPL-2.0-only
/*
 * The time of gangs on CPUs, summed up in the kernel.
 *
 * Problem: whether all threads of a gang run at once can only be seen where threads are switched,
 * thousands of times a second. A record of each switch, read by a program, would cost more than the
 * gangs gain.
 *
 * Approach: a gang is known by the number of its cgroup (version 2). Each of its threads is
 * sleeping, waiting for a CPU, or running; the gang knows how many wait and run. Before one of
 * these numbers changes, the time since the last change is booked by what they were. User space
 * writes the gang's slots ahead of time, so that nobody has to say at an edge that one begins. The
 * gang's time on each CPU is summed up there, in memory that no other CPU writes. A run is added
 * when a thread leaves the CPU, waiting when a thread gets it.
 *
 * In its turn, a gang that has as many runnable threads as its row has CPUs asks for all of these.
 * It is whole while it runs on all of them. The rest of the time that it asks for is booked by what
 * these CPUs run otherwise (whole.h), and by whether there is a gap or an edge.
 *
 * Of a gang that sleeps, user space can await the first moment at which a thread wants to run
 * again. It can also read how many short tasks there were. A short task is an ordinary thread that
 * fell asleep, or ended, on a CPU on which a gang's thread wanted to run on. Threads that compute
 * for long take such a CPU in every gap, and never leave it so.
 *
 * Properties: a thread's state and the numbers of its gang change in one step. An event that is
 * missed or comes twice is made up for by the thread's next one. From the moment on at which the
 * gang is watched, all time is booked exactly once. Threads outside of all gangs cost a look-up.
 */
#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "book.h"
#include "states.h"

char LICENSE[] SEC("license") = "GPL";

/* Structures that user space reads or writes are repeated in shared.rs, which a test compares. */

#define GANGS_MAX 10240
#define CULPRITS_MAX 4096
#define WOKEN_BYTES 4096

struct thread {
	/* The number of the gang's group, and its epoch, while the thread is counted there. */
	__u64 gang;
	__u64 epoch;
	__u32 state;
	__u32 unused;
	/* slot_ns of its gang when it began to wait. */
	__u64 slot_ns;
};

/* A process that a gang waits for. */
struct culprit {
	__u64 gang;
	__u32 tgid;
	/*
	 * Of the gang: another one may have the number of its group later, and nobody has to clear
	 * this away.
	 */
	__u32 epoch;
};

/* A gang's time on one CPU. */
struct share {
	__u64 in_slot_ns;
	__u64 out_of_slot_ns;
	/* Threads that ran here next had waited for so long in slot. */
	__u64 lost_ns;
	__u64 epoch;
};

/* A CPU, the gang that runs there, and what the last gang had of it that is not in `shares` yet. */
struct cpu {
	/* Its last switch, or when a thread was found on it whose coming was not reported. */
	__u64 at_ns;
	/* 0: no thread of a gang that has been seen to come. */
	__u64 gang;
	__u64 epoch;
	/* slot_ns of the gang at the switch. */
	__u64 slot_ns;
	__u64 owner;
	struct share had;
	/* Another one each time that something was moved to `shares`. */
	__u64 moved;
	__u64 short_tasks;
	/* `gang` has slots, and time out of them. */
	__u32 has_slots;
	/*
	 * The last thread of such a gang here wanted to run on, and there has been no short task
	 * since.
	 */
	__u32 taken;
	/* A gang has the CPU in its slot, or rivals do because it gave way (ways.h). */
	__u32 is_in_slot;
	__u32 unused;
};

struct damage {
	__u64 ns;
	__u32 policy;
	__u32 is_kernel;
	char name[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GANGS_MAX);
	__type(key, __u64);
	__type(value, struct gang);
} gangs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GANGS_MAX);
	__type(key, __u64);
	__type(value, struct slots);
} slots SEC(".maps");

#include "ways.h"

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, CULPRITS_MAX);
	__type(key, struct culprit);
	__type(value, struct damage);
} damages SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

/* Of the gangs that are watched; made and cleared away with them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GANGS_MAX);
	__type(key, __u64);
	__type(value, struct share);
} shares SEC(".maps");

/*
 * The numbers of gangs that were awaited and have woken. A number for which there is no room is
 * lost.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, WOKEN_BYTES);
} woken SEC(".maps");

/* A gang of which nothing happened for long, and until when it is to be booked. */
struct behind {
	__u64 gang;
	__u64 now;
	/* Since it was booked last. */
	__u32 view;
	__u32 unused;
};

int view_of(__u64 gang);

/* One step of catching up; ends the loop when it has. */
static long book_more(__u32 step, struct behind *b)
{
	__u64 id = b->gang;
	struct gang *g = bpf_map_lookup_elem(&gangs, &id);
	struct slots *s = bpf_map_lookup_elem(&slots, &id);
	struct notes notes;
	__u32 is_booked;

	if (!g)
		return 1;
	bpf_spin_lock(&g->lock);
	is_booked = book(g, s, b->now, b->view);
	notes = take_notes(g);
	bpf_spin_unlock(&g->lock);
	count_skews(g, notes.start_ns, notes.end_ns);
	return is_booked;
}

/*
 * Books all slots that there can be. Nobody's state changes before that, which is that of all this
 * time. Not static, as those below.
 */
__noinline int catch_up(__u64 gang, __u64 now)
{
	struct behind b = { .gang = gang, .now = now };

	b.view = view_of(gang);
	bpf_loop(SLOTS_MAX / STEPS + 1, book_more, &b, 0);
	return 0;
}

#include "whole.h"

/* A thread of a gang that does something else now. */
struct change {
	__u64 gang;
	__u64 epoch;
	__u64 now;
	/* Of one that runs, since when it does. */
	__u64 since_ns;
	__u32 was;
	__u32 is;
	/* The results: slot_ns of the gang, and whether it has slots. */
	__u64 slot_ns;
	__u32 has_slots;
	__u32 unused;
};

/*
 * Carries it out. Not static: so the verifier looks at it once, and not for each way that leads
 * here.
 */
__noinline int carry_out(struct change *c)
{
	struct gang *g;
	struct slots *s;
	struct notes notes;
	__u64 id, now;
	__u32 is_booked, has_woken, view;

	if (!c)
		return 1;
	id = c->gang;
	now = c->now;
	g = bpf_map_lookup_elem(&gangs, &id);
	s = bpf_map_lookup_elem(&slots, &id);
	/* Another gang has the number of the group now. */
	if (!g || g->epoch != c->epoch)
		return 1;
	view = view_of(id);
	bpf_spin_lock(&g->lock);
	is_booked = book(g, s, now, view);
	if (!is_booked) {
		notes = take_notes(g);
		bpf_spin_unlock(&g->lock);
		count_skews(g, notes.start_ns, notes.end_ns);
		catch_up(id, now);
		bpf_spin_lock(&g->lock);
		book(g, s, now, view);
	}
	/* Another CPU was here first, whose clock was read later. */
	if (now < g->at_ns)
		now = g->at_ns;
	g->running -= c->was == RUNNING;
	g->runnable -= c->was != SLEEPING;
	g->running += c->is == RUNNING;
	g->runnable += c->is != SLEEPING;
	look_at_start(g, now);
	if (c->was == RUNNING)
		look_at_end(g, c->since_ns, now);
	c->slot_ns = g->slot_ns;
	c->has_slots = s && !s->always;
	notes = take_notes(g);
	has_woken = g->awaited && g->runnable > 0;
	if (has_woken)
		g->awaited = 0;
	bpf_spin_unlock(&g->lock);
	count_skews(g, notes.start_ns, notes.end_ns);
	if (has_woken)
		bpf_ringbuf_output(&woken, &id, sizeof(id), 0);
	return 0;
}

static __noinline void blame(__u64 gang, __u32 epoch, struct task_struct *who, __u64 ns)
{
	struct culprit culprit = { .gang = gang, .tgid = who->tgid, .epoch = epoch };
	struct damage *damage = bpf_map_lookup_elem(&damages, &culprit);

	if (!damage) {
		struct damage first = {};

		bpf_map_update_elem(&damages, &culprit, &first, BPF_NOEXIST);
		damage = bpf_map_lookup_elem(&damages, &culprit);
		if (!damage)
			return;
	}
	__sync_fetch_and_add(&damage->ns, ns);
	/* As it is now: a process becomes another program, or of another class. */
	damage->policy = who->policy;
	damage->is_kernel = !!(who->flags & PF_KTHREAD);
	__builtin_memcpy(damage->name, who->comm, sizeof(damage->name));
}

static __always_inline struct cpu *this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&cpus, &zero);
}

/* Another gang has the CPU: gangs change less often than threads. */
static __noinline void move_share(struct cpu *cpu, __u64 owner, __u64 epoch)
{
	struct share *share;
	__u64 before;

	if (!cpu)
		return;
	before = cpu->owner;
	share = before ? bpf_map_lookup_elem(&shares, &before) : 0;
	if (share && share->epoch == cpu->had.epoch) {
		share->in_slot_ns += cpu->had.in_slot_ns;
		share->out_of_slot_ns += cpu->had.out_of_slot_ns;
		share->lost_ns += cpu->had.lost_ns;
	}
	cpu->moved++;
	cpu->owner = owner;
	cpu->had.epoch = epoch;
	cpu->had.in_slot_ns = 0;
	cpu->had.out_of_slot_ns = 0;
	cpu->had.lost_ns = 0;
}

/* A thread of the gang has left this CPU, on which it ran since the last switch. */
static __always_inline void book_run(struct change *c)
{
	struct cpu *cpu = this_cpu();
	__u64 ran_ns, in_slot_ns;

	if (!cpu || cpu->gang != c->gang || cpu->epoch != c->epoch)
		return;
	ran_ns = c->now - cpu->at_ns;
	in_slot_ns = c->slot_ns - cpu->slot_ns;
	/* The gang's clock may be ahead of this CPU's. */
	if (in_slot_ns > ran_ns)
		in_slot_ns = ran_ns;
	cpu->had.in_slot_ns += in_slot_ns;
	cpu->had.out_of_slot_ns += ran_ns - in_slot_ns;
}

/* A thread of the gang comes to this CPU, and had waited in slot. */
static __always_inline void begin_run(struct change *c, __u64 lost_ns)
{
	struct cpu *cpu = this_cpu();

	if (!cpu)
		return;
	if (cpu->owner != c->gang || cpu->had.epoch != c->epoch)
		move_share(cpu, c->gang, c->epoch);
	cpu->epoch = c->epoch;
	cpu->slot_ns = c->slot_ns;
	cpu->gang = c->gang;
	cpu->has_slots = c->has_slots;
	cpu->had.lost_ns += lost_ns;
}

/*
 * A thread sleeps, waits or runs from now on. The last one on this CPU has run since a moment: one
 * that leaves it, or `before`, whom one follows that runs.
 */
static __noinline void set(struct task_struct *task, __u32 state, struct task_struct *before,
			   __u64 since_ns, __u64 now)
{
	__u64 id = task->cgroups->dfl_cgrp->kn->id, lost_ns, ran_ns = now - since_ns;
	struct gang *g = bpf_map_lookup_elem(&gangs, &id);
	struct change c = { .now = now, .since_ns = since_ns };
	struct thread *t;

	t = bpf_task_storage_get(&threads, task, 0, g ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	if (!t)
		return;
	if (t->gang && (!g || t->gang != id || t->epoch != g->epoch)) {
		c.gang = t->gang;
		c.epoch = t->epoch;
		c.was = t->state;
		c.is = SLEEPING;
		if (!carry_out(&c) && c.was == RUNNING)
			book_run(&c);
		t->state = SLEEPING;
		t->gang = 0;
	}
	if (!g)
		return;
	c.gang = id;
	c.epoch = g->epoch;
	c.is = state;
	t->gang = id;
	t->epoch = c.epoch;
	/* Somebody may be looking around. */
	c.was = __sync_lock_test_and_set(&t->state, state);
	if (c.was == state || carry_out(&c))
		return;
	if (c.was == RUNNING)
		book_run(&c);
	if (state == WAITING)
		t->slot_ns = c.slot_ns;
	if (state != RUNNING)
		return;
	lost_ns = c.was == WAITING ? c.slot_ns - t->slot_ns : 0;
	begin_run(&c, lost_ns);
	if (lost_ns && before)
		blame(id, c.epoch, before, lost_ns < ran_ns ? lost_ns : ran_ns);
}

static __noinline void wake(struct task_struct *task)
{
	struct thread *t = bpf_task_storage_get(&threads, task, 0, 0);

	if (!t || t->state == SLEEPING)
		set(task, WAITING, 0, 0, bpf_ktime_get_ns());
	if (is_rival(task))
		rival_wakes(task);
}

/*
 * Threads of the kernel come and go whether anybody wants something or not; real-time ones wait for
 * no gap.
 */
static __always_inline bool is_ordinary(struct task_struct *task)
{
	bool is_of_kernel = task->flags & PF_KTHREAD;

	return !is_of_kernel && (task->policy == SCHED_NORMAL || task->policy == SCHED_BATCH);
}

/* A thread leaves its CPU. Once until a gang's thread has been back. */
static __always_inline void count_short_task(struct cpu *cpu, struct task_struct *prev, __u32 left)
{
	if (cpu->gang && cpu->has_slots) {
		cpu->taken = left == WAITING;
	} else if (cpu->taken && left == SLEEPING && is_ordinary(prev)) {
		cpu->short_tasks++;
		cpu->taken = 0;
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	__u64 now = bpf_ktime_get_ns(), since_ns;
	__u32 left = left_for(preempt, prev_state);
	struct cpu *cpu = this_cpu();

	if (!cpu)
		return 0;
	since_ns = cpu->at_ns;
	count_short_task(cpu, prev, left);
	if (prev->pid)
		set(prev, left, 0, since_ns, now);
	cpu->at_ns = now;
	cpu->gang = 0;
	if (next->pid)
		set(next, RUNNING, prev, since_ns, now);
	/* Nobody waits for a CPU that idles: the gang's thread has gone elsewhere. */
	else
		cpu->taken = 0;
	look_at_turn(cpu->gang && cpu->has_slots ? cpu->gang : 0, now, queue_of(next));
	/* After the gang's time was booked, which says whether its slot is over. */
	if (prev->prio == GANG_PRIO || next->prio == GANG_PRIO || cpu->is_in_slot)
		cpu->is_in_slot = look_at_way(prev, left, next, now);
	return 0;
}

/*
 * The kernel accounts for the thread on this CPU, at each tick at least. A thread that was not seen
 * to come runs all the same: there are kernels that do not report each switch.
 */
SEC("tp_btf/sched_stat_runtime")
int BPF_PROG(on_runtime, struct task_struct *task)
{
	struct thread *t;
	struct cpu *cpu;
	__u64 now;

	if (task != bpf_get_current_task_btf())
		return 0;
	if (task->prio == GANG_PRIO)
		look_at_steal(task);
	t = bpf_task_storage_get(&threads, task, 0, 0);
	if (!t || !t->gang || t->state != WAITING)
		return 0;
	cpu = this_cpu();
	if (!cpu)
		return 0;
	now = bpf_ktime_get_ns();
	/* It came after the last switch that was reported, and its time on this CPU begins here. */
	cpu->at_ns = now;
	set(task, RUNNING, 0, 0, now);
	look_at_turn(cpu->gang && cpu->has_slots ? cpu->gang : 0, now, queue_of(task));
	return 0;
}

/*
 * Looks at all threads once: those that run or wait for a CPU already are not seen otherwise until
 * they are switched. Of those that have been in a gang before, the state is known.
 */
SEC("iter/task")
int look_around(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct change c = { .now = bpf_ktime_get_ns() };
	struct thread *t;
	struct gang *g;

	if (!task || !task->pid)
		return 0;
	c.gang = task->cgroups->dfl_cgrp->kn->id;
	g = bpf_map_lookup_elem(&gangs, &c.gang);
	if (!g)
		return 0;
	t = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t || t->gang || task->__state)
		return 0;
	c.epoch = g->epoch;
	c.is = task->on_cpu ? RUNNING : WAITING;
	t->gang = c.gang;
	t->epoch = c.epoch;
	t->slot_ns = g->slot_ns;
	if (!__sync_bool_compare_and_swap(&t->state, SLEEPING, c.is))
		return 0;
	if (!carry_out(&c))
		t->slot_ns = c.slot_ns;
	/* It fell asleep before that, and its CPU found it asleep already. */
	if (task->__state && __sync_bool_compare_and_swap(&t->state, c.is, SLEEPING)) {
		c.was = c.is;
		c.is = SLEEPING;
		c.now = bpf_ktime_get_ns();
		carry_out(&c);
	}
	return 0;
}

/* A thread that runs or waits for a CPU. */
struct runnable {
	__u64 group;
	__u32 tid;
	__u32 uid;
};

/* Writes which threads run or wait for a CPU; of the kernel and of who asks, none. */
SEC("iter/task")
int list_runnable(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct runnable r = {};

	if (!task || !task->pid || task->__state || task->flags & PF_KTHREAD)
		return 0;
	if (task->tgid == (int)(bpf_get_current_pid_tgid() >> 32))
		return 0;
	r.group = task->cgroups->dfl_cgrp->kn->id;
	r.tid = task->pid;
	r.uid = task->cred->uid.val;
	bpf_seq_write(context->meta->seq, &r, sizeof(r));
	return 0;
}

/* Books the time of a gang up to now, for who wants to read or to change its slots. */
SEC("syscall")
int book_now(__u64 *id)
{
	__u64 gang = *id;

	if (!bpf_map_lookup_elem(&gangs, &gang))
		return 1;
	catch_up(gang, bpf_ktime_get_ns());
	return 0;
}

/*
 * Reports once when a thread of a gang wants to run; 1 where one does already, 2 where there is no
 * such gang.
 */
SEC("syscall")
int await(__u64 *id)
{
	__u64 gang = *id;
	struct gang *g = bpf_map_lookup_elem(&gangs, &gang);
	__u32 wants;

	if (!g)
		return 2;
	bpf_spin_lock(&g->lock);
	wants = g->runnable > 0;
	g->awaited = !wants;
	bpf_spin_unlock(&g->lock);
	return wants;
}
