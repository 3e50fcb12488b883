//! The trace event format, as Perfetto and Chrome read it.
//!
//! Three "processes" stand for what was planned, for the switches and for what ran, each with a
//! "thread" for each CPU; for each that switches, of the switches. Times are microseconds from the
//! beginning of the record; the metadata say when that was, and by which clock.

use std::collections::BTreeMap;

use gang_linux::switches::Stay;
use gang_protocol::v1;
use serde::Serialize;
use serde_json::{Value, json};

use crate::collect::Recorded;

/// The version of the metadata.
pub const VERSION: u64 = 1;

/// The groups of tracks.
const PLANNED: u32 = 1;
const RAN: u32 = 2;
const SWITCHED: u32 = 3;
pub const GROUPS: [u32; 3] = [PLANNED, RAN, SWITCHED];

/// A complete event: something that began and ended.
#[derive(Debug, Serialize)]
struct Event {
    name: String,
    cat: &'static str,
    ph: &'static str,
    ts: f64,
    dur: f64,
    pid: u32,
    tid: usize,
    args: BTreeMap<&'static str, Value>,
}

impl Event {
    /// The part of a span (UTC) that lies in the record, on the track of a group and a CPU.
    fn of(
        recorded: &Recorded,
        (start_ns, end_ns): (u64, u64),
        (pid, tid): (u32, usize),
        cat: &'static str,
        name: String,
        args: BTreeMap<&'static str, Value>,
    ) -> Event {
        let (from_ns, to_ns) = (start_ns.max(recorded.start_ns), end_ns.min(recorded.end_ns));
        let us = |ns: u64| ns as f64 / 1e3;
        let ts = us(from_ns - recorded.start_ns);
        Event { name, cat, ph: "X", ts, dur: us(to_ns.saturating_sub(from_ns)), pid, tid, args }
    }
}

/// A trace as it is written.
#[derive(Debug, Serialize)]
pub struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<Value>,
    #[serde(rename = "displayTimeUnit")]
    unit: &'static str,
    metadata: Value,
    #[serde(skip)]
    counts: (usize, usize, usize),
}

impl Trace {
    pub fn slots(&self) -> usize {
        self.counts.0
    }

    pub fn switches(&self) -> usize {
        self.counts.1
    }

    pub fn stays(&self) -> usize {
        self.counts.2
    }
}

/// The kind of a thread on a CPU, at the middle of its stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    InSlot,
    Filling,
    /// In the slot of somebody else, and of no gang: who is kept from its slot by it waits for it.
    Noise,
    Other,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::InSlot => "in slot",
            Role::Filling => "filling",
            Role::Noise => "noise",
            Role::Other => "other",
        }
    }

    pub fn of(recorded: &Recorded, cpu: usize, stay: &Stay) -> Role {
        let middle_ns = stay.start_ns + (stay.end_ns - stay.start_ns) / 2;
        match (recorded.members.of.get(&stay.pid), recorded.slot_at(cpu, middle_ns)) {
            (Some(job), Some(slot)) if *job == slot => Role::InSlot,
            (Some(_), _) => Role::Filling,
            (None, Some(_)) => Role::Noise,
            (None, None) => Role::Other,
        }
    }
}

pub fn of(recorded: &Recorded) -> Trace {
    let planned = planned(recorded);
    let ran = ran(recorded);
    let counts = (planned.len(), recorded.switches.len(), ran.len());
    let mut events = names(recorded);
    let complete = planned.into_iter().chain(switched(recorded)).chain(ran);
    events.extend(complete.map(|event| json!(event)));
    let metadata = json!({
        "gang_trace": VERSION,
        "host": recorded.host.name,
        "boot_id": recorded.host.boot_id,
        "clock": recorded.clock,
        "start_ns": recorded.start_ns,
        "end_ns": recorded.end_ns,
        "backend": recorded.backend,
        "slice_ns": recorded.slice_ns,
        "jobs": recorded.members.jobs,
        "switches": recorded.summary,
        "switches_lost": recorded.switches_lost,
    });
    Trace { events, unit: "ms", metadata, counts }
}

