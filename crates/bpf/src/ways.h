/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Rivals: real-time threads of the priority that gangs have in their slots, and of no gang.
 *
 * Problem: the kernel puts a rival that wakes behind the gang's thread that runs on its CPU. The
 * rival then waits until the gang leaves its slot.
 *
 * Approach: user space hears of a rival that waits, with the gang's thread that has the CPU. It may
 * put that thread behind the rival. A request that changed nothing is made once more, since user
 * space may have asked the wrong switcher. The time of slots on a CPU is summed up, and what rivals
 * have of it for such requests. User space closes a CPU on which rivals had too much. Nothing is
 * asked for there until there were more slots.
 *
 * The kernel holds the lock of a CPU's queue whenever one of these functions is called for that
 * CPU. The structures are repeated in shared.rs, which a test compares.
 */
#ifndef GANGD_WAYS_H
#define GANGD_WAYS_H

#define WAITS_BYTES 4096

/* task_struct.prio of a gang's thread in its slot, and of rivals. */
#define GANG_PRIO (MAX_RT_PRIO - 1 - 1)

/* A thread that has the CPU is asked to give way so often. */
#define REQUESTS 2

/* The doings of rivals and gangs on a CPU. */
struct way {
	/* A gang gave way then, and rivals have the CPU since; 0 where none did. */
	__u64 since_ns;
	/* The slot of that gang ends then. */
	__u64 until_ns;
	/* All such time that is over, as far as it was slot. */
	__u64 used_ns;
	/* A gang's thread has the CPU in its slot since then; 0 where none has. */
	__u64 raised_since_ns;
	/* All such time that is over. */
	__u64 raised_ns;
	/* Nothing is asked for until gangs had slots here for so long in all. */
	__u64 closed_until_ns;
	/* The gang that gave way, or is asked to. */
	__u64 gang;
	/* The thread that is asked, and how often it was; 0 where none is. */
	__u32 asked;
	__u32 requests;
	/* A rival that waits; 0 where none does. */
	__u32 waiting;
	__u32 unused;
};

/* A rival waits. */
struct wait {
	/* Of its CPU: the time of slots, and what rivals had of it. */
	__u64 slots_ns;
	__u64 used_ns;
	__u32 cpu;
	/* The gang's thread that has the CPU. */
	__u32 tid;
	/* It was asked so often before. */
	__u32 before;
	__u32 unused;
};

/* A CPU is closed until gangs had slots there for so long. */
struct closing {
	__u64 until_ns;
	__u32 cpu;
	__u32 unused;
};

/* One for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct way);
} ways SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, WAITS_BYTES);
} waits SEC(".maps");

/* A gang's thread in its slot, of whichever daemon. */
static __always_inline bool is_raised(struct task_struct *task)
{
	return task->prio == GANG_PRIO && task->policy == SCHED_FIFO &&
	       BPF_CORE_READ_BITFIELD(task, sched_reset_on_fork);
}

/* Real-time threads of a job that has slots are the job's own affair. */
static __noinline bool is_of_gang(__u64 group)
{
	struct slots *s = bpf_map_lookup_elem(&slots, &group);

	return s && !s->always;
}

static __always_inline bool is_rival(struct task_struct *task)
{
	return task->prio == GANG_PRIO && !is_raised(task) &&
	       !is_of_gang(task->cgroups->dfl_cgrp->kn->id);
}

/* The queue of the CPU that a thread is on; 0 where the kernel does not tell. */
static __always_inline struct rq *queue_of(struct task_struct *task)
{
	return bpf_core_field_exists(task->se.cfs_rq->rq) ? task->se.cfs_rq->rq : 0;
}

/* Not inline: so BTF has struct wait. */
static __noinline void send(struct wait *wait)
{
	bpf_ringbuf_output(&waits, wait, sizeof(*wait), BPF_RB_FORCE_WAKEUP);
}

