//! The record of a job whose file cannot be read as a record.
//!
//! Problem: another version of gangd wrote the file, or the file is cut short. Its job may be
//! raised, frozen, kept to some CPUs, or in a group that gives way to everybody, and a release
//! needs a record.
//!
//! Approach: each field that can be read counts, up to the place at which the text breaks off. A
//! field that is missing gets the value with which a release does least. Where the text does not
//! say where the job lives, the members on file ([`crate::pins`]) do: the group that they are in
//! has the number of the job in its name. Members in no such group are released one by one.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use gang_linux::{
    Roots,
    cgroup::{self, Group, Hierarchies},
    topology,
};
use gang_timetable::record::{Normal, Placement, Record, Single};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    pins::Pins,
    shared_group, singles,
    store::{Store, Unreadable},
};

impl Unreadable {
    /// Whether the text itself is none that this version knows. Otherwise the file could not be
    /// read, and may be whole.
    pub fn is_broken(&self) -> bool {
        matches!(self.error.source.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
    }

    /// A record of what can be known of the job; absent where nothing says where the job lives.
    pub fn salvage(&self, roots: &Roots, store: &Store) -> Option<Record> {
        let id = self.job?;
        let mut found = fields(&self.text);
        let on_file = found.remove("placement").and_then(|placement| placement_of(id, placement));
        let placement = on_file.or_else(|| {
            let pins = Pins::read(&store.pins(id)).ok().flatten()?;
            placement_of_members(roots, id, &pins)
        })?;
        let online = topology::online(roots).unwrap_or_default();
        let affinity = online.into_iter().map(|cpu| cpu.id).collect();
        let unknown = Record { affinity, ..unknown(id, placement) };
        Some(Record { id, ..with_fields(unknown, None, found) })
    }
}

/// A record of which nothing was read but where the job lives. Nobody's processes are its owner's:
/// none gets a signal.
fn unknown(id: u64, placement: Placement) -> Record {
    Record {
        id,
        name: String::new(),
        owner_uid: u32::MAX,
        class: "batch".into(),
        policy: "gang".into(),
        weight: 100,
        cpus: 1,
        min_cpus: 1,
        registered_at_ns: 0,
        suspended: false,
        suspended_by_group: false,
        stops_foreign: false,
        placement,
        normal: Normal::default(),
        keeps_attributes: false,
        affinity: Vec::new(),
        signals: false,
        auto: false,
        mem_bytes: 0,
        disk_bytes: 0,
        joined: Vec::new(),
        coming: None,
        nonce: None,
        slurm_job: None,
    }
}

/// A value with those of the found fields that fit it, or that fit the variant that it is.
fn with_fields<T: Serialize + DeserializeOwned>(
    mut value: T,
    variant: Option<&str>,
    found: Map<String, Value>,
) -> T {
    let Ok(mut whole) = serde_json::to_value(&value) else { return value };
    for (name, field) in found {
        let mut with_it = whole.clone();
        let fields = match variant {
            Some(variant) => &mut with_it[variant],
            None => &mut with_it,
        };
        fields[name] = field;
        if let Ok(read) = serde_json::from_value(with_it.clone()) {
            (value, whole) = (read, with_it);
        }
    }
    value
}

/// The fields of a text up to where it breaks off; none where it is no such text.
fn fields(text: &[u8]) -> Map<String, Value> {
    let whole = serde_json::from_slice(text).ok();
    let found = whole.or_else(|| serde_json::from_slice(&closed(text)).ok());
    match found {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// A text that breaks off, without its last value, which may be cut, and with its brackets closed.
fn closed(text: &[u8]) -> Vec<u8> {
    let (mut open, mut in_string, mut is_escaped) = (Vec::new(), false, false);
    let mut last = (0, Vec::new());
    for (at, &byte) in text.iter().enumerate() {
        if in_string {
            in_string = byte != b'"' || is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' => open.push(b'}'),
            b'[' => open.push(b']'),
            b'}' | b']' => drop(open.pop()),
            b',' => last = (at, open.clone()),
            _ => {}
        }
    }
    let (end, open) = last;
    text[..end].iter().copied().chain(open.into_iter().rev()).collect()
}

/// Where a job lives, by the text of its record.
fn placement_of(id: u64, mut found: Value) -> Option<Placement> {
    if let Ok(placement) = serde_json::from_value(found.clone()) {
        return Some(placement);
    }
    // A list that breaks off is good as far as it goes.
    for (kind, list) in [("tree", "processes"), ("threads", "threads")] {
        let shorten = |found: &mut Value| {
            let entries = found.get_mut(kind)?.get_mut(list)?.as_array_mut()?;
            entries.pop();
            (!entries.is_empty()).then_some(())
        };
        while shorten(&mut found).is_some() {
            if let Ok(placement) = serde_json::from_value(found.clone()) {
                return Some(placement);
            }
        }
    }
    let Value::Object(found) = found.get_mut(CGROUP)?.take() else { return None };
    let path = |field: &str| found.get(field).and_then(Value::as_str).map(PathBuf::from);
    let placement = at_group(id, path("group")?, path("cpu_group"));
    Some(with_fields(placement, Some(CGROUP), found))
}

/// The name of [`Placement::Cgroup`] on file.
const CGROUP: &str = "cgroup";

/// The placement of a job in a group. The names of groups say what gangd has made, and where.
fn at_group(id: u64, group: PathBuf, cpu_group: Option<PathBuf>) -> Placement {
    let is_shared = |cpu_group: &PathBuf| cpu_group.ends_with(shared_group::NAME);
    // The group above is then that of all jobs of a daemon.
    let is_with_others = group.ends_with(format!("job-{id}"));
    let above = group.parent().unwrap_or(&group);
    let origin = if is_with_others { above.parent().unwrap_or(above) } else { above };
    Placement::Cgroup {
        origin: origin.into(),
        adopted: !is_named_for(id, &group),
        cpu_origin: cpu_group.as_ref().and_then(|it| it.parent()).map(PathBuf::from),
        cpu_group_is_shared: cpu_group.as_ref().map_or(is_with_others, is_shared),
        memory: None,
        other: None,
        group,
        cpu_group,
    }
}

/// Whether gangd names a group so that it makes for a job: `job-7`, `gangd-12ab.job-7` or
/// `gangd-12ab-job-7`.
fn is_named_for(id: u64, group: &Path) -> bool {
    let name = group.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let before = name.strip_suffix(&format!("job-{id}"));
    before.is_some_and(|it| it.is_empty() || (it.starts_with("gangd") && it.ends_with(['.', '-'])))
}

/// Where a job lives that has these members, by the name of the group that they are in.
fn placement_of_members(roots: &Roots, id: u64, pins: &Pins) -> Option<Placement> {
    let members: Vec<Single> =
        pins.members().filter_map(|(tid, at)| singles::stray(&roots.proc, tid, at)).collect();
    let hierarchies = Hierarchies::detect(roots).unwrap_or_default();
    let mounted = |root: Option<&PathBuf>, group: String| {
        root.map(|root| root.join(group.trim_start_matches('/')))
    };
    let is_made = |group: &PathBuf| {
        let owner_uid = Group::at(group).owner_uid().ok();
        is_named_for(id, group) && owner_uid == Some(rustix::process::geteuid().as_raw())
    };
    let groups_of = |single: &Single| {
        let (v2, v1) = cgroup::of_process(roots, single.tid, "cpu").ok()?;
        let group = mounted(hierarchies.v2.as_ref(), v2).filter(is_made)?;
        let cpu_group = mounted(hierarchies.v1.get("cpu"), v1.unwrap_or_default());
        let is_gangds = |it: &PathBuf| it.ends_with(shared_group::NAME) || is_named_for(id, it);
        Some((group, cpu_group.filter(is_gangds)))
    };
    match members.iter().find_map(groups_of) {
        Some((group, cpu_group)) => Some(at_group(id, group, cpu_group)),
        None if members.is_empty() => None,
        None => Some(Placement::Threads { threads: members }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_that_breaks_off_is_good_as_far_as_it_goes() {
        let text = br#"{"id":7,"placement":{"tree":{"processes":[[12,345],[67,89],[10,2"#;
        let placement = placement_of(7, fields(text).remove("placement").unwrap());
        assert_eq!(placement, Some(Placement::Tree { processes: vec![(12, 345), (67, 89)] }));
        let none = br#"{"id":7,"placement":{"tree":{"processes":[[12"#;
        assert_eq!(fields(none).remove("placement").and_then(|it| placement_of(7, it)), None);
    }

    fn cgroup() -> Placement {
        Placement::Cgroup {
            group: "/sys/fs/cgroup/gangd/job-7".into(),
            origin: "/sys/fs/cgroup/user.slice".into(),
            cpu_group: Some("/sys/fs/cgroup/cpu/gangd".into()),
            cpu_origin: Some("/sys/fs/cgroup/cpu".into()),
            cpu_group_is_shared: true,
            adopted: false,
            memory: None,
            other: None,
        }
    }

    fn written() -> Record {
        let joined = gang_timetable::record::JoinedProcess {
            pid: 9,
            origin: "/a, \"b\" {".into(),
            cpu_origin: None,
            memory_origin: None,
        };
        let normal = Normal { policy: 3, nice: 5, ..Normal::default() };
        Record { owner_uid: 1000, normal, joined: vec![joined], ..unknown(7, cgroup()) }
    }

    /// The record of job 7 with this text, where no members are on file.
    fn read(text: &[u8]) -> Option<Record> {
        let (roots, store) = (Roots::default(), Store::at("/nonexistent"));
        let error = store.error("read", &store.path(7), std::io::Error::other("cut"));
        Unreadable { job: Some(7), text: text.into(), error }.salvage(&roots, &store)
    }

    #[test]
    fn text_counts_up_to_its_cut() {
        let text = serde_json::to_vec_pretty(&written()).unwrap();
        let mut placements = Vec::new();
        for end in 0..=text.len() {
            let found = read(&text[..end]);
            let name = found.as_ref().map(|found| found.name.clone()).unwrap_or_default();
            assert_eq!(name, "", "cut at {end}");
            placements.extend(found.as_ref().map(|found| found.placement.clone()));
            if end == text.len() {
                let affinity = Vec::new();
                assert_eq!(found.map(|it| Record { affinity, ..it }), Some(written()));
            }
        }
        // The group alone says where its processes go: to the root, as nothing else is known.
        let Placement::Cgroup { group, origin, adopted, .. } = &placements[0] else { panic!() };
        assert_eq!(group, Path::new("/sys/fs/cgroup/gangd/job-7"));
        assert_eq!((origin.to_str(), *adopted), (Some("/sys/fs/cgroup"), false));
        assert!(placements.len() > text.len() / 2);
        assert_eq!(placements.last(), Some(&cgroup()));
    }

    #[test]
    fn fields_of_another_version_are_passed_over() {
        let mut text = serde_json::to_value(written()).unwrap();
        text["weight"] = "heavy".into();
        text["colour"] = "red".into();
        text["registered_at_ns"].take();
        text["placement"][CGROUP]["adopted"] = "no".into();
        let found = read(text.to_string().as_bytes()).unwrap();
        assert_eq!((found.weight, found.owner_uid, found.normal.nice), (100, 1000, 5));
        assert_eq!(found.placement, cgroup());
        text["placement"] = serde_json::json!({ "container": 3 });
        assert_eq!(read(text.to_string().as_bytes()), None);
    }

    #[test]
    fn groups_are_known_by_the_number_of_their_job() {
        for name in ["job-7", "gangd.job-7", "gangd-12ab.job-7", "gangd-job-7"] {
            assert!(is_named_for(7, Path::new(name)), "{name}");
        }
        for name in ["job-17", "nightjob-7", "gangdjob-7", "x.job-7", "gangd.job-70", "gangd"] {
            assert!(!is_named_for(7, Path::new(name)), "{name}");
        }
    }
}
