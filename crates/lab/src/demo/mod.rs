//! `gang lab demo`: two real OpenMP programs, alone and two copies at once, under plain Linux and
//! as gangs; a table, and a picture of which gang ran where.

mod timeline;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::harness::daemon::{Daemon, DaemonOptions};
use crate::harness::lab::Lab;
use crate::harness::options::Options;
use crate::harness::picture;
use crate::harness::progress::say;
use crate::harness::real_programs::{Copies, Program, gauss, numpy};
use crate::harness::table::{figure, render};
use crate::workload::seconds;
use timeline::Timeline;

/// Time that copies run before the recording, and its length.
const BEFORE: Duration = Duration::from_millis(300);
const RECORDED: Duration = Duration::from_millis(300);
const COPIES: usize = 2;
/// How many times as long as alone a program is waited for where it shares the machine: so that the
/// demo ends within a minute, whatever becomes of the programs under plain Linux.
const LONGEST: u32 = 12;
const COLUMNS: usize = 72;

#[derive(Args, Debug)]
pub struct Demo {
    /// Directory for the pictures and figures
    #[arg(long, default_value = "demo-out", value_name = "DIR")]
    out: PathBuf,
    /// The gang program to use
    #[arg(long, value_name = "PATH")]
    gang: Option<PathBuf>,
    /// The daemon to use
    #[arg(long, value_name = "PATH")]
    gangd: Option<PathBuf>,
    /// Backend of the daemon [default: its own choice]
    #[arg(long)]
    backend: Option<String>,
    /// About how long each program takes alone; where it shares the machine it is waited for 12
    /// times as long
    #[arg(long, default_value = "1s", value_parser = seconds)]
    seconds: Duration,
}

/// Times of one program, in seconds; none where it was not done in its time.
#[derive(Serialize)]
struct Times {
    program: &'static str,
    alone_s: f64,
    plain_s: Option<f64>,
    gangs_s: Option<f64>,
}

/// The two timelines of one program, plain Linux first; an error where recording is not permitted.
type Recording = Result<Vec<Timeline>>;

impl Demo {
    pub fn run(&self) -> Result<()> {
        let lab = Lab::new(&Options {
            gang: self.gang.clone(),
            gangd: self.gangd.clone(),
            backend: self.backend.clone(),
            ..Options::default()
        })?;
        // Before anything is measured: what is missing should be known at once.
        lab.programs.gang()?;
        lab.programs.gangd()?;
        let dir = tempfile::tempdir().context("making a directory for the programs")?;
        let mut programs = vec![gauss(dir.path())?.sized(&lab, self.seconds)?];
        match numpy(dir.path()) {
            Ok(program) => programs.push(program.sized(&lab, self.seconds)?),
            Err(error) => println!("Without numpy: {error:#}\n"),
        }
        println!(
            "Two copies of a program, each with a thread on every one of {} CPUs.\n",
            lab.cpus
        );
        let mut all = Vec::new();
        let mut recording: Option<Recording> = None;
        for program in &programs {
            let (times, recorded) = measure(&lab, program, self.longest())?;
            all.push(times);
            recording.get_or_insert(recorded);
        }
        println!("{}", table(&all, self.longest()));
        fs::create_dir_all(&self.out).with_context(|| format!("making {}", self.out.display()))?;
        let json = serde_json::to_string_pretty(&all).context("writing times as JSON")?;
        let path = self.out.join("times.json");
        fs::write(&path, json + "\n").with_context(|| format!("writing {}", path.display()))?;
        match recording {
            Some(Ok(timelines)) => self.show(programs[0].name, &timelines),
            Some(Err(error)) => {
                println!("No picture of which gang ran where: {error:#}");
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn longest(&self) -> Duration {
        self.seconds.saturating_mul(LONGEST)
    }

    fn show(&self, program: &str, timelines: &[Timeline]) -> Result<()> {
        let ms = RECORDED.as_millis();
        println!("Which copy of {program} ran where, {ms} ms (A, B: the copies, .: others):\n");
        for timeline in timelines {
            println!("{}\n{}", timeline.name, timeline.ascii(COLUMNS));
        }
        let svg = self.out.join("timeline.svg");
        let png = self.out.join("timeline.png");
        let panels: Vec<_> = timelines.iter().map(Timeline::panel).collect();
        let drawn = picture::draw(
            &[&svg, &png],
            &json!({
                "kind": "timeline",
                "title": format!("two copies of {program}: which ran on which CPU"),
                "copies": ["copy A", "copy B"],
                "length_ms": RECORDED.as_secs_f64() * 1e3,
                "panels": panels,
            }),
        );
        match drawn {
            Ok(()) => println!("Drawn in {} and {}.", svg.display(), png.display()),
            Err(error) => println!("Not drawn: {error:#}"),
        }
        Ok(())
    }
}

fn measure(lab: &Lab, program: &Program, longest: Duration) -> Result<(Times, Recording)> {
    say(&format!("{}: alone", program.name));
    // The better of two: the yardstick should be the machine's, not that of what else ran.
    let alone_s = program.start(lab, None, 1)?.finish()?;
    let alone_s = program.start(lab, None, 1)?.finish()?.min(alone_s);
    say(&format!("{}: two copies, plain Linux", program.name));
    let (plain_s, plain) = watched(lab, program, None, longest)?;
    say(&format!("{}: two copies, gangs", program.name));
    let daemon = lab.daemon(&lab.settings(DaemonOptions::default()))?;
    let (gangs_s, gangs) = watched(lab, program, Some(&daemon), longest)?;
    say("");
    let times = Times { program: program.name, alone_s, plain_s, gangs_s };
    Ok((times, plain.and_then(|plain| Ok(vec![plain, gangs?]))))
}

/// Runs two copies and records a part of their time.
fn watched(
    lab: &Lab,
    program: &Program,
    daemon: Option<&Daemon>,
    longest: Duration,
) -> Result<(Option<f64>, Result<Timeline>)> {
    let name = if daemon.is_some() { "gangd" } else { "plain Linux" };
    let copies: Copies = program.start(lab, daemon, COPIES)?;
    let pids = copies.pids();
    std::thread::sleep(BEFORE);
    let timeline = gang_linux::switches::record(0..lab.cpus, RECORDED)
        .map_err(anyhow::Error::from)
        .map(|recording| Timeline::new(name, &recording, &pids));
    Ok((copies.within(longest).finish_in_time()?, timeline))
}

fn table(all: &[Times], longest: Duration) -> String {
    let row = |times: &Times| {
        let seconds = |time_s: Option<f64>| match time_s {
            Some(time_s) => format!("{} s", figure(time_s)),
            None => format!("> {} s", figure(longest.as_secs_f64())),
        };
        let over = |time_s: Option<f64>| {
            time_s.map_or("".into(), |time_s| format!("{} ×", figure(time_s / times.alone_s)))
        };
        vec![
            times.program.into(),
            seconds(Some(times.alone_s)),
            seconds(times.plain_s),
            over(times.plain_s),
            seconds(times.gangs_s),
            over(times.gangs_s),
        ]
    };
    let heading = ["", "alone", "two, plain Linux", "", "two, gang run", "(2 × is ideal)"];
    render(&heading, &all.iter().map(row).collect::<Vec<_>>())
}
