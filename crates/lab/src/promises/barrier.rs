//! Copies of BARRIER (E10) that share the machine: alone, under plain Linux, and under gangd at
//! several slices, each with nothing else running and with a CPU hog for each CPU beside them.
//!
//! "Over one copy alone" compares with one copy as a gang at the same slice, which is raised in the
//! same way (`gangd --no-uncontended-passthrough`), so that what remains is the cost of sharing.
//!
//! With hogs beside them, all that is runnable gets a similar amount of CPU (L18), under plain
//! Linux as under gangd: of two copies and as many hogs as CPUs, the copies have two thirds of the
//! machine in both. So the sums compare at equal shares; that plain Linux' copies do little with
//! their CPU time shows in the iterations for each second of it.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::daemon::DaemonOptions;
use crate::harness::duration;
use crate::harness::lab::{Lab, Launch, Together, Under};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::promises::list;
use crate::workload::barrier::DEFAULT_INTERVAL;

const RATE: &str = "iterations_per_s";

#[derive(Args, Debug, Clone)]
pub struct Barrier {
    /// Copies that run at once
    #[arg(long, default_value_t = 2)]
    pub copies: usize,
    /// Slices of gangd that are compared [default: 1ms,10ms,20ms,100ms, with --quick 1ms,20ms]
    #[arg(long, value_delimiter = ',', value_parser = duration::parse)]
    pub slices: Vec<Duration>,
    /// CPU hogs in the conditions that have them [default: one for each CPU]
    #[arg(long)]
    pub hogs: Option<usize>,
    /// Work between two barriers: cycles, or a length of time (40us)
    #[arg(long, default_value = DEFAULT_INTERVAL)]
    pub interval: String,
    /// Largest random addition to it: cycles, or a length of time
    #[arg(long, default_value = "0")]
    pub variance: String,
    /// How threads wait: spin, spin-block, or spin-block:TIME
    #[arg(long, default_value = "spin")]
    pub wait: String,
}

impl Barrier {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        ensure!((1..=100).contains(&self.copies), "between 1 and 100 copies run at once");
        let hogs = self.hogs.unwrap_or(lab.cpus);
        let mut ways = vec![("plain Linux".to_owned(), Under::Plain)];
        for slice in self.slices(lab) {
            // Of one copy that is left to Linux, the gaps would be missing.
            let raised =
                DaemonOptions { no_uncontended_passthrough: true, ..DaemonOptions::slice(slice) };
            let settings = lab.settings(raised);
            ways.push((format!("gangd {}", duration::show(slice)), Under::Gangd(settings)));
        }
        let mut conditions = Vec::new();
        for beside in if hogs > 0 { vec![0, hogs] } else { vec![0] } {
            for (way, under) in &ways {
                for copies in if self.copies > 1 { vec![1, self.copies] } else { vec![1] } {
                    conditions.push(Condition::new(name(copies, way, beside), move |lab| {
                        self.measure(lab, under, copies, beside)
                    }));
                }
            }
        }
        let about = format!(
            "BARRIER({}, {}), {}: {} copies of {} threads",
            self.interval,
            self.variance,
            self.wait,
            self.copies,
            lab.threads()
        );
        let run = alternate(lab, "barrier", lab.runs(), &conditions)?;
        let mut report = Report::new(lab, about, run, RATE);
        self.compare(&mut report, &ways, hogs);
        Ok(report)
    }

    fn slices(&self, lab: &Lab) -> Vec<Duration> {
        let ms: &[u64] = match (lab.options.plain, lab.options.quick) {
            (true, _) => &[],
            (_, true) => &[1, 20],
            (_, false) => &[1, 10, 20, 100],
        };
        if lab.options.plain || self.slices.is_empty() {
            return ms.iter().map(|ms| Duration::from_millis(*ms)).collect();
        }
        self.slices.clone()
    }

    fn measure(&self, lab: &Lab, under: &Under, copies: usize, hogs: usize) -> Result<Sample> {
        let barrier = Launch::gang(
            lab.threads().min(lab.cpus),
            &format!(
                "barrier --threads {} --interval {} --variance {} --wait {}",
                lab.threads(),
                self.interval,
                self.variance,
                self.wait
            ),
        );
        let mut all = vec![barrier; copies];
        if hogs > 0 {
            all.push(Launch::unregistered(&format!("hog --threads {hogs}")));
        }
        let daemon = lab.daemon_of(under)?;
        let Together { outcomes, sample } =
            lab.run_together(lab.by(daemon.as_ref()), &all, lab.length(Duration::from_secs(2)))?;
        let rate: f64 = outcomes[..copies].iter().map(|outcome| outcome.rate()).sum();
        let length_s = outcomes[0].elapsed_ns as f64 / 1e9;
        let cpu_s: f64 = outcomes[..copies].iter().map(|o| o.cpu_ns as f64 / 1e9).sum();
        let mut sample = sample.with([
            (RATE, rate),
            ("cpus_used", cpu_s / length_s),
            ("iterations_per_cpu_s", if cpu_s > 0.0 { rate * length_s / cpu_s } else { 0.0 }),
        ]);
        if hogs > 0 {
            let used = outcomes[copies].cpu_ns as f64 / 1e9 / length_s;
            sample.figures.insert("cpus_used_by_hogs", used);
        }
        Ok(sample)
    }

    fn compare(&self, report: &mut Report, ways: &[(String, Under)], hogs: usize) {
        for beside in [0, hogs] {
            let plain = name(self.copies, "plain Linux", beside);
            for (way, _) in ways {
                let together = name(self.copies, way, beside);
                report.ratio(&together, &name(1, way, beside), RATE);
                if way == "plain Linux" {
                    continue;
                }
                let over_plain = report.ratio(&together, &plain, RATE);
                if way == "gangd 20ms" {
                    let promise = match beside {
                        0 => &list::BARRIER_OVER_LINUX,
                        _ => &list::BARRIER_OVER_LINUX_HOGS,
                    };
                    report.promise(promise, over_plain);
                }
            }
            if hogs == 0 {
                break;
            }
        }
    }
}

fn name(copies: usize, way: &str, hogs: usize) -> String {
    let copies = if copies == 1 { "alone".into() } else { format!("{copies} copies") };
    let hogs = if hogs == 0 { String::new() } else { format!(", {hogs} hogs") };
    format!("{copies}, {way}{hogs}")
}
