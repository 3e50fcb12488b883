//! Jobs of one host are placed by the schedule of that host, on what the matrix leaves (L14).

use gang_schedule::matrix::{HostId, Load, Matrix, Span};
use gang_schedule::{Config, Entries, EntryList, Event, JobId, Schedule, Spec, Topology, check};

/// The spanning job.
const SPAN: JobId = JobId(100);

/// A host with its schedule, and the slots and CPUs that were had.
struct Host {
    id: HostId,
    schedule: Schedule,
    frame: check::Frame,
    lists: Vec<EntryList>,
    slots: Vec<u32>,
    rest: usize,
}

impl Host {
    /// Local gangs of so many CPUs, which are jobs 0 and so on, and threads of no gang.
    fn new(matrix: &mut Matrix, id: u32, cpus: u32, gangs: &[u32], threads: u32) -> Host {
        let id = HostId(id);
        matrix.add_host(id, cpus).unwrap();
        matrix.set_load(id, Load::of(threads + gangs.iter().sum::<u32>())).unwrap();
        let mut schedule = Schedule::new(Config::default(), Topology::flat(cpus)).unwrap();
        schedule.apply(Event::load(threads)).unwrap();
        for (job, &cpus) in (0..).zip(gangs) {
            schedule.apply(Event::Arrived { job: JobId(job), spec: Spec::new(cpus) }).unwrap();
        }
        let (frame, slots) = (check::Frame::new(), vec![0; gangs.len()]);
        Host { id, schedule, frame, lists: vec![], slots, rest: 0 }
    }

    /// The entries of the matrix hold from a slice on.
    fn learn(&mut self, matrix: &Matrix, from_slice: u64) {
        let topology = self.schedule.topology().clone();
        self.lists.push(EntryList::of(matrix, self.id, &topology, from_slice));
        let entries = Entries::new(self.lists.clone()).unwrap();
        self.schedule.apply(Event::Entries(entries)).unwrap();
    }

    /// Whether the spanning job has a slot.
    fn plan(&mut self, slice: u64) -> bool {
        let plan = self.schedule.plan(slice);
        assert_eq!(check::plan(&self.schedule, &plan), []);
        assert_eq!(self.frame.observe(&self.schedule, &plan), []);
        let of = |job: usize| u32::from(plan.slot(JobId(job as u64)).is_some());
        (0..self.slots.len()).for_each(|job| self.slots[job] += of(job));
        self.rest += plan.rest.len();
        plan.slot(SPAN).is_some()
    }
}

fn spanning(matrix: &mut Matrix, cpus: &[u32], hosts: &mut [Host]) {
    let span = Span::new(hosts.iter().zip(cpus).map(|(host, &cpus)| (host.id, cpus)));
    for (host, &cpus) in hosts.iter_mut().zip(cpus) {
        host.schedule.apply(Event::Arrived { job: SPAN, spec: Spec::new(cpus) }).unwrap();
    }
    matrix.place(SPAN, span).unwrap();
}

/// LLNL's example: a spanning job of 4 CPUs is due every other slice of 8 CPUs beside 12 threads.
#[test]
fn gangs_of_one_host_are_placed_on_what_is_left() {
    let mut matrix = Matrix::new(Config::default(), 128).unwrap();
    let mut hosts =
        [Host::new(&mut matrix, 7, 8, &[4, 8], 0), Host::new(&mut matrix, 8, 8, &[], 0)];
    spanning(&mut matrix, &[4, 4], &mut hosts);
    hosts.iter_mut().for_each(|host| host.learn(&matrix, 0));
    for slice in 0..128 {
        let has = hosts.each_mut().map(|host| host.plan(slice));
        assert_eq!(has, [slice % 2 == 0; 2], "every other slice (L15)");
    }
    assert_eq!(hosts[0].slots, [64, 64], "one beside the job, the other in the other slices");
}

/// Weights are equal. The matrix gives the spanning job its share of the most loaded host, and the
/// schedule gives as much to each thread that is there. In the middle of the run loads change, and
/// entries with them.
#[test]
fn spanning_and_local_jobs_have_their_shares() {
    const SLICES: u64 = 4_000;
    let mut matrix = Matrix::new(Config::default(), 128).unwrap();
    let mut hosts =
        [Host::new(&mut matrix, 0, 8, &[8, 4], 8), Host::new(&mut matrix, 1, 4, &[4], 0)];
    spanning(&mut matrix, &[4, 2], &mut hosts);
    hosts.iter_mut().for_each(|host| host.learn(&matrix, 0));
    let is_share = |had: f64, share: f64| {
        assert!((had / SLICES as f64 / share - 1.0).abs() <= 0.03, "{had} is not {share}");
    };
    let mut slice = 0;
    // Threads of no gang on the first host, and the share of everybody there.
    for (threads, share) in [(8, 1.0 / 3.0), (20, 2.0 / 9.0)] {
        let load = Load::of(threads + 12);
        matrix.set_load(HostId(0), load).unwrap();
        while !matrix.adjust().placed.is_empty() {}
        hosts[0].schedule.apply(Event::load(threads)).unwrap();
        for host in &mut hosts {
            if slice > 0 {
                host.learn(&matrix, slice);
            }
            host.slots.fill(0);
            host.rest = 0;
        }
        let mut spanned = 0.0;
        for _ in 0..SLICES {
            let has = hosts.each_mut().map(|host| host.plan(slice));
            assert_eq!(has[0], has[1], "all hosts in the same slices");
            spanned += f64::from(u8::from(has[0]));
            slice += 1;
        }
        is_share(spanned, share);
        hosts[0].slots.iter().for_each(|&slots| is_share(slots.into(), share));
        is_share(hosts[0].rest as f64 / f64::from(threads), share);
        is_share(hosts[1].slots[0].into(), 1.0 - share);
    }
}
