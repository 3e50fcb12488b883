//! When it is looked for threads that left their job by themselves.

use gang_conductor::{Conductor, Looked, Now, life::State};
use gang_timetable::Standing;

use crate::one::{JOB, NOW, in_state};

const MS: u64 = 1_000_000;
const BEAT_NS: u64 = 200 * MS;

fn after(ns: u64) -> Now {
    Now { utc_ns: NOW.utc_ns + ns, monotonic_ns: NOW.monotonic_ns + ns }
}

/// A conductor whose only job stands still.
fn with_paused_job(now: Now) -> Conductor {
    let mut core = in_state(State::Stopped);
    core.job_mut(JOB).unwrap().standing = Standing::Paused;
    core.begin_step(now);
    core
}

/// How long until the first look is due.
fn look_due_ns(core: &mut Conductor, now: Now) -> u64 {
    assert_eq!(core.strays_due(now), []);
    let sleep_ns = core.sleep_ns(now.utc_ns, u64::MAX);
    assert!(sleep_ns > 0 && sleep_ns < u64::MAX, "{sleep_ns}");
    sleep_ns
}

#[test]
fn look_is_due_once_and_again_after_a_rest() {
    let mut core = with_paused_job(NOW);
    let mut at_ns = look_due_ns(&mut core, NOW);
    for spent_ns in [0, MS, 100 * MS, 0] {
        let now = after(at_ns);
        assert_eq!(core.strays_due(now), [JOB]);
        core.looked_for_strays(now, &Looked { spent_ns, ..Looked::default() });
        assert_eq!(core.strays_due(now), []);
        let rest_ns = core.sleep_ns(now.utc_ns, u64::MAX);
        assert!(rest_ns >= 20 * spent_ns, "a twentieth of the time at most");
        assert!(rest_ns <= (20 * spent_ns).max(100 * MS), "{rest_ns}");
        // What happens meanwhile brings no look forward.
        assert_eq!(core.strays_due(after(at_ns + rest_ns / 2)), []);
        assert_eq!(core.sleep_ns(now.utc_ns, u64::MAX), rest_ns);
        at_ns += rest_ns;
    }
}

#[test]
fn clock_set_back_puts_no_look_off() {
    let mut core = with_paused_job(after(3_600_000 * MS));
    look_due_ns(&mut core, after(3_600_000 * MS));
    let back = Now { monotonic_ns: NOW.monotonic_ns + 3_600_001 * MS, ..NOW };
    core.begin_step(back);
    assert!(look_due_ns(&mut core, back) <= 100 * MS);
}

#[test]
fn settled_conductor_has_no_look_due() {
    let mut core = with_paused_job(NOW);
    look_due_ns(&mut core, NOW);
    core.end(JOB).unwrap();
    core.take_orders();
    assert!(core.is_settled(false, false));
    let later = after(1_000 * MS);
    assert_eq!(core.sleep_ns(later.utc_ns, BEAT_NS), BEAT_NS, "it would not sleep any more");
    assert_eq!(core.strays_due(later), []);
}
