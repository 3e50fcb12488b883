// SPDX-License-Identifier: GPL-2.0-only
/*
 * A machine for the programs of cosched.bpf.c, without a kernel: its clock, its CPUs, its threads
 * and its maps are moved by commands on standard input. machine.rs has them. An answer is a line on
 * standard output.
 *
 * Nothing happens at once, so that the same commands have the same answers.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cosched.bpf.c"

#define CPUS 8
#define TASKS 64
#define WOKEN 4096
#define LINE (1 << 16)

static void check(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "machine.c: %s\n", what);
	exit(1);
}

static struct {
	__u64 now;
	unsigned int cpu;
	struct task_struct *current[CPUS];
	struct rq queue[CPUS];
	int locked;
} machine;

static struct {
	struct task_struct task;
	struct css_set set;
	struct cgroup group;
	struct kernfs_node node;
	int has_storage;
	struct thread storage;
} tasks[TASKS];

/* A thread is on the queue of a CPU, where it may run. */
static void enqueue(struct task_struct *it, unsigned int cpu)
{
	check(cpu < CPUS, "there is no such CPU");
	it->thread_info.cpu = cpu;
	it->se.cfs_rq = &machine.queue[cpu].cfs;
}

static __u64 woken_groups[WOKEN];
static int woken_count;
static struct wait sent_waits[WOKEN];
static int wait_count;

__u64 bpf_ktime_get_ns(void)
{
	return machine.now;
}

__u32 bpf_get_smp_processor_id(void)
{
	return machine.cpu;
}

struct task_struct *bpf_get_current_task_btf(void)
{
	return machine.current[machine.cpu];
}

static char meanwhile[LINE];
static void carry_out_commands(char *lines);

/*
 * The verifier permits no second lock below one, nor any helper. Other CPUs may have taken it
 * before.
 */
void bpf_spin_lock(struct bpf_spin_lock *lock)
{
	char others[LINE];
	__u64 now = machine.now;
	unsigned int cpu = machine.cpu;

	if (*meanwhile) {
		memcpy(others, meanwhile, sizeof(others));
		*meanwhile = 0;
		carry_out_commands(others);
		machine.now = now;
		machine.cpu = cpu;
	}
	check(!machine.locked && !lock->val, "locked twice");
	machine.locked = lock->val = 1;
}

void bpf_spin_unlock(struct bpf_spin_lock *lock)
{
	check(machine.locked && lock->val, "unlocked twice");
	machine.locked = lock->val = 0;
}

void *storage_get(void *task, __u32 size, __u64 flags)
{
	int at = ((char *)task - (char *)tasks) / sizeof(tasks[0]);

	check(!machine.locked && size == sizeof(tasks[at].storage), "a thread's storage");
	if (!tasks[at].has_storage && !(flags & BPF_LOCAL_STORAGE_GET_F_CREATE))
		return 0;
	if (!tasks[at].has_storage)
		memset(&tasks[at].storage, 0, size);
	tasks[at].has_storage = 1;
	return &tasks[at].storage;
}

long ring_output(void *ring, const void *data, __u64 size)
{
	if (ring == &waits) {
		check(!machine.locked && size == sizeof(sent_waits[0]) && wait_count < WOKEN, "the ring");
		memcpy(&sent_waits[wait_count++], data, size);
		return 0;
	}
	check(!machine.locked && size == sizeof(woken_groups[0]) && woken_count < WOKEN, "the ring");
	memcpy(&woken_groups[woken_count++], data, size);
	return 0;
}

struct entry {
	struct entry *next;
	void *map;
	/* The key, and the value after it; of maps with a value for each CPU, all of these. */
	unsigned char *key;
	unsigned char *value;
};

static struct entry *entries;

static int is_of_each_cpu(struct map_of map)
{
	return map.type == BPF_MAP_TYPE_PERCPU_ARRAY || map.type == BPF_MAP_TYPE_PERCPU_HASH;
}

static int is_array(struct map_of map)
{
	return map.type == BPF_MAP_TYPE_PERCPU_ARRAY || map.type == BPF_MAP_TYPE_ARRAY;
}

static size_t size_of_all(struct map_of map)
{
	return map.value_size * (is_of_each_cpu(map) ? CPUS : 1);
}

static struct entry **find(struct map_of map, const void *key)
{
	struct entry **at = &entries;

	while (*at && ((*at)->map != map.map || memcmp((*at)->key, key, map.key_size)))
		at = &(*at)->next;
	return at;
}

static struct entry *find_or_make(struct map_of map, const void *key)
{
	struct entry **at = find(map, key), *made;

