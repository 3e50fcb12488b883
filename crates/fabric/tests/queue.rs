//! The queue: writers of several threads, of processes that end, and full.
#![allow(unsafe_code)]

use std::{process::Command, thread};

use gang_fabric::{
    address::started,
    packet::{Head, Kind, PAYLOAD_MAX},
    queue::{CELLS, Next, Reader, Writer},
    spans::{Span, Spans},
};
use gang_net::Key;
use proptest::prelude::*;

const KEY: Key = Key([5; 16]);

fn open(reader: &Reader) -> Writer {
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(reader.file()) as u32;
    Writer::open(std::process::id(), descriptor, KEY).unwrap()
}

fn head(source: u64, number: u64) -> Head {
    let (is_tagged, has_data) = (true, false);
    Head { source, kind: Kind::Eager, is_tagged, has_data, from: 1, to: 2, tag: number, data: 3 }
}

fn push(writer: &Writer, head: Head, payload: &[u8]) -> bool {
    let part = Span { base: payload.as_ptr() as usize, length: payload.len() };
    // SAFETY: the payload lives.
    unsafe { writer.push(head, &Spans::new(&[part]).unwrap()) }
}

fn take(reader: &mut Reader) -> Option<(Head, Vec<u8>)> {
    match reader.look() {
        Next::Packet(head, payload) => {
            let payload = payload.to_vec();
            reader.done();
            Some((head, payload))
        }
        _ => None,
    }
}

fn payload(source: u64, number: u64) -> Vec<u8> {
    let length = (number * 37 % (PAYLOAD_MAX as u64 + 1)) as usize;
    (0..length).map(|at| (source + number) as u8 ^ at as u8).collect()
}

#[test]
fn packets_of_many_writers_come_once_and_in_order() {
    const WRITERS: u64 = 3;
    const EACH: u64 = 5_000;
    let mut reader = Reader::new(KEY).unwrap();
    let writers: Vec<Writer> = (0..WRITERS).map(|_| open(&reader)).collect();
    thread::scope(|scope| {
        for (source, writer) in (0..).zip(&writers) {
            scope.spawn(move || {
                for number in 0..EACH {
                    while !push(writer, head(source, number), &payload(source, number)) {
                        thread::yield_now();
                    }
                }
            });
        }
        let mut next = [0; WRITERS as usize];
        while next.iter().sum::<u64>() < WRITERS * EACH {
            let Some((head, bytes)) = take(&mut reader) else {
                thread::yield_now();
                continue;
            };
            let expected = &mut next[head.source as usize];
            assert_eq!(head.tag, *expected);
            assert!(bytes == payload(head.source, head.tag));
            *expected += 1;
        }
    });
    assert!(take(&mut reader).is_none());
}

#[test]
fn cell_of_an_ended_process_is_skipped() {
    let mut reader = Reader::new(KEY).unwrap();
    let writer = open(&reader);
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    assert!(push(&writer, head(0, 0), b"before"));
    assert!(writer.abandon(pid));
    assert!(push(&writer, head(0, 1), b"after"));
    assert_eq!(take(&mut reader).unwrap().1, b"before");
    let Next::Claimed { pid: found } = reader.look() else { panic!("it is not claimed") };
    assert_eq!((found, started(found)), (pid, None));
    reader.done();
    assert_eq!(take(&mut reader).unwrap().1, b"after");
}

#[test]
fn another_key_opens_nothing() {
    let reader = Reader::new(KEY).unwrap();
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(reader.file()) as u32;
    assert!(Writer::open(std::process::id(), descriptor, Key([6; 16])).is_err());
    assert!(Writer::open(std::process::id(), 0, KEY).is_err());
}

proptest! {
    #[test]
    fn queue_is_a_bounded_list(steps in proptest::collection::vec(any::<bool>(), 0..2_000)) {
        let mut reader = Reader::new(KEY).unwrap();
        let writer = open(&reader);
        let (mut written, mut read) = (0, 0);
        for pushes in steps {
            if pushes {
                let is_pushed = push(&writer, head(0, written), &written.to_le_bytes());
                prop_assert_eq!(is_pushed, written - read < CELLS);
                written += u64::from(is_pushed);
            } else {
                let found = take(&mut reader);
                prop_assert_eq!(found.is_some(), read < written);
                if let Some((found, bytes)) = found {
                    prop_assert_eq!((found, bytes), (head(0, read), read.to_le_bytes().to_vec()));
                    read += 1;
                }
            }
        }
    }
}
