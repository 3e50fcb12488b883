//! Peers that are killed: what was under way with them ends with ENOTCONN, and others go on.
//!
//! The peer is this test program again, which takes its role from a variable.
#![allow(unsafe_code)]

mod port;

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use gang_fabric::{
    address::{ADDRESS, Address},
    completion::fi,
    settings::{Medium, Settings},
};
use port::{Port, bytes, settings, wait_any, wait_for};

fn to_text(address: &Address) -> String {
    address.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_text(text: &str) -> Option<Address> {
    let digits = |at: usize| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..ADDRESS).map(digits).collect();
    Address::from_bytes(&bytes?)
}

fn of_medium(name: &str) -> Settings {
    match name {
        "udp" => Settings { medium: Medium::Udp, ..settings() },
        "parts" => Settings { may_copy: false, ..settings() },
        _ => settings(),
    }
}

/// Not a test: what the peer does. It is ended by a signal.
#[test]
#[ignore = "a role of the other tests"]
fn peer() {
    let Ok(role) = env::var("PEER_ROLE") else { return };
    let port = Port::open(of_medium(&env::var("PEER_MEDIUM").unwrap()));
    let to = port.insert(from_text(&env::var("PEER_OF").unwrap()).unwrap());
    println!("address {}", to_text(&port.address()));
    let message = bytes(1, 8 << 20);
    let mut sent = 0;
    loop {
        match role.as_str() {
            // It greets, and never reads.
            "sleeps" if sent == 0 => {
                sent = port.send(to, 1, b"here").map_or(0, |()| 1);
                port.progress();
            }
            "sleeps" => thread::sleep(Duration::from_millis(50)),
            // Short and long messages, as fast as it can.
            _ => {
                let length = if sent % 8 == 0 { message.len() } else { 100 };
                let is_sent = port.send(to, 1, &message[..length]).is_ok();
                sent += u64::from(is_sent);
                while port.completed().is_some() {}
            }
        }
    }
}

struct Peer {
    child: Child,
    address: Address,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(role: &str, medium: &str, of: &Port) -> Peer {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "peer", "--ignored", "--nocapture"])
        .env("PEER_ROLE", role)
        .env("PEER_MEDIUM", medium)
        .env("PEER_OF", to_text(&of.address()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The harness of the tests may have written before, on the same line.
    let address =
        lines.map_while(Result::ok).find_map(|line| from_text(line.split_once("address ")?.1));
    Peer { child, address: address.unwrap() }
}

#[test]
fn killed_peer_ends_sends_and_receives() {
    for medium in ["shm", "parts", "udp"] {
        let port = Port::open(of_medium(medium));
        let mut peer = start("sleeps", medium, &port);
        let to = port.insert(peer.address);
        let mut buffer = vec![0; 100];
        port.receive_with(&mut buffer, |it| it.from = to).unwrap();
        assert_eq!(wait_for(&[&port], fi::RECV).length, 4, "{medium}");
        // More than its queue has room for, and offers that it never takes.
        let long = bytes(2, 100_000);
        let mut under_way = 0;
        for n in 0..600 {
            let length = if n % 10 == 0 { long.len() } else { 1_000 };
            if port.send_with(to, &long[..length], |it| it.context = n).is_ok() {
                under_way += 1;
            }
        }
        port.receive_with(&mut buffer, |it| (it.from, it.context) = (to, 5_000)).unwrap();
        peer.child.kill().unwrap();
        let (mut failed, mut sent, mut received) = (0, 0, 0);
        while failed + sent < under_way || received == 0 {
            let end = wait_any(&[&port]);
            match (end.flags & fi::RECV, end.error) {
                (0, 0) => sent += 1,
                (0, error) => {
                    assert_eq!(error, fi::ENOTCONN, "{medium}");
                    failed += 1;
                }
                (_, error) => {
                    assert_eq!((error, end.context), (fi::ENOTCONN, 5_000), "{medium}");
                    received += 1;
                }
            }
        }
        assert!(failed >= 60, "{medium}: {failed} of {under_way} failed");
        assert_eq!(port.send(to, 1, b"x"), Err(fi::ENOTCONN), "{medium}");
        // Closing does not wait for it.
        port.0.close();
    }
}

#[test]
fn peer_killed_while_it_sends_stops_nobody() {
    for medium in ["shm", "parts", "udp"] {
        let port = Port::open(of_medium(medium));
        let other = Port::open(of_medium(medium));
        let to_port = other.insert(port.address());
        let expected = bytes(1, 8 << 20);
        let mut buffer = vec![0; 8 << 20];
        for turn in 0..5 {
            let mut peer = start("sends", medium, &port);
            let mut rng = fastrand::Rng::with_seed(turn);
            let messages = rng.u32(1..40);
            let from = port.insert(peer.address);
            for n in 0..=messages {
                port.receive_with(&mut buffer, |it| it.from = from).unwrap();
                // The last one ends as the peer does: well, or not.
                if n == messages {
                    peer.child.kill().unwrap();
                }
                let end = wait_any(&[&port]);
                match end.error {
                    0 => assert!(buffer[..end.length] == expected[..end.length], "{medium}"),
                    error => assert_eq!((error, n), (fi::ENOTCONN, messages), "{medium}"),
                }
            }
            drop(peer);
            // Another peer is heard as before.
            other.send(to_port, 900, b"well").unwrap();
            port.receive(900, &mut buffer).unwrap();
            assert_eq!(wait_for(&[&port, &other], fi::RECV).tag, 900, "{medium}");
        }
    }
}

#[test]
fn receive_from_peer_that_never_spoke_ends() {
    let port = Port::open(settings());
    let mut peer = start("sleeps", "shm", &Port::open(settings()));
    let from = port.insert(peer.address);
    let mut buffer = [0; 8];
    port.receive_with(&mut buffer, |it| it.from = from).unwrap();
    assert_eq!(port.completed(), None);
    peer.child.kill().unwrap();
    assert_eq!(wait_any(&[&port]).error, fi::ENOTCONN);
}
