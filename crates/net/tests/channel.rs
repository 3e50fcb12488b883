//! Two ends of a channel over a medium that does its worst, from one seed: it loses, doubles and
//! reorders frames, and carries some that are made up. Ends are out of their slots at times, and
//! are flushed.

use std::collections::BTreeMap;

use fastrand::Rng;
use gang_net::{Channel, Config, Flags, Frame, Header, Key, Rank, Refused, channel::Counts};

const KEY: Key = Key([9; 16]);
const US: u64 = 1_000;

/// How bad a medium is, in percent of the frames.
#[derive(Clone, Copy, Debug)]
struct Medium {
    lost: u32,
    doubled: u32,
    /// The longest way takes so many times the shortest one.
    spread: u64,
    forged: u32,
}

/// One end, with the time that it has had in its slots.
struct End {
    channel: Channel,
    slot_ns: u64,
    out_until_ns: u64,
    /// Frames that came while it was out of its slot.
    inbox: Vec<Vec<u8>>,
    to_send: Vec<Vec<u8>>,
    taken: Vec<Vec<u8>>,
}

impl End {
    fn new(config: Config, from: u32, to: u32) -> End {
        End {
            channel: Channel::new(config, KEY, Rank(from), Rank(to)),
            slot_ns: 0,
            out_until_ns: 0,
            inbox: Vec::new(),
            to_send: Vec::new(),
            taken: Vec::new(),
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        let Ok(frame) = Frame::read(bytes) else { return };
        match self.channel.receive(self.slot_ns, &frame) {
            Ok(()) => {}
            Err(Refused::Key | Refused::Peer) => {}
            Err(other) => panic!("the peer is honest: {other}"),
        }
    }
}

struct World {
    rng: Rng,
    medium: Medium,
    now_ns: u64,
    ends: [End; 2],
    /// By the moment at which they come, and in what order they were sent.
    on_the_way: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    carried: u64,
}

impl World {
    fn new(seed: u64, medium: Medium, config: Config) -> World {
        let ends = [End::new(config, 0, 1), End::new(config, 1, 0)];
        let rng = Rng::with_seed(seed);
        World { rng, medium, now_ns: 0, ends, on_the_way: BTreeMap::new(), carried: 0 }
    }

    fn happens(&mut self, percent: u32) -> bool {
        self.rng.u32(..100) < percent
    }

    fn carry(&mut self, to: usize, bytes: &[u8]) {
        let copies = if self.happens(self.medium.doubled) { 2 } else { 1 };
        for _ in 0..copies {
            if self.happens(self.medium.lost) {
                continue;
            }
            let takes_ns = 10 * US * self.rng.u64(1..=self.medium.spread);
            self.carried += 1;
            self.on_the_way.insert((self.now_ns + takes_ns, self.carried), (to, bytes.to_vec()));
        }
        if self.happens(self.medium.forged) {
            self.carried += 1;
            let forged = self.forged(bytes);
            self.on_the_way.insert((self.now_ns + US, self.carried), (to, forged));
        }
    }

    /// As somebody would make it up who sees frames and does not have the key.
    fn forged(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut forged = bytes.to_vec();
        let from = if self.rng.bool() { 0 } else { 8 };
        let at = from + self.rng.usize(..24 - from);
        match self.rng.u8(..3) {
            0 => forged.truncate(self.rng.usize(..bytes.len())),
            1 => forged.push(0),
            // Magic, version, flags that do not exist, length or key.
            _ => forged[at] ^= if at == 3 { 0x80 } else { 1 },
        }
        forged
    }

