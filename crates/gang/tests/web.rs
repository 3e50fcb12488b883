//! `gang web`: which requests are admitted, what they learn, and what a reader can do.

mod fake;
mod reader;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Instant;

use fake::{Fake, Place, job, stderr};
use gang_harness::wait_until;
use reader::{Answer, Events, Web};

#[test]
fn a_reader_gets_the_state_and_then_changes() {
    let evil = "</script><img src=x onerror=alert(1)>\"'\u{202e}";
    let place = Fake::with_jobs(vec![job(3, "lu.C"), job(4, evil)]).place();
    let web = Web::start(&place, &[]);
    let mut events = web.follow();
    let hello = events.until("hello");
    assert_eq!(
        (&hello["version"], &hello["read_only"]),
        (&env!("CARGO_PKG_VERSION").into(), &false.into())
    );
    let begin = events.until("begin");
    assert_eq!(begin["jobs"][0]["coscheduled"], 0.993);
    assert_eq!(begin["jobs"][1]["name"], evil);
    assert_eq!(begin["status"]["slice_ns"], 10_000_000);
    let next = events.until("frame");
    assert!(next["at_ns"].as_i64() > begin["at_ns"].as_i64());
}

#[test]
fn page_is_no_secret_but_shut_to_others() {
    let place = Fake::with_jobs(vec![job(3, "a secret name")]).place();
    let web = Web::start(&place, &[]);
    for path in ["/", "/page.js", "/page.css", "/icon.svg"] {
        let answer = Answer::read(web.send(&format!("GET {path}"), &[], ""));
        assert_eq!(answer.status, 200, "{path}");
        let head = answer.head.to_lowercase();
        for said in [
            "content-security-policy: default-src 'none'; script-src 'self';",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "x-frame-options: deny",
        ] {
            assert!(head.contains(said), "{path} lacks {said}: {head}");
        }
        assert!(!answer.body.contains("a secret name") && !answer.body.contains(&web.token));
        assert!(!head.contains("access-control") && !head.contains("set-cookie"), "{head}");
    }
}

