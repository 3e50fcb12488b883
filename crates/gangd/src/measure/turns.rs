//! Plans, as the BPF programs get them: the turns of each gang, and those on each CPU.
//!
//! Terms. A *turn* of a gang is a slot, and the gap that interrupts the slot. CPUs with the same
//! turns share a *lane*.

use gang_bpf::{Lane, Turn};
use gang_conductor::effects::Planned;
use gang_schedule::{Config, CpuSet, JobId, clock as slices};

/// A turn of a gang (UTC).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnTurn {
    pub start_ns: u64,
    /// The end of the slot.
    pub end_ns: u64,
    /// The end of the gap after it.
    pub until_ns: u64,
    pub cpus: CpuSet,
}

/// The turns of a gang that are not over, of which some were known before.
pub(super) fn own_turns(
    job: JobId,
    known: &[OwnTurn],
    planned: &Planned,
    now_ns: u64,
) -> Vec<OwnTurn> {
    let Planned { config, from_ns, until_ns, plans } = planned;
    let stand = known.iter().filter(|turn| turn.until_ns > now_ns && turn.start_ns < *from_ns);
    let until_then = |turn: &OwnTurn| OwnTurn {
        end_ns: turn.end_ns.min(*from_ns),
        until_ns: turn.until_ns.min(*from_ns),
        ..turn.clone()
    };
    let mut turns: Vec<OwnTurn> = stand.map(until_then).collect();
    for (plan, slot) in plans.iter().filter_map(|plan| Some((plan, plan.slot(job)?))) {
        let (start_ns, end_ns) = (plan.start_ns.max(*from_ns), plan.end_ns.min(*until_ns));
        add_turns(&mut turns, config, start_ns, end_ns, &slot.cpus);
    }
    turns
}

/// Adds the time between two moments in which a gang has these CPUs, but for gaps.
fn add_turns(
    turns: &mut Vec<OwnTurn>,
    config: &Config,
    mut start_ns: u64,
    end_ns: u64,
    cpus: &CpuSet,
) {
    while start_ns < end_ns {
        let edge_ns = slices::next_edge(config, start_ns).at_ns.min(end_ns);
        let is_gap = slices::in_gap(config, start_ns);
        let last = turns.last_mut().filter(|last| last.until_ns == start_ns && last.cpus == *cpus);
        match last {
            Some(last) if is_gap => last.until_ns = edge_ns,
            Some(last) if last.end_ns == start_ns => {
                (last.end_ns, last.until_ns) = (edge_ns, edge_ns);
            }
            _ => turns.push(OwnTurn {
                start_ns,
                end_ns: if is_gap { start_ns } else { edge_ns },
                until_ns: edge_ns,
                cpus: cpus.clone(),
            }),
        }
        start_ns = edge_ns;
    }
}