/// The names of the tracks.
fn names(recorded: &Recorded) -> Vec<Value> {
    let meta = |name, pid, tid: usize, to: String| {
        let args = json!({ "name": to });
        json!({ "name": name, "ph": "M", "pid": pid, "tid": tid, "args": args })
    };
    let mut events = vec![
        meta("process_name", PLANNED, 0, "slots, as planned".into()),
        meta("process_name", RAN, 0, "threads, as they ran".into()),
    ];
    events.push(meta("process_name", SWITCHED, 0, "switches, in their phases".into()));
    for switcher in &recorded.switchers {
        let cpus: Vec<String> = switcher.cpu_list.iter().map(i64::to_string).collect();
        let name = format!("switcher of CPU {}", cpus.join(", "));
        events.push(meta("thread_name", SWITCHED, track(switcher), name));
    }
    for &cpu in recorded.cpus.keys() {
        for group in [PLANNED, RAN] {
            events.push(meta("thread_name", group, cpu, format!("CPU {cpu}")));
        }
    }
    events
}

fn planned(recorded: &Recorded) -> Vec<Event> {
    let mut events = Vec::new();
    for row in &recorded.rows {
        let span = (row.start_ns as u64, row.end_ns as u64);
        for slot in &row.slots {
            let name = recorded.members.jobs.get(&slot.job).cloned();
            let name = name.unwrap_or_else(|| format!("job {}", slot.job));
            let args = BTreeMap::from([("job", json!(slot.job)), ("slice", json!(row.slice))]);
            events.extend(slot.cpu_list.iter().map(|&cpu| {
                let track = (PLANNED, cpu as usize);
                Event::of(recorded, span, track, "slot", name.clone(), args.clone())
            }));
        }
    }
    events
}

/// A switcher has the track of its first CPU.
fn track(switcher: &v1::Switcher) -> usize {
    switcher.cpu_list.first().map_or(0, |&cpu| cpu as usize)
}

/// Each switch, from the moment that it was asked for on, and in it its phases (X8). Where that was
/// during the one before, which was late, it is from the end of that one on.
fn switched(recorded: &Recorded) -> Vec<Event> {
    let mut events = Vec::new();
    let mut ended: BTreeMap<i64, u64> = BTreeMap::new();
    for switch in &recorded.switches {
        let Some(switcher) = recorded.switchers.get(switch.switcher as usize) else { continue };
        let [asked, began, lowered, raised] =
            [switch.asked_ns, switch.began_ns, switch.lowered_ns, switch.raised_ns]
                .map(|ns| ns as u64);
        let asked = asked.max(ended.insert(switch.switcher, raised).unwrap_or(0));
        let counts = [("lowers", json!(switch.lowers)), ("raises", json!(switch.raises))];
        let number = ("number", json!(switch.number));
        let bound = switch.clock_bound_ns.map(|ns| ("clock_bound_ns", json!(ns)));
        let mut add = |name: &str, span, args: BTreeMap<_, _>| {
            let track = (SWITCHED, track(switcher));
            events.push(Event::of(recorded, span, track, "switch", name.into(), args));
        };
        add("switch", (asked, raised), counts.into_iter().chain([number]).chain(bound).collect());
        add("late", (asked, began), BTreeMap::new());
        if switch.lowers > 0 {
            add("lower", (began, lowered), BTreeMap::new());
        }
        if switch.raises > 0 {
            add("raise", (lowered, raised), BTreeMap::new());
        }
    }
    events
}

