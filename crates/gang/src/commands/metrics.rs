//! `gang metrics`: figures for Prometheus.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use gang_protocol::paths::Surroundings;
use gang_view::{live, metrics as text};

use crate::cli::Metrics;
use crate::leftovers;

pub fn metrics(args: &Metrics, surroundings: &Surroundings) -> Result<()> {
    let (snapshot, outcome) = match live::once(surroundings.clone(), None) {
        Ok(snapshot) => (snapshot, Ok(())),
        Err(error) => {
            if error.is_no_daemon() {
                leftovers::release_and_report(surroundings);
            }
            // That there is none is a metric too.
            let mut model = live::Model::new(&live::host());
            model.lost(&error, live::Moment::now());
            (model.snapshot(live::Moment::now()), Err(error.into()))
        }
    };
    match &args.textfile {
        Some(path) => replace(path, &text::render_for_textfile(&snapshot))
            .with_context(|| format!("cannot write the metrics to {}", path.display()))?,
        None => io::stdout().write_all(text::render(&snapshot).as_bytes())?,
    }
    outcome
}

/// Replaces a file as a whole: a reader has the old text or the new one. node_exporter takes files
/// that end in `.prom`, so the name meanwhile does not.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let write = || {
        let mut file = fs::File::options().write(true).create_new(true).mode(0o644).open(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, path)
    };
    write().inspect_err(|error| {
        // One that was there before is somebody else's.
        if error.kind() != io::ErrorKind::AlreadyExists {
            let _ = fs::remove_file(&new);
        }
    })
}
