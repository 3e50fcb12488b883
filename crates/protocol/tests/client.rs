//! The client against servers that answer, refuse, hang, babble and belong to somebody else.

use std::io::{BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gang_harness::TEST_TIMEOUT;
use gang_protocol::client::Client;
use gang_protocol::error::ClientError;
use gang_protocol::frame::read_message;
use gang_protocol::limits::{MESSAGE_MAX, REPLY_MAX};
use gang_protocol::paths::Surroundings;

/// A server that reads one request and gives the connection to `answer`.
struct Server {
    dir: tempfile::TempDir,
}

impl Server {
    fn new(answer: impl FnOnce(Vec<u8>, UnixStream) + Send + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("gangd.sock")).unwrap();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            if let Ok(Some(request)) = read_message(&mut reader, MESSAGE_MAX) {
                answer(request, stream);
            }
        });
        Self { dir }
    }

    fn replying(reply: &'static str) -> Self {
        Self::new(move |_, mut stream| {
            stream.write_all(reply.as_bytes()).unwrap();
            stream.write_all(b"\0").unwrap();
        })
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("gangd.sock")
    }

    fn client(&self) -> Client {
        Client::connect_within(&self.socket(), TEST_TIMEOUT).unwrap()
    }

    /// One whose server will not answer.
    fn impatient_client(&self) -> Client {
        Client::connect_within(&self.socket(), Duration::from_millis(200)).unwrap()
    }
}

#[test]
fn a_call_and_its_reply() {
    let server = Server::new(|request, mut stream| {
        let request: serde_json::Value = serde_json::from_slice(&request).unwrap();
        assert_eq!(
            request,
            serde_json::json!({"method": "org.gangd.v1.Kill",
                "parameters": {"job": 3, "signal": 15}})
        );
        stream.write_all(b"{}\0").unwrap();
    });
    server.client().kill(3, 15).unwrap();
}

#[test]
fn errors_of_the_interface_say_what_to_do() {
    let server = Server::replying(r#"{"error":"org.gangd.v1.NoSuchJob","parameters":{"job":7}}"#);
    let error = server.client().suspend(7).unwrap_err();
    assert!(matches!(error, ClientError::NoSuchJob { job: 7, .. }));
    assert_eq!(
        error.to_string(),
        "while suspending job 7: there is no job 7; `gang ls` lists them"
    );

    let server = Server::replying(
        r#"{"error":"org.gangd.v1.NotPermitted","parameters":{"operation":"adopting pid 1","reason":"it belongs to root"}}"#,
    );
    let error = server.client().suspend(7).unwrap_err();
    assert_eq!(error.to_string(), "adopting pid 1 is not permitted: it belongs to root");

    let server = Server::replying(
        r#"{"error":"org.gangd.v1.Failed","parameters":{"operation":"write /run/2.json","reason":"No space left on device (os error 28)"}}"#,
    );
    let error = server.client().suspend(7).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot write /run/2.json: No space left on device (os error 28)"
    );
}

#[test]
fn an_error_of_another_version_is_shown_as_it_came() {
    let server = Server::replying(
        r#"{"error":"org.varlink.service.MethodNotFound","parameters":{"method":"x"}}"#,
    );
    let error = server.client().check().unwrap_err();
    assert!(matches!(error, ClientError::Unsupported { .. }));
    assert!(error.to_string().contains("MethodNotFound {\"method\":\"x\"}"), "{error}");
}

#[test]
fn a_reply_that_does_not_fit_is_an_error() {
    for reply in ["{\"parameters\":{\"jobs\":5}}", "not json", "{\"parameters\":{}}", "[]"] {
        let error = Server::replying(reply).client().list_jobs().unwrap_err();
        assert!(matches!(error, ClientError::Malformed { .. }), "{reply}: {error}");
    }
}

#[test]
fn a_server_that_hangs_does_not_hang_the_client() {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let server = Server::new(move |_, mut stream| {
        stream.write_all(b"{\"param").unwrap();
        let _ = ended.recv();
    });
    let error = server.impatient_client().status().unwrap_err();
    drop(end);
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    assert!(error.to_string().contains("within 0.2 s while asking for its status"), "{error}");
}

#[test]
fn a_server_that_never_ends_its_reply_is_cut_off() {
    let server = Server::new(|_, mut stream| {
        let chunk = vec![b' '; 1 << 16];
        while stream.write_all(&chunk).is_ok() {}
    });
    let error = server.client().status().unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains(&REPLY_MAX.to_string()), "{error}: {source}");
}

