/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How the time of a gang is booked: by whether it is in slot, and how many of its threads run and
 * want to.
 *
 * The caller says what a thread does from now on, and holds the gang's lock; nothing here knows
 * threads or CPUs. The structures are repeated in shared.rs, which a test compares.
 */
#ifndef GANGD_BOOK_H
#define GANGD_BOOK_H

#define SLOTS_MAX 320

/*
 * Slots that are booked at once. The verifier goes through each of them, for each program. With 16
 * that took 0.3 s of CPU at every start of a daemon, and 0.1 s with these.
 */
#define STEPS 4

/* Skews: 8 buckets for each power of two, of microseconds; the last is everything above. */
#define BUCKETS 144

/*
 * A thread that leaves its CPU this much later than the first was filling, and nobody interrupted
 * it for that.
 */
#define FILLS_NS (10 * 1000 * 1000)

/* Skews that have not been counted yet, plus one: of the start of a slot, and of the end of one. */
struct notes {
	__u64 start_ns;
	__u64 end_ns;
};

/* CPUs of rows, in words of 64 bits. Of wider rows it is not told whether a gang is whole. */
#define ROW_WORDS 8

/* A turn: a slot, and the gap that interrupts it. CLOCK_MONOTONIC, in order, without overlap. */
struct slot_time {
	__u64 start_ns;
	__u64 end_ns;
	/* The end of the gap; that of the slot where there is none. */
	__u64 until_ns;
	/* The number of its CPUs; 0 where they are not those of the row. */
	__u32 cpus;
	__u32 unused;
};

struct slots {
	/* Another one for each list. */
	__u64 generation;
	__u32 count;
	/* All of the time is slot. */
	__u32 always;
	/* The CPUs of the turns, their number, and the last of them plus one. */
	__u32 row_cpus;
	__u32 row_end;
	__u64 row[ROW_WORDS];
	struct slot_time slot[SLOTS_MAX];
};

/* The doings of the CPUs of a gang's row while the gang does not have all of them. */
enum { ROW_OF_OTHER = 1, ROW_SPLIT = 2 };

struct gang {
	struct bpf_spin_lock lock;
	/*
	 * Two CPUs may carry changes of one thread out in another order: for a while these may be
	 * less than 0.
	 */
	__s32 running;
	/* Waiting or running. */
	__s32 runnable;
	__u32 in_slot;
	/* The number by which a thread knows the gang in which it was counted. */
	__u64 epoch;
	/* Booked up to here. */
	__u64 at_ns;
	__u64 generation;
	__u32 cursor;
	/* The edge whose skew is not known yet. */
	__u32 starting;
	__u32 ending;
	/* Threads that ran when the slot ended, and have not left since. */
	__u32 staying;
	/* The first thread of an edge; 0 before there is one. */
	__u64 first_ns;
	struct notes notes;
	/*
	 * Time in slot, time in slot with threads that want to run, and with all of those on CPUs.
	 */
	__u64 slot_ns;
	__u64 wanted_ns;
	__u64 coscheduled_ns;
	/* Sums over threads: waiting in slot, running out of slot, waiting out of slot. */
	__u64 lost_ns;
	__u64 filled_ns;
	__u64 waiting_ns;
	/* When the last slot ended. */
	__u64 ended_ns;
	/* Nobody wants to run, and user space waits for the first thread that does. */
	__u32 awaited;
	__u32 unused;
	/* How often a thread gave way to rivals in slot, and for how long (ways.h). */
	__u64 gave_way;
	__u64 gave_way_ns;
	/*
	 * Time of turns in which as many threads want to run as the row has CPUs. Of it, the time
	 * with all of these CPUs; with another gang on all of them; with different gangs on them.
	 */
	__u64 asked_ns;
	__u64 whole_ns;
	__u64 other_ns;
	__u64 split_ns;
	/*
	 * Neither this gang nor another one was whole: in gaps; in slots, before the gang was whole
	 * and after it was for the last time.
	 */
	__u64 gap_ns;
	__u64 edge_ns;
	/* `edge_ns` grows by this if the slot ends now. */
	__u64 tail_ns;
	/* Of turns at whose start a CPU was away: `asked_ns`, and how long a gang was whole. */
	__u64 away_asked_ns;
	__u64 away_whole_ns;
	/* The same of the turn that is not over. */
	__u64 turn_asked_ns;
	__u64 turn_whole_ns;
	/* The gang was whole since its slot began. */
	__u32 met;
	/* A CPU was away as the slot began. */
	__u32 away;
	__u32 skew[BUCKETS];
};