#[test]
fn without_the_token_nothing_is_shown() {
    let fake = Fake::with_jobs(vec![job(3, "a secret name")]);
    let place = fake.place();
    let web = Web::start(&place, &[]);
    let wrong = [
        vec![],
        vec!["Authorization: Bearer".to_owned()],
        vec![format!("Authorization: Bearer {}", "0".repeat(64))],
        vec![format!("Authorization: Bearer {}", &web.token[..63])],
        vec![format!("Cookie: token={}", web.token)],
        vec![web.authorization(), web.authorization()],
    ];
    for path in ["/api/live", "/api/jobs/3", "/api/jobs/3/past", "/api/history", "/api/x"] {
        for headers in &wrong {
            let answer = Answer::read(web.send(&format!("GET {path}"), headers, ""));
            let (status, code, _) = answer.refusal();
            assert_eq!((status, code.as_str()), (401, "NoToken"), "{path} {headers:?}");
            assert!(!answer.body.contains("secret"), "{}", answer.body);
        }
        let with_it = Answer::read(web.send(&format!("GET {path}?token={}", web.token), &[], ""));
        assert_eq!(with_it.status, 401, "a token in an address is in logs, too");
    }
    let origin = format!("Origin: http://{}", web.address);
    let answer = Answer::read(web.send("POST /api/jobs/3/kill", &[origin], r#"{"signal":9}"#));
    assert_eq!(answer.refusal().1, "NoToken");
    assert!(!fake.calls().iter().any(|call| call.starts_with("Kill")));
}

#[test]
fn another_origin_changes_and_reads_nothing() {
    let fake = Fake::with_jobs(vec![job(3, "lu.C")]);
    let place = fake.place();
    let web = Web::start(&place, &[]);
    let port = web.address.port();
    let json = "Content-Type: application/json".to_owned();
    for origin in [
        "null".to_owned(),
        "http://evil.example".to_owned(),
        // Another page of this machine, perhaps another user's.
        format!("http://127.0.0.1:{}", port ^ 1),
        format!("http://localhost:{port}"),
    ] {
        let headers = [web.authorization(), format!("Origin: {origin}"), json.clone()];
        for request in ["POST /api/jobs/3/kill", "GET /api/jobs/3", "OPTIONS /api/jobs/3/kill"] {
            let answer = Answer::read(web.send(request, &headers, r#"{"signal":9}"#));
            assert_eq!(answer.refusal().1, "WrongOrigin", "{request} from {origin}");
        }
    }
    let headers = [web.authorization(), json];
    let answer = Answer::read(web.send("POST /api/jobs/3/kill", &headers, r#"{"signal":9}"#));
    assert_eq!(answer.refusal().1, "WrongOrigin");
    assert!(!fake.calls().iter().any(|call| call.starts_with("Kill")));
}

#[test]
fn a_name_that_was_made_to_lead_here_leads_nowhere() {
    let place = Fake::with_jobs(vec![job(3, "lu.C")]).place();
    let web = Web::start(&place, &["--name", "gang.example.org"]);
    let ask = |host: &str| {
        let mut stream = web.connect();
        let authorization = web.authorization();
        let request =
            format!("GET /api/jobs/3 HTTP/1.1\r\nHost: {host}\r\n{authorization}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        Answer::read(stream)
    };
    let port = web.address.port();
    for host in
        [format!("evil.example:{port}"), "evil.example".to_owned(), "127.0.0.1.nip.io".to_owned()]
    {
        assert_eq!(ask(&host).refusal().1, "WrongHost", "{host}");
    }
    for host in [format!("localhost:{port}"), "gang.example.org".to_owned()] {
        assert_eq!(ask(&host).status, 200, "{host}");
    }
}

#[test]
fn actions_reach_daemon_and_refusals_the_reader() {
    let mut fake = Fake::with_jobs(vec![job(3, "lu.C")]);
    fake.refuses = true;
    let place = fake.place();
    let web = Web::start(&place, &[]);
    for (path, body) in [
        ("/api/jobs/3/class", r#"{"class":"standby"}"#),
        ("/api/jobs/3/resume", "{}"),
        ("/api/jobs/3/kill", r#"{"signal":15}"#),
        ("/api/jobs/3/resize", r#"{"cpus":1,"mem_bytes":0}"#),
    ] {
        assert_eq!(web.post(path, body).status, 204, "{path}");
    }
    let (status, code, message) = web.post("/api/jobs/3/suspend", "{}").refusal();
    assert_eq!((status, code.as_str()), (403, "NotPermitted"));
    assert_eq!(message, "suspending job 3 is not permitted: it is root's");
    let too_much = format!(r#"{{"mem_bytes":{}}}"#, 1u64 << 40);
    let (status, code, message) = web.post("/api/jobs/3/resize", &too_much).refusal();
    assert_eq!((status, code.as_str()), (409, "NotEnough"));
    assert!(message.contains("4.0 GiB are free"), "{message}");
    assert_eq!(web.get("/api/jobs/9").refusal().1, "NoSuchJob");
    let details: serde_json::Value = serde_json::from_str(&web.get("/api/jobs/3").body).unwrap();
    assert_eq!(details["processes"][1]["command"], "evil\u{1b}[2J\nname");
    assert!(details["why"].as_str().unwrap().starts_with("Job 3 (lu.C): "), "{details}");

    let calls = fake.calls();
    for call in
        ["SetJob(3, class standby)", "Resume(3)", "Kill(3, 15)", "SetJob(3, cpus 1, mem_bytes 0)"]
    {
        assert!(calls.iter().any(|made| made == call), "{call}: {calls:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_does_nothing() {
    let fake = Fake::with_jobs(vec![job(3, "lu.C")]);
    let place = fake.place();
    let web = Web::start(&place, &[]);
    for (path, body, status) in [
        ("/api/jobs/3/class", r#"{"class":"royal"}"#, 400),
        ("/api/jobs/3/class", "{}", 400),
        ("/api/jobs/3/class", "", 400),
        ("/api/jobs/3/class", "[[[[", 400),
        ("/api/jobs/3/kill", r#"{"signal":"TERM"}"#, 400),
        ("/api/jobs/3/kill", r#"{"signal":9,"job":4}"#, 400),
        ("/api/jobs/3/resize", "{}", 400),
        ("/api/jobs/x/kill", r#"{"signal":9}"#, 400),
        ("/api/jobs/-3/kill", r#"{"signal":9}"#, 400),
        ("/api/jobs/99999999999999999999/kill", r#"{"signal":9}"#, 400),
        ("/api/jobs/3/explode", "{}", 404),
        ("/api/jobs/%2e%2e/kill", r#"{"signal":9}"#, 400),
        ("/api/nothing", "{}", 404),
        ("/api/live", "{}", 405),
        ("/api/jobs/3/kill", &format!(r#"{{"signal":9{}}}"#, " ".repeat(5000)), 413),
    ] {
        let answer = web.post(path, body);
        assert_eq!(answer.refusal().0, status, "{path} {body:.40}: {answer:?}");
    }
    let headers = [
        web.authorization(),
        format!("Origin: http://{}", web.address),
        "Content-Type: text/plain".to_owned(),
    ];
    let plain = Answer::read(web.send("POST /api/jobs/3/kill", &headers, r#"{"signal":9}"#));
    assert_eq!(plain.refusal().1, "NotJson");
    let done =
        |call: &String| !["ListJobs()", "GetStatus()", "GetCluster()"].contains(&call.as_str());
    assert_eq!(fake.calls().into_iter().filter(done).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn read_only_changes_nothing() {
    let fake = Fake::with_jobs(vec![job(3, "lu.C")]);
    let place = fake.place();
    let web = Web::start(&place, &["--read-only"]);
    assert_eq!(web.post("/api/jobs/3/suspend", "{}").refusal().1, "ReadOnly");
    assert_eq!(web.follow().until("hello")["read_only"], true);
    assert_eq!(web.get("/api/jobs/3").status, 200);
    assert!(!fake.calls().contains(&"Suspend(3)".to_owned()));
}

#[test]
fn prometheus_gets_metrics() {
    let place = Fake::with_jobs(vec![job(3, "lu\"\n.C")]).place();
    let web = Web::start(&place, &[]);
    let metrics = web.get("/metrics");
    assert!(
        metrics.head.contains("application/openmetrics-text; version=1.0.0"),
        "{}",
        metrics.head
    );
    assert!(
        metrics.body.contains("gangd_") && metrics.body.ends_with("# EOF\n"),
        "{}",
        metrics.body
    );
    let ask = |web: &Web| Answer::read(web.send("GET /metrics", &[], "")).status;
    assert_eq!(ask(&web), 401);
    assert_eq!(ask(&Web::start(&place, &["--metrics"])), 200);
}

/// Browsers that all see what one look at the daemon has seen.
fn are_served_and_cost_one(browsers: usize) {
    let begun = Instant::now();
    let fake = Fake::with_jobs((1..=20).map(|id| job(id, "lu.C")).collect());
    let place = fake.place();
    let web = Web::start(&place, &[]);
    let mut readers: Vec<Events> = (0..browsers).map(|_| web.follow()).collect();
    for reader in &mut readers {
        assert_eq!(reader.until("begin")["jobs"].as_array().unwrap().len(), 20);
    }
    // A later client is still served.
    assert_eq!(web.get("/api/jobs/3").status, 200);
    // Half of them go away without a word, and the others do not notice.
    readers.truncate(browsers / 2);
    for reader in &mut readers {
        reader.until("frame");
    }
    let looked = fake.calls().iter().filter(|call| *call == "GetStatus()").count();
    // Figures are asked for once a second, or half a picture early, and when the first reader
    // comes.
    let most = 2 * begun.elapsed().as_secs() + 4;
    assert!(looked as u64 <= most, "one look at a time for all of them, not {looked} of {most}");
}

#[test]
fn many_browsers_are_served_and_cost_one() {
    are_served_and_cost_one(100);
}

#[test]
#[ignore = "nightly: needs CPUs that send 500 readers ten pictures a second"]
fn five_hundred_browsers_are_served_and_cost_one() {
    are_served_and_cost_one(500);
}

#[test]
fn a_reader_that_does_not_read_delays_nobody() {
    // Some hundred kilobytes whenever the jobs are sent.
    let place = Fake::with_jobs((1..=600).map(|id| job(id, "lu.C")).collect()).place();
    let web = Web::start(&place, &[]);
    let memory = || -> usize {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", web.child.id())).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
    };
    let slow = web.connect();
    rustix::net::sockopt::set_socket_recv_buffer_size(&slow, 32 << 10).unwrap();
    let request = format!(
        "GET /api/live HTTP/1.1\r\nHost: {}\r\n{}\r\n\r\n",
        web.address,
        web.authorization()
    );
    (&slow).write_all(request.as_bytes()).unwrap();
    let mut quick = web.follow();
    // A change of a job is sent at once.
    let mut change = |times: usize| {
        for _ in 0..times {
            assert_eq!(web.post("/api/jobs/3/resume", "{}").status, 204);
            while quick.next().1["jobs"].is_null() {}
        }
    };
    change(3);
    let before = memory();
    change(6);
    assert!(memory() < before + (64 << 20), "{} after {before}", memory());
    drop(slow);
}

#[test]
fn connections_beyond_the_bound_are_refused() {
    let place = Fake::new().place();
    let web = Web::start(&place, &[]);
    // A silent client loses its place after a while: on a slow machine the first have lost theirs
    // when the last come.
    let is_refused = || {
        let _idle: Vec<TcpStream> = (0..768).map(|_| web.connect()).collect();
        let answer = Answer::read(web.send("GET /", &[], ""));
        answer.status != 200 && answer.refusal().1 == "TooManyConnections"
    };
    assert!((0..10).any(|_| is_refused()));
    wait_until("there is place again", || Answer::read(web.send("GET /", &[], "")).status == 200);
}

/// A daemon that takes connections and answers each message by `answer`, or never.
fn daemon(place: &Place, answer: Option<&'static [u8]>) {
    let listener = UnixListener::bind(place.socket()).unwrap();
    std::thread::spawn(move || {
        let serve = move |stream: UnixStream| {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut stream = stream;
            while reader.read_until(0, &mut Vec::new()).is_ok_and(|read| read > 0) {
                if let Some(answer) = answer {
                    let _ = stream.write_all(answer);
                }
            }
        };
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || serve(stream));
        }
    });
}

#[test]
fn a_daemon_of_another_version_is_reported() {
    let place = Place::new();
    daemon(&place, Some(b"{\"parameters\":{\"status\":{\"version\":\"9\"}}}\0"));
    let web = Web::start(&place, &[]);
    let gone = web.follow().until("gone");
    assert_eq!(gone["code"], "other_version");
    assert!(gone["message"].as_str().unwrap().contains("same version"), "{gone}");
    assert_eq!(web.get("/api/jobs/3").refusal().1, "OtherVersion");
}

/// A daemon that never answers, and readers who wait for it: so many seconds, or as long as usual.
fn hangs(timeout: &str) {
    let place = Place { timeout: timeout.to_owned(), ..Place::new() };
    daemon(&place, None);
    let web = Web::start(&place, &[]);
    // The page comes at once, whatever the daemon does.
    assert_eq!(web.get("/").status, 200);
    let mut events = web.follow();
    assert_eq!(events.until("gone")["code"], "silent");
    assert_eq!(web.post("/api/jobs/3/suspend", "{}").refusal().1, "TimedOut");
}

#[test]
fn a_daemon_that_hangs_keeps_nobody_waiting_for_ever() {
    hangs("0.5");
}

#[test]
#[ignore = "nightly: needs 7 s, to wait for as long as usual"]
fn the_usual_bounds_end_the_wait_of_readers() {
    hangs("");
}

#[test]
fn a_daemon_that_comes_and_goes_is_found_again() {
    let place = Place::new();
    let web = Web::start(&place, &[]);
    let mut events = web.follow();
    assert_eq!(events.until("gone")["code"], "absent");
    let fake = Fake::with_jobs(vec![job(3, "lu.C")]);
    let listening = fake.listen_for_now(&place.socket());
    assert_eq!(events.until("begin")["jobs"][0]["id"], 3);
    drop(listening);
    // It hangs up first, and then is not there.
    while events.until("gone")["code"] != "absent" {}
    assert_eq!(web.post("/api/jobs/3/resume", "{}").refusal().1, "NoDaemon");
    fake.listen(&place.socket());
    events.until("begin");
}

#[test]
fn it_listens_at_a_socket_that_nobody_else_serves() {
    let place = Fake::with_jobs(vec![job(3, "lu.C")]).place();
    let path = place.path("web.sock");
    let start = || {
        let at = format!("unix:{}", path.display());
        let args = ["web", "--listen", &at];
        let mut child =
            place.gang(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, line)
    };
    let (mut child, line) = start();
    let token = line.trim().split_once("#token=").unwrap().1;
    let ask = |host: &str| {
        let mut stream = UnixStream::connect(&path).unwrap();
        let request = format!(
            "GET /api/jobs/3 HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        Answer::read(stream).status
    };
    assert_eq!(ask("gang.example.org"), 200);

    let (mut second, _) = start();
    let mut said = String::new();
    second.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(second.wait().unwrap().code(), Some(1));
    assert!(said.contains("something listens at"), "{said}");

    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!path.exists());

    std::fs::write(&path, "not a socket").unwrap();
    let (mut third, _) = start();
    assert_eq!(third.wait().unwrap().code(), Some(1));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "not a socket");
}

#[test]
fn it_listens_on_this_machine_alone() {
    let place = Place::new();
    for (address, code) in
        [("0.0.0.0:0", 1), ("192.0.2.1:0", 1), ("nonsense", 2), ("127.0.0.1", 2), ("unix:", 2)]
    {
        let output = place.output(&["web", "--listen", address]);
        assert_eq!(output.status.code(), Some(code), "{address}");
    }
}

#[test]
fn a_token_counts_for_one_start() {
    let place = Fake::with_jobs(vec![job(3, "lu.C")]).place();
    let first = Web::start(&place, &[]);
    let (address, token) = (first.address.to_string(), first.token.clone());
    assert_eq!(first.get("/api/jobs/3").status, 200);
    drop(first);
    // The same origin to a browser: an open tab asks with what it has.
    let next = Web::start(&place, &["--listen", &address]);
    assert_eq!((next.address.to_string(), next.token == token), (address, false));
    let old = format!("Authorization: Bearer {token}");
    assert_eq!(Answer::read(next.send("GET /api/jobs/3", &[old], "")).status, 401);
    assert_eq!(next.get("/api/jobs/3").status, 200);
}

/// The notes of `gang web` while it serves.
fn notes(place: &Place, options: &[&str]) -> String {
    let mut gang = place.gang(&[&["web"], options].concat());
    let mut child = gang.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    said
}

#[test]
fn a_token_that_outlives_its_port_is_noted() {
    let place = Fake::new().place();
    let (file, socket) = (place.path("token"), place.path("web.sock"));
    let (file, port) = (file.to_str().unwrap(), "127.0.0.1:0");
    let at_socket = format!("unix:{}", socket.display());
    let outlives = |options: &[&str]| notes(&place, options).contains("counts again at your next");
    assert!(outlives(&["--listen", port, "--token-file", file]));
    assert!(!outlives(&["--listen", &at_socket, "--token-file", file]));
    assert!(!outlives(&["--listen", port]));
}

#[test]
fn the_token_can_be_kept_in_a_file() {
    let place = Fake::new().place();
    let file = place.path("token");
    let options = ["--token-file", file.to_str().unwrap()];
    let first = Web::start(&place, &options).token.clone();
    assert_eq!(Web::start(&place, &options).token, first);
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), first);
    let readable = Command::new("chmod").arg("644").arg(&file).status().unwrap();
    assert!(readable.success());
    let refused = place.output(&["web", "--listen", "127.0.0.1:0", "--token-file", options[1]]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("chmod 600"), "{}", stderr(&refused));
}
