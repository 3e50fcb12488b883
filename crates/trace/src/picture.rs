//! A record as a picture, drawn by matplotlib: for each CPU a lane of slots, one of its switches in
//! their phases, and one of who ran; and below, how long the slowest switch of each edge took.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;
use gang_protocol::name::escaped;
use serde_json::{Value, json};

use crate::{collect::Recorded, events::Role};

const SCRIPT: &str = include_str!("picture.py");

pub fn draw(recorded: &Recorded, paths: &[&Path]) -> Result<()> {
    let ms = |ns: u64| ns.saturating_sub(recorded.start_ns) as f64 / 1e6;
    let length_ms = ms(recorded.end_ns);
    let lanes = recorded.cpus.iter().map(|(&cpu, stays)| {
        let slots = recorded.rows.iter().flat_map(|row| {
            let has = |slot: &&gang_protocol::v1::Slot| slot.cpu_list.contains(&(cpu as i64));
            let slots = row.slots.iter().filter(has);
            let (start_ns, end_ns) = (row.start_ns.max(0) as u64, row.end_ns.max(0) as u64);
            slots.map(move |slot| json!([ms(start_ns), ms(end_ns), slot.job]))
        });
        let ran = stays.iter().map(|stay| {
            let role = Role::of(recorded, cpu, stay);
            let job = recorded.members.of.get(&stay.pid);
            json!([ms(stay.start_ns), ms(stay.end_ns), job, role.name()])
        });
        json!({ "cpu": cpu, "slots": slots.collect::<Vec<_>>(), "ran": ran.collect::<Vec<_>>() })
    });
    // Characters that cannot be printed would make a picture that no program opens.
    let names = recorded.members.jobs.iter().map(|(&job, name)| (job, escaped(name).into_owned()));
    let description = json!({
        "length_ms": length_ms,
        "jobs": names.collect::<BTreeMap<i64, String>>(),
        "cpus": lanes.collect::<Vec<_>>(),
        "switches": switches(recorded),
    });
    gang_picture::draw(SCRIPT, &description, paths)
}

/// Of each switch the lane of its CPU, when it was asked for, in ms, and how long each phase took
/// from there on, in µs.
fn switches(recorded: &Recorded) -> Vec<Value> {
    let described = recorded.switches.iter().filter_map(|switch| {
        let cpu = *recorded.switchers.get(switch.switcher as usize)?.cpu_list.first()? as usize;
        let lane = recorded.cpus.keys().position(|&it| it == cpu)?;
        let asked_ms = (switch.asked_ns - recorded.start_ns as i64) as f64 / 1e6;
        let us = |from_ns: i64, to_ns: i64| (to_ns - from_ns) as f64 / 1e3;
        let late = us(switch.asked_ns, switch.began_ns);
        let lower = us(switch.began_ns, switch.lowered_ns);
        let raise = us(switch.lowered_ns, switch.raised_ns);
        Some(json!([lane, asked_ms, [late, lower, raise]]))
    });
    described.collect()
}

#[cfg(test)]
mod tests {
    use gang_protocol::v1;

    use super::*;
    use crate::members::Members;

    /// CPUs 2 and 3, each with a switcher, that change at 1 ms and at 2 ms; CPU 3 is slower.
    fn two_edges() -> Recorded {
        let switch = |number: i64, switcher: i64, late_ns: i64| {
            let asked_ns = number * 1_000_000;
            let (began_ns, lowered_ns) = (asked_ns + late_ns, asked_ns + late_ns + 20_000);
            let raised_ns = lowered_ns + 30_000;
            let (lowers, raises) = (1, 2);
            v1::Switch {
                switcher,
                number,
                asked_ns,
                began_ns,
                lowered_ns,
                raised_ns,
                lowers,
                raises,
                clock_bound_ns: None,
            }
        };
        let switcher = |cpu: i64| v1::Switcher { cpu_list: vec![cpu], count: 8 };
        let row = |slice: i64, job: i64| v1::Row {
            slice,
            start_ns: slice * 1_000_000,
            end_ns: (slice + 1) * 1_000_000,
            slots: vec![v1::Slot { job, cpu_list: vec![2, 3] }],
            rest_cpus: 0,
            rest_turn: false,
            gap: None,
        };
        Recorded {
            end_ns: 3_000_000,
            switchers: vec![switcher(2), switcher(3)],
            switches: vec![
                switch(1, 0, 10_000),
                switch(1, 1, 40_000),
                switch(2, 0, 10_000),
                switch(2, 1, 40_000),
            ],
            members: Members {
                jobs: BTreeMap::from([
                    (3, r#"$\frac{<b>&""#.to_owned()),
                    (4, "_\u{1b}[2J\u{202e}".to_owned()),
                ]),
                ..Members::default()
            },
            rows: vec![row(0, 3), row(1, 4), row(2, 3)],
            cpus: BTreeMap::from([(2, Vec::new()), (3, Vec::new())]),
            ..Recorded::default()
        }
    }

    #[test]
    fn switch_is_shown_by_its_phases() {
        let described = switches(&two_edges());
        assert_eq!(described[0], json!([0, 1.0, [10.0, 20.0, 30.0]]));
        assert_eq!(described[3], json!([1, 2.0, [40.0, 20.0, 30.0]]));
    }

    #[test]
    fn phases_and_names_are_drawn_needs_matplotlib() {
        if gang_picture::python_with("matplotlib").is_none() {
            gang_harness::skipped("needs matplotlib (on Debian: the package python3-matplotlib)");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let paths = ["t.svg", "t.png"].map(|name| directory.path().join(name));
        draw(&two_edges(), &paths.each_ref().map(|path| path.as_path())).unwrap();
        let svg = std::fs::read_to_string(&paths[0]).unwrap();
        assert!(std::fs::read(&paths[1]).unwrap().starts_with(b"\x89PNG"));
        let group = |name: &str| {
            let rest = svg.split(&format!("<g id=\"{name}\">")).nth(1);
            rest.unwrap_or_else(|| panic!("{name} is not in\n{svg}")).split("</g>").next().unwrap()
        };
        let bars = |name: &str| group(name).matches("<path d=").count();
        for phase in ["late", "lower", "raise"] {
            // All in the lanes of their CPUs; of each edge the slower one.
            assert_eq!(bars(phase), 4, "{phase}");
            assert_eq!(bars(&format!("{phase}-slowest")), 2, "{phase}");
            assert!(svg.contains(&format!(">{phase}</text>")), "{phase} is explained");
        }
        for cpu in ["CPU 2", "CPU 3"] {
            assert!(svg.contains(&format!(">{cpu}</text>")), "{cpu} has a lane");
        }
        for name in [r"$\frac{&lt;b&gt;&amp;", r"_\u{1b}[2J\u{202e}"] {
            assert!(svg.contains(name), "{name} is not in\n{svg}");
        }
        assert!(!svg.contains('\u{1b}') && !svg.contains('\u{202e}'));
    }
}