/* Where a skew is counted. */
static __always_inline __u32 bucket(__u64 ns)
{
	__u64 us = ns / 1000, top = us;
	__u32 log = 0;

	if (us < 8)
		return us;
	if (us >> 20)
		return BUCKETS - 1;
	if (top >> 16) { log += 16; top >>= 16; }
	if (top >> 8) { log += 8; top >>= 8; }
	if (top >> 4) { log += 4; top >>= 4; }
	if (top >> 2) { log += 2; top >>= 2; }
	if (top >> 1) log += 1;
	return (log - 2) * 8 + ((us >> (log - 3)) & 7);
}

/* Counts a skew that was noted. */
static __always_inline void count_skew(struct gang *g, __u64 noted_ns)
{
	__u32 at;

	if (!noted_ns)
		return;
	at = bucket(noted_ns - 1);
	barrier_var(at);
	if (at < BUCKETS)
		__sync_fetch_and_add(&g->skew[at], 1);
}

/*
 * Counts those that were noted, without the lock: in a loop below it, it is too much for the
 * verifier.
 */
static __noinline void count_skews(struct gang *g, __u64 start_ns, __u64 end_ns)
{
	if (!g)
		return;
	count_skew(g, start_ns);
	count_skew(g, end_ns);
}

/* Of the starts and ends passed at once, the last ones that had a skew are noted. */
static __always_inline struct notes take_notes(struct gang *g)
{
	struct notes notes = g->notes;

	g->notes.start_ns = 0;
	g->notes.end_ns = 0;
	return notes;
}

/* Without a branch: each one is another way that the verifier goes. */
static __always_inline __s32 at_least_none(__s32 count)
{
	__s32 sign = count >> 31;

	barrier_var(sign);
	return count & ~sign;
}

/* 1 where a number is less than another one; both are below 2^63. Without a branch, too. */
static __always_inline __u64 is_less(__s64 one, __s64 other)
{
	__u64 sign = (__u64)(one - other) >> 63;

	barrier_var(sign);
	return sign;
}

/*
 * Books some time of a turn by whether the gang has all CPUs of its row; `view` is what these run
 * otherwise.
 */
static __always_inline void spend_turn(struct gang *g, __u64 ns, __u32 cpus, __u32 view)
{
	__u32 running = at_least_none(g->running), runnable = at_least_none(g->runnable);
	__u64 asked = is_less(0, cpus) & ~is_less(runnable, cpus);
	__u64 whole = asked & ~is_less(running, cpus);
	__u64 other = asked & ~whole & view;
	__u64 rest = asked & ~whole & ~other;
	__u64 in_slot = g->in_slot & 1, met = g->met & 1;

	g->asked_ns += ns * asked;
	g->whole_ns += ns * whole;
	g->other_ns += ns * other;
	g->split_ns += ns * (rest & (view >> 1));
	g->gap_ns += ns * (rest & ~in_slot);
	g->edge_ns += ns * (rest & in_slot & ~met);
	g->tail_ns = g->tail_ns * (1 & ~whole) + ns * (rest & in_slot & met);
	g->turn_asked_ns += ns * asked;
	g->turn_whole_ns += ns * (whole | other);
	g->met = met | (whole & in_slot);
}

/* A turn is over, or was replaced. */
static __always_inline void end_turn(struct gang *g)
{
	__u64 away = g->away & 1;

	g->away_asked_ns += g->turn_asked_ns * away;
	g->away_whole_ns += g->turn_whole_ns * away;
	g->turn_asked_ns = 0;
	g->turn_whole_ns = 0;
	g->away = 0;
}

