//! Pictures, drawn by matplotlib in one style.
//!
//! A drawing is a script in Python and its data. The script has the file of the style as its first
//! argument and the files to write as the others; the data is JSON on its standard input. This room
//! chooses the Python, and says what is missing where none has matplotlib.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

const STYLE: &str = include_str!("gang.mplstyle");

/// The file of a picture, as it is typed: its ending says the format.
pub fn path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("svg" | "png") => Ok(path),
        _ => Err("a picture is a file that ends with .svg or .png".into()),
    }
}

/// Has a script draw one picture into all of the files.
pub fn draw(script: &str, picture: &Value, paths: &[&Path]) -> Result<()> {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    draw_with(script, picture, paths).with_context(|| format!("cannot draw {}", names.join(", ")))
}

fn draw_with(script: &str, picture: &Value, paths: &[&Path]) -> Result<()> {
    let python = python_with("matplotlib")
        .context("it takes matplotlib: install the package python3-matplotlib")?;
    let dir = tempfile::tempdir().context("making a directory for the style")?;
    let style = dir.path().join("gang.mplstyle");
    fs::write(&style, STYLE).with_context(|| format!("writing {}", style.display()))?;
    let mut child = Command::new(python)
        .args(["-c", script])
        .arg(&style)
        .args(paths)
        .env("MPLCONFIGDIR", dir.path())
        .stdin(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {python}"))?;
    let mut stdin = child.stdin.take().expect("it was asked for");
    let handed = stdin.write_all(picture.to_string().as_bytes());
    drop(stdin);
    // One that reads nothing has said why, and its status is the better reason.
    let status = child.wait().with_context(|| format!("waiting for {python}"))?;
    if !status.success() {
        bail!("{python} ended with {status}");
    }
    handed.with_context(|| format!("handing {python} the data"))
}

/// A Python that has a module: the system's, for which packages are installed, else the first in
/// PATH.
pub fn python_with(module: &str) -> Option<&'static str> {
    ["/usr/bin/python3", "python3"].into_iter().find(|python| {
        let status = Command::new(python)
            .args(["-c", &format!("import {module}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pictures_end_with_what_they_are() {
        assert_eq!(path("a.svg"), Ok("a.svg".into()));
        for wrong in ["a.jpg", "svg", "a"] {
            assert!(path(wrong).unwrap_err().contains(".svg or .png"), "{wrong}");
        }
    }

    #[test]
    fn failing_script_is_reported_needs_matplotlib() {
        let script = "import sys; sys.exit(7)";
        let error = draw(script, &json!({}), &[Path::new("/nowhere/a.svg")]).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.starts_with("cannot draw /nowhere/a.svg: "), "{error}");
        match python_with("matplotlib") {
            Some(_) => assert!(error.ends_with("exit status: 7"), "{error}"),
            None => assert!(error.ends_with("python3-matplotlib"), "{error}"),
        }
    }
}