#[test]
fn a_server_that_goes_away_is_said_to() {
    let server = Server::new(|_, stream| drop(stream));
    let error = server.client().status().unwrap_err();
    assert!(matches!(error, ClientError::Closed { .. }), "{error}");
}

#[test]
fn who_is_refused_before_it_asks_hears_why() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("gangd.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut client = Client::connect(&socket).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let refusal =
        br#"{"error":"org.gangd.v1.LimitReached","parameters":{"limit":"clients","maximum":5}}"#;
    stream.write_all(refusal).and_then(|()| stream.write_all(b"\0")).unwrap();
    drop(stream);
    let error = client.status().unwrap_err();
    assert!(matches!(error, ClientError::LimitReached { maximum: 5, .. }), "{error}");
}

#[test]
fn nothing_listens() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("gangd.sock");
    assert!(Client::connect(&missing).unwrap_err().is_no_daemon());

    // A socket file that a dead daemon left behind.
    drop(UnixListener::bind(&missing).unwrap());
    let surroundings =
        Surroundings { gang_socket: Some(missing.clone().into()), ..Default::default() };
    let error = Client::find_from(&surroundings).unwrap_err();
    assert!(error.is_no_daemon());
    assert!(error.to_string().contains(&missing.display().to_string()), "{error}");
}

#[test]
fn a_path_that_no_socket_can_have_is_an_error() {
    let error = Client::connect(Path::new(&"x".repeat(200))).unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error}");
}

/// Needs root, which may become somebody else for the server and a third for the client.
#[test]
fn needs_root_a_socket_that_is_not_ours_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    if !rustix::process::geteuid().is_root() {
        gang_harness::skipped("serving as another user needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let socket = dir.path().join("gangd.sock");
    let script = "import socket,sys,time\n\
        s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n\
        print('ready',flush=True); time.sleep(600)";
    let server = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .arg(&socket)
        .uid(65534)
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut server) = server else {
        gang_harness::skipped("no /usr/bin/python3 to serve as another user");
        return;
    };
    let mut ready = [0; 5];
    std::io::Read::read_exact(server.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let result = Client::connect(&socket);
    server.kill().unwrap();
    server.wait().unwrap();

    let error = result.unwrap_err();
    assert!(matches!(error, ClientError::ForeignSocket { uid: 65534, own_uid: 0, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&socket.display().to_string()), "{text}");
    assert!(text.contains("is not ours") && text.contains("uid 65534"), "{text}");
    assert!(text.contains("GANG_SOCKET"), "{text}");
}

#[test]
fn who_reports_does_not_wait_for_a_daemon_that_hangs() {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let server = Server::new(move |_, stream| {
        // It stays connected, and says nothing.
        let _ = ended.recv();
        drop(stream);
    });
    let mut client = server.impatient_client();
    // Each wait would end in an error.
    for done in 0..10_000 {
        client.report_progress(3, f64::from(done), 10_000.0).unwrap();
    }
    assert!(matches!(client.list_jobs(), Err(ClientError::TimedOut { .. })));
    drop(end);
}

#[test]
fn answers_to_reports_come_in_pieces_and_late() {
    let (say, said) = std::sync::mpsc::channel::<&[u8]>();
    let (heard, is_heard) = std::sync::mpsc::channel();
    let server = Server::new(move |_, mut stream| {
        for piece in said {
            stream.write_all(piece).unwrap();
            heard.send(()).unwrap();
        }
    });
    let mut client = server.client();
    let say = |piece| {
        say.send(piece).unwrap();
        is_heard.recv().unwrap();
    };
    for done in [1.0, 2.0, 3.0, 4.0] {
        client.report_progress(3, done, 9.0).unwrap();
    }
    say(b"{\"parame");
    client.report_progress(3, 5.0, 9.0).unwrap();
    // The second is refused. The order of the answers says which job it is about.
    say(b"ters\":{}}\0{\"error\":\"org.gangd.v1.NoSuchJob\",\"parameters\":{\"job\":3}}\0{");
    let refused = client.report_progress(3, 6.0, 9.0).unwrap_err();
    assert!(matches!(refused, ClientError::NoSuchJob { job: 3, .. }), "{refused}");
    // The rest of them is not taken for the answer to another question.
    say(b"}\0{}\0{}\0{\"parameters\":{\"jobs\":[]}}\0");
    assert_eq!(client.list_jobs().unwrap().jobs, []);
}