fn ran(recorded: &Recorded) -> Vec<Event> {
    let mut events = Vec::new();
    for (&cpu, stays) in &recorded.cpus {
        for stay in stays {
            let role = Role::of(recorded, cpu, stay).name();
            let job = recorded.members.of.get(&stay.pid);
            let mut args = BTreeMap::from([
                ("pid", json!(stay.pid)),
                ("tid", json!(stay.tid)),
                ("role", json!(role)),
            ]);
            args.extend(job.map(|job| ("job", json!(job))));
            let name = recorded.names.get(&stay.tid).cloned().unwrap_or_default();
            let span = (stay.start_ns, stay.end_ns);
            events.push(Event::of(recorded, span, (RAN, cpu), role, name, args));
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::Members;

    /// Job 3 has CPU 0 from 1 to 2 µs, and job 4, of process 40, has nothing.
    fn recorded() -> Recorded {
        let stay = |pid: i32, start_ns: u64, end_ns: u64| Stay { pid, tid: pid, start_ns, end_ns };
        let row = v1::Row {
            slice: 1,
            start_ns: 1_000,
            end_ns: 2_000,
            slots: vec![v1::Slot { job: 3, cpu_list: vec![0] }],
            rest_cpus: 1,
            rest_turn: false,
            gap: None,
        };
        let on_0 = vec![
            stay(30, 1_000, 1_400),
            stay(40, 1_400, 1_600),
            stay(50, 1_600, 1_900),
            // Most of it is behind the slot.
            stay(50, 1_900, 2_900),
        ];
        let on_1 = vec![stay(30, 1_000, 1_500), stay(50, 1_500, 2_000)];
        Recorded {
            start_ns: 500,
            end_ns: 2_500,
            members: Members {
                jobs: BTreeMap::from([(3, "lu\u{1b}\"".to_owned()), (4, "sp".to_owned())]),
                of: BTreeMap::from([(30, 3), (40, 4)]),
                ..Members::default()
            },
            rows: vec![row],
            cpus: BTreeMap::from([(0, on_0), (1, on_1)]),
            names: BTreeMap::from([(30, "lu".to_owned()), (40, "sp".to_owned())]),
            ..Recorded::default()
        }
    }

    #[test]
    fn threads_are_in_slot_filling_noise_or_others() {
        let recorded = recorded();
        let roles = |cpu: usize| {
            recorded.cpus[&cpu]
                .iter()
                .map(|stay| Role::of(&recorded, cpu, stay))
                .collect::<Vec<_>>()
        };
        assert_eq!(roles(0), [Role::InSlot, Role::Filling, Role::Noise, Role::Other]);
        // On a CPU that is not its slot's, a gang fills as well.
        assert_eq!(roles(1), [Role::Filling, Role::Other]);
    }

    #[test]
    fn events_lie_in_the_record_and_names_are_text() {
        let trace = serde_json::to_value(of(&recorded())).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let categories: Vec<&str> =
            events.iter().filter_map(|event| event["cat"].as_str()).collect();
        assert_eq!(
            categories,
            ["slot", "in slot", "filling", "noise", "other", "filling", "other"]
        );
        let slot = events.iter().find(|event| event["cat"] == "slot").unwrap();
        assert_eq!(slot["name"], "lu\u{1b}\"");
        assert_eq!((slot["ts"].as_f64(), slot["dur"].as_f64()), (Some(0.5), Some(1.0)));
        // Spans that go on when the record ends are cut there.
        let last = events.iter().find(|event| event["cat"] == "other").unwrap();
        assert_eq!((last["ts"].as_f64(), last["dur"].as_f64()), (Some(1.4), Some(0.6)));
        assert_eq!(last["args"]["job"], Value::Null);
    }

    #[test]
    fn switches_of_one_that_was_late_follow_each_other() {
        let switch = |number, asked_ns, began_ns, raised_ns| v1::Switch {
            switcher: 0,
            number,
            asked_ns,
            began_ns,
            lowered_ns: began_ns,
            raised_ns,
            lowers: 0,
            raises: 1,
            clock_bound_ns: None,
        };
        let mut recorded = recorded();
        recorded.switchers = vec![v1::Switcher { cpu_list: vec![0], count: 2 }];
        // The second one was to be while the first, which was late, was carried out.
        recorded.switches = vec![switch(1, 600, 1_600, 1_700), switch(2, 1_650, 1_710, 1_800)];
        let spans = |name: &str| {
            let events = switched(&recorded);
            let named = events.iter().filter(|event| event.name == name);
            named.map(|event| (event.ts, event.dur)).collect::<Vec<_>>()
        };
        assert_eq!(spans("switch").len(), 2);
        let [(first, lasts), (second, _)] = spans("switch")[..] else { panic!() };
        assert!(first + lasts <= second + 1e-9, "{first} {lasts} {second}");
        assert!((second - 1.2).abs() < 1e-9, "{second}");
    }
}
