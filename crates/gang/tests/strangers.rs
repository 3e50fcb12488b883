//! Every command against a daemon that is not as it should be: one that hangs at any point, and one
//! of another version. `top.rs` and `web.rs` do the same for `gang top` and `gang web`, which stay
//! open.

mod fake;

use std::io::{BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Output, Stdio};

use fake::{Fake, Place, job, stderr, stdout};
use gang_harness::wait_until;
use gang_protocol::frame::read_message;
use gang_protocol::limits::REPLY_MAX;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
use serde_json::{Value, json};

/// A command: what is typed, its exit code when it fails, and what it needs of what is answered.
struct Command {
    args: &'static [&'static str],
    code: i32,
    needs: Needs,
}

#[derive(Clone, Copy, PartialEq)]
enum Needs {
    /// No more than that it is done.
    Nothing,
    /// One answer.
    One,
    /// More than one answer, one after the other.
    Several,
}

const fn command(needs: Needs, args: &'static [&'static str]) -> Command {
    Command { args, code: 1, needs }
}

const COMMANDS: &[Command] = &[
    command(Needs::Several, &["top", "--once"]),
    command(Needs::Several, &["metrics"]),
    command(Needs::Several, &["metrics", "--textfile", "gangd.prom"]),
    command(Needs::Several, &["why", "3"]),
    command(Needs::Several, &["why", "lu.C", "--json"]),
    command(Needs::Several, &["trace", "--seconds", "0.1", "--out", "t.json"]),
    command(Needs::Several, &["trace", "--seconds", "0.1", "--picture", "t.svg"]),
    command(Needs::One, &["ls"]),
    command(Needs::One, &["show", "3"]),
    command(Needs::One, &["status"]),
    command(Needs::One, &["check"]),
    command(Needs::One, &["history"]),
    command(Needs::One, &["adopt", "--cgroup", "/a.scope", "-n", "1"]),
    command(Needs::Several, &["adopt", "--thread", "1", "-n", "1"]),
    Command { code: 125, ..command(Needs::Several, &["run", "-q", "--", "true"]) },
    command(Needs::Nothing, &["suspend", "3"]),
    command(Needs::Nothing, &["resume", "3"]),
    command(Needs::Nothing, &["kill", "3"]),
    command(Needs::Nothing, &["set", "3", "--class", "standby", "-n", "1"]),
    command(Needs::Nothing, &["shutdown"]),
];

/// `gang trace` is a program of its own, and of another package.
fn is_built(command: &Command) -> bool {
    let trace = Path::new(env!("CARGO_BIN_EXE_gang")).with_file_name("gang-trace");
    command.args[0] != "trace" || trace.is_file() || {
        gang_harness::skipped("gang trace is not built beside gang");
        false
    }
}

/// Replaces an answer, which has a number on its connection. None: no answer ever comes again.
type Twist = fn(usize, Value) -> Option<Value>;

/// A place where `twist` stands between gang and a daemon.
fn place(twist: Twist) -> Place {
    let place = Place::new();
    let behind = place.path("behind.sock");
    Fake::with_jobs(vec![job(3, "lu.C")]).listen(&behind);
    let listener = UnixListener::bind(place.socket()).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, behind) = (stream.unwrap(), UnixStream::connect(&behind).unwrap());
            std::thread::spawn(move || stand_between(stream, behind, twist));
        }
    });
    place
}

fn stand_between(mut front: UnixStream, mut behind: UnixStream, twist: Twist) {
    let mut requests = BufReader::new(front.try_clone().unwrap());
    let mut answers = BufReader::new(behind.try_clone().unwrap());
    for number in 0.. {
        let Ok(Some(mut request)) = read_message(&mut requests, REPLY_MAX) else { return };
        request.push(0);
        behind.write_all(&request).unwrap();
        let answer = read_message(&mut answers, REPLY_MAX).unwrap().unwrap();
        let Some(answer) = twist(number, serde_json::from_slice(&answer).unwrap()) else {
            // Until the other one gives up.
            let _ = read_message(&mut requests, REPLY_MAX);
            return;
        };
        let mut answer = serde_json::to_vec(&answer).unwrap();
        answer.push(0);
        if front.write_all(&answer).is_err() {
            return;
        }
    }
}

/// A command that was started at a place.
struct Started<'a> {
    command: &'a Command,
    child: Child,
}

impl<'a> Started<'a> {
    fn at(place: &Place, command: &'a Command) -> Started<'a> {
        let mut gang = place.gang(command.args);
        gang.current_dir(place.directory.path()).stdin(Stdio::null());
        let child = gang.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Started { command, child }
    }

    fn end(mut self) -> Output {
        let what = format!("the end of {:?}", self.command.args);
        wait_until(&what, || self.child.try_wait().unwrap().is_some());
        self.child.wait_with_output().unwrap()
    }

    /// As [`failed`].
    fn fails(self, words: &[&str]) {
        let command = self.command;
        failed(command, &self.end(), words);
    }
}

/// It failed, said so in one line with these words, and nothing else.
fn failed(command: &Command, output: &Output, words: &[&str]) {
    let said = format!("{:?}: {output:?}", command.args);
    assert_eq!(output.status.code(), Some(command.code), "{said}");
    let errors = stderr(output);
    let prefix = if command.args[0] == "trace" { "gang trace: " } else { "gang: " };
    assert!(errors.starts_with(prefix) && errors.lines().count() == 1, "{said}");
    assert!(words.iter().all(|word| errors.contains(word)), "{words:?} in {said}");
    let is_print = |c: char| !c.is_control() && c != '\u{202e}';
    assert!(errors.trim_end().chars().all(is_print), "{said}");
    // That there is none is a metric.
    let expected = if command.args == ["metrics"] { "gangd_up 0.0" } else { "" };
    assert!(
        stdout(output).contains(expected) && (!expected.is_empty() || output.stdout.is_empty())
    );
}

/// Starts all commands for which `is_meant` holds at once: some wait.
fn start(place: &Place, is_meant: impl Fn(&Command) -> bool) -> Vec<Started<'static>> {
    let meant = COMMANDS.iter().filter(|command| is_meant(command) && is_built(command));
    meant.map(|command| Started::at(place, command)).collect()
}

