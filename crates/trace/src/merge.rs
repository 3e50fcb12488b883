//! Records of several hosts as one.
//!
//! Problem: each host records by its own clock, and the clocks differ.
//!
//! Approach: each record says how far its clock was from UTC, and within which bound ([`Clock`]).
//! All events are moved to UTC by the offset of their clock. How far two hosts may still differ is
//! the sum of the errors of their clocks, or 0 where they have one clock. A counter for each two
//! hosts shows it, and so do the metadata.
//!
//! Terms: a *record* is what one `gang trace` wrote. Records of one kernel have one *clock*.
//!
//! Properties: an event is nearer to its moment in UTC than the error of its clock. Two events of
//! hosts with one clock are as far apart as they were recorded. Whatever is in a file, merging
//! takes it as it is, or refuses it with the name of the file.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    events::{GROUPS, VERSION},
    origin::{Clock, Host, Reading},
};

/// Each host has its groups of tracks from a multiple of this on.
const GROUPS_OF_HOST: usize = 10;

/// The group of the counters, which is of no host.
const CLOCKS: usize = 9;

/// No event is further from the begin of its record, ns: a hundred days.
const LATEST_NS: f64 = 1e16;

/// A file, by its name.
pub struct File {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// Records of several hosts.
#[derive(Debug)]
pub struct Merged {
    pub bytes: Vec<u8>,
    /// Slots, switches and their phases, and stays on CPUs.
    pub events: usize,
    pub hosts: usize,
    /// Of all pairs of hosts the one whose clocks may differ most, and by how much, ns. None where
    /// all have one clock.
    pub widest: Option<([String; 2], u64)>,
    /// Two hosts whose records have no moment in common.
    pub apart: Option<[String; 2]>,
}

/// The metadata that merging needs; all of them are passed on.
#[derive(Clone, Debug, Deserialize)]
struct Origin {
    #[serde(flatten)]
    host: Host,
    clock: Clock,
    start_ns: u64,
    end_ns: u64,
}

struct Record {
    file: String,
    origin: Origin,
    metadata: Map<String, Value>,
    events: Vec<Map<String, Value>>,
}

/// A clock is UTC once `shift_ns` are added to it, but for `error_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Correction {
    shift_ns: i64,
    error_ns: u64,
}

/// Of each clock, by the boot of its kernel.
type Corrections<'a> = BTreeMap<&'a str, Correction>;

/// A host, by the name that is shown.
struct Shown<'a> {
    host: &'a Host,
    name: String,
}

/// How far two hosts may differ.
#[derive(Debug, Serialize)]
struct Between {
    hosts: [String; 2],
    bound_ns: u64,
}

/// Puts the records of files on one clock, UTC. Its first moment is that of the first record.
///
/// # Errors
/// A file is no record of `gang trace`, is of another version, has no clock, or is a merged one;
/// two files of one host overlap.
pub fn merge(files: &[File]) -> Result<Merged> {
    let records = files.iter().map(read).collect::<Result<Vec<Record>>>()?;
    refuse_overlaps(&records)?;
    let corrections = corrections(&records);
    let hosts = hosts(&records);
    let spans = records.iter().map(|record| record.span(&corrections)).collect::<Vec<_>>();
    let start_ns = spans.iter().map(|span| span.start).min().unwrap_or(0);
    let end_ns = spans.iter().map(|span| span.end).max().unwrap_or(0);

    let between = between(&hosts, &corrections);
    let mut events = counters(&between, (end_ns - start_ns) as f64 / 1e3);
    let mut tracks: BTreeSet<String> = BTreeSet::new();
    let mut complete = 0;
    for (record, span) in records.iter().zip(&spans) {
        let Some(number) = hosts.iter().position(|it| it.host == &record.origin.host) else {
            continue;
        };
        for event in &record.events {
            let event = moved(event, number, &hosts[number].name, span.start - start_ns);
            let is_name = event["ph"] == "M";
            complete += usize::from(!is_name);
            // Two records of a host have the same tracks.
            if !is_name || tracks.insert(json!(event).to_string()) {
                events.push(event.into());
            }
        }
    }
    let of_record = |record: &Record| {
        let Correction { shift_ns, error_ns } = record.correction(&corrections);
        let mut metadata = record.metadata.clone();
        metadata.insert("shift_ns".to_owned(), shift_ns.into());
        metadata.insert("error_ns".to_owned(), error_ns.into());
        metadata
    };
    let metadata = json!({
        "gang_trace": VERSION,
        "start_ns": i64::try_from(start_ns).unwrap_or(i64::MAX),
        "end_ns": i64::try_from(end_ns).unwrap_or(i64::MAX),
        "records": records.iter().map(of_record).collect::<Vec<_>>(),
        "between": between,
    });
    let trace = json!({ "traceEvents": events, "displayTimeUnit": "ms", "metadata": metadata });
    let has_clocks = corrections.len() > 1;
    let widest = between.into_iter().filter(|_| has_clocks).max_by_key(|it| it.bound_ns);
    Ok(Merged {
        bytes: serde_json::to_vec(&trace)?,
        events: complete,
        hosts: hosts.len(),
        widest: widest.map(|it| (it.hosts, it.bound_ns)),
        apart: apart(&hosts, &records, &spans),
    })
}

