//! Working hours that begin and end while a daemon runs (L22, L23): classes weigh something else,
//! their gangs keep their slots for another time, and the jobs run on.
//!
//! The daemon has a time zone of its own, in which it is almost noon when it starts.

mod place;

use std::{fs, time::Duration};

use gang_linux::clock;
use gang_protocol::{client::Registration, v1};
use place::{Place, Program, has_backend, job_with, machine, registration, wait_until};
use rustix::process::Signal;

const SECOND_NS: u64 = 1_000_000_000;

/// Inside the hours gangs take turns of one slice, outside of them of eight, and express does not
/// come first.
const CLASSES: &str = "[classes.express]\nweight_outside = 900\n[classes.interactive]\nweight = 300\nweight_outside = 50\nslice_outside = '80ms'\n\
    [classes.batch]\nweight = 100\nweight_outside = 400\nslice_outside = '80ms'\n";

fn weights_of(are_working: bool) -> (i64, i64) {
    if are_working { (300, 100) } else { (50, 400) }
}

/// The time zone, as in TZ, in which it is noon so long from now.
fn noon_in(lead: Duration) -> String {
    let now_s = (clock::utc_ns() / SECOND_NS) as i64;
    // The seconds to add to local time for UTC, from the morning to the evening.
    let west_s = (now_s + lead.as_secs() as i64) % 86_400 - 43_200;
    let (sign, of_day) = (if west_s < 0 { "-" } else { "" }, west_s.abs());
    format!("TZ=NOON{sign}{}:{:02}:{:02}", of_day / 3_600, of_day / 60 % 60, of_day % 60)
}

/// A daemon whose working hours, from one time of each day to another, begin or end at noon.
struct Day {
    place: Place,
    programs: [Program; 2],
    /// An interactive one and one of class batch, which both want the machine.
    jobs: [i64; 2],
}

impl Day {
    /// A daemon that has its jobs before noon; on a machine that is too slow for that, noon is
    /// later.
    fn before_noon(from: &str, to: &str, are_working: bool) -> Day {
        let hours = format!(
            "[working_hours]\ndays = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun']\n\
             from = '{from}'\nto = '{to}'\n"
        );
        for lead_s in [3, 6, 12, 24, 48, 96, 192] {
            let zone = noon_in(Duration::from_secs(lead_s));
            let settings = format!("{CLASSES}{hours}");
            let flags = ["--backend", "rt", "--slice", "10ms"];
            let place = Place::launched(&["env", &zone], &settings, &flags);
            let mut client = place.client();
            let classes = [v1::Class::interactive, v1::Class::batch];
            let programs = [Program::spinner(), Program::spinner()];
            let jobs = [0, 1].map(|at| {
                let class: v1::Class = classes[at].clone();
                let spec = Registration { class, ..registration("job", machine()) };
                let job = client.register(&spec).unwrap();
                client.add_process(job, programs[at].pid_i64()).unwrap();
                job
            });
            let day = Day { place, programs, jobs };
            day.wait_for_slots();
            let status = day.place.status();
            if status.working_hours == Some(are_working) {
                let weights = (status.interactive_weight, status.batch_weight);
                assert_eq!(weights, weights_of(are_working));
                return day;
            }
        }
        panic!("three minutes were too short to start a daemon");
    }

    fn wait_for_slots(&self) {
        for job in self.jobs {
            let slots = || self.place.job(job).expect("the job runs on").slots;
            let before = slots();
            wait_until("slots", || slots() > before + 2);
        }
    }

    /// The classes have the terms of the hours, or those of outside; and the gangs go by them.
    fn has_terms_of(&self, are_working: bool) {
        let weights = weights_of(are_working);
        let (slice_ns, turn) = if are_working { (10_000_000, 1) } else { (80_000_000, 8) };
        let status = self.place.status();
        assert_eq!(status.working_hours, Some(are_working));
        assert_eq!((status.interactive_weight, status.batch_weight), weights);
        assert_eq!(status.express_weight, (!are_working).then_some(900));
        for of in status.class_slices {
            let own = matches!(of.class, v1::Class::interactive | v1::Class::batch);
            assert_eq!(of.slice_ns, if own { slice_ns } else { 10_000_000 }, "{of:?}");
        }
        let jobs = self.place.client().list_jobs().unwrap().jobs;
        let [interactive, batch] = [jobs[0].share_wanted, jobs[1].share_wanted];
        let (ratio, wanted) = (interactive / batch, weights.0 as f64 / weights.1 as f64);
        assert!((ratio / wanted - 1.0).abs() < 0.01, "{interactive} and {batch}, not {wanted}");
        let since_ns = clock::utc_ns() as i64;
        wait_until("a turn of class batch, seen from its beginning to its end", || {
            let rows = self.place.client().frame(Some(since_ns)).unwrap().rows;
            let rows = rows.iter().filter(|row| row.start_ns > since_ns);
            let holders: Vec<i64> =
                rows.filter_map(|row| row.slots.first()).map(|slot| slot.job).collect();
            let spans: Vec<&[i64]> = holders.chunk_by(|one, next| one == next).collect();
            let whole = spans.iter().take(spans.len().saturating_sub(1)).skip(1);
            whole.into_iter().any(|span| span[0] == self.jobs[1] && span.len() == turn)
        });
    }