/* Books some time by what the gang's threads do. */
static __always_inline void spend(struct gang *g, __u64 ns)
{
	__u32 running = at_least_none(g->running);
	__u32 waiting = at_least_none(g->runnable - (__s32)running);

	if (!g->in_slot) {
		g->filled_ns += ns * running;
		g->waiting_ns += ns * waiting;
		return;
	}
	g->slot_ns += ns;
	g->lost_ns += ns * waiting;
	if (g->runnable > 0) {
		g->wanted_ns += ns;
		if (!waiting)
			g->coscheduled_ns += ns;
	}
}

/* After any change: whether the slot that begins has seen its first and its last thread. */
static __always_inline void look_at_start(struct gang *g, __u64 now)
{
	if (!g->starting)
		return;
	if (!g->first_ns && g->running > 0)
		g->first_ns = now;
	if (g->running > 0 && g->running == g->runnable) {
		g->notes.start_ns = now - g->first_ns + 1;
		g->starting = 0;
	}
}

/*
 * A thread leaves its CPU, on which it has run since a moment. A thread that comes back has left
 * all the same: it fills.
 */
static __always_inline void look_at_end(struct gang *g, __u64 since_ns, __u64 now)
{
	if (!g->ending || since_ns > g->ended_ns)
		return;
	if (!g->first_ns)
		g->first_ns = now;
	if (--g->staying)
		return;
	if (now - g->first_ns < FILLS_NS)
		g->notes.end_ns = now - g->first_ns + 1;
	g->ending = 0;
}

static __always_inline void begin(struct gang *g, __u64 at)
{
	g->in_slot = 1;
	g->ending = 0;
	g->starting = 1;
	g->first_ns = 0;
	g->met = 0;
	look_at_start(g, at);
}

static __always_inline void end(struct gang *g, __u64 at)
{
	/* The last thread never came. */
	if (g->starting && g->first_ns)
		g->notes.start_ns = at - g->first_ns + 1;
	g->in_slot = 0;
	g->starting = 0;
	g->first_ns = 0;
	g->edge_ns += g->tail_ns;
	g->tail_ns = 0;
	g->ended_ns = at;
	g->ending = g->running > 0;
	g->staying = g->ending ? g->running : 0;
}

/*
 * Books the time up to now, turn by turn; 0 where more turns have passed than are booked at once.
 * All of this time, the CPUs of the row ran what `view` says.
 */
static __always_inline __u32 book(struct gang *g, struct slots *s, __u64 now, __u32 view)
{
	__u32 i, step, cpus;
	__u64 start, stop, until, to;

	/* Read before the lock was taken, by several CPUs. */
	if (now <= g->at_ns)
		return 1;
	if (!s || s->always) {
		g->in_slot = s != 0;
		spend(g, now - g->at_ns);
		g->at_ns = now;
		return 1;
	}
	if (g->generation != s->generation) {
		g->generation = s->generation;
		g->cursor = 0;
	}
	for (step = 0; step < STEPS; step++) {
		i = g->cursor;
		/* For the verifier: one index, compared and used. */
		barrier_var(i);
		if (i >= s->count || i >= SLOTS_MAX)
			break;
		start = s->slot[i].start_ns;
		stop = s->slot[i].end_ns;
		until = s->slot[i].until_ns;
		cpus = s->slot[i].cpus;
		if (now < start)
			break;
		if (g->at_ns < until) {
			if (g->at_ns < start) {
				if (g->in_slot)
					end(g, g->at_ns);
				spend(g, start - g->at_ns);
				g->at_ns = start;
			}
			if (g->at_ns < stop) {
				if (!g->in_slot)
					begin(g, g->at_ns);
				to = stop < now ? stop : now;
				spend_turn(g, to - g->at_ns, cpus, view);
				spend(g, to - g->at_ns);
				g->at_ns = to;
				if (stop > now)
					return 1;
			}
			if (g->in_slot)
				end(g, g->at_ns);
			to = until < now ? until : now;
			spend_turn(g, to - g->at_ns, cpus, view);
			spend(g, to - g->at_ns);
			g->at_ns = to;
			if (until > now)
				return 1;
		}
		end_turn(g);
		g->cursor = i + 1;
	}
	if (step == STEPS)
		return 0;
	/* A list that was taken back ends a slot early. */
	if (g->in_slot)
		end(g, g->at_ns);
	end_turn(g);
	spend(g, now - g->at_ns);
	g->at_ns = now;
	return 1;
}

#endif
