//! Copies of a program with serial phases, in which a strict gang leaves CPUs idle (X6, X7): one
//! after the other, under plain Linux, as gangs that fill no holes, and as gangs that do.
//!
//! On two CPUs the copies' work alone cannot be done in less than half the time of batch. Less
//! than half comes of wake-ups: a CPU left idle at a serial phase has to be woken for the next
//! parallel one, which costs tens of microseconds and more in a virtual machine. Filled, it never
//! sleeps.

use anyhow::{Result, ensure};
use clap::Args;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::daemon::DaemonOptions;
use crate::harness::finish::{LIMIT, TIME, batch, together};
use crate::harness::lab::{Lab, Under, words};
use crate::harness::report::Report;
use crate::promises::list;

#[derive(Args, Debug, Clone)]
pub struct Fill {
    /// Copies that run
    #[arg(long, default_value_t = 4)]
    pub copies: usize,
    /// Pairs of a parallel and a serial phase [default: 8000, with --quick 2000]
    #[arg(long)]
    pub rounds: Option<u64>,
}

impl Fill {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        ensure!((1..=100).contains(&self.copies), "between 1 and 100 copies run");
        let gangd = |no_fill| {
            Under::Gangd(lab.settings(DaemonOptions { no_fill, ..DaemonOptions::default() }))
        };
        let copies = &vec![self.arguments(lab); self.copies];
        let mut conditions = vec![
            Condition::new("batch", |lab| batch(lab, copies)),
            Condition::new("plain Linux", |lab| together(lab, &Under::Plain, copies)),
        ];
        if !lab.options.plain {
            let measure = move |lab: &Lab| together(lab, &gangd(true), copies);
            conditions.push(Condition::new("gang without filling", measure));
            let measure = move |lab: &Lab| together(lab, &gangd(false), copies);
            conditions.push(Condition::new("gang", measure));
        }
        let about = format!(
            "{} copies of a program of {} threads with serial phases",
            self.copies,
            lab.threads()
        );
        let run = alternate(lab, "fill", lab.runs(), &conditions)?;
        let mut report = Report::new(lab, about, run, TIME);
        report.ratio("gang without filling", "batch", TIME);
        report.ratio("plain Linux", "batch", TIME);
        if !lab.options.plain {
            let promises =
                [("plain Linux", &list::FILL_OVER_LINUX), ("batch", &list::FILL_OVER_BATCH)];
            for (over, promise) in promises {
                let ratio = report.ratio("gang", over, TIME);
                report.promise_of(promise, &format!("{} copies", self.copies), ratio);
            }
        }
        Ok(report)
    }

    fn arguments(&self, lab: &Lab) -> Vec<String> {
        let rounds = self.rounds.unwrap_or(if lab.options.quick { 2_000 } else { 8_000 });
        let limit = if lab.options.quick { LIMIT / 3 } else { LIMIT };
        let (threads, limit_s) = (lab.threads(), limit.as_secs());
        words(&format!("phases --threads {threads} --rounds {rounds} --limit {limit_s}s"))
    }
}
