//! Requests of users: each user's wait for his own, and nobody waits for another user's.

mod place;

use std::{
    fs::Permissions,
    io::{ErrorKind, Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    thread,
};

use gang_harness::TEST_TIMEOUT;
use place::{Held, Place, has_backend, wait_until};
use rustix::{process::Uid, thread::set_thread_res_uid};

/// Numbers that nobody has.
const ONE: u32 = 60_578;
const OTHER: u32 = 60_579;

/// Answers to others, in the time of which a request that waits for nobody would be answered.
const ANSWERS_TO_OTHERS: usize = 20;

/// The conductor is not asked for this.
const SWITCHES: &str = r#"{"method":"org.gangd.v1.GetSwitches","parameters":{"since_ns":0}}"#;
const STATUS: &str = r#"{"method":"org.gangd.v1.GetStatus","parameters":{}}"#;

/// A connection of a user, as bytes.
struct Connection(UnixStream);

impl Connection {
    /// The kernel takes the user of the thread that connects.
    fn of(uid: u32, place: &Place) -> Connection {
        let socket = place.socket();
        let connects = move || {
            let uid = Uid::from_raw(uid);
            set_thread_res_uid(uid, uid, uid).unwrap();
            UnixStream::connect(socket).unwrap()
        };
        let stream = thread::spawn(connects).join().unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let mut connection = Connection(stream);
        connection.ask(SWITCHES);
        connection
    }

    fn send(&mut self, request: &str) {
        self.0.write_all(format!("{request}\0").as_bytes()).unwrap();
    }

    /// Reads the answer to the end.
    fn answer(&mut self) -> String {
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(&[0]) {
            self.0.read_exact(&mut byte).unwrap();
            answer.extend(byte);
        }
        String::from_utf8(answer).unwrap()
    }

    fn ask(&mut self, request: &str) -> String {
        self.send(request);
        self.answer()
    }

    /// Whether the answer has begun to come.
    fn has_answer(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let peeked = rustix::net::recv(&self.0, &mut [0; 1], rustix::net::RecvFlags::PEEK);
        self.0.set_nonblocking(false).unwrap();
        match peeked {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn needs_root_requests_wait_for_same_user_alone() {
    for backend in ["freeze", "rt"] {
        if has_backend(backend) {
            requests_of_a_user_wait_for_his_own_alone(backend);
        }
    }
}

fn requests_of_a_user_wait_for_his_own_alone(backend: &str) {
    let place = Place::new(&["--backend", backend]);
    let everybody = Permissions::from_mode(0o755);
    std::fs::set_permissions(place.directory.path(), everybody).unwrap();
    let [mut first, mut second] = [ONE, ONE].map(|uid| Connection::of(uid, &place));
    let mut others = [OTHER, 0, 0].map(|uid| Connection::of(uid, &place));
    let conductor = Held::thread(place.threads("conductor")[0]);
    // It waits for the conductor until that goes on.
    first.send(STATUS);
    wait_until("another request of its user waits", || {
        second.send(SWITCHES);
        for _ in 0..ANSWERS_TO_OTHERS {
            for other in &mut others {
                assert!(other.ask(SWITCHES).contains("switchers"));
            }
        }
        // The first request may not have been read before.
        let is_answered = second.has_answer();
        if is_answered {
            second.answer();
        }
        !is_answered
    });
    // Nor do requests of root wait for each other.
    others[1].send(STATUS);
    for _ in 0..ANSWERS_TO_OTHERS {
        others[2].ask(SWITCHES);
        others[0].ask(SWITCHES);
    }
    assert!(!second.has_answer() && !first.has_answer());
    drop(conductor);
    for waits in [&mut first, &mut others[1]] {
        assert!(waits.answer().contains("uptime_ns"));
    }
    assert!(second.answer().contains("switchers"));
}