impl Record {
    fn correction(&self, corrections: &Corrections<'_>) -> Correction {
        corrections.get(self.origin.host.boot_id.as_str()).copied().unwrap_or_default()
    }

    /// Its first moment and its last one, in UTC.
    fn span(&self, corrections: &Corrections<'_>) -> Range<i128> {
        let shift_ns = i128::from(self.correction(corrections).shift_ns);
        i128::from(self.origin.start_ns) + shift_ns..i128::from(self.origin.end_ns) + shift_ns
    }
}

/// Reads a record.
fn read(file: &File) -> Result<Record> {
    let name = &file.name;
    let trace: Value = serde_json::from_slice(&file.bytes)
        .with_context(|| format!("{name} is no trace: it is no JSON"))?;
    let Value::Object(mut trace) = trace else { bail!("{name} is no trace: it is no object") };
    let (events, metadata) = (trace.remove("traceEvents"), trace.remove("metadata"));
    let (Some(Value::Array(events)), Some(Value::Object(metadata))) = (events, metadata) else {
        bail!("{name} is no trace of gang trace: it lacks traceEvents or metadata");
    };
    match metadata.get("gang_trace") {
        None => bail!("{name} is of another program: its metadata lack gang_trace"),
        Some(version) => ensure!(
            version == VERSION,
            "{name} is of version {version}, and this gang trace knows {VERSION} alone"
        ),
    }
    let is_merged = metadata.contains_key("records");
    ensure!(!is_merged, "{name} is merged already: merge the records that it is made of");
    let has_clock = metadata.get("clock").is_some_and(|clock| !clock.is_null());
    ensure!(
        has_clock,
        "{name} has no clock: nobody knew how near the clock of its host was to UTC"
    );
    let damaged = || format!("{name} is damaged");
    let origin = Value::Object(metadata.clone());
    let origin: Origin = serde_json::from_value(origin).with_context(damaged)?;
    let is_ordered = i64::try_from(origin.end_ns).is_ok() && origin.start_ns <= origin.end_ns;
    ensure!(is_ordered, "{name} is damaged: it does not end after its begin");
    let events = events.into_iter().map(event).collect::<Option<_>>();
    let events = events.ok_or_else(|| anyhow!("it has events of another form"));
    Ok(Record { file: name.clone(), origin, metadata, events: events.with_context(damaged)? })
}

/// An event as `gang trace` writes it; None for any other.
fn event(event: Value) -> Option<Map<String, Value>> {
    let Value::Object(event) = event else { return None };
    let group = event.get("pid")?.as_u64()?;
    let is_known = GROUPS.iter().any(|&known| u64::from(known) == group);
    let is_well_formed = match event.get("ph")?.as_str()? {
        "M" => event.get("name")?.is_string() && event.get("args")?.get("name")?.is_string(),
        "X" => (event.get("ts")?.as_f64()? * 1e3).abs() < LATEST_NS,
        _ => false,
    };
    (is_known && is_well_formed).then_some(event)
}

