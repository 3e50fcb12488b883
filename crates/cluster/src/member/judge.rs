//! Whether this host follows rows: its slices must be those of the cluster, and its CPUs its
//! columns.

use super::{Member, Note};
use crate::change::Refused;
use crate::record::Host;

/// A clock that was off by more has to be better than that by so many parts of four: the bound of a
/// clock grows between two looks at others, and the host would come and go.
const BACK_OF_4: u64 = 3;

impl Member {
    /// Decides whether this host follows rows.
    pub(super) fn judge(&mut self) {
        let by_clock = self.wrong_time();
        self.is_out_of_time = by_clock.is_some();
        let by_name = self.another();
        let known = self.view.hosts().get(&self.me.name);
        let by_cpus = known.filter(|host| host.cpus != self.me.cpus).map(|host| {
            let (here, there) = (self.me.cpus, host.cpus);
            format!("it has {here} CPUs, and {there} in the cluster, where its jobs must end first")
        });
        let unwilling = by_name.or(by_clock).or(by_cpus);
        if unwilling.is_some() != self.unwilling.is_some() {
            self.notes.push(Note::Unwilling(unwilling.clone()));
        }
        self.unwilling = unwilling;
    }

    /// The other machine that has the name of this one, if there is one. Two that were copied from
    /// one image have one machine id: the one that has joined last is the host.
    fn another(&mut self) -> Option<String> {
        self.is_another = false;
        let known = self.view.hosts().get(&self.me.name)?;
        if known.machine != self.me.machine {
            self.is_another = true;
            let (name, machine) = (self.me.name.clone(), known.machine.clone());
            return Some(Refused::OtherMachine { name, machine }.to_string());
        }
        let has_own_boot = known.boot == self.me.boot;
        self.is_another = self.has_joined && !has_own_boot;
        self.has_joined |= has_own_boot;
        self.is_another.then(|| {
            "another machine has its name and its machine id, and has joined since: give each its \
             own (machine-id(5)), and start gangd again"
                .to_owned()
        })
    }

    /// A clock may be off by so much.
    fn clock_bound_ns(&self) -> u64 {
        self.me.slice_ns / 100 * u64::from(self.me.clock_percent)
    }

    /// Why the slices of this host are not those of the cluster, if so.
    fn wrong_time(&self) -> Option<String> {
        let here_ns = self.me.slice_ns;
        let ms = |ns: u64| ns as f64 / 1e6;
        let of_cluster = self.view.settings().map(|settings| settings.slice_ns);
        if let Some(there_ns) = of_cluster.filter(|&there_ns| there_ns != here_ns) {
            let (here, there) = (ms(here_ns), ms(there_ns));
            return Some(format!("its slices are {here} ms long, and the cluster's {there} ms"));
        }
        let (bound_ns, most_ns) = (self.seen.as_ref()?.clock.bound_ns, self.clock_bound_ns());
        let most_ns = if self.is_out_of_time { most_ns * BACK_OF_4 / 4 } else { most_ns };
        // Hosts of one kernel have one clock, however wrong. The record of this host is as old as
        // its last boot until it has joined anew.
        let is_me = |(name, host): (&String, &Host)| {
            *name == self.me.name && host.machine == self.me.machine
        };
        let is_other = |&(name, host): &(&String, &Host)| {
            let has_clock = host.boot == self.me.boot && !self.me.boot.is_empty();
            !has_clock && !is_me((name, host))
        };
        let mut others = self.view.hosts().iter().filter(is_other);
        (bound_ns > most_ns && others.next().is_some()).then(|| {
            let (bound_us, most_us) = (bound_ns / 1_000, most_ns / 1_000);
            let slice = ms(here_ns);
            format!(
                "its clock may be {bound_us} µs off; slices of {slice} ms permit {most_us} µs: have \
                 all hosts follow the clock of one of them"
            )
        })
    }
}
