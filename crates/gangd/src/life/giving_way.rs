//! The thread that has gangs give way to rivals: real-time threads of the priority that gangs have
//! in their slots.
//!
//! Problem: the BPF programs see a rival that waits, and a switcher can let it pass, but neither
//! can wake the other. A switcher waits for a word in memory; BPF programs wake who waits for a
//! file.
//!
//! Approach: this thread hears of rivals. [`gang_timetable::ways`] decides, and a switcher is asked
//! for what was decided.
//!
//! Properties: where nobody waits behind a gang, the thread sleeps. For each CPU it runs less than
//! 1,000 times a second in the long run.

use gang_linux::{namespaces, sched};
use gang_timetable::{
    Backend, priority,
    ways::{Report, Step, Ways},
};

use crate::daemon::Daemon;

impl Daemon {
    /// Has gangs give way to rivals. Returns where gangs have no priority that rivals could have,
    /// and where nobody sees rivals.
    pub fn give_way(&self) {
        if self.backend != Backend::Rt {
            return;
        }
        // Rivals and gangs are reported by the kernel's numbers of threads.
        if !namespaces::is_in_first_pid_namespace(&self.roots.proc) {
            tracing::info!("gangs give way to nobody: this is not the machine's PID namespace");
            return;
        }
        if let Err(error) = sched::become_fifo(priority::CLIENT) {
            tracing::warn!(%error, source = %error.source, "gangs give way to nobody");
            return;
        }
        let mut ways = Ways::default();
        self.measuring.hear_who_waits(|meter, waits| {
            for wait in waits {
                let gang_bpf::Wait { cpu, raised, was_asked, slots_ns, used_ns } = wait;
                match ways.reported(Report { cpu, raised, was_asked, slots_ns, used_ns }) {
                    Step::GiveWay { cpu, tid, by_any } => {
                        let all = self.conductor.switchers().iter();
                        all.filter(|(cpus, _)| by_any || cpus.contains(cpu))
                            .for_each(|(_, switcher)| switcher.give_way(tid));
                    }
                    Step::Close { cpu, until_ns } => {
                        tracing::debug!(cpu, "threads of the gangs' priority have had their share");
                        if let Err(reason) = meter.close_way(cpu, until_ns) {
                            tracing::warn!(%reason, "a CPU stays open to threads of that priority");
                        }
                    }
                }
            }
        });
    }
}
