/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The part of libbpf's header of this name that the programs use, for a native compiler: the kernel
 * that they run in is machine.c. Maps are described as they are for the kernel, and the sizes below
 * are read from that.
 */
#ifndef GANGD_NATIVE_BPF_HELPERS_H
#define GANGD_NATIVE_BPF_HELPERS_H

#undef __always_inline
#undef __noinline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define SEC(name)
#define __uint(name, value) int (*name)[value]
#define __type(name, value) __typeof__(value) *name
/* Only the verifier needs it. */
#define barrier_var(variable) ((void)(variable))

struct map_of {
	void *map;
	/* BPF_MAP_TYPE_ */
	unsigned int type;
	unsigned int key_size;
	unsigned int value_size;
};

#define NUMBER_OF(map, what) (sizeof(*(map)->what) / sizeof(int))
#define MAP_OF(map)                                                                                 \
	((struct map_of){ (map), NUMBER_OF(map, type), sizeof(*(map)->key), sizeof(*(map)->value) })

void *map_lookup(struct map_of map, const void *key);
long map_update(struct map_of map, const void *key, const void *value, __u64 flags);
void *storage_get(void *task, __u32 size, __u64 flags);
long ring_output(void *ring, const void *data, __u64 size);

#define bpf_map_lookup_elem(map, of) map_lookup(MAP_OF(map), of)
#define bpf_map_update_elem(map, of, data, flags) map_update(MAP_OF(map), of, data, flags)
#define bpf_task_storage_get(map, task, first, flags)                                               \
	((__typeof__((map)->value))storage_get(task, sizeof(*(map)->value), flags))
#define bpf_ringbuf_output(map, data, size, flags) ring_output(map, data, size)

/* Lists of threads are read on a real kernel alone. */
#define bpf_seq_write(seq, data, size) ((void)(seq), (void)(data))
#define bpf_get_current_pid_tgid() 0ULL

__u64 bpf_ktime_get_ns(void);
__u32 bpf_get_smp_processor_id(void);
struct task_struct *bpf_get_current_task_btf(void);
void bpf_spin_lock(struct bpf_spin_lock *lock);
void bpf_spin_unlock(struct bpf_spin_lock *lock);

#define bpf_loop(times, step, context, flags)                                                       \
	do {                                                                                            \
		for (__u32 at = 0; at < (times) && !step(at, context); at++)                                \
			;                                                                                       \
	} while (0)

#endif