    /// One step of 10 µs.
    fn step(&mut self) {
        self.now_ns += 10 * US;
        let later = self.on_the_way.split_off(&(self.now_ns, 0));
        for (to, bytes) in std::mem::replace(&mut self.on_the_way, later).into_values() {
            self.ends[to].inbox.push(bytes);
        }
        for at in 0..2 {
            if self.rng.u32(..2_000) == 0 {
                self.ends[at].out_until_ns = self.now_ns + self.rng.u64(..20_000) * US;
            }
            let takes = self.happens(60);
            let end = &mut self.ends[at];
            if self.now_ns < end.out_until_ns {
                continue;
            }
            end.slot_ns += 10 * US;
            for bytes in std::mem::take(&mut end.inbox) {
                end.receive(&bytes);
            }
            if takes {
                end.taken.extend(end.channel.take());
            }
            let mut out = Vec::new();
            // As much as goes over the medium in that time.
            for _ in 0..4 {
                out.clear();
                if !self.ends[at].channel.poll(self.ends[at].slot_ns, &mut out) {
                    break;
                }
                self.carry(1 - at, &out);
            }
        }
    }

    /// Steps until something holds, which it must within a minute of its time.
    fn until(&mut self, what: &str, holds: impl Fn(&World) -> bool) {
        for _ in 0..6_000_000 {
            if holds(self) {
                return;
            }
            self.step();
        }
        let counts: [Counts; 2] = [0, 1].map(|at: usize| self.ends[at].channel.counts());
        panic!("{what}: not within a minute; {counts:?}");
    }

