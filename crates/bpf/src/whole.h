/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The CPUs of a gang's row, as far as the gang does not have them.
 *
 * Problem: a gang knows how many of its threads run, and not who has its other CPUs. A thread of
 * another gang that comes to one of these, or leaves it, is no event of the gang whose turn it is.
 *
 * Approach: each CPU notes which gang it runs. User space writes whose turns there are on which
 * CPUs; CPUs with the same turns share a *lane*. Where a CPU runs another gang, or none, the gang
 * whose turn it is there is booked up to now, and so is the last one whose turn it was. A gang that
 * is whole needs no look at its CPUs; otherwise all CPUs up to the last one of its row are looked
 * at, as they were until now.
 *
 * A host that takes a virtual CPU away at an edge makes a gang late, and so may our own switcher.
 * The host's part is the steal time that the scheduler reads as it switches. A turn at whose start
 * a CPU was away for longer than AWAY_NS is summed up apart as well.
 *
 * The structures are repeated in shared.rs, which a test compares.
 */
#ifndef GANGD_WHOLE_H
#define GANGD_WHOLE_H

#define AWAY_NS (200 * 1000)

/* Steal time that was seen so long before a switch is none of that switch. */
#define EARLIER_NS (1000 * 1000)

/* Halvings that find one of SLOTS_MAX turns. */
#define LANE_STEPS 9

/* A turn of a gang on the CPUs of a lane. CLOCK_MONOTONIC, in order, without overlap. */
struct turn {
	__u64 start_ns;
	__u64 end_ns;
	__u64 gang;
};

struct lane {
	__u32 count;
	__u32 unused;
	struct turn turn[SLOTS_MAX];
};

/* A CPU. */
struct place {
	/* The gang with slots that it runs; 0 where it runs none. */
	__u64 gang;
	/* The gang whose turn it was when another gang came or left. */
	__u64 owner;
	/* For how long the host let it wait, ever, at the last look. */
	__u64 steal_ns;
	/* It was away for so long while a gang's thread went on, as was seen at that moment. */
	__u64 away_ns;
	__u64 away_at_ns;
};

/* One for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct place);
} places SEC(".maps");

/* The lane of each CPU. 0 where it has none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} lane_of SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct lane);
} lanes SEC(".maps");

/* CPUs of a row run the gang, none, another one, and one more. */
enum { RUNS_OWN = 1, RUNS_NONE = 2, RUNS_OTHER = 4, RUNS_MORE = 8 };

/* A look at the CPUs of a row. */
struct look {
	__u64 row[ROW_WORDS];
	__u64 gang;
	/* The first other gang. */
	__u64 first;
	/* Not numbers: the verifier goes through each value that there may be. */
	__u64 found;
};

static long look_at_place(__u32 cpu, struct look *look)
{
	__u64 word = look->row[(cpu >> 6) & (ROW_WORDS - 1)], gang;
	struct place *place = bpf_map_lookup_elem(&places, &cpu);

	if (!place || !(word >> (cpu & 63) & 1))
		return 0;
	gang = place->gang;
	if (!look->first && gang != look->gang)
		look->first = gang;
	if (!gang)
		look->found |= RUNS_NONE;
	else if (gang == look->gang)
		look->found |= RUNS_OWN;
	else if (gang == look->first)
		look->found |= RUNS_OTHER;
	else
		look->found |= RUNS_MORE;
	return 0;
}

/* The doings of the CPUs of a gang's row. Nobody asks while the gang has all of them. */
__noinline int view_of(__u64 gang)
{
	struct gang *g = bpf_map_lookup_elem(&gangs, &gang);
	struct slots *s = bpf_map_lookup_elem(&slots, &gang);
	struct look look = { .gang = gang };
	__u32 word, end;

	if (!g || !s || s->always)
		return 0;
	end = s->row_end;
	if (g->running >= (__s32)s->row_cpus || end > ROW_WORDS * 64)
		return 0;
	for (word = 0; word < ROW_WORDS; word++)
		look.row[word] = s->row[word];
	bpf_loop(end, look_at_place, &look, 0);
	if (look.found == RUNS_OTHER)
		return ROW_OF_OTHER;
	if (look.found & RUNS_MORE || (look.found & RUNS_OWN && look.found & RUNS_OTHER))
		return ROW_SPLIT;
	return 0;
}

