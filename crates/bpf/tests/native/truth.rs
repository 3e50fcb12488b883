//! The truth about a gang, from the definitions (ARCHITECTURE.md, `type Measured` in
//! org.gangd.v1.varlink): step by step through all moments at which something changes, without any
//! code of the programs that measure.

#![allow(dead_code, reason = "each program of tests uses its own part")]

/// A thread that stays on its CPU for longer after a slot fills a hole.
pub const FILLS_NS: u64 = 10_000_000;

/// A thread wants to run for a while, and does or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spell {
    pub from_ns: u64,
    pub to_ns: u64,
    pub runs: bool,
}

/// The spells of a thread, in order and without overlap; it sleeps between them.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    pub spells: Vec<Spell>,
}

impl Thread {
    fn spell(&self, at_ns: u64) -> Option<&Spell> {
        let before = self.spells.partition_point(|spell| spell.from_ns <= at_ns);
        self.spells[..before].last().filter(|spell| at_ns < spell.to_ns)
    }
}

/// Time in slot, without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub start_ns: u64,
    pub end_ns: u64,
    /// It begins as a slot does: the time until all threads run there is a skew.
    pub has_edge: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edge {
    Start,
    End,
}

/// From the first thread to the last at an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    pub edge: Edge,
    /// It is known from then on.
    pub known_ns: u64,
    pub ns: u64,
}

/// The truth about a gang: sums over its threads, but for the first four.
#[derive(Debug, Default)]
pub struct Truth {
    /// Time in slot, time in slot with threads that want to run, and with all of these on CPUs.
    pub slot_ns: u64,
    pub wanted_ns: u64,
    pub coscheduled_ns: u64,
    /// In the order of their slots.
    pub skews: Vec<Skew>,
    pub lost_ns: u64,
    pub filled_ns: u64,
    pub waiting_ns: u64,
}

impl Truth {
    /// Of threads in the time between two moments. The spans are in order and without overlap.
    pub fn of(threads: &[Thread], spans: &[Span], from_ns: u64, until_ns: u64) -> Truth {
        let of_spans = spans.iter().flat_map(|span| [span.start_ns, span.end_ns]);
        let spells = threads.iter().flat_map(|thread| &thread.spells);
        let mut moments: Vec<u64> = of_spans
            .chain(spells.flat_map(|spell| [spell.from_ns, spell.to_ns]))
            .chain([from_ns, until_ns])
            .filter(|moment| (from_ns..=until_ns).contains(moment))
            .collect();
        moments.sort_unstable();
        moments.dedup();
        let mut truth = Truth::default();
        for step in moments.windows(2) {
            let (at_ns, length_ns) = (step[0], step[1] - step[0]);
            let (running, runnable) = counts(threads, at_ns);
            let waiting = runnable - running;
            if !is_within(spans, at_ns) {
                truth.filled_ns += running * length_ns;
                truth.waiting_ns += waiting * length_ns;
                continue;
            }
            truth.slot_ns += length_ns;
            truth.lost_ns += waiting * length_ns;
            truth.wanted_ns += if runnable > 0 { length_ns } else { 0 };
            truth.coscheduled_ns += if running > 0 && waiting == 0 { length_ns } else { 0 };
        }
        truth.skews = skews(threads, spans, &moments);
        truth.skews.retain(|skew| skew.known_ns <= until_ns);
        truth
    }

    pub fn coscheduled(&self) -> f64 {
        self.coscheduled_ns as f64 / self.wanted_ns as f64
    }

    /// The skew which this share of them does not exceed.
    pub fn skew_us(&self, share: f64) -> f64 {
        let mut skews: Vec<u64> = self.skews.iter().map(|skew| skew.ns).collect();
        skews.sort_unstable();
        let at = (skews.len() as f64 * share).ceil() as usize;
        skews[at.clamp(1, skews.len()) - 1] as f64 / 1e3
    }
}

/// How many threads run at a moment, and how many want to.
pub fn counts(threads: &[Thread], at_ns: u64) -> (u64, u64) {
    let spells = threads.iter().filter_map(|thread| thread.spell(at_ns));
    spells
        .fold((0, 0), |(running, runnable), spell| (running + u64::from(spell.runs), runnable + 1))
}

fn is_within(spans: &[Span], at_ns: u64) -> bool {
    let before = spans.partition_point(|span| span.start_ns <= at_ns);
    spans[..before].last().is_some_and(|span| at_ns < span.end_ns)
}

/// How much of the time between two moments is within spans.
pub fn time_within(spans: &[Span], from_ns: u64, to_ns: u64) -> u64 {
    let part = |span: &Span| span.end_ns.min(to_ns).saturating_sub(span.start_ns.max(from_ns));
    spans.iter().map(part).sum()
}

fn skews(threads: &[Thread], spans: &[Span], moments: &[u64]) -> Vec<Skew> {
    let mut skews = Vec::new();
    for (number, span) in spans.iter().enumerate() {
        if span.has_edge {
            skews.extend(skew_at_start(threads, span, moments));
        }
        let next = spans.get(number + 1);
        let next_edge = |next: &Span| if next.has_edge { next.start_ns } else { next.end_ns };
        skews.extend(skew_at_end(threads, span.end_ns, next.map_or(u64::MAX, next_edge)));
    }
    skews
}

/// The first moment in a slot at which a thread runs, to the first at which all do that want to.
/// The state from the edge on is known after it. A slot that is taken back may end in the moment in
/// which a thread comes: it came.
fn skew_at_start(threads: &[Thread], span: &Span, moments: &[u64]) -> Option<Skew> {
    let from = moments.partition_point(|&at_ns| at_ns < span.start_ns);
    let to = moments.partition_point(|&at_ns| at_ns <= span.end_ns);
    let mut first_ns = None;
    for &at_ns in &moments[from..to] {
        let (running, runnable) = counts(threads, at_ns);
        if running == 0 {
            continue;
        }
        let first_ns = *first_ns.get_or_insert(at_ns);
        if running == runnable {
            let known_ns = if at_ns == span.start_ns { at_ns + 1 } else { at_ns };
            return Some(Skew { edge: Edge::Start, known_ns, ns: at_ns - first_ns });
        }
    }
    let length = |first_ns| Skew {
        edge: Edge::Start,
        known_ns: span.end_ns.saturating_add(1),
        ns: span.end_ns - first_ns,
    };
    first_ns.map(length)
}

/// Those that run when a slot ends leave once each, also those that come back to fill.
fn skew_at_end(threads: &[Thread], end_ns: u64, next_edge_ns: u64) -> Option<Skew> {
    let run = threads.iter().filter_map(|thread| thread.spell(end_ns)).filter(|spell| spell.runs);
    let left: Vec<u64> = run.map(|spell| spell.to_ns).collect();
    let (first_ns, last_ns) = (*left.iter().min()?, *left.iter().max()?);
    let is_late = last_ns <= next_edge_ns && last_ns - first_ns < FILLS_NS;
    is_late.then_some(Skew { edge: Edge::End, known_ns: last_ns, ns: last_ns - first_ns })
}
