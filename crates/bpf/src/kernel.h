/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The few types and constants of the kernel that the programs beside it use. Where a field lies in
 * the kernel that runs is found out when the program is loaded (CO-RE), so a structure lists only
 * what is read.
 */
#ifndef GANGD_KERNEL_H
#define GANGD_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};

enum {
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
};

/* The kernel knows it by its name. */
struct bpf_spin_lock {
	__u32 val;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

typedef struct {
	unsigned int val;
} kuid_t;

struct cred {
	kuid_t uid;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct rq;

/* Threads that sleep may stay in the queue for a while, from Linux 6.12 on (DELAY_DEQUEUE). */
struct cfs_rq {
	unsigned int h_nr_queued;
	unsigned int h_nr_runnable;
	struct rq *rq;
};

/* How kernels count them that have no h_nr_runnable yet; the first with DELAY_DEQUEUE do not. */
struct cfs_rq___delayed {
	unsigned int h_nr_delayed;
};

struct rt_rq {
	unsigned int rt_nr_running;
};

struct task_struct;

struct rq {
	unsigned int nr_running;
	struct cfs_rq cfs;
	struct rt_rq rt;
	struct task_struct *curr;
	/* CONFIG_PARAVIRT_TIME_ACCOUNTING: for how long the host let the CPU wait, ever, in ns. */
	__u64 prev_steal_time_rq;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct thread_info {
	__u32 cpu;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	int on_cpu;
	int pid;
	int tgid;
	/* As it counts at the moment: 99 less the priority of a real-time thread. */
	int prio;
	unsigned int policy;
	unsigned int sched_reset_on_fork : 1;
	unsigned int flags;
	char comm[16];
	const struct cred *cred;
	struct css_set *cgroups;
	struct sched_entity se;
};

/* The registers of a thread as it entered the kernel. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long orig_ax;
	unsigned long ip;
};
#define IP ip
#define CALL orig_ax
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	unsigned long pc;
	int syscallno;
};
#define IP pc
#define CALL syscallno
#endif

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* task_struct.flags: include/linux/sched.h */
#define PF_KTHREAD 0x00200000
/* task_struct.policy: include/uapi/linux/sched.h */
#define SCHED_NORMAL 0
#define SCHED_FIFO 1
#define SCHED_BATCH 3
/* task_struct.prio of all others is this at least: include/linux/sched/prio.h */
#define MAX_RT_PRIO 100
/* prev_state of sched_switch: the thread waits for something that no signal interrupts. */
#define TASK_UNINTERRUPTIBLE 0x2

/*
 * The context of a program on a clock's tick: the registers at that moment, as far as they are
 * used.
 */
struct bpf_perf_event_data {
#if defined(__TARGET_ARCH_arm64)
	__u64 before[32];
#else
	__u64 before[16];
#endif
	__u64 ip;
};

#endif
