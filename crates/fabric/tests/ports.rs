//! Ports of one process that send each other messages, over each medium.
#![allow(unsafe_code)]

mod port;

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use gang_fabric::{
    address::Address,
    completion::fi,
    domain::Domain,
    packet::{Head, Kind, PAYLOAD_MAX},
    queue::Writer,
    receiving::Looks,
    sending::{EAGER_MAX, Send},
    settings::{Faults, Medium, Settings, Spin},
    slot::{self, Slot},
};
use gang_harness::TEST_TIMEOUT;
use port::{Port, bytes, settings, spans, wait_for};

fn media() -> Vec<(&'static str, Settings)> {
    let udp = Settings { medium: Medium::Udp, ..settings() };
    vec![
        ("shared memory", settings()),
        ("parts", Settings { may_copy: false, ..settings() }),
        ("UDP", udp),
        ("bad UDP", Settings { faults: Faults { loss: 0.01, reorder: 0.05 }, ..udp }),
    ]
}

/// Two ports, and the places of each other.
fn two(settings: Settings) -> [(Port, u64); 2] {
    let [a, b] = [(); 2].map(|()| Port::open(settings));
    let (to_b, to_a) = (a.insert(b.address()), b.insert(a.address()));
    [(a, to_b), (b, to_a)]
}

#[test]
fn random_messages_come_whole_over_each_medium() {
    for (medium, settings) in media() {
        let mut rng = fastrand::Rng::with_seed(5);
        let [(a, to_b), (b, _)] = two(settings);
        let lengths: Vec<usize> = (0..300)
            .map(|_| match rng.u32(..10) {
                0 => rng.usize(..300_000),
                1..4 => rng.usize(..2 * EAGER_MAX),
                _ => rng.usize(..64),
            })
            .collect();
        let sent: Vec<Vec<u8>> = (0..).zip(&lengths).map(|(n, &it)| bytes(n, it)).collect();
        let mut got: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![0; length]).collect();
        // Some receives are posted before, some after: both ends take turns at random.
        let (mut next, mut posted, mut ended) = (0, 0, 0);
        while ended < sent.len() {
            match rng.u32(..4) {
                0 if next < sent.len() => {
                    if a.send(to_b, next as u64, &sent[next]).is_ok() {
                        next += 1;
                    }
                }
                1 if posted < got.len() => {
                    b.receive(posted as u64, &mut got[posted]).unwrap();
                    posted += 1;
                }
                2 => drop(a.completed()),
                _ => {
                    if let Some(completion) = b.completed() {
                        assert_eq!(completion.error, 0, "{medium}");
                        assert_eq!(completion.length, lengths[completion.tag as usize]);
                        assert_eq!(completion.source, 0);
                        ended += 1;
                    }
                }
            }
        }
        assert!(sent == got, "{medium}");
        assert_eq!(b.with(|state| state.refused), 0, "{medium}");
    }
}

#[test]
fn receiver_that_never_reads_loses_nothing() {
    for (medium, settings) in media() {
        let [(a, to_b), (b, _)] = two(settings);
        let mut sent = 0_u64;
        loop {
            match a.send_with(to_b, &sent.to_le_bytes(), |send| send.is_injected = true) {
                Ok(()) => sent += 1,
                Err(error) => {
                    assert_eq!(error, fi::EAGAIN);
                    break;
                }
            }
        }
        for _ in 0..1_000 {
            a.progress();
        }
        assert!(a.with(|state| !state.is_flushed()), "{medium}: {sent} messages wait");
        for number in 0..sent {
            let mut buffer = [0; 8];
            b.receive(7, &mut buffer).unwrap();
            let completion = wait_for(&[&b, &a], fi::RECV);
            assert_eq!((completion.length, u64::from_le_bytes(buffer)), (8, number), "{medium}");
        }
    }
}

