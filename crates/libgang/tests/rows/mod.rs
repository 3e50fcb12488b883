//! The declarations of the headers, and the ways to call each wrongly: the rows that a table of
//! calls (`rows.h`) has to have.

use std::{fs, process::Output};

use crate::place::here;

/// A function that a header declares.
pub struct Function {
    pub name: String,
    pub parameters: Vec<Parameter>,
    /// The comment that it stands under.
    comment: String,
}

pub struct Parameter {
    of: String,
    kind: String,
    name: String,
}

/// A line of a table: what was wrong of which call, and the result that it had.
pub struct Row {
    what: String,
    result: String,
}

pub fn functions() -> Vec<Function> {
    let of_header = |name: &str| {
        let text = fs::read_to_string(here().join("include").join(name)).unwrap();
        let (mut comment, mut functions) = (String::new(), Vec::new());
        for line in text.lines() {
            if line.starts_with("/*") {
                comment.clear();
            }
            if line.starts_with("/*") || line.starts_with(" *") {
                comment.push_str(line);
            }
            if line.ends_with(");") && !line.starts_with([' ', '*', '/']) {
                functions.push(declaration(line, &comment));
            }
        }
        functions
    };
    [of_header("gang.h"), of_header("GangUserAPI.h")].into_iter().flatten().collect()
}

fn declaration(line: &str, comment: &str) -> Function {
    let (before, rest) = line.split_once('(').unwrap();
    let name = before.rsplit([' ', '*']).next().unwrap().to_owned();
    let parameters = rest.trim_end_matches(");").split(',').map(str::trim);
    let parameter = |text: &str| {
        let bare = text.trim_end_matches("[]");
        let at = bare.rfind([' ', '*']).unwrap() + 1;
        let list = if bare.len() < text.len() { "[]" } else { "" };
        let kind = format!("{}{list}", bare[..at].trim());
        Parameter { of: name.clone(), kind, name: bare[at..].to_owned() }
    };
    let parameters = parameters.filter(|text| *text != "void").map(parameter).collect();
    Function { name, parameters, comment: comment.to_owned() }
}

impl Parameter {
    /// The ways in which it may be wrong.
    pub fn kinds(&self) -> &'static [&'static str] {
        let is_made = self.of.ends_with("_init");
        match self.kind.as_str() {
            "gang_job *" | "const gang_job *" => &["null", "garbage", "foreign", "stale", "ended"],
            "struct GangJobId *" => &["null", "garbage", "foreign", "ended"],
            // Where something is put.
            "gang_job **" | "int64_t *" | "const gang_page **" | "gang_spec *"
            | "gang_change *" | "gang_span *" | "char *" | "struct GangUse *"
            | "struct GangLoad *" => &["null"],
            "const gang_spec *"
            | "const gang_change *"
            | "const gang_span *"
            | "gang_use *"
            | "gang_load *" => &["null", "garbage"],
            "struct GangResources *[]" | "const char *" => &["null", "garbage", "foreign"],
            "pid_t" => &["garbage", "stale", "foreign"],
            "int64_t" => &["garbage", "ended"],
            // A page that was closed cannot be known from what is there now.
            "const gang_page *" if is_made => &["null", "garbage", "foreign"],
            "const gang_page *" => &["null", "garbage", "foreign", "stale"],
            "gang_barrier *" | "gang_mutex *" if is_made => &["null", "garbage"],
            "gang_barrier *" | "gang_mutex *" => &["null", "garbage", "stale"],
            "gang_result" | "gang_class" | "uint32_t" | "size_t" | "double" => &["garbage"],
            // On or off; any other number is one of an enum.
            "int" if self.name == "on" => &[],
            "int" => &["garbage"],
            other => panic!("{}: what may be wrong with a {other}?", self.of),
        }
    }

    /// It may be a job of somebody else, or a process.
    pub fn is_ours(&self) -> bool {
        let kinds = ["gang_job *", "const gang_job *", "struct GangJobId *", "pid_t"];
        kinds.contains(&self.kind.as_str())
    }
}

/// The rows that a table has to have, where parameters are wrong in such ways.
pub fn needed(kinds: impl Fn(&Parameter) -> &'static [&'static str]) -> Vec<String> {
    let functions = functions();
    let parameters = functions.iter().flat_map(|function| &function.parameters);
    let rows = |of: &Parameter| {
        let rows = kinds(of).iter().map(|kind| format!("{} {} {kind}", of.of, of.name));
        rows.collect::<Vec<_>>()
    };
    parameters.flat_map(rows).collect()
}

/// The output of a program with a table.
pub fn of(output: &Output) -> Vec<Row> {
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    let row = |line: &str| {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        Row { what: words[..3].join(" "), result: words[3].to_owned() }
    };
    said.lines().map(row).collect()
}

/// The functions of its lines.
pub fn named(said: &str) -> Vec<&str> {
    said.lines().filter_map(|line| line.split(' ').next()).collect()
}

pub fn missing(needed: &[String], seen: &[Row]) -> Vec<String> {
    let is_missing = |what: &&String| !seen.iter().any(|row| row.what == **what);
    needed.iter().filter(is_missing).cloned().collect()
}

/// Results that a header names neither for all calls of a kind, nor at the function.
pub fn undocumented(seen: &[Row]) -> Vec<String> {
    let functions = functions();
    let is_known = |row: &&Row| {
        let name = row.what.split(' ').next().unwrap();
        let function = functions.iter().find(|function| function.name == name).unwrap();
        let has =
            |kinds: &[&str]| function.parameters.iter().any(|of| kinds.contains(&of.kind.as_str()));
        match row.result.as_str() {
            "a text" | "GANG_OK" | "gsSuccess" | "GANG_INVALID" | "gsBadArgument" => true,
            "GANG_NO_SUCH_JOB" if has(&["gang_job *", "const gang_job *"]) => true,
            "gsNoSuchJob" if has(&["struct GangJobId *"]) => true,
            result => function.comment.contains(result),
        }
    };
    seen.iter()
        .filter(|row| !is_known(row))
        .map(|row| format!("{} {}", row.what, row.result))
        .collect()
}
