//! The manual pages: gangd(8) from the definition of the command line, gangd.toml(5) from the
//! example of the configuration. So neither says anything that does not hold.

use std::io::Write;

use anyhow::{Context, Result};
use clap::{CommandFactory, ValueEnum};
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};

use crate::args::Args;

/// The pages, named as their files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Page {
    #[value(name = "gangd.8")]
    Daemon,
    #[value(name = "gangd.toml.5")]
    Configuration,
}

const EXAMPLE: &str = include_str!("../../../etc/gangd.toml");

/// The parts of the page that the definition of the command line does not hold: sections of terms
/// with their meaning.
const SECTIONS: [(&str, &[(&str, &str)]); 6] = [
    (
        "SIGNALS",
        &[
            (
                "SIGHUP",
                "The configuration is read again. Where something is wrong with it, all settings \
                 stay as they were, and the log says why; it also names what has changed and \
                 takes effect only in a daemon that is started again.",
            ),
            ("SIGTERM, SIGINT", "The daemon ends; all programs run on, as ordinary ones."),
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            ("GANG_SOCKET", "Socket to listen on, as with --socket."),
            (
                "GANGD_LOG",
                "Least level that is logged, info unless it is set. error: something is lost, and \
                 somebody has to act. warn: something works less well than it could. info: what \
                 administrators want to read later, such as jobs that end. debug: what helps to \
                 find mistakes in programs that talk to the daemon. The log goes to the journal \
                 where standard error does, with fields that begin with GANGD_, and to standard \
                 error otherwise.",
            ),
        ],
    ),
    (
        "SURROUNDINGS",
        &[
            (
                "Started by a service manager",
                "Limits, environment, signals, cgroup and all other settings are the manager's, and \
                 stay. Only umask, scheduling policy and CPUs are the daemon's own, and limits on \
                 open files are raised to the hard one. The guardian stays in the daemon's cgroup.",
            ),
            (
                "Started by gang run",
                "Nothing of the first caller is kept but the right to start it (see gang-run(1)). \
                 Limits are those of a service of root, or the hard limits of another user. Root's \
                 daemon is in the root of each hierarchy of cgroups, and the guardian in a group of \
                 its own beside those of the jobs, whose name ends in .guardian. A line of the log \
                 says what could not be left. gang recover, and each command that finds jobs of a \
                 dead daemon, release those jobs in the same way, but stay in their cgroups.",
            ),
            (
                "Namespaces",
                "A user is who he is in the daemon's user namespace. A client of another one is no \
                 administrator, root there included; it may make a job of itself and its children, \
                 and acts on the jobs alone that it is in. One that cannot be looked at is taken for \
                 such a client: a daemon of root needs CAP_SYS_PTRACE to look at others. A client of \
                 a PID namespace below the daemon's may make a job of itself, by AddCaller, and one \
                 of another PID namespace may look at jobs, and suspend and end its own. Neither can \
                 name a process or thread: its numbers may be those of others here. The daemon does \
                 not start where /proc is of another PID namespace than its own.",
            ),
        ],
    ),
    (
        "ACCESS",
        &[
            (
                "The socket",
                "Every user may ask the machine's daemon; gangd.toml(5) limits what each may have. \
                 For the users of one group alone, systemctl edit gangd.socket takes these lines: \
                 [Socket], SocketMode=0660, SocketGroup=gang. They hold when the socket is started \
                 again: systemctl restart gangd.socket gangd.service.",
            ),
            (
                "Jobs of others",
                "Every user sees who has which jobs, on which CPUs, and what these used, as in \
                 gang ls; command lines only of his own. With private = true in gangd.toml(5) users \
                 see their own jobs alone, and administrators all.",
            ),
            (
                "The directory of the socket",
                "It is used only if it is a directory, and no link, of the daemon's user, to which \
                 nobody else may write: others could put links in the way of its files. The \
                 directory that holds the history must be so, too. Otherwise, name another by \
                 --socket or GANG_SOCKET, or have the directory removed.",
            ),
        ],
    ),
    (
        "FILES",
        &[
            ("/etc/gangd/gangd.toml", "The configuration; see gangd.toml(5)."),
            ("/run/gangd/gangd.sock", "Socket of the machine's daemon."),
            (
                "/run/gangd/status.json",
                "What everybody may know of the jobs, in JSON, replaced at the start of every \
                 slice, ten times a second at most, and less often with many jobs: it takes half a \
                 percent of a CPU at most. It stays as it is while there is no job. Where users see \
                 their own jobs alone, only root can read it.",
            ),
            (
                "/run/gangd/gangd.jobs",
                "What is on file of each job, for a guardian and the next daemon, and the slot \
                 pages. Others can neither list it nor read it; the owner of a job can read its \
                 slot page where the file system has access control lists (acl(5)), and all can \
                 elsewhere.",
            ),
            (
                "/run/gangd/gangd.next",
                "The number of the next job. It stays when the daemon ends, so that none is given twice.",
            ),
            (
                "/var/lib/gangd/history.db",
                "Jobs that have ended, in SQLite. Other users read it by gang history.",
            ),
        ],
    ),
    (
        "EXIT STATUS",
        &[
            ("0", "It ended as it was asked to; the configuration is right."),
            ("1", "It could not start, or failed; the configuration is wrong."),
            ("2", "What was typed makes no sense."),
        ],
    ),
];