	if (*at)
		return *at;
	made = calloc(1, sizeof(*made));
	made->map = map.map;
	made->key = malloc(map.key_size);
	memcpy(made->key, key, map.key_size);
	made->value = calloc(1, size_of_all(map));
	*at = made;
	return made;
}

static void delete(struct entry **at)
{
	struct entry *gone = *at;

	*at = gone->next;
	free(gone->key);
	free(gone->value);
	free(gone);
}

void *map_lookup(struct map_of map, const void *key)
{
	struct entry *found;

	check(!machine.locked, "a look-up below a lock");
	/* Arrays have all of their values from the beginning. */
	found = is_array(map) ? find_or_make(map, key) : *find(map, key);
	if (!found)
		return 0;
	return found->value + (is_of_each_cpu(map) ? machine.cpu * map.value_size : 0);
}

long map_update(struct map_of map, const void *key, const void *value, __u64 flags)
{
	check(!machine.locked && !is_of_each_cpu(map), "an update");
	if (flags == BPF_NOEXIST && *find(map, key))
		return -17;
	memcpy(find_or_make(map, key)->value, value, map.value_size);
	return 0;
}

static struct map_of map_named(const char *name)
{
	if (!strcmp(name, "gangs"))
		return MAP_OF(&gangs);
	if (!strcmp(name, "slots"))
		return MAP_OF(&slots);
	if (!strcmp(name, "damages"))
		return MAP_OF(&damages);
	if (!strcmp(name, "cpus"))
		return MAP_OF(&cpus);
	if (!strcmp(name, "shares"))
		return MAP_OF(&shares);
	if (!strcmp(name, "ways"))
		return MAP_OF(&ways);
	if (!strcmp(name, "lanes"))
		return MAP_OF(&lanes);
	if (!strcmp(name, "lane_of"))
		return MAP_OF(&lane_of);
	check(0, "no map of this name");
	abort();
}

static const char digits[] = "0123456789abcdef";

static void print_bytes(const unsigned char *bytes, size_t count)
{
	while (count--) {
		putchar(digits[*bytes >> 4]);
		putchar(digits[*bytes++ & 15]);
	}
}

static unsigned int digit(char of)
{
	return of <= '9' ? of - '0' : of - 'a' + 10;
}

static void read_bytes(const char *text, unsigned char *bytes, size_t count)
{
	check(strlen(text) == 2 * count, "layout.rs and cosched.bpf.c differ");
	for (; count--; text += 2)
		*bytes++ = digit(text[0]) << 4 | digit(text[1]);
}

static char *word(void)
{
	char *next = strtok(0, " \n");

	check(next != 0, "a command lacks a word");
	return next;
}

static unsigned long long number(void)
{
	return strtoull(word(), 0, 10);
}

static struct task_struct *task(void)
{
	unsigned long long at = number();

	check(at < TASKS, "there is no such task");
	return &tasks[at].task;
}

/* Where and when the rest of a command happens. */
static void at(void)
{
	machine.cpu = number();
	machine.now = number();
	check(machine.cpu < CPUS, "there is no such CPU");
}

static void reset(void)
{
	while (entries)
		delete(&entries);
	memset(&machine, 0, sizeof(machine));
	memset(tasks, 0, sizeof(tasks));
	woken_count = wait_count = 0;
	/* Task 0 is idle, and outside of all gangs. */
	for (int i = 0; i < TASKS; i++) {
		tasks[i].task.cgroups = &tasks[i].set;
		tasks[i].set.dfl_cgrp = &tasks[i].group;
		tasks[i].group.kn = &tasks[i].node;
		tasks[i].task.__state = i > 0;
		tasks[i].task.prio = MAX_RT_PRIO + 20;
	}
	for (int i = 0; i < CPUS; i++) {
		machine.current[i] = machine.queue[i].curr = &tasks[0].task;
		machine.queue[i].cfs.rq = &machine.queue[i];
	}
}

/*
 * task NUMBER TGID POLICY FLAGS NAME: another thread, which sleeps. Its number is that of its
 * place.
 */
static void begin_task(void)
{
	struct task_struct *it = task();

	it->pid = ((char *)it - (char *)tasks) / sizeof(tasks[0]);
	it->tgid = number();
	it->policy = number();
	it->flags = number();
	strncpy(it->comm, word(), sizeof(it->comm) - 1);
}

/* rt NUMBER PRIORITY RESET CPU: it is real-time from now on, and its CPU is this one. */
static void make_realtime(void)
{
	struct task_struct *it = task();

	it->prio = MAX_RT_PRIO - 1 - number();
	it->sched_reset_on_fork = number();
	enqueue(it, number());
}

