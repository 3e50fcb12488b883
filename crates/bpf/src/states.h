/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The states of threads, from the scheduler's tracepoints: for programs that keep a state of each
 * thread. They say what it means that a thread wakes or is switched; a wake-up comes here.
 */
#ifndef GANGD_STATES_H
#define GANGD_STATES_H

enum { SLEEPING, WAITING, RUNNING };

/* The state of a thread that leaves its CPU. */
static __always_inline __u32 left_for(bool preempt, unsigned int prev_state)
{
	return preempt || !prev_state ? WAITING : SLEEPING;
}

/* A thread may run from now on. One that wakes before it has left its CPU never slept. */
static __noinline void wake(struct task_struct *task);

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	wake(task);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *task)
{
	wake(task);
	return 0;
}

#endif
