//! Jobs of one host are placed by the schedule of that host, on what the matrix leaves (L14).

use gang_schedule::matrix::{HostId, Load, Matrix, Span};
use gang_schedule::{Config, CpuSet, Event, JobId, Schedule, Spec, Topology, check};

/// LLNL's example: a spanning job of 4 CPUs is due every other slice of 8 CPUs. Of two gangs of 4
/// CPUs, one fits beside it.
///
/// The schedule takes the CPUs that are left as those online. It forgets the turns of a gang that
/// is wider than these. Such a gang would wait: that takes an input of its own.
#[test]
fn gangs_of_one_host_are_placed_on_what_is_left() {
    let here = HostId(7);
    let mut matrix = Matrix::new(Config::default(), 128).unwrap();
    matrix.add_host(here, 8).unwrap();
    matrix.add_host(HostId(8), 8).unwrap();
    matrix.set_load(here, Load::of(12)).unwrap();
    matrix.place(JobId(100), Span::new([(here, 4), (HostId(8), 4)])).unwrap();

    let whole = Topology::flat(8);
    let mut schedule = Schedule::new(Config::default(), whole.clone()).unwrap();
    for (job, cpus) in [(1, 4), (2, 4)] {
        schedule.apply(Event::Arrived { job: JobId(job), spec: Spec::new(cpus) }).unwrap();
    }
    let mut slots = [0, 0];
    for slice in 0..128 {
        let mut taken = CpuSet::new();
        for slot in matrix.slots(here, slice) {
            taken = taken.union(&slot.cpus);
        }
        assert_eq!(taken.len(), if slice % 2 == 0 { 4 } else { 0 }, "every other slice (L15)");
        let left = whole.cpus().iter().filter(|cpu| !taken.contains(cpu.id));
        let left = Topology::new(left.copied().collect()).unwrap();
        schedule.apply(Event::Topology(left)).unwrap();
        let plan = schedule.plan(slice);
        assert_eq!(check::plan(&schedule, &plan), []);
        for slot in &plan.row {
            assert!(slot.cpus.is_disjoint(&taken), "slice {slice}");
            slots[slot.job.0 as usize - 1] += 1;
        }
    }
    assert_eq!(slots, [96, 96], "one beside the job, both in the other slices");
}