/* The gang's thread that has a CPU is to give way to the rival that waits there. */
static __always_inline void request(struct way *way, __u32 cpu, struct task_struct *raised,
				    __u64 now)
{
	struct wait wait = {
		.slots_ns = way->raised_ns + way->used_ns,
		.used_ns = way->used_ns,
		.cpu = cpu,
		.tid = raised->pid,
	};

	if (way->raised_since_ns && now > way->raised_since_ns)
		wait.slots_ns += now - way->raised_since_ns;
	if (wait.slots_ns < way->closed_until_ns)
		return;
	if (way->asked != wait.tid) {
		way->asked = wait.tid;
		way->gang = raised->cgroups->dfl_cgrp->kn->id;
		way->requests = 0;
	}
	if (way->requests == REQUESTS)
		return;
	wait.before = way->requests++;
	send(&wait);
}

/* A rival is on the queue of its CPU, and does not run. */
static __noinline void rival_wakes(struct task_struct *rival)
{
	__u32 cpu = rival->thread_info.cpu;
	struct way *way = bpf_map_lookup_elem(&ways, &cpu);
	struct rq *queue = queue_of(rival);

	if (!way || !queue)
		return;
	way->asked = 0;
	way->waiting = rival->pid;
	if (is_raised(queue->curr))
		request(way, cpu, queue->curr, bpf_ktime_get_ns());
}

/* When the slot ends that a gang is in; 0 out of slot. The end is never known of other gangs. */
static __noinline __u64 slot_end(__u64 group, __u64 now)
{
	struct gang *g = bpf_map_lookup_elem(&gangs, &group);
	struct slots *s = bpf_map_lookup_elem(&slots, &group);
	__u32 at;

	if (!g || !s)
		return ~0ull;
	/* As far as it was booked: a thread of it left its CPU a moment ago. */
	at = g->cursor;
	barrier_var(at);
	if (at >= SLOTS_MAX || at >= s->count || now < s->slot[at].start_ns)
		return 0;
	return now < s->slot[at].end_ns ? s->slot[at].end_ns : 0;
}

/* One comes, for which somebody may have been asked to give way. */
static __always_inline void rival_comes(struct way *way, struct task_struct *rival, __u64 now)
{
	__u64 gang = way->gang;
	struct gang *g;

	if (way->waiting == rival->pid)
		way->waiting = 0;
	if (!way->asked)
		return;
	way->asked = 0;
	way->until_ns = slot_end(gang, now);
	if (!way->until_ns)
		return;
	way->since_ns = now;
	g = bpf_map_lookup_elem(&gangs, &gang);
	if (g)
		__sync_fetch_and_add(&g->gave_way, 1);
}

static __always_inline void rivals_leave(struct way *way, __u64 now)
{
	__u64 gang = way->gang, end = now < way->until_ns ? now : way->until_ns;
	__u64 ns = end - way->since_ns;
	struct gang *g;

	if (!way->since_ns)
		return;
	way->since_ns = 0;
	way->used_ns += ns;
	g = bpf_map_lookup_elem(&gangs, &gang);
	if (g)
		__sync_fetch_and_add(&g->gave_way_ns, ns);
}

/* True while a gang's thread has the CPU in its slot, or rivals have it because one gave way. */
static __noinline bool look_at_way(struct task_struct *prev, __u32 left, struct task_struct *next,
				   __u64 now)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct way *way = bpf_map_lookup_elem(&ways, &cpu);
	struct rq *queue = queue_of(next);

	if (!way || !queue)
		return false;
	if (way->raised_since_ns)
		way->raised_ns += now - way->raised_since_ns;
	way->raised_since_ns = is_raised(next) ? now : 0;
	if (way->raised_since_ns) {
		rivals_leave(way, now);
		/* Its turn is over (SCHED_RR). */
		if (left == WAITING && is_rival(prev)) {
			way->asked = 0;
			way->waiting = prev->pid;
		}
		/* The one that waited may have gone to another CPU. */
		if (queue->rt.rt_nr_running == 1)
			way->waiting = 0;
		if (way->waiting)
			request(way, cpu, next, now);
	} else if (is_rival(next)) {
		rival_comes(way, next, now);
	} else if (next->prio >= MAX_RT_PRIO) {
		rivals_leave(way, now);
	}
	return way->since_ns || way->raised_since_ns;
}

/* Closes a CPU. */
SEC("syscall")
int close_way(struct closing *closing)
{
	__u32 cpu = closing->cpu;
	struct way *way = bpf_map_lookup_elem(&ways, &cpu);

	if (!way)
		return 1;
	way->closed_until_ns = closing->until_ns;
	return 0;
}

#endif