#[test]
fn port_sends_to_itself_and_between_endpoints() {
    let port = Port::open(settings());
    assert_eq!(port.add_endpoint(), 1);
    let own = port.insert(port.address());
    let other = port.insert(Address { endpoint: 1, ..port.address() });
    let long = bytes(3, 100_000);
    let mut got = vec![0; long.len()];
    port.receive(7, &mut got).unwrap();
    port.send(own, 7, &long).unwrap();
    assert_eq!(wait_for(&[&port], fi::RECV).source, own);
    assert!(long == got);
    // A message for the other endpoint does not come to the first one.
    port.receive(7, &mut got).unwrap();
    port.send(other, 7, b"x").unwrap();
    port.send(own, 7, b"yy").unwrap();
    assert_eq!(wait_for(&[&port], fi::RECV).length, 2);
}

#[test]
fn message_longer_than_buffer_is_cut() {
    for (medium, settings) in media() {
        let [(a, to_b), (b, _)] = two(settings);
        for length in [100, 100_000] {
            let sent = bytes(1, length);
            let mut got = vec![0; 60];
            a.send(to_b, 7, &sent).unwrap();
            b.receive(7, &mut got).unwrap();
            let end = wait_for(&[&b, &a], fi::RECV);
            assert_eq!(
                (end.error, end.length, end.missing),
                (fi::ETRUNC, 60, length - 60),
                "{medium}"
            );
            assert_eq!(got, sent[..60]);
            assert_eq!(wait_for(&[&a, &b], fi::SEND).error, 0, "{medium}");
        }
    }
}

#[test]
fn delivered_send_ends_with_its_receive() {
    for (medium, settings) in media() {
        let [(a, to_b), (b, _)] = two(settings);
        a.send_with(to_b, b"", |send| send.is_delivered = true).unwrap();
        for _ in 0..500 {
            b.progress();
            assert_eq!(a.completed(), None, "{medium}");
        }
        b.receive(7, &mut []).unwrap();
        wait_for(&[&b, &a], fi::RECV);
        wait_for(&[&a, &b], fi::SEND);
    }
}

#[test]
fn probes_find_claim_and_discard() {
    let [(a, to_b), (b, _)] = two(settings());
    let peek = |looks, tag| {
        b.receive_with(&mut [], |it| (it.looks, it.tag, it.context) = (looks, Some((tag, 0)), 9))
            .unwrap();
        b.completed().unwrap()
    };
    assert_eq!(peek(Looks::Peeks, 1).error, fi::ENOMSG);
    let long = bytes(1, 50_000);
    a.send(to_b, 1, b"one").unwrap();
    a.send_with(to_b, &long, |send| (send.tag, send.data) = (Some(2), Some(5))).unwrap();
    a.send(to_b, 3, b"three").unwrap();
    assert_eq!(peek(Looks::Peeks, 1).length, 3);
    let claimed = peek(Looks::PeeksAndClaims, 2);
    assert_eq!((claimed.length, claimed.data, claimed.context), (50_000, 5, 9));
    assert_eq!(peek(Looks::Peeks, 2).error, fi::ENOMSG, "it is claimed");
    assert_eq!(peek(Looks::PeeksAndDiscards, 3).length, 5);
    assert_eq!(peek(Looks::Peeks, 3).error, fi::ENOMSG, "it is discarded");
    let mut got = vec![0; 50_000];
    b.receive_with(&mut got, |it| (it.looks, it.context) = (Looks::TakesClaimed, 9)).unwrap();
    let end = wait_for(&[&b, &a], fi::RECV);
    assert_eq!((end.flags & fi::REMOTE_CQ_DATA, end.data), (fi::REMOTE_CQ_DATA, 5));
    assert!(got == long);
    let again = b.receive_with(&mut got, |it| (it.looks, it.context) = (Looks::TakesClaimed, 9));
    assert_eq!(again, Err(fi::EINVAL));
}

#[test]
fn cancelled_receive_takes_nothing() {
    let [(a, to_b), (b, _)] = two(settings());
    let (mut first, mut second) = ([0; 4], [0; 4]);
    b.receive_with(&mut first, |it| it.context = 10).unwrap();
    b.receive_with(&mut second, |it| it.context = 11).unwrap();
    assert_eq!(b.with(|state| state.cancel(0, 10)), Ok(()));
    assert_eq!(b.with(|state| state.cancel(0, 10)), Err(fi::ENOENT));
    let end = b.completed().unwrap();
    assert_eq!((end.context, end.error), (10, fi::ECANCELED));
    a.send(to_b, 7, b"four").unwrap();
    assert_eq!(wait_for(&[&b, &a], fi::RECV).context, 11);
    assert_eq!((&first, &second), (&[0; 4], b"four"));
}