/* switch CPU NOW NEXT PREEMPTED PREV_STATE REPORTED: the kernel may not report it. */
static void switch_tasks(void)
{
	struct task_struct *prev, *next;
	unsigned int preempted, state;

	at();
	prev = machine.current[machine.cpu];
	next = task();
	preempted = number();
	state = number();
	prev->__state = preempted ? prev->__state : state;
	prev->on_cpu = 0;
	next->on_cpu = 1;
	machine.current[machine.cpu] = machine.queue[machine.cpu].curr = next;
	enqueue(next, machine.cpu);
	if (number())
		on_switch(preempted, prev, next, state);
}

/* wake CPU NOW TASK NEW */
static void wake_task(void)
{
	struct task_struct *it;

	at();
	it = task();
	it->__state = 0;
	if (number())
		on_wakeup_new(it);
	else
		on_wakeup(it);
}

/* The rest of a command, whose first word this was. */
static void carry_out_command(const char *command)
{
	unsigned char key[64], value[LINE / 2];
	struct map_of map;
	struct entry *found;
	__u64 group;

	if (!strcmp(command, "reset")) {
		reset();
	} else if (!strcmp(command, "task")) {
		begin_task();
	} else if (!strcmp(command, "rt")) {
		make_realtime();
	} else if (!strcmp(command, "queue")) {
		at();
		machine.queue[machine.cpu].rt.rt_nr_running = number();
	} else if (!strcmp(command, "group")) {
		struct task_struct *it = task();

		it->cgroups->dfl_cgrp->kn->id = number();
	} else if (!strcmp(command, "steal")) {
		at();
		machine.queue[machine.cpu].prev_steal_time_rq = machine.now;
	} else if (!strcmp(command, "switch")) {
		switch_tasks();
	} else if (!strcmp(command, "wake")) {
		wake_task();
	} else if (!strcmp(command, "runtime")) {
		at();
		on_runtime(task());
	} else if (!strcmp(command, "look")) {
		struct bpf_iter__task context;

		at();
		context.task = task();
		look_around(&context);
	} else if (!strcmp(command, "book_now") || !strcmp(command, "await")) {
		at();
		group = number();
		printf("%d\n", *command == 'b' ? book_now(&group) : await(&group));
	} else if (!strcmp(command, "close_way")) {
		struct closing closing = { .cpu = number() };

		closing.until_ns = number();
		check(!close_way(&closing), "a CPU without a way");
	} else if (!strcmp(command, "update")) {
		map = map_named(word());
		read_bytes(word(), key, map.key_size);
		read_bytes(word(), value, size_of_all(map));
		memcpy(find_or_make(map, key)->value, value, size_of_all(map));
	} else if (!strcmp(command, "delete")) {
		map = map_named(word());
		read_bytes(word(), key, map.key_size);
		if (*find(map, key))
			delete(find(map, key));
	} else if (!strcmp(command, "lookup")) {
		map = map_named(word());
		read_bytes(word(), key, map.key_size);
		found = *find(map, key);
		if (found)
			print_bytes(found->value, size_of_all(map));
		putchar('\n');
	} else if (!strcmp(command, "all")) {
		map = map_named(word());
		for (found = entries; found; found = found->next) {
			if (found->map != map.map)
				continue;
			print_bytes(found->key, map.key_size);
			putchar(' ');
			print_bytes(found->value, size_of_all(map));
			putchar(' ');
		}
		putchar('\n');
	} else if (!strcmp(command, "meanwhile")) {
		/*
		 * The rest is carried out on other CPUs before the next lock is taken, in the order
		 * of such commands.
		 */
		strncat(meanwhile, strtok(0, "\n"), sizeof(meanwhile) - strlen(meanwhile) - 2);
		strcat(meanwhile, "\n");
	} else if (!strcmp(command, "woken")) {
		for (int i = 0; i < woken_count; i++)
			printf("%llu ", woken_groups[i]);
		putchar('\n');
		woken_count = 0;
	} else if (!strcmp(command, "waits")) {
		for (int i = 0; i < wait_count; i++) {
			print_bytes((void *)&sent_waits[i], sizeof(sent_waits[i]));
			putchar(' ');
		}
		putchar('\n');
		wait_count = 0;
	} else {
		check(0, command);
	}
}

static void carry_out_commands(char *lines)
{
	char *command, *next;

	for (; lines && *lines; lines = next) {
		next = strchr(lines, '\n');
		if (next)
			*next++ = 0;
		command = strtok(lines, " ");
		if (command)
			carry_out_command(command);
	}
}

int main(void)
{
	static char line[LINE];

	reset();
	/* The caller waits for a line. */
	setvbuf(stdout, 0, _IOLBF, 1 << 16);
	while (fgets(line, sizeof(line), stdin)) {
		carry_out_commands(line);
		check(!machine.locked, "a lock was kept");
	}
	return 0;
}