pub fn write(page: Page, out: &mut impl Write) -> Result<()> {
    match page {
        Page::Daemon => daemon(out),
        Page::Configuration => configuration(out),
    }
    .context("cannot write the manual page")
}

fn daemon(out: &mut impl Write) -> Result<(), std::io::Error> {
    Man::new(Args::command()).section("8").render(out)?;
    let mut roff = Roff::new();
    for (title, terms) in SECTIONS {
        roff.control("SH", [title]);
        for (term, meaning) in terms {
            roff.control("TP", []).text([bold(*term)]).text([roman(*meaning)]);
        }
    }
    roff.control("SH", ["SEE ALSO"]).text([roman("gang(1), gangd.toml(5)")]);
    roff.to_writer(out)
}

fn configuration(out: &mut impl Write) -> Result<(), std::io::Error> {
    let version = concat!("gangd ", env!("CARGO_PKG_VERSION"));
    let mut paragraphs = paragraphs(EXAMPLE).into_iter();
    let mut roff = Roff::new();
    roff.control("TH", ["gangd.toml", "5", " ", version, "gangd"]);
    roff.control("SH", ["NAME"]).text([roman("gangd.toml - configuration of the daemon gangd")]);
    roff.control("SH", ["SYNOPSIS"]).text([roman("/etc/gangd/gangd.toml")]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(paragraphs.next().unwrap_or_default().text)]);
    roff.control("SH", ["SETTINGS"]);
    for Paragraph { text, settings } in paragraphs {
        let plain = settings.iter().filter(|(_, comment)| comment.is_none());
        for (nth, (setting, _)) in plain.enumerate() {
            roff.control(if nth == 0 { "TP" } else { "TQ" }, []).text([bold(*setting)]);
        }
        roff.text([roman(text)]);
        for (setting, comment) in &settings {
            let Some(comment) = comment else { continue };
            roff.control("TP", []).text([bold(*setting)]).text([roman(*comment)]);
        }
    }
    roff.control("SH", ["SEE ALSO"]).text([roman("gangd(8), gang(1)")]);
    roff.to_writer(out)
}

/// Settings that belong together, and what is said of them.
#[derive(Debug, Default)]
struct Paragraph<'a> {
    text: String,
    /// Each with what is said of it alone.
    settings: Vec<(&'a str, Option<&'a str>)>,
}

fn paragraphs(example: &str) -> Vec<Paragraph<'_>> {
    let mut paragraphs = Vec::new();
    for lines in example.split("\n\n") {
        let mut paragraph = Paragraph::default();
        for line in lines.lines().map(|line| line.trim_start_matches(['#', ' '])) {
            match setting(line) {
                Some(setting) => paragraph.settings.push(setting),
                None if paragraph.text.is_empty() => paragraph.text.push_str(line),
                None => paragraph.text.extend([" ", line]),
            }
        }
        paragraphs.push(paragraph);
    }
    paragraphs
}

/// A line that is a setting, or the head of a table, without the comment at its end.
pub fn setting(line: &str) -> Option<(&str, Option<&str>)> {
    let (setting, comment) = match line.split_once("  # ") {
        Some((setting, comment)) => (setting.trim_end(), Some(comment)),
        None => (line, None),
    };
    let key = setting.split_once(" = ").map(|(key, _)| key);
    let is_key = key.is_some_and(|key| key.chars().all(|c| c == '_' || c.is_ascii_lowercase()));
    (is_key || setting.starts_with('[')).then_some((setting, comment))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(page: Page) -> String {
        let mut out = Vec::new();
        write(page, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn daemon_page_has_its_sections() {
        let page = text(Page::Daemon);
        for word in ["SIGHUP", "GANGD_LOG", "status.json", "EXIT STATUS", "gangd.toml(5)"] {
            assert!(page.contains(word), "{word}");
        }
        assert!(!page.contains("ready"), "options that are hidden stay so");
    }

    #[test]
    fn every_setting_is_on_the_page_of_the_configuration() {
        let page = text(Page::Configuration);
        for line in EXAMPLE.lines() {
            let Some((setting, _)) = setting(line.trim_start_matches(['#', ' '])) else { continue };
            // As the page writes it.
            let key = setting.split(' ').next().unwrap();
            assert!(page.contains(&format!("\\fB{key}")), "{key}\n{page}");
        }
    }
}