/// An event of a host, by its number, in the merged trace, whose begin was so much earlier.
fn moved(of: &Map<String, Value>, number: usize, host: &str, later_ns: i128) -> Map<String, Value> {
    let mut event = of.clone();
    let group = event["pid"].as_u64().unwrap_or(0);
    event["pid"] = ((number * GROUPS_OF_HOST) as u64 + group).into();
    if let Some(us) = event.get("ts").and_then(Value::as_f64) {
        // In whole ns, so that sums of the same moments are the same.
        let at_ns = (us * 1e3).round() as i128 + later_ns;
        event["ts"] = (at_ns as f64 / 1e3).into();
    }
    if event["name"] == "process_name" {
        let name = event["args"]["name"].as_str().unwrap_or("");
        event["args"]["name"] = format!("{host}: {name}").into();
    }
    event
}

/// Each host once may have something at a moment.
fn refuse_overlaps(records: &[Record]) -> Result<()> {
    for (number, one) in records.iter().enumerate() {
        for other in &records[..number] {
            let (a, b) = (&one.origin, &other.origin);
            let is_common = a.start_ns < b.end_ns && b.start_ns < a.end_ns;
            ensure!(
                !is_common || a.host != b.host,
                "{} and {} are of one host, {}, at the same time",
                other.file,
                one.file,
                a.host.name
            );
        }
    }
    Ok(())
}

/// The offset of a clock may have changed between readings, and records of one clock shall stay as
/// they are to each other. So a clock has one correction, in the middle of its offsets, and what is
/// left of them is part of its error.
fn corrections(records: &[Record]) -> Corrections<'_> {
    let mut clocks: BTreeMap<&str, Vec<&Clock>> = BTreeMap::new();
    for Record { origin, .. } in records {
        clocks.entry(&origin.host.boot_id).or_default().push(&origin.clock);
    }
    clocks.into_iter().map(|(boot, clocks)| (boot, Correction::of(&clocks))).collect()
}

impl Correction {
    fn of(clocks: &[&Clock]) -> Correction {
        let readings = || clocks.iter().flat_map(|clock| [&clock.begin, &clock.end]);
        let offsets = || readings().map(|it| it.offset_ns);
        let (least, most) = (offsets().min().unwrap_or(0), offsets().max().unwrap_or(0));
        let shift_ns = ((i128::from(least) + i128::from(most)) / 2) as i64;
        let error = |it: &Reading| it.bound_ns.saturating_add(it.offset_ns.abs_diff(shift_ns));
        let error_ns = readings().map(error).max().unwrap_or(0);
        let step_ns = clocks.iter().map(|clock| clock.step_ns()).max().unwrap_or(0);
        Correction { shift_ns, error_ns: error_ns.saturating_add(step_ns) }
    }
}

/// The hosts in the order of the files. Hosts of one name are told apart by their boots.
fn hosts(records: &[Record]) -> Vec<Shown<'_>> {
    let mut hosts: Vec<&Host> = Vec::new();
    for Record { origin, .. } in records {
        if !hosts.contains(&&origin.host) {
            hosts.push(&origin.host);
        }
    }
    let name = |host: &Host| match hosts.iter().filter(|it| it.name == host.name).count() {
        1 => host.name.clone(),
        _ => format!("{} (boot {})", host.name, host.boot_id.chars().take(8).collect::<String>()),
    };
    hosts.iter().map(|host| Shown { host, name: name(host) }).collect()
}

/// Each two hosts, in the order of the files.
fn pairs<'a>(hosts: &'a [Shown<'a>]) -> impl Iterator<Item = (&'a Shown<'a>, &'a Shown<'a>)> {
    let later = |number: usize| hosts[number + 1..].iter();
    hosts.iter().enumerate().flat_map(move |(number, a)| later(number).map(move |b| (a, b)))
}

/// How far each two hosts may differ.
fn between(hosts: &[Shown<'_>], corrections: &Corrections<'_>) -> Vec<Between> {
    let error_ns = |it: &Shown<'_>| {
        corrections.get(it.host.boot_id.as_str()).copied().unwrap_or_default().error_ns
    };
    let of_pair = |(a, b): (&Shown<'_>, &Shown<'_>)| {
        let bound_ns = match a.host.boot_id == b.host.boot_id {
            true => 0,
            false => error_ns(a).saturating_add(error_ns(b)),
        };
        Between { hosts: [a.name.clone(), b.name.clone()], bound_ns }
    };
    pairs(hosts).map(of_pair).collect()
}

