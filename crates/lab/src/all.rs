//! Every experiment, and one page with all their figures, complete in itself.
//!
//! The page is written anew after each experiment, so that what was measured is there whatever
//! becomes of the rest. An experiment that fails is listed, and does not keep the others from being
//! measured.

mod page;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde::Serialize;

use crate::harness::lab::Lab;
use crate::harness::machine::Machine;
use crate::harness::report::{Report, write_csv};
use crate::registry::{EXPERIMENTS, Experiment};

#[derive(Args, Debug, Clone)]
pub struct All {
    /// Directory for the page (index.html), pictures, figures as JSON and samples as CSV
    #[arg(long, default_value = "lab-out", value_name = "DIR")]
    pub out: PathBuf,
    /// Only these experiments
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub only: Vec<String>,
}

/// The result of one experiment.
pub struct Done {
    pub name: &'static str,
    pub found: Result<Report, String>,
    /// The picture as the text of a link that holds all of it; why there is none otherwise.
    pub picture: Result<String, String>,
}

#[derive(Serialize)]
struct Written<'a> {
    machine: &'a Machine,
    reports: Vec<serde_json::Value>,
    /// Experiments that failed, and why.
    failures: Vec<(&'a str, &'a str)>,
}

impl All {
    pub fn run(&self, lab: &Lab) -> Result<()> {
        let options = &lab.options;
        ensure!(
            options.json.is_none() && options.csv.is_none() && options.picture.is_empty(),
            "all experiments write into the directory of --out; one of them alone writes into its file"
        );
        if let Some(name) = self.only.iter().find(|name| Experiment::named(name).is_none()) {
            let names: Vec<&str> = EXPERIMENTS.iter().map(|it| it.name).collect();
            anyhow::bail!("there is no experiment {name}; there are {}", names.join(", "));
        }
        fs::create_dir_all(&self.out)
            .with_context(|| format!("making the directory {}", self.out.display()))?;
        let wanted = |name: &str| self.only.is_empty() || self.only.iter().any(|only| only == name);
        let wanted: Vec<_> = EXPERIMENTS.iter().filter(|it| wanted(it.name)).collect();
        let mut machine = Machine::this(lab.cpus);
        let mut done = Vec::new();
        for (number, experiment) in wanted.iter().enumerate() {
            let name = experiment.name;
            eprintln!("{name} ({} of {}) …", number + 1, wanted.len());
            let found = experiment.run_default(lab).map_err(|error| format!("{error:#}"));
            let picture = match &found {
                Ok(report) => self.draw(name, report).map_err(|error| format!("{error:#}")),
                Err(_) => Err(String::new()),
            };
            done.push(Done { name, found, picture });
            machine.look_again();
            self.write(&machine, &done)?;
        }
        print!("{}", summary(&done));
        println!("\nThe page with all figures: {}", self.out.join("index.html").display());
        Ok(())
    }

    /// Draws a report into the directory, and returns the drawing as a link that holds it.
    fn draw(&self, name: &str, report: &Report) -> Result<String> {
        let [svg, png] = ["svg", "png"].map(|ending| self.out.join(name).with_extension(ending));
        report.draw(&[&svg, &png])?;
        let drawn = fs::read(&svg).with_context(|| format!("reading {}", svg.display()))?;
        Ok(format!("data:image/svg+xml;base64,{}", STANDARD.encode(drawn)))
    }

    fn write(&self, machine: &Machine, done: &[Done]) -> Result<()> {
        let write = |name: &str, text: &str| {
            let path = self.out.join(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
        };
        write("index.html", &page::page(machine, done))?;
        let reports: Vec<&Report> =
            done.iter().filter_map(|done| done.found.as_ref().ok()).collect();
        write_csv(&self.out.join("samples.csv"), reports.iter().copied())?;
        let values = reports.iter().map(|report| serde_json::to_value(report.value()));
        let failures =
            done.iter().filter_map(|done| Some((done.name, done.found.as_ref().err()?.as_str())));
        let written = Written {
            machine,
            reports: values.collect::<Result<_, _>>().context("writing figures as JSON")?,
            failures: failures.collect(),
        };
        let json = serde_json::to_string_pretty(&written).context("writing figures as JSON")?;
        write("figures.json", &(json + "\n"))
    }
}

/// The verdicts, for a terminal.
fn summary(done: &[Done]) -> String {
    let mut text = String::new();
    for Done { name, found, .. } in done {
        text += &format!("\n{name}\n");
        match found {
            Ok(report) => {
                text.extend(report.verdicts().iter().map(|verdict| format!("- {verdict}\n")))
            }
            Err(error) => text += &format!("- Not measured: {error}\n"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const OF_PAPERS: usize = 17;

    #[test]
    fn every_experiment_of_a_paper_has_its_page() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab");
        for name in EXPERIMENTS[..OF_PAPERS].iter().map(|it| it.name) {
            let page = docs.join(name).with_extension("md");
            let text = fs::read_to_string(&page)
                .unwrap_or_else(|error| panic!("{}: {error}", page.display()));
            let command = format!("    gang lab {name}");
            let has = |line: &str| text.lines().any(|it| it == line);
            for line in [&command, "## Question", "## What we do", "## Last result", "## Agreement"]
            {
                assert!(has(line), "no {line:?} in {}", page.display());
            }
            let origins = ["## What the paper did", "## Where it comes from"];
            assert!(origins.into_iter().any(has), "no origin in {}", page.display());
        }
    }

    #[test]
    fn the_page_names_every_experiment_with_its_picture() {
        use crate::harness::alternate::Run;
        use crate::harness::options::Options;
        use crate::harness::samples::Series;
        let lab = Lab::new(&Options::default()).unwrap();
        let machine = Machine::this(2);
        let done = EXPERIMENTS.map(|Experiment { name, .. }| {
            let samples = std::collections::BTreeMap::from([("per_s", vec![1.0])]);
            let series = vec![Series::new("gangd", samples)];
            let run = Run::made_up(name, 1, series, Vec::new());
            let found = Ok(Report::new(&lab, format!("about {name}"), run, "per_s"));
            let picture = Ok(format!("data:image/svg+xml;base64,{}", STANDARD.encode(name)));
            Done { name, found, picture }
        });
        let page = page::page(&machine, &done);
        for Experiment { name, .. } in EXPERIMENTS {
            for part in [
                format!("<a href=\"#{name}\">{name}</a>"),
                format!("<h2 id=\"{name}\">{name}</h2>"),
                format!("<img src=\"data:image/svg+xml;base64,{}\"", STANDARD.encode(name)),
            ] {
                assert!(page.contains(&part), "no {part} in {page}");
            }
        }
        assert!(!page.contains("http"), "the page needs nothing else");
    }
}