/* The gang whose turn it is on a CPU; 0 where it is nobody's. */
__noinline __u64 owner_of(__u32 cpu, __u64 now)
{
	__u32 *number = bpf_map_lookup_elem(&lane_of, &cpu), from = 0, to, step, middle;
	struct lane *lane = number ? bpf_map_lookup_elem(&lanes, number) : 0;

	if (!lane)
		return 0;
	/* The turn is one of [from, to). */
	to = lane->count;
	for (step = 0; step <= LANE_STEPS && from < to; step++) {
		middle = (from + to) / 2;
		barrier_var(middle);
		if (middle >= SLOTS_MAX)
			return 0;
		if (now < lane->turn[middle].start_ns)
			to = middle;
		else if (now < lane->turn[middle].end_ns)
			return lane->turn[middle].gang;
		else
			from = middle + 1;
	}
	return 0;
}

/* A CPU of a gang was away, and the gang has not been whole in this slot. */
__noinline int note_away(__u64 gang)
{
	struct gang *g = bpf_map_lookup_elem(&gangs, &gang);

	if (!g)
		return 1;
	bpf_spin_lock(&g->lock);
	g->away |= g->in_slot & ~g->met & 1;
	bpf_spin_unlock(&g->lock);
	return 0;
}

/* For how long the host let a CPU wait since the last look. */
static __always_inline __u64 stolen_since(struct place *place, struct rq *queue)
{
	__u64 steal_ns, since_ns;

	if (!queue || !bpf_core_field_exists(queue->prev_steal_time_rq))
		return 0;
	steal_ns = queue->prev_steal_time_rq;
	since_ns = steal_ns - place->steal_ns;
	/* At the first look nobody knows since when. */
	since_ns = place->steal_ns ? since_ns : 0;
	place->steal_ns = steal_ns;
	return since_ns;
}

/*
 * A gang's thread goes on. The scheduler accounts for it right before it leaves its CPU as well,
 * for which it may have waited just now.
 */
static __always_inline void look_at_steal(struct task_struct *task)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct place *place = bpf_map_lookup_elem(&places, &cpu);
	__u64 stolen_ns;

	if (!place)
		return;
	stolen_ns = stolen_since(place, queue_of(task));
	if (stolen_ns <= AWAY_NS)
		return;
	place->away_ns = stolen_ns;
	place->away_at_ns = bpf_ktime_get_ns();
}

/*
 * A CPU has another thread. Its gang before and the one from now on were booked already; the place
 * is as it was until now.
 */
__noinline int change_turn(__u32 cpu, __u64 is, __u64 now, __u64 away_ns)
{
	struct place *place = bpf_map_lookup_elem(&places, &cpu);
	__u64 was, before, owner;

	if (!place)
		return 1;
	was = place->gang;
	before = place->owner;
	owner = owner_of(cpu, now);
	if (before && before != owner && before != was && before != is)
		catch_up(before, now);
	if (owner && owner != was && owner != is)
		catch_up(owner, now);
	if (owner && away_ns > AWAY_NS)
		note_away(owner);
	place->owner = owner;
	place->gang = is;
	return 0;
}

/* The same, of this CPU, where it matters. */
static __always_inline void look_at_turn(__u64 is, __u64 now, struct rq *queue)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct place *place = bpf_map_lookup_elem(&places, &cpu);
	__u64 away_ns;

	if (!place)
		return;
	away_ns = stolen_since(place, queue);
	if (place->away_ns && now < place->away_at_ns + EARLIER_NS)
		away_ns += place->away_ns;
	place->away_ns = 0;
	if (place->gang != is || away_ns > AWAY_NS)
		change_turn(cpu, is, now, away_ns);
}

#endif