#[test]
fn shared_buffer_takes_messages_until_it_is_used_up() {
    let [(a, to_b), (b, _)] = two(Settings { may_copy: false, ..settings() });
    let mut buffer = vec![0; 20_000];
    let base = buffer.as_ptr() as usize;
    a.send_with(to_b, b"first", |send| send.tag = None).unwrap();
    b.receive_with(&mut buffer, |it| (it.tag, it.is_shared) = (None, true)).unwrap();
    let end = wait_for(&[&b, &a], fi::RECV);
    assert_eq!((end.buffer - base, end.length, end.flags & fi::MULTI_RECV), (0, 5, 0));
    let long = bytes(2, 15_000);
    a.send_with(to_b, &long, |send| send.tag = None).unwrap();
    let end = wait_for(&[&b, &a], fi::RECV);
    assert_eq!((end.buffer - base, end.length, end.flags & fi::MULTI_RECV), (5, 15_000, 0));
    let last = bytes(3, 4_950);
    a.send_with(to_b, &last, |send| send.tag = None).unwrap();
    let end = wait_for(&[&b, &a], fi::RECV);
    assert_eq!((end.length, end.flags & fi::MULTI_RECV), (4_950, fi::MULTI_RECV));
    assert_eq!(buffer[..19_955], [&b"first"[..], &long, &last].concat());
}

#[test]
fn thread_that_waits_is_woken() {
    for (medium, settings) in media() {
        // It blocks at once.
        let settings = Settings { spin: Spin::For(Duration::ZERO), ..settings };
        let [(a, to_b), (b, _)] = two(settings);
        let mut buffer = [0; 8];
        b.receive(7, &mut buffer).unwrap();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(30));
                a.send(to_b, 7, &[1; 8]).unwrap();
                while !is_done.load(Ordering::Relaxed) {
                    a.progress();
                    thread::sleep(Duration::from_micros(100));
                }
            });
            let waited = b.0.wait(None, |state| !state.queue(0).unwrap().is_empty());
            is_done.store(true, Ordering::Relaxed);
            assert_eq!(waited, Ok(()), "{medium}");
        });
        let timeout = Some(Duration::from_millis(20));
        b.completed().unwrap();
        assert_eq!(b.0.wait(timeout, |_| false), Err(fi::EAGAIN));
    }
}

/// A page as the daemon writes it, of which a test changes words.
struct Page(std::fs::File);

impl Page {
    fn make(directory: &tempfile::TempDir) -> (Page, Slot) {
        let path = directory.path().join("1.page");
        let page = Page(std::fs::File::create(&path).unwrap());
        page.0.set_len(4_096).unwrap();
        assert!(Slot::open(&path).is_err(), "an empty page is of no version");
        page.write(slot::MAGIC_AT, 0x474e_4147);
        page.write(slot::VERSION_AT, 1);
        (page, Slot::open(&path).unwrap())
    }

    fn write(&self, offset: usize, word: u32) {
        std::os::unix::fs::FileExt::write_all_at(&self.0, &word.to_ne_bytes(), offset as u64)
            .unwrap();
    }
}

#[test]
fn thread_out_of_its_slot_blocks_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (page, slot) = Page::make(&directory);
    // It would spin for longer than it waits.
    let settings = Settings { spin: Spin::For(TEST_TIMEOUT), ..settings() };
    let domain = Domain::with_slot(settings, Some(slot), Box::new(|_, _| ())).unwrap();
    let looks = || {
        let mut looks = 0;
        let count = |_: &mut _| {
            looks += 1;
            false
        };
        assert_eq!(domain.wait(Some(Duration::from_millis(60)), count), Err(fi::EAGAIN));
        looks
    };
    // A thread that blocks wakes some times to look after its peers.
    const BLOCKS: u32 = 40;
    for (running, validity, blocks) in [(0, 0, true), (1, 0, false), (0, 1, false), (0, 2, false)] {
        page.write(slot::RUNNING, running);
        page.write(slot::VALIDITY, validity);
        let looks = looks();
        assert_eq!(looks < BLOCKS, blocks, "{running} {validity}: {looks} looks");
    }
}