/// The turns on each CPU that are not over.
#[derive(Debug, Default)]
pub(super) struct Lanes(Vec<JobLane>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct JobLane {
    cpus: CpuSet,
    turns: Vec<JobTurn>,
}

/// UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
struct JobTurn {
    start_ns: u64,
    end_ns: u64,
    job: JobId,
}

impl JobLane {
    fn add(&mut self, turn: JobTurn) {
        match self.turns.last_mut() {
            Some(last) if last.end_ns == turn.start_ns && last.job == turn.job => {
                last.end_ns = turn.end_ns;
            }
            _ => self.turns.push(turn),
        }
    }
}

impl Lanes {
    /// Takes note of plans; false where that changes nothing.
    pub(super) fn plan(&mut self, planned: &Planned, now_ns: u64) -> bool {
        let Planned { from_ns, until_ns, plans, .. } = planned;
        let mut lanes = self.0.clone();
        for lane in &mut lanes {
            lane.turns.retain(|turn| turn.end_ns > now_ns && turn.start_ns < *from_ns);
            lane.turns.iter_mut().for_each(|turn| turn.end_ns = turn.end_ns.min(*from_ns));
        }
        for plan in plans {
            let (start_ns, end_ns) = (plan.start_ns.max(*from_ns), plan.end_ns.min(*until_ns));
            for slot in plan.row.iter().filter(|_| start_ns < end_ns) {
                let turn = JobTurn { start_ns, end_ns, job: slot.job };
                add_turn(&mut lanes, &slot.cpus, &turn);
            }
        }
        let lanes = joined(lanes);
        let is_new = lanes != self.0;
        self.0 = lanes;
        is_new
    }

    /// The lanes as the programs get them, on a clock that is behind UTC by some time.
    pub(super) fn sent(&self, group_of: impl Fn(JobId) -> u64, behind_ns: u64) -> Vec<Lane> {
        let turn = |turn: &JobTurn| Turn {
            start_ns: turn.start_ns.wrapping_sub(behind_ns),
            end_ns: turn.end_ns.wrapping_sub(behind_ns),
            gang: group_of(turn.job),
        };
        let lane = |lane: &JobLane| Lane {
            cpus: lane.cpus.iter().collect(),
            turns: lane.turns.iter().map(turn).collect(),
        };
        self.0.iter().map(lane).collect()
    }
}

/// Adds a turn on some CPUs. Lanes that have only some of these are split.
fn add_turn(lanes: &mut Vec<JobLane>, cpus: &CpuSet, turn: &JobTurn) {
    let mut left = cpus.clone();
    for at in 0..lanes.len() {
        let inside = lanes[at].cpus.intersection(&left);
        if inside.is_empty() {
            continue;
        }
        left = left.difference(&inside);
        let outside = lanes[at].cpus.difference(&inside);
        if !outside.is_empty() {
            lanes.push(JobLane { cpus: outside, turns: lanes[at].turns.clone() });
        }
        lanes[at].cpus = inside;
        lanes[at].add(turn.clone());
    }
    if !left.is_empty() {
        lanes.push(JobLane { cpus: left, turns: vec![turn.clone()] });
    }
}

/// Lanes in the order of their CPUs; of those with the same turns, one.
fn joined(lanes: Vec<JobLane>) -> Vec<JobLane> {
    let mut all: Vec<JobLane> = Vec::new();
    for lane in lanes.into_iter().filter(|lane| !lane.turns.is_empty()) {
        match all.iter_mut().find(|other| other.turns == lane.turns) {
            Some(other) => other.cpus = other.cpus.union(&lane.cpus),
            None => all.push(lane),
        }
    }
    all.sort_by_key(|lane| lane.cpus.first());
    all
}

#[cfg(test)]
mod tests {
    use gang_schedule::{Gap, Plan, Slot};

    use super::*;

    const MS: u64 = 1_000_000;

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    fn planned(from_ms: u64, rows: &[&[(u64, &str)]]) -> Planned {
        let gap = Gap { period_ns: 20 * MS, length_ns: MS };
        let config = Config { slice_ns: 10 * MS, gap, ..Config::default() };
        let (from_ns, first) = (from_ms * MS, from_ms / 10);
        let plan = |(slice, row): (u64, &&[(u64, &str)])| Plan {
            generation: 0,
            slice,
            start_ns: slice * 10 * MS,
            end_ns: (slice + 1) * 10 * MS,
            row: row.iter().map(|&(job, of)| Slot { job: JobId(job), cpus: cpus(of) }).collect(),
            rest: CpuSet::new(),
            rest_turn: false,
            rest_kept: 0,
            capped: false,
            beyond_caps: vec![],
            fillers: vec![],
            paused: vec![],
        };
        let plans: Vec<Plan> = (first..).zip(rows).map(plan).collect();
        let until_ns = plans.last().map_or(from_ns, |plan| plan.end_ns);
        Planned { config, from_ns, until_ns, plans }
    }

    fn turns(turns: &[OwnTurn]) -> Vec<[u64; 3]> {
        let ms = |turn: &OwnTurn| [turn.start_ns, turn.end_ns, turn.until_ns].map(|ns| ns / MS);
        turns.iter().map(ms).collect()
    }

    #[test]
    fn turns_have_the_gaps_that_interrupt_them() {
        let both: &[(u64, &str)] = &[(1, "0-1")];
        let first = planned(0, &[both, both, both, &[(2, "0-1")]]);
        let one = own_turns(JobId(1), &[], &first, 0);
        assert_eq!(turns(&one), [[0, 19, 20], [20, 30, 30]]);
        assert_eq!(turns(&own_turns(JobId(2), &[], &first, 0)), [[30, 39, 40]]);
        // Planned anew within the gap, from there on for both.
        let moved = planned(25, &[&[(1, "0")], &[(1, "0")]]);
        let one = own_turns(JobId(1), &one, &moved, 18 * MS);
        assert_eq!(turns(&one), [[0, 19, 20], [20, 25, 25], [25, 39, 40]]);
        assert_eq!(one[2].cpus, cpus("0"));
        assert_eq!(own_turns(JobId(1), &one, &planned(40, &[]), 40 * MS), []);
    }

    #[test]
    fn gap_of_a_whole_slice_is_a_turn() {
        let mut turns_of = Vec::new();
        let gap = Gap { period_ns: 20 * MS, length_ns: MS };
        let config = Config { slice_ns: MS, gap, ..Config::default() };
        for ms in [18, 19, 20] {
            add_turns(&mut turns_of, &config, ms * MS, (ms + 1) * MS, &cpus("0"));
        }
        assert_eq!(turns(&turns_of), [[18, 19, 20], [20, 21, 21]]);
        turns_of.clear();
        add_turns(&mut turns_of, &config, 19 * MS, 20 * MS, &cpus("0"));
        assert_eq!(turns(&turns_of), [[19, 19, 20]]);
    }

    #[test]
    fn cpus_with_the_same_turns_share_a_lane() {
        let mut lanes = Lanes::default();
        let rows: [&[(u64, &str)]; 3] = [&[(1, "0-3")], &[(2, "0-1"), (3, "2-3")], &[(1, "0-3")]];
        let first = planned(0, &rows);
        assert!(lanes.plan(&first, 0));
        let of = |lanes: &Lanes| {
            let lane = |lane: Lane| {
                let turns = lane.turns.iter();
                let turns = turns.map(|it| (it.start_ns / MS, it.end_ns / MS, it.gang));
                (lane.cpus, turns.collect::<Vec<_>>())
            };
            lanes.sent(|job| job.0 + 100, 0).into_iter().map(lane).collect::<Vec<_>>()
        };
        let expected = [
            (vec![0, 1], vec![(0, 10, 101), (10, 20, 102), (20, 30, 101)]),
            (vec![2, 3], vec![(0, 10, 101), (10, 20, 103), (20, 30, 101)]),
        ];
        assert_eq!(of(&lanes), expected);
        assert!(!lanes.plan(&first, 0), "the same once more");
        // One of them again, once the difference is over.
        assert!(lanes.plan(&planned(25, &[&[(4, "0-3")]]), 21 * MS));
        assert_eq!(of(&lanes), [(vec![0, 1, 2, 3], vec![(20, 25, 101), (25, 30, 104)])]);
        assert!(lanes.plan(&planned(30, &[]), 40 * MS));
        assert_eq!(of(&lanes), []);
    }
}
