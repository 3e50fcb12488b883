//! The threads that measure: one looks at the machine, one hears which sleeping jobs wake, and one
//! which real-time threads wait behind gangs ([`super::giving_way`]).

use std::{sync::Arc, thread, time::Duration};

use gang_linux::namespaces;

use crate::{
    conduct::{client_priority::ThreadPriority, state::now},
    daemon::Daemon,
};

/// So many jobs that wake take part at a time, and this much apart: with each of these groups the
/// plans are taken back. The survey sees the others.
const WAKINGS_AT_ONCE: usize = 32;
const WAKINGS_APART: Duration = Duration::from_millis(5);

impl Daemon {
    /// Measures how far gangs are coscheduled. Returns where that is not possible or not wanted.
    pub fn measure(self: &Arc<Daemon>) {
        self.measuring.begin(self.settings().measure, |meter| {
            // Without a conductor there is nothing to measure.
            let looks = self.measuring.looks.clone();
            let _ = self.conductor.ask(move |state| state.begin_measuring(meter, looks));
        });
        let hearing = Arc::clone(self);
        let spawned = thread::Builder::new().name("waking".into()).spawn(move || {
            hearing.hear_who_wakes();
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "jobs that wake are seen later");
        }
        let giving_way = Arc::clone(self);
        let spawned = thread::Builder::new().name("giving-way".into()).spawn(move || {
            giving_way.give_way();
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "gangs give way to nobody");
        }
        // Lists name threads and users by the kernel's numbers.
        let can_list = namespaces::has_numbers_of_the_kernel(&self.roots.proc);
        self.measuring.look_when_asked(can_list, |threads| {
            // Without a conductor nobody wants to know.
            let Ok(gangs) = self.conductor.ask(|state| state.gangs()) else { return };
            let others = gangs.others(&threads, &self.settings().accounts);
            let _ = self.conductor.ask(move |state| state.core.saw_users(now(), others));
        });
    }

    /// Lets jobs that slept take part in the schedule as soon as they want to run. Returns where
    /// nothing is measured.
    fn hear_who_wakes(&self) {
        // Jobs that wake are not to wait for a gap of others.
        let mut priority = ThreadPriority::of(&self.client_priority, None);
        self.measuring.hear_who_wakes(|mut groups| {
            groups.truncate(WAKINGS_AT_ONCE);
            let _ = self.conductor.ask(move |state| state.woke(&groups));
            priority.renew();
            thread::sleep(WAKINGS_APART);
        });
    }
}