    /// Both ends begin nothing, until nothing is on its way.
    fn flush(&mut self) {
        self.ends.iter_mut().for_each(|end| end.channel.hold());
        self.until("a flush", |world| world.ends.iter().all(|end| end.channel.is_flushed()));
        self.ends.iter_mut().for_each(|end| end.channel.go_on());
    }
}

fn message(rng: &mut Rng, number: usize, longest: usize) -> Vec<u8> {
    let length = if rng.u8(..4) == 0 { rng.usize(..=longest) } else { rng.usize(..40) };
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(std::iter::repeat_with(|| rng.u8(..)).take(length));
    bytes
}

fn run(seed: u64, medium: Medium, config: Config) -> [Counts; 2] {
    let mut world = World::new(seed, medium, config);
    for at in 0..2 {
        let count = world.rng.usize(1..120);
        for number in 0..count {
            let message = message(&mut world.rng, number, 4 * config.payload_max);
            world.ends[at].channel.send(&message).unwrap();
            world.ends[at].to_send.push(message);
        }
    }
    for _ in 0..3 {
        (0..world.rng.u32(..300)).for_each(|_| world.step());
        world.flush();
    }
    world.until("all messages", |world| {
        let taken = |at: usize| world.ends[1 - at].taken.len() == world.ends[at].to_send.len();
        taken(0) && taken(1)
    });
    for at in 0..2 {
        assert_eq!(world.ends[1 - at].taken, world.ends[at].to_send, "seed {seed}");
    }
    world.until("an end", |world| world.ends.iter().all(|end| end.channel.is_empty()));
    [0, 1].map(|at: usize| world.ends[at].channel.counts())
}

const SMALL: Config = Config {
    payload_max: 100,
    message_max: 10_000,
    window: 8,
    again_min_ns: 200 * US,
    again_max_ns: 20_000 * US,
};

#[test]
fn messages_come_once_in_order_and_whole() {
    let (mut refused, mut again) = (0, 0);
    for seed in 0..60 {
        let medium = Medium { lost: 10, doubled: 5, spread: 6, forged: 5 };
        for of in run(seed, medium, SMALL) {
            refused += of.refused;
            again += of.frames_sent_again;
        }
    }
    assert!(refused > 60 && again > 600, "{refused} were made up, {again} were lost");
}

#[test]
fn medium_that_loses_half_loses_no_message() {
    for seed in 0..10 {
        run(seed, Medium { lost: 50, doubled: 20, spread: 30, forged: 10 }, SMALL);
    }
}

#[test]
fn a_window_of_one_frame_carries_long_messages() {
    for seed in 0..10 {
        let config = Config { window: 1, ..SMALL };
        run(seed, Medium { lost: 10, doubled: 5, spread: 6, forged: 0 }, config);
    }
}

#[test]
fn over_a_good_medium_nothing_is_sent_again() {
    for seed in 0..20 {
        let config = Config { again_min_ns: 1_000_000 * US, again_max_ns: 2_000_000 * US, ..SMALL };
        let counts = run(seed, Medium { lost: 0, doubled: 0, spread: 1, forged: 0 }, config);
        for of in counts {
            assert_eq!((of.frames_sent_again, of.doubled, of.refused), (0, 0, 0), "seed {seed}");
        }
    }
}

/// Carries all that one end has to send to the other, at once.
fn carry_all(from: &mut Channel, to: &mut Channel, now_ns: u64) -> usize {
    let mut frames = 0;
    let mut out = Vec::new();
    while from.poll(now_ns, &mut out) {
        to.receive(now_ns, &Frame::read(&out).unwrap()).unwrap();
        out.clear();
        frames += 1;
    }
    frames
}

fn two() -> (Channel, Channel) {
    let end = |from, to| Channel::new(SMALL, KEY, Rank(from), Rank(to));
    (end(0, 1), end(1, 0))
}

#[test]
fn a_receiver_that_takes_nothing_stops_its_sender() {
    let (mut a, mut b) = two();
    for _ in 0..20 {
        a.send(b"message").unwrap();
    }
    assert_eq!(carry_all(&mut a, &mut b, 0), 8, "as many as there is room for");
    carry_all(&mut b, &mut a, 0);
    assert!(a.is_flushed() && !a.is_empty());
    // It asks now and then, for ever, and nothing is a fault.
    let mut now_ns = 0;
    for _ in 0..50 {
        now_ns = a.wakes_ns().expect("it asks").max(now_ns);
        carry_all(&mut a, &mut b, now_ns);
        carry_all(&mut b, &mut a, now_ns);
    }
    assert!(now_ns > 100_000 * US);
    let mut taken = 0;
    while taken < 20 {
        taken += std::iter::from_fn(|| b.take()).count();
        carry_all(&mut b, &mut a, now_ns);
        carry_all(&mut a, &mut b, now_ns);
    }
    carry_all(&mut b, &mut a, now_ns);
    assert!(a.is_empty() && b.is_empty());
    assert_eq!(a.wakes_ns(), None);
}

#[test]
fn an_end_that_is_held_answers_and_begins_nothing() {
    let (mut a, mut b) = two();
    a.send(b"first").unwrap();
    b.send(b"other").unwrap();
    b.hold();
    carry_all(&mut a, &mut b, 0);
    assert_eq!(carry_all(&mut b, &mut a, 0), 1, "an answer alone");
    assert_eq!((b.take(), a.take()), (Some(b"first".to_vec()), None));
    assert!(a.is_flushed() && b.is_flushed());
    b.go_on();
    carry_all(&mut b, &mut a, 0);
    assert_eq!(a.take(), Some(b"other".to_vec()));
}

#[test]
fn what_is_not_of_the_peer_changes_nothing() {
    let (mut a, mut b) = two();
    a.send(b"x").unwrap();
    let mut out = Vec::new();
    assert!(a.poll(0, &mut out));
    let good = Frame::read(&out).unwrap();
    let with = |change: fn(&mut Header)| {
        let mut header = good.header;
        change(&mut header);
        header
    };
    for (header, expected) in [
        (with(|it| it.key = Key([8; 16])), Refused::Key),
        (with(|it| it.from = Rank(7)), Refused::Peer),
        (with(|it| it.to = Rank(7)), Refused::Peer),
        (with(|it| it.sequence = 8), Refused::Credit),
        (with(|it| it.sequence = u64::MAX), Refused::Credit),
        (with(|it| it.acknowledged = 1), Refused::Acknowledgement),
        (with(|it| it.acknowledged = u64::MAX), Refused::Acknowledgement),
    ] {
        let frame = Frame { header, ..good };
        assert_eq!(b.receive(0, &frame), Err(expected));
    }
    let long = Frame { payload: &[0; 101], ..good };
    assert_eq!(b.receive(0, &long), Err(Refused::Length));
    assert_eq!((b.counts().refused, b.take()), (8, None));
    assert!(!b.poll(0, &mut Vec::new()), "nor is it answered");
    b.receive(0, &good).unwrap();
    assert_eq!(b.take(), Some(b"x".to_vec()));
}

#[test]
fn messages_have_their_bound_at_both_ends() {
    let (mut a, mut b) = two();
    assert_eq!(a.send(&[0; 10_001]).unwrap_err().most, 10_000);
    a.send(&[0; 10_000]).unwrap();
    a.send(b"").unwrap();
    while !a.is_empty() {
        carry_all(&mut a, &mut b, 0);
        carry_all(&mut b, &mut a, 0);
    }
    assert_eq!((b.take().unwrap().len(), b.take().unwrap().len()), (10_000, 0));
    // One that never ends.
    let key = KEY;
    let flags = Flags { is_data: true, ..Flags::default() };
    let first = 101;
    let refused = (first..first + 200).find_map(|sequence| {
        let (from, to) = (Rank(0), Rank(1));
        let (acknowledged, seen, credit) = (0, 0, 0);
        let header = Header { flags, key, from, to, sequence, acknowledged, seen, credit };
        b.receive(0, &Frame { header, payload: &[0; 100] }).err()
    });
    assert_eq!(refused, Some(Refused::Length));
}

#[test]
fn each_end_may_have_a_key_of_its_own() {
    let (mine, yours) = (Key([1; 16]), Key([2; 16]));
    let mut a = Channel::new(SMALL, mine, Rank(0), Rank(1));
    let mut b = Channel::new(SMALL, yours, Rank(1), Rank(0));
    a.send(b"message").unwrap();
    let mut out = Vec::new();
    assert!(a.poll(0, &mut out));
    assert_eq!(b.receive(0, &Frame::read(&out).unwrap()), Err(Refused::Key));
    a.set_peer_key(yours);
    b.set_peer_key(mine);
    out.clear();
    assert!(a.poll(SMALL.again_max_ns, &mut out));
    assert_eq!(b.receive(0, &Frame::read(&out).unwrap()), Ok(()));
    assert_eq!(b.take().as_deref(), Some(&b"message"[..]));
    assert_eq!((a.backlog(), a.counts().messages_acknowledged), (0, 0));
    carry_all(&mut b, &mut a, 0);
    assert_eq!(a.counts().messages_acknowledged, 1);
}

#[test]
fn receipt_ends_a_flush_and_no_message() {
    let mut sender = Channel::new(Config::default(), KEY, Rank(0), Rank(1));
    sender.send(b"held").unwrap();
    let mut out = Vec::new();
    assert!(sender.poll(0, &mut out) && sender.numbers().under_way(0) == 1);
    let flags = Flags { is_receipt: true, ..Flags::default() };
    let (key, from, to) = (KEY, Rank(1), Rank(0));
    let header = Header { flags, key, from, to, sequence: 0, acknowledged: 1, seen: 0, credit: 0 };
    let receive = |sender: &mut Channel, header| sender.receive(1, &Frame { header, payload: &[] });
    let beyond = Header { acknowledged: 2, ..header };
    assert_eq!(receive(&mut sender, beyond), Err(Refused::Acknowledgement));
    let forged = Header { key: Key([8; 16]), ..header };
    assert_eq!(receive(&mut sender, forged), Err(Refused::Key));
    receive(&mut sender, header).unwrap();
    assert_eq!(sender.numbers().under_way(0), 0);
    assert!(!sender.is_flushed(), "the program itself has not got it");
    assert_eq!(sender.counts().messages_acknowledged, 0);
    // Where the host's memory is lost, the frame goes again.
    out.clear();
    assert!(sender.poll(10_000_000_000, &mut out), "it is kept");
    assert!(Frame::read(&out).unwrap().header.flags.is_data);
}