#[test]
fn unknown_request_means_daemon_of_other_version() {
    let place = place(|_, _| {
        let method = json!({ "method": "org.gangd.v1.\u{1b}[2J\u{202e}" });
        Some(json!({ "error": "org.varlink.service.MethodNotFound", "parameters": method }))
    });
    for started in start(&place, |_| true) {
        started.fails(&["are both of the same version?", "MethodNotFound"]);
    }
}

#[test]
fn odd_answer_means_daemon_of_other_version() {
    let needs_an_answer = |command: &Command| command.needs != Needs::Nothing;
    let others: [Twist; 3] = [
        |_, _| Some(json!({ "parameters": { "surprise": [1] } })),
        |_, _| Some(json!({ "parameters": { "jobs": 5, "status": {}, "job": "3" } })),
        |_, _| Some(json!(["HTTP/1.1 400 Bad Request"])),
    ];
    for other in others {
        let place = place(other);
        for started in start(&place, needs_an_answer) {
            started.fails(&["are both of the same version?"]);
        }
    }
    // A state of jobs and a guarantee that nobody has heard of.
    let unheard: Twist = |_, answer| {
        let text = answer.to_string().replace("\"suspended\"", "\"dreaming\"");
        Some(serde_json::from_str(&text.replace("\"exclusive\"", "\"cosmic\"")).unwrap())
    };
    let reads = |command: &Command| {
        needs_an_answer(command) && !["check", "history", "adopt", "run"].contains(&command.args[0])
    };
    let place = place(unheard);
    for started in start(&place, reads) {
        started.fails(&["are both of the same version?", "unknown variant"]);
    }
}

/// Adds a field to each object there is.
fn add_fields(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.values_mut().for_each(add_fields);
            object.insert("novelty".to_owned(), json!({ "of": ["another", null, 7] }));
        }
        Value::Array(values) => values.iter_mut().for_each(add_fields),
        _ => {}
    }
}

#[test]
fn daemon_that_sends_unknown_fields_is_understood() {
    let place = place(|_, mut answer| {
        answer.as_object_mut()?.entry("parameters").or_insert_with(|| json!({}));
        add_fields(&mut answer["parameters"]);
        Some(answer)
    });
    // Recording takes root.
    for started in start(&place, |command| command.args[0] != "trace") {
        let args = started.command.args;
        let output = started.end();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        assert_eq!(stderr(&output), "", "{args:?}");
    }
}

/// Daemons that hang, and commands that wait for them: so many seconds, or as long as usual.
fn hangs(timeout: &str) {
    let is_view = |command: &Command| ["top", "metrics"].contains(&command.args[0]);
    let waits = |command: &Command| match timeout {
        "" if is_view(command) => "within 2 s".to_owned(),
        "" => "within 10 s".to_owned(),
        timeout => format!("within {timeout} s"),
    };
    let impatient = |place: Place| Place { timeout: timeout.to_owned(), ..place };

    let silent = impatient(place(|_, _| None));
    let after_one = impatient(place(|number, answer| (number == 0).then_some(answer)));
    // It is stopped, and takes no connection any more: there is room for one.
    let full = impatient(Place::new());
    let queue = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&queue, &SocketAddrUnix::new(full.socket()).unwrap()).unwrap();
    listen(&queue, 0).unwrap();
    let _first = UnixStream::connect(full.socket()).unwrap();

    let is_several = |command: &Command| command.needs == Needs::Several;
    let waiting = [
        (start(&silent, |_| true), " while "),
        (start(&after_one, is_several), " while "),
        (start(&full, |_| true), " while connecting"),
    ];
    for (started, doing) in waiting {
        for started in started {
            let command = started.command;
            let words = ["did not answer", &waits(command), doing, "may be stuck"];
            failed(command, &started.end(), &words);
        }
    }
    // The reader of the file must learn of it, too.
    for place in [silent, after_one, full] {
        let written = std::fs::read_to_string(place.path("gangd.prom")).unwrap();
        assert!(written.ends_with("gangd_up 0.0\n"), "{written}");
    }
}

#[test]
fn daemon_that_hangs_keeps_no_command_for_ever() {
    hangs("0.5");
}

#[test]
fn a_wait_for_a_daemon_that_hangs_is_announced() {
    let silent = Place { timeout: "1".to_owned(), ..place(|_, _| None) };
    let output = silent.output(&["run", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    let said = stderr(&output);
    let socket = silent.socket().display().to_string();
    let first = format!("gang: gangd at {socket} does not answer yet; waiting for 0.7 s more");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 2 && lines[0] == first, "{said}");
    assert!(lines[1].contains("did not answer within 1 s while asking for its status"), "{said}");
}

#[test]
#[ignore = "nightly: needs 10 s, to wait for as long as usual"]
fn the_usual_bounds_end_the_wait_of_commands() {
    hangs("");
}
