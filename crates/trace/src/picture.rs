//! A record as a picture, drawn by matplotlib: for each CPU a lane of slots, and one of who ran.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::{collect::Recorded, events::Role};

const SCRIPT: &str = include_str!("picture.py");

/// The path of a picture, by its ending.
pub fn path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("svg" | "png") => Ok(path),
        _ => Err("a picture is a file that ends with .svg or .png".into()),
    }
}

pub fn draw(recorded: &Recorded, path: &Path) -> Result<()> {
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
            let middle_ns = stay.start_ns + (stay.end_ns - stay.start_ns) / 2;
            let role = Role::of(recorded, cpu, stay.pid, middle_ns);
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
    let python = python().with_context(|| {
        format!("cannot draw {}: it takes matplotlib (package python3-matplotlib)", path.display())
    })?;
    let mut python = Command::new(python)
        .args(["-c", SCRIPT])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {python}"))?;
    let mut stdin = python.stdin.take().context("cannot draw: python3 takes no input")?;
    stdin.write_all(description.to_string().as_bytes()).context("cannot draw")?;
    drop(stdin);
    let status = python.wait().context("cannot draw")?;
    ensure!(status.success(), "cannot draw {}", path.display());
    Ok(())
}

/// A Python that has matplotlib: the system's first, for which packages are installed.
fn python() -> Option<&'static str> {
    ["/usr/bin/python3", "python3"].into_iter().find(|python| {
        let mut import = Command::new(python);
        import.args(["-c", "import matplotlib"]).stdin(Stdio::null()).stderr(Stdio::null());
        import.status().is_ok_and(|status| status.success())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_end_with_what_they_are() {
        assert_eq!(path("a.svg"), Ok("a.svg".into()));
        assert!(path("a.jpg").is_err());
        assert!(path("svg").is_err());
    }
}
