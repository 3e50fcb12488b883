//! A record as a picture, drawn by matplotlib: for each CPU a lane of slots, and one of who ran.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::{collect::Recorded, events::Role};

const SCRIPT: &str = include_str!("picture.py");

pub fn draw(recorded: &Recorded, paths: &[&Path]) -> Result<()> {
    let ms = |ns: u64| ns.saturating_sub(recorded.start_ns) as f64 / 1e6;
    let length_ms = ms(recorded.end_ns);
    let lanes = recorded.cpus.iter().enumerate().map(|(cpu, stays)| {
        let slots = recorded.rows.iter().flat_map(|row| {
            let has = |slot: &&gang_protocol::v1::Slot| slot.cpu_list.contains(&(cpu as i64));
            let slots = row.slots.iter().filter(has);
            let (start_ns, end_ns) = (row.start_ns.max(0) as u64, row.end_ns.max(0) as u64);
            slots.map(move |slot| json!([ms(start_ns), ms(end_ns), slot.job]))
        });
        let ran = stays.iter().map(|stay| {
            let role = Role::of(recorded, cpu, stay);
            let job = recorded.members.get(&stay.pid);
            json!([ms(stay.start_ns), ms(stay.end_ns), job, role.name()])
        });
        json!({ "slots": slots.collect::<Vec<_>>(), "ran": ran.collect::<Vec<_>>() })
    });
    let description = json!({
        "length_ms": length_ms,
        "jobs": recorded.jobs,
        "cpus": lanes.collect::<Vec<_>>(),
        "backend": recorded.backend,
    });
    gang_picture::draw(SCRIPT, &description, paths)
}