#[test]
fn job_without_a_daemon_counts_as_in_slot() {
    let settings = Settings { job: Some(i64::MAX), ..settings() };
    let (send, said) = std::sync::mpsc::channel();
    let log = move |is_warning, text: &str| drop(send.send((is_warning, text.to_owned())));
    let domain = Domain::new(settings, Box::new(log)).unwrap();
    let (is_warning, first) = said.recv().unwrap();
    assert!(!is_warning && first.starts_with("waits as in a slot: "), "{first}");
    domain.close();
}

#[test]
fn closing_waits_for_what_was_sent() {
    for (medium, settings) in media() {
        let [(a, to_b), (b, _)] = two(settings);
        let mut sent = 0_u32;
        while a.send_with(to_b, &sent.to_le_bytes(), |it| it.is_injected = true).is_ok() {
            sent += 1;
        }
        thread::scope(|scope| {
            scope.spawn(|| Domain::close(a.0));
            for number in 0..sent {
                let mut buffer = [0; 4];
                b.receive(7, &mut buffer).unwrap();
                wait_for(&[&b], fi::RECV);
                assert_eq!(u32::from_le_bytes(buffer), number, "{medium}");
            }
            // Its acknowledgements, too.
            for _ in 0..100 {
                b.progress();
                thread::sleep(Duration::from_millis(1));
            }
        });
    }
}

#[test]
fn one_job_has_one_key_and_others_are_refused() {
    let key = |n| Some(gang_net::Key([n; 16]));
    let udp = Settings { medium: Medium::Udp, key: key(1), ..settings() };
    let [a, b] = [(); 2].map(|()| Port::open(udp));
    let c = Port::open(Settings { key: key(2), ..udp });
    // The stranger has found the address out, but for the key.
    let to_b = c.insert(Address { key: gang_net::Key([2; 16]), ..b.address() });
    c.send(to_b, 7, b"false").unwrap();
    let mut buffer = [0; 8];
    b.receive(7, &mut buffer).unwrap();
    while b.with(|state| state.refused) == 0 {
        c.progress();
        assert_eq!(b.completed(), None);
    }
    let to_b = a.insert(b.address());
    a.send(to_b, 7, b"true").unwrap();
    assert_eq!(wait_for(&[&b, &a, &c], fi::RECV).length, 4);
    let near = Port::open(settings());
    let to_b = near.insert(Address { key: gang_net::Key([3; 16]), ..b.address() });
    let sent = near.with(|state| {
        let mut address = state.vector(0).unwrap().entries[to_b as usize].unwrap().address;
        address.socket = None;
        state.connect(&address)
    });
    assert!(near.with(|state| state.peers[sent].is_dead), "its queue has another key");
}

#[test]
fn made_up_packets_change_nothing() {
    let [(a, to_b), (b, _)] = two(settings());
    a.send(to_b, 7, b"hello").unwrap();
    let mut buffer = [0; 64];
    b.receive(7, &mut buffer).unwrap();
    wait_for(&[&b, &a], fi::RECV);
    let Address { pid, descriptor, key, port, .. } = b.address();
    let writer = Writer::open(pid, descriptor, key).unwrap();
    let own = a.address().port;
    let mut rng = fastrand::Rng::with_seed(1);
    let kinds = [Kind::Hello, Kind::Eager, Kind::Offer, Kind::Pull, Kind::Part, Kind::Done];
    for n in 0..20_000 {
        let head = Head {
            // Nobody, itself, and a peer.
            source: [rng.u64(..), port, own][n % 3],
            kind: kinds[rng.usize(..6)],
            is_tagged: false,
            has_data: rng.bool(),
            from: rng.u16(..),
            to: [0, rng.u16(..)][n % 2],
            tag: rng.u64(..4),
            data: [rng.u64(..4), rng.u64(..)][rng.usize(..2)],
        };
        let payload = bytes(n as u64, rng.usize(..100));
        // SAFETY: the payload lives.
        while !unsafe { writer.push(head, &spans(&payload)) } {
            b.progress();
        }
        while b.completed().is_some() {}
    }
    assert_eq!(buffer[5..], [0; 59], "nothing is written where no receive is");
    a.send(to_b, 9, b"after").unwrap();
    b.receive(9, &mut buffer).unwrap();
    assert_eq!(wait_for(&[&b, &a], fi::RECV).length, 5);
}