/// A counter for each two hosts, from the first moment to the last.
fn counters(between: &[Between], length_us: f64) -> Vec<Value> {
    let track = json!({ "name": "clocks: how far two hosts may differ" });
    let mut events =
        vec![json!({ "name": "process_name", "ph": "M", "pid": CLOCKS, "tid": 0, "args": track })];
    for Between { hosts: [a, b], bound_ns } in between {
        let name = format!("{a} and {b}");
        let value = json!({ "µs": *bound_ns as f64 / 1e3 });
        events.extend([0.0, length_us].map(|ts| {
            json!({ "name": name, "ph": "C", "pid": CLOCKS, "tid": 0, "ts": ts, "args": value })
        }));
    }
    events
}

/// Two hosts of which no record has a moment in common with one of the other.
fn apart(hosts: &[Shown<'_>], records: &[Record], spans: &[Range<i128>]) -> Option<[String; 2]> {
    let of = |host: &Shown<'_>| {
        let of_host = records.iter().zip(spans).filter(|(it, _)| &it.origin.host == host.host);
        of_host.map(|(_, span)| span).collect::<Vec<_>>()
    };
    let have_common = |a: &Shown<'_>, b: &Shown<'_>| {
        let is_common =
            |one: &Range<i128>, other: &Range<i128>| one.start < other.end && other.start < one.end;
        of(a).iter().any(|one| of(b).iter().any(|other| is_common(one, other)))
    };
    let found = pairs(hosts).find(|(a, b)| !have_common(a, b));
    found.map(|(a, b)| [a.name.clone(), b.name.clone()])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record from 1,000 to 9,000 ns, of a slot from 2,500 to 4,500 ns, by a clock.
    fn record(host: &str, boot: &str, (offset_ns, bound_ns): (i64, u64)) -> Value {
        let reading = |utc_ns: u64| {
            let monotonic_ns = utc_ns - 300;
            let source = "chrony";
            json!({ "utc_ns": utc_ns, "monotonic_ns": monotonic_ns, "source": source,
                    "offset_ns": offset_ns, "bound_ns": bound_ns })
        };
        let track = json!({ "name": "process_name", "ph": "M", "pid": 1, "tid": 0,
                            "args": { "name": "slots, as planned" } });
        let slot = json!({ "name": "lu", "cat": "slot", "ph": "X", "ts": 1.5, "dur": 2.0,
                           "pid": 1, "tid": 0, "args": { "job": 1_000_000_000, "slice": 7 } });
        json!({
            "traceEvents": [track, slot],
            "displayTimeUnit": "ms",
            "metadata": {
                "gang_trace": VERSION, "host": host, "boot_id": boot,
                "clock": { "begin": reading(900), "end": reading(9_100) },
                "start_ns": 1_000, "end_ns": 9_000, "backend": "rt", "slice_ns": 2_000,
            },
        })
    }

    fn later(mut record: Value, ns: u64) -> Value {
        for name in ["start_ns", "end_ns"] {
            let at_ns = record["metadata"][name].as_u64().unwrap();
            record["metadata"][name] = (at_ns + ns).into();
        }
        record
    }

    fn try_merge(records: &[Value]) -> Result<(Merged, Value)> {
        let file = |(number, record): (usize, &Value)| File {
            name: format!("{number}.json"),
            bytes: record.to_string().into_bytes(),
        };
        let files: Vec<File> = records.iter().enumerate().map(file).collect();
        let merged = merge(&files)?;
        let trace = serde_json::from_slice(&merged.bytes)?;
        Ok((merged, trace))
    }

    fn merged(records: &[Value]) -> (Merged, Value) {
        try_merge(records).unwrap()
    }

    fn refused(records: &[Value]) -> String {
        format!("{:#}", try_merge(records).unwrap_err())
    }

    /// Group and begin (ns) of each slot.
    fn slots(trace: &Value) -> Vec<(u64, f64)> {
        let events = trace["traceEvents"].as_array().unwrap();
        let slots = events.iter().filter(|event| event["cat"] == "slot");
        slots.map(|it| (it["pid"].as_u64().unwrap(), it["ts"].as_f64().unwrap() * 1e3)).collect()
    }

    fn groups(trace: &Value) -> Vec<&str> {
        let events = trace["traceEvents"].as_array().unwrap();
        let names = events.iter().filter(|event| event["name"] == "process_name");
        names.map(|event| event["args"]["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn hosts_are_moved_to_utc_with_the_sum_of_bounds() {
        let (a, b) = (record("a", "1", (-700, 5_000)), record("b", "2", (300, 20)));
        let (merged, trace) = merged(&[a, b]);
        // By UTC the one begins at 300 ns, and the other at 1,300 ns.
        assert_eq!(trace["metadata"]["start_ns"], 300);
        assert_eq!(trace["metadata"]["end_ns"], 9_300);
        assert_eq!(slots(&trace), [(1, 1_500.0), (11, 2_500.0)]);
        assert_eq!(merged.widest, Some((["a".into(), "b".into()], 5_020)));
        assert_eq!((merged.hosts, merged.events, merged.apart), (2, 2, None));
        let expected = json!([{ "hosts": ["a", "b"], "bound_ns": 5_020 }]);
        assert_eq!(trace["metadata"]["between"], expected);
        let shift = |number: usize| trace["metadata"]["records"][number]["shift_ns"].as_i64();
        assert_eq!([shift(0), shift(1)], [Some(-700), Some(300)]);
        let clocks = "clocks: how far two hosts may differ";
        assert_eq!(groups(&trace), [clocks, "a: slots, as planned", "b: slots, as planned"]);
    }

    #[test]
    fn counter_of_two_hosts_has_their_bound() {
        let (_, trace) = merged(&[record("a", "1", (0, 5_000)), record("b", "2", (0, 20))]);
        let events = trace["traceEvents"].as_array().unwrap();
        let counters: Vec<&Value> = events.iter().filter(|event| event["ph"] == "C").collect();
        assert_eq!(counters.len(), 2, "at both ends");
        assert!(counters.iter().all(|event| event["name"] == "a and b"));
        assert!(counters.iter().all(|event| event["args"]["µs"] == 5.02));
        assert_eq!([&counters[0]["ts"], &counters[1]["ts"]], [0.0, 8.0]);
    }

    #[test]
    fn hosts_of_one_kernel_have_one_clock() {
        // Read at other moments, so that the offset is another one.
        let (a, b) = (record("a", "1", (-700, 5_000)), record("b", "1", (300, 20)));
        let (one_clock, trace) = merged(&[a.clone(), b]);
        assert_eq!(slots(&trace), [(1, 1_500.0), (11, 1_500.0)]);
        assert_eq!(one_clock.widest, None);
        assert_eq!(trace["metadata"]["between"][0]["bound_ns"], 0);
        // UTC itself is known less well.
        assert_eq!(trace["metadata"]["records"][0]["shift_ns"], -200);
        assert_eq!(trace["metadata"]["records"][0]["error_ns"], 5_500);
        // The widest of three is of hosts that have not one clock.
        let [b, c] = [("b", "1", (0, 0)), ("c", "2", (0, 0))].map(|(a, b, c)| record(a, b, c));
        let (three, _) = merged(&[a, b, c]);
        assert_eq!(three.widest.map(|(hosts, _)| hosts[1].clone()), Some("c".to_owned()));
    }

    #[test]
    fn clock_that_was_set_meanwhile_is_less_near() {
        let mut a = record("a", "1", (0, 10));
        a["metadata"]["clock"]["end"]["monotonic_ns"] = 8_000.into();
        let (merged, _) = merged(&[a, record("b", "2", (0, 20))]);
        assert_eq!(merged.widest.unwrap().1, 30 + 800);
    }

    #[test]
    fn records_of_a_host_share_tracks_unless_overlapping() {
        let a = record("a", "1", (0, 10));
        let (one_host, trace) = merged(&[a.clone(), later(a.clone(), 8_000)]);
        assert_eq!((one_host.hosts, one_host.widest), (1, None));
        assert_eq!(slots(&trace), [(1, 1_500.0), (1, 9_500.0)]);
        assert_eq!(groups(&trace).len(), 2, "one of them of the clocks");
        let same_time = refused(&[a.clone(), later(a.clone(), 7_999)]);
        assert_eq!(same_time, "0.json and 1.json are of one host, a, at the same time");
        // One that was booted meanwhile, or another one of that name.
        let (_, trace) = merged(&[a, record("a", "223344556", (0, 10))]);
        assert_eq!(
            groups(&trace)[1..],
            ["a (boot 1): slots, as planned", "a (boot 22334455): slots, as planned"]
        );
    }

    #[test]
    fn records_without_a_common_moment_are_named() {
        let a = record("a", "1", (0, 10));
        let at = |ns: u64| later(record("b", "2", (0, 10)), ns);
        assert_eq!(merged(&[a.clone(), at(7_999)]).0.apart, None);
        let apart = Some(["a".to_owned(), "b".to_owned()]);
        assert_eq!(merged(&[a.clone(), at(8_000)]).0.apart, apart);
        // A later record of the host is with the other one.
        assert_eq!(merged(&[a.clone(), at(8_000), later(a, 8_000)]).0.apart, None);
    }

    #[test]
    fn other_files_are_refused_by_name() {
        let good = record("a", "1", (0, 10));
        let with = |path: &str, value: Value| {
            let mut bad = record("b", "2", (0, 10));
            *bad.pointer_mut(path).unwrap() = value;
            bad
        };
        let mut foreign = good.clone();
        foreign["metadata"] = json!({ "command_line": "x" });
        let (_, twice) = merged(&[good.clone(), record("b", "2", (0, 10))]);
        let cases = [
            (json!([1]), "1.json is no trace: it is no object"),
            (json!({ "traceEvents": [] }), "1.json is no trace of gang trace: it lacks"),
            (foreign, "1.json is of another program"),
            (with("/metadata/clock", Value::Null), "1.json has no clock: nobody knew"),
            (with("/metadata/gang_trace", 2.into()), "1.json is of version 2, and this gang"),
            (twice, "1.json is merged already"),
            (with("/metadata/clock/end/bound_ns", (-1).into()), "1.json is damaged: invalid"),
            (with("/metadata/end_ns", 999.into()), "1.json is damaged: it does not end"),
            (with("/traceEvents/1/pid", 4.into()), "1.json is damaged: it has events of"),
            (with("/traceEvents/1/ts", 1e20.into()), "1.json is damaged: it has events of"),
            (with("/traceEvents/1/ph", "B".into()), "1.json is damaged: it has events of"),
        ];
        for (bad, expected) in cases {
            let said = refused(&[good.clone(), bad]);
            assert!(said.starts_with(expected), "{said:?} instead of {expected:?}");
        }
        let cut =
            File { name: "cut.json".into(), bytes: good.to_string().into_bytes()[..99].into() };
        assert!(merge(&[cut]).unwrap_err().to_string().starts_with("cut.json is no trace"));
    }

    /// Replaces each value below in turn, and calls back with the whole.
    fn each_replaced(whole: &Value, path: &str, by: &Value, then: &mut impl FnMut(Value)) {
        let here = whole.pointer(path).unwrap();
        let below: Vec<String> = match here {
            Value::Object(object) => object.keys().cloned().collect(),
            Value::Array(values) => (0..values.len()).map(|number| number.to_string()).collect(),
            _ => Vec::new(),
        };
        let mut replaced = whole.clone();
        *replaced.pointer_mut(path).unwrap() = by.clone();
        then(replaced);
        for name in below {
            each_replaced(whole, &format!("{path}/{name}"), by, then);
        }
    }

    #[test]
    fn odd_values_are_merged_or_refused() {
        let good = record("a", "1", (0, 10));
        let odd = [
            Value::Null,
            (-1).into(),
            i64::MIN.into(),
            i64::MAX.into(),
            u64::MAX.into(),
            1e300.into(),
            "a".into(),
            json!([]),
            json!({}),
        ];
        let mut merges = 0;
        for by in &odd {
            each_replaced(&record("b", "2", (0, 10)), "", by, &mut |bad| {
                if let Ok((_, trace)) = try_merge(&[good.clone(), bad]) {
                    assert!(trace["traceEvents"].is_array());
                    merges += 1;
                }
            });
        }
        assert!(merges > 0, "names may be any text");
    }
}
