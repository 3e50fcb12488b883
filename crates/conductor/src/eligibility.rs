//! Whether a job takes turns, and if not, why. A rule that treats several reasons otherwise names
//! each of them in a match; a rule for one reason compares with it.

use gang_schedule::Policy;

/// Where there are several reasons, the first one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eligibility {
    /// A person suspended it (L33).
    Suspended,
    /// The job has no process yet.
    Starting,
    /// The job has more threads than are switched ([`gang_timetable::THREADS_MAX`]), or than an
    /// edge has time for ([`crate::crowding`]).
    TooManyThreads,
    /// The job wants no CPU (L19).
    Asleep,
    /// Its policy is `none`: Linux alone schedules it.
    NotScheduled,
    /// The job needs more CPUs than are online, and waits until they come back.
    TooFewCpus,
    /// Of the CPUs that are online, its threads may use others than it needs, or fewer
    /// ([`gang_schedule::Unplaceable`]). Linux alone schedules it until that changes. Programs bind
    /// themselves to one CPU after the other for a moment, to look at them: they have to run to end
    /// that, and fillers may not for minutes.
    Unplaceable,
    TakesTurns,
}

/// The facts on which eligibility depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub is_suspended: bool,
    pub has_processes: bool,
    /// The job has more threads than are switched, or than an edge has time for.
    pub has_too_many_threads: bool,
    /// The job wants to run, or did so a moment ago.
    pub is_awake: bool,
    pub policy: Policy,
    /// CPUs that it needs at least, and those that are online.
    pub min_cpus: u32,
    pub online: u32,
    /// The CPUs that its threads may use do not do for it.
    pub is_unplaceable: bool,
}

impl Eligibility {
    pub fn of(facts: &Facts) -> Eligibility {
        let is_gang = facts.policy == Policy::Gang;
        if facts.is_suspended {
            Eligibility::Suspended
        } else if !facts.has_processes {
            Eligibility::Starting
        } else if is_gang && facts.has_too_many_threads {
            Eligibility::TooManyThreads
        } else if !facts.is_awake {
            Eligibility::Asleep
        } else if !is_gang {
            Eligibility::NotScheduled
        } else if facts.min_cpus > facts.online {
            Eligibility::TooFewCpus
        } else if facts.is_unplaceable {
            Eligibility::Unplaceable
        } else {
            Eligibility::TakesTurns
        }
    }

    /// The job has threads that want to run, and nobody keeps them from it: also where it gets no
    /// slots.
    pub fn may_run(self) -> bool {
        match self {
            Eligibility::TakesTurns
            | Eligibility::TooFewCpus
            | Eligibility::TooManyThreads
            | Eligibility::Unplaceable
            | Eligibility::NotScheduled => true,
            Eligibility::Suspended | Eligibility::Starting | Eligibility::Asleep => false,
        }
    }

    /// The job stands as gangs do, by the clock, be it in rows or not.
    pub fn is_gang(self) -> bool {
        match self {
            Eligibility::TakesTurns | Eligibility::TooFewCpus => true,
            Eligibility::Suspended
            | Eligibility::Starting
            | Eligibility::TooManyThreads
            | Eligibility::Unplaceable
            | Eligibility::Asleep
            | Eligibility::NotScheduled => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: Facts = Facts {
        is_suspended: false,
        has_processes: true,
        has_too_many_threads: false,
        is_awake: true,
        policy: Policy::Gang,
        min_cpus: 2,
        online: 2,
        is_unplaceable: false,
    };

    #[test]
    fn of_several_reasons_the_first_counts() {
        // Each has all of the reasons below it, too.
        let unplaceable = Facts { is_unplaceable: true, ..WELL };
        let few = Facts { online: 1, ..unplaceable };
        let asleep = Facts { is_awake: false, ..few };
        let too_many = Facts { has_too_many_threads: true, ..asleep };
        let starting = Facts { has_processes: false, ..too_many };
        let suspended = Facts { is_suspended: true, ..starting };
        for (facts, eligibility) in [
            (WELL, Eligibility::TakesTurns),
            (unplaceable, Eligibility::Unplaceable),
            (few, Eligibility::TooFewCpus),
            (asleep, Eligibility::Asleep),
            (too_many, Eligibility::TooManyThreads),
            (starting, Eligibility::Starting),
            (suspended, Eligibility::Suspended),
        ] {
            assert_eq!(Eligibility::of(&facts), eligibility, "{facts:?}");
        }
    }

    #[test]
    fn thread_limit_is_for_gangs_only() {
        let none = Facts { policy: Policy::None, has_too_many_threads: true, online: 1, ..WELL };
        assert_eq!(Eligibility::of(&none), Eligibility::NotScheduled);
        let asleep = Facts { is_awake: false, ..none };
        assert_eq!(Eligibility::of(&asleep), Eligibility::Asleep);
    }
}
