//! The file of `--resume`: every sample is appended to it as a line of JSON when it was taken, so
//! that a run that was interrupted goes on where it stopped, and a comparison can be had again
//! without measuring.
//!
//! Samples of another machine, or of other settings, are not mixed with new ones: that is an error.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::harness::noise::Noise;
use crate::harness::samples::Sample;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", bound(deserialize = "'de: 'static"))]
enum Entry {
    /// An experiment begins, or goes on.
    Run {
        experiment: String,
        settings: String,
    },
    Sample {
        experiment: String,
        condition: String,
        round: usize,
        #[serde(flatten)]
        sample: Sample,
    },
    Noise {
        experiment: String,
        noise: Noise,
    },
    /// How much work it is that programs are given.
    Amount {
        what: String,
        amount: u64,
    },
}

#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: RefCell<File>,
    found: Vec<Entry>,
}

impl Journal {
    /// Opens a file, or makes it, and reads what it has. A last line that a killed lab left
    /// unfinished is cut off.
    pub fn open(path: &Path) -> Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(|| format!("opening {}", path.display()))?;
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(|| format!("reading {}", path.display()))?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).with_context(|| format!("cutting {}", path.display()))?;
        file.seek(SeekFrom::End(0)).with_context(|| format!("writing to {}", path.display()))?;
        text.truncate(whole);
        // Names of figures are borrowed from the text, which is read once and kept to the end.
        let text: &'static str = text.leak();
        let mut found = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let entry = serde_json::from_str(line).with_context(|| {
                format!("line {} of {} is none of a run's samples", number + 1, path.display())
            })?;
            found.push(entry);
        }
        Ok(Self { path: path.to_owned(), file: RefCell::new(file), found })
    }

    /// Notes that an experiment begins; one that began with other settings cannot go on.
    pub fn begin(&self, experiment: &str, settings: &str) -> Result<()> {
        for entry in &self.found {
            match entry {
                Entry::Run { experiment: name, settings: before }
                    if name == experiment && before != settings =>
                {
                    bail!(
                        "{} has {experiment} measured differently ({before}; now {settings}): name \
                         another file, or use the same machine and options",
                        self.path.display()
                    )
                }
                _ => {}
            }
        }
        self.append(&Entry::Run { experiment: experiment.into(), settings: settings.into() })
    }

    /// A sample that was taken before.
    pub fn sample(&self, experiment: &str, condition: &str, round: usize) -> Option<Sample> {
        self.found.iter().find_map(|entry| match entry {
            Entry::Sample { experiment: e, condition: c, round: r, sample }
                if e == experiment && c == condition && *r == round =>
            {
                Some(sample.clone())
            }
            _ => None,
        })
    }

    /// The noise that was found before.
    pub fn noise(&self, experiment: &str) -> Vec<Noise> {
        let of_it = |entry: &Entry| match entry {
            Entry::Noise { experiment: name, noise } if name == experiment => Some(*noise),
            _ => None,
        };
        self.found.iter().filter_map(of_it).collect()
    }

    pub fn add_sample(
        &self,
        experiment: &str,
        condition: &str,
        round: usize,
        sample: &Sample,
    ) -> Result<()> {
        self.append(&Entry::Sample {
            experiment: experiment.into(),
            condition: condition.into(),
            round,
            sample: sample.clone(),
        })
    }

    /// An amount of work that was measured before.
    pub fn amount(&self, what: &str) -> Option<u64> {
        self.found.iter().find_map(|entry| match entry {
            Entry::Amount { what: of, amount } if of == what => Some(*amount),
            _ => None,
        })
    }

    pub fn add_amount(&self, what: &str, amount: u64) -> Result<()> {
        self.append(&Entry::Amount { what: what.into(), amount })
    }

    pub fn add_noise(&self, experiment: &str, noise: Noise) -> Result<()> {
        self.append(&Entry::Noise { experiment: experiment.into(), noise })
    }

    fn append(&self, entry: &Entry) -> Result<()> {
        let mut line = serde_json::to_string(entry).context("writing a sample as JSON")?;
        line.push('\n');
        let mut file = self.file.borrow_mut();
        file.write_all(line.as_bytes())
            .with_context(|| format!("writing to {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::samples::Figures;

    #[test]
    fn resumed_run_gives_programs_as_much_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let journal = Journal::open(&path).unwrap();
        journal.add_amount("numpy in 1s", 180).unwrap();
        let journal = Journal::open(&path).unwrap();
        assert_eq!(journal.amount("numpy in 1s"), Some(180));
        assert_eq!(journal.amount("numpy in 2s"), None);
    }

    #[test]
    fn what_was_appended_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let noise = Noise { lost_percent: 1.5, longest_ms: 4.0, handover_ns: Some(70.0) };
        let first = Journal::open(&path).unwrap();
        first.begin("gauss", "2 CPUs").unwrap();
        let figures = Figures::from([("mflops", 7.5)]);
        let not_measured = Some("it takes CAP_BPF".into());
        let lost_to_ns = [("kworker/0:1 (other)".into(), 7)].into();
        let notes = vec!["undecided".into()];
        let longer_window_s = Some(0.8);
        let sample = Sample {
            figures,
            not_measured,
            lost_to_ns,
            longer_window_s,
            notes,
            ..Sample::default()
        };
        first.add_sample("gauss", "1 thread, gang", 0, &sample).unwrap();
        first.add_noise("gauss", noise).unwrap();
        drop(first);
        let again = Journal::open(&path).unwrap();
        assert_eq!(again.sample("gauss", "1 thread, gang", 0), Some(sample));
        assert_eq!(again.sample("gauss", "1 thread, gang", 1), None);
        assert_eq!(again.sample("matmul", "1 thread, gang", 0), None);
        assert_eq!(again.noise("gauss"), [noise]);
        again.begin("gauss", "2 CPUs").unwrap();
        let error = again.begin("gauss", "4 CPUs").unwrap_err().to_string();
        assert!(error.contains("measured differently"), "{error}");
    }

    #[test]
    fn half_line_is_cut_off_and_other_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let journal = Journal::open(&path).unwrap();
        let figures = Figures::from([("c", 1.0)]);
        journal.add_sample("a", "b", 0, &Sample { figures, ..Sample::default() }).unwrap();
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}{{\"sample\":{{\"exp")).unwrap();
        let journal = Journal::open(&path).unwrap();
        assert!(journal.sample("a", "b", 0).is_some());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
        std::fs::write(&path, "my notes\n").unwrap();
        let error = Journal::open(&path).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "my notes\n");
    }
}