    /// Noon comes, and nothing else happens to the jobs.
    fn goes_on(&mut self, are_working: bool) {
        wait_until("it is noon", || self.place.status().working_hours == Some(are_working));
        self.has_terms_of(are_working);
        self.wait_for_slots();
        assert_eq!(self.place.client().check().unwrap().violations, []);
        let jobs = self.place.client().list_jobs().unwrap().jobs;
        let as_before = |job: &v1::Job| (job.id, job.class.clone());
        let expected = [(self.jobs[0], v1::Class::interactive), (self.jobs[1], v1::Class::batch)];
        assert_eq!(jobs.iter().map(as_before).collect::<Vec<_>>(), expected);
        let ended = self.programs.iter_mut().find_map(|program| program.0.try_wait().unwrap());
        assert_eq!(ended, None);
    }
}

#[test]
fn needs_root_terms_change_when_working_hours_begin() {
    if !has_backend("rt") {
        return;
    }
    let mut day = Day::before_noon("12:00", "18:00", false);
    day.goes_on(true);
    // There are no hours any more: the terms are those inside of them.
    let file = day.place.directory.path().join("gangd.toml");
    fs::write(file, "[classes.batch]\nweight = 70\n").unwrap();
    let daemon = rustix::process::Pid::from_raw(day.place.status().pid as i32).unwrap();
    rustix::process::kill_process(daemon, Signal::HUP).unwrap();
    wait_until("there are no hours", || day.place.status().working_hours.is_none());
    let status = day.place.status();
    assert_eq!((status.interactive_weight, status.batch_weight), (200, 70));
    day.wait_for_slots();
}

#[test]
fn needs_root_terms_change_when_working_hours_end() {
    if !has_backend("rt") {
        return;
    }
    let mut day = Day::before_noon("06:00", "12:00", true);
    day.goes_on(false);
}

#[test]
fn sighup_reads_working_hours_and_idle_after() {
    // It is six in the morning.
    let zone = noon_in(Duration::from_secs(6 * 3_600));
    let idle_after = |time: &str| format!("idle_after = '{time}'\n");
    let hours = |from: &str, to: &str| {
        format!(
            "[working_hours]\ndays = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun']\n\
             from = '{from}'\nto = '{to}'\n"
        )
    };
    let first = idle_after("1h");
    let place = Place::launched(&["env", &zone], &first, &["--backend", "signal"]);
    let sleeper = Program::sleeper();
    let job = job_with(&place, &sleeper, 1);
    let state = || place.job(job).unwrap().state;
    wait_until("it sleeps", || state() == v1::JobState::sleeping);
    assert_eq!(place.status().working_hours, None);
    let configure = |text: String| {
        fs::write(place.directory.path().join("gangd.toml"), text).unwrap();
        place.signal(Signal::HUP);
    };
    configure(first + CLASSES + &hours("12:00", "18:00"));
    wait_until("these are not the hours", || place.status().working_hours == Some(false));
    let weights = || (place.status().interactive_weight, place.status().batch_weight);
    assert_eq!(weights(), weights_of(false));
    assert_ne!(state(), v1::JobState::idle, "it is not idle before an hour has passed");
    configure(idle_after("1s") + CLASSES + &hours("03:00", "12:00"));
    wait_until("these are the hours", || place.status().working_hours == Some(true));
    assert_eq!(weights(), weights_of(true));
    wait_until("it is idle after a second", || state() == v1::JobState::idle);
    // A wrong file changes neither; a later one is read all the same.
    configure(idle_after("never") + CLASSES + &hours("12:00", "18:00"));
    configure(idle_after("1h") + CLASSES + &hours("12:00", "18:00"));
    wait_until("the hours are others", || place.status().working_hours == Some(false));
    wait_until("it sleeps again", || state() == v1::JobState::sleeping);
}
