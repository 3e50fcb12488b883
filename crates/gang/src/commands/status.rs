//! `gang status`: the daemon.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use gang_protocol::name::escaped;
use gang_protocol::paths::Surroundings;
use gang_protocol::v1;

use crate::cli::Listing;
use crate::connect::connect;
use crate::show_values::{
    count, duration, flushes as show_flushes, percent, print_json, size, word,
};
use crate::table::{Align, render, terminal_width};

pub fn status(args: &Listing, daemon: &Surroundings) -> Result<()> {
    let mut client = connect(daemon)?;
    let reply = client.status()?;
    if args.json {
        return print_json(&reply);
    }
    print!("{}", text(&reply.status, client.socket(), terminal_width())?);
    Ok(())
}

fn text(
    status: &v1::Status,
    socket: &Path,
    width: Option<usize>,
) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let guardian = match status.guardian_pid {
        Some(pid) => format!("guardian {pid}"),
        None => "no guardian".to_owned(),
    };
    writeln!(
        out,
        "gangd {}, pid {}, {guardian}, up {}",
        escaped(&status.version),
        status.pid,
        duration(status.uptime_ns)
    )?;
    writeln!(out, "socket    {}", escaped(&socket.to_string_lossy()))?;
    writeln!(out, "backend   {}, {}", escaped(&status.backend), promise(&status.guarantee))?;
    writeln!(
        out,
        "slice     {}, {}, filling {}, gang share {}",
        duration(status.slice_ns),
        gap(status),
        if status.fill { "on" } else { "off" },
        percent(status.gang_share_max)
    )?;
    writeln!(
        out,
        "machine   {}, {}, {} runnable outside all jobs",
        count(status.cpus, "CPU"),
        count(status.jobs, "job"),
        count(status.unregistered_threads, "thread"),
    )?;
    writeln!(
        out,
        "shares    {}",
        match status.shares {
            v1::Shares::equal => "of users, then of each user's jobs by weight",
            v1::Shares::by_program => "of all jobs by weight",
        }
    )?;
    let hours = match status.working_hours {
        None => "",
        Some(true) => ", in working hours",
        Some(false) => ", outside working hours",
    };
    let express =
        status.express_weight.map_or_else(String::new, |weight| format!("express {weight} %, "));
    writeln!(
        out,
        "classes   {express}interactive {} %, batch {} %{hours}",
        status.interactive_weight, status.batch_weight
    )?;
    let slots: Vec<String> = status.class_slices.iter().filter_map(|of| slot(of, status)).collect();
    if !slots.is_empty() {
        writeln!(out, "slots     {}", slots.join(", "))?;
    }
    for (name, supply) in [("memory", &status.memory), ("disk", &status.disk)] {
        writeln!(
            out,
            "{name:<9} {} of {} free, {} of it promised",
            size(supply.free),
            size(supply.total),
            size(supply.promised)
        )?;
    }
    if let Some(reason) = &status.not_measured {
        writeln!(out, "measured  nothing of how gangs are coscheduled: {}", escaped(reason))?;
    }
    writeln!(out, "switches  {}", status.switches.count)?;
    let v1::Switches { late_plans, ran_out, .. } = status.switches;
    writeln!(out, "plans     {late_plans} came late, {ran_out} ran out")?;
    if let Some(flushes) = &status.flushes {
        writeln!(out, "flushes   {}", show_flushes(flushes))?;
    }
    if status.switches.count > 0 {
        write!(out, "\n{}", phases(&status.switches))?;
    }
    write!(out, "\n{}", backends(&status.backends, width))?;
    Ok(out)
}

/// For how long a gang of this class keeps its slot, if it is for more than one slice.
fn slot(of: &v1::ClassSlice, status: &v1::Status) -> Option<String> {
    let is_longer = of.slice_ns > status.slice_ns;
    is_longer.then(|| format!("{} up to {}", word(&of.class), duration(of.slice_ns)))
}

fn gap(status: &v1::Status) -> String {
    match status.gap_ns {
        0 => "no gap".to_owned(),
        length_ns => {
            format!("gap {} in every {}", duration(length_ns), duration(status.gap_period_ns))
        }
    }
}

fn promise(guarantee: &v1::Guarantee) -> &'static str {
    match guarantee {
        v1::Guarantee::exclusive => "exclusive: nothing ordinary runs in the place of a gang",
        v1::Guarantee::preferred => "preferred: a gang gets nearly all of its slot",
        v1::Guarantee::paused => {
            "paused: the other gangs that take turns stand still, the rest of the machine not"
        }
    }
}

fn phases(switches: &v1::Switches) -> String {
    let columns =
        [("µs", Align::Left), ("p50", Align::Right), ("p99", Align::Right), ("max", Align::Right)];
    let row = |name: &str, phase: &v1::Phase| {
        let times = [phase.p50_ns, phase.p99_ns, phase.max_ns];
        let times = times.iter().map(|ns| format!("{:.1}", *ns as f64 / 1e3));
        std::iter::once(name.to_owned()).chain(times).collect()
    };
    let rows = [
        row("late", &switches.late),
        row("lower", &switches.lower),
        row("raise", &switches.raise),
        row("skew", &switches.skew),
    ];
    render(&columns, &rows, None)
}

fn backends(backends: &[v1::Backend], width: Option<usize>) -> String {
    let columns =
        [("BACKEND", Align::Left), ("GUARANTEE", Align::Left), ("USABLE HERE", Align::Shrink)];
    let row = |backend: &v1::Backend| {
        let usable = match (&backend.reason, backend.usable) {
            (_, true) => "yes".to_owned(),
            (Some(reason), false) => format!("no: {reason}"),
            (None, false) => "no".to_owned(),
        };
        vec![backend.name.clone(), word(&backend.guarantee), usable]
    };
    render(&columns, &backends.iter().map(row).collect::<Vec<_>>(), width)
}