#[test]
fn scribbled_queue_crashes_nobody() {
    let [(a, to_b), (b, _)] = two(settings());
    let Address { pid, descriptor, key, .. } = b.address();
    let writer = Writer::open(pid, descriptor, key).unwrap();
    let (base, length) = writer.memory();
    let base = base as usize;
    thread::scope(|scope| {
        let scribbler = scope.spawn(move || {
            let mut rng = fastrand::Rng::with_seed(2);
            for _ in 0..300_000 {
                let at = base + (rng.usize(..length / 8)) * 8;
                let value = [rng.u64(..), rng.u64(..1 << 27)][rng.usize(..2)];
                // SAFETY: it is within the memory, which the writer keeps mapped.
                unsafe {
                    (*(at as *const std::sync::atomic::AtomicU64)).store(value, Ordering::Relaxed)
                };
            }
        });
        let message = bytes(4, PAYLOAD_MAX);
        let mut buffer = vec![0; PAYLOAD_MAX];
        while !scribbler.is_finished() {
            let _ = a.send(to_b, 7, &message);
            let _ = b.receive(7, &mut buffer);
            a.completed();
            b.completed();
        }
    });
    drop(writer);
}

#[test]
fn unreachable_address_is_an_error() {
    let port = Port::open(settings());
    let own = port.address();
    let gone = Address { port: 5, pid: 0xff_ffff, ..own };
    let elsewhere = Address {
        port: 6,
        host: gang_fabric::address::Host(1),
        socket: Some((Ipv4Addr::LOCALHOST, 9).into()),
        ..own
    };
    let nowhere = Address { port: 7, socket: None, ..elsewhere };
    for (address, is_dead) in [(gone, true), (nowhere, true), (elsewhere, false)] {
        let place = port.insert(address);
        assert_eq!(port.send(place, 7, b"x").err(), is_dead.then_some(fi::ENOTCONN));
    }
    // Nobody has the socket of the last one, which the kernel says.
    let mut seen = BTreeMap::new();
    while seen.is_empty() {
        let long = bytes(1, 10_000);
        let result = port.send(2, 7, &long);
        if result.is_err() {
            seen.insert("refused", result);
        }
        port.progress();
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(seen["refused"], Err(fi::ENOTCONN));
}

#[test]
fn threads_share_a_port() {
    const EACH: u64 = 2_000;
    let [(a, to_b), (b, _)] = two(settings());
    thread::scope(|scope| {
        for thread in 0..3 {
            let a = &a;
            scope.spawn(move || {
                for number in 0..EACH {
                    let message = number.to_le_bytes();
                    let injects = |send: &mut Send| {
                        (send.tag, send.is_injected, send.is_silent) = (Some(thread), true, true);
                    };
                    while a.send_with(to_b, &message, injects) == Err(fi::EAGAIN) {
                        thread::yield_now();
                    }
                }
            });
        }
        for _ in 0..3 {
            scope.spawn(|| {
                while b.with(|state| state.counters[0].unwrap().value) < 3 * EACH {
                    b.progress();
                    a.progress();
                    thread::yield_now();
                }
            });
        }
        let mut next = [0; 3];
        for _ in 0..3 * EACH {
            let mut buffer = [0; 8];
            b.receive_with(&mut buffer, |_| ()).unwrap();
            let end = wait_for(&[&b, &a], fi::RECV);
            let next = &mut next[end.tag as usize];
            assert_eq!(u64::from_le_bytes(buffer), *next, "of thread {}", end.tag);
            *next += 1;
        }
    });
}
