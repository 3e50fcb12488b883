//! Receives: posted, looked for, claimed, cancelled; and packets that have come for them.

use std::io;

use crate::{
    address::Address,
    completion::{Completion, fi},
    copy::copy_from,
    matching::{Lists, Source, Then, Wanted},
    packet::{Head, Kind, Offer},
    peer::{Packet, Stream},
    spans::{Foreign, Spans},
    state::{Body, Claimed, Endpoint, Message, Receive, Received, Receiving, SharedBuffer, State},
};

/// A receive, as the provider hands it over.
#[derive(Clone, Copy, Debug)]
pub struct Receiver {
    pub spans: Spans,
    /// [`fi::ADDR_UNSPEC`]: of any sender.
    pub from: u64,
    /// The tag, and the bits of it that are ignored.
    pub tag: Option<(u64, u64)>,
    pub context: usize,
    pub asks_report: bool,
    /// Its buffer is for several messages.
    pub is_shared: bool,
    pub looks: Looks,
}

/// How a receive treats a message that has come before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    /// It takes the message, or waits for one.
    Takes,
    Peeks,
    /// The message is for a later receive with the same context.
    PeeksAndClaims,
    PeeksAndDiscards,
    TakesClaimed,
    DiscardsClaimed,
}

impl Receive {
    /// Room for a message; of a buffer for several ones, the next part.
    fn take(&mut self, length: usize, min_shared: usize) -> (Receive, Then) {
        if self.shared.is_none() {
            return (*self, Then::Remove);
        }
        let room = self.spans.length() - self.used;
        let spans = self.spans.within(self.used, length.min(room));
        let taken = Receive { spans, used: 0, ..*self };
        self.used += length.min(room);
        let is_used_up = self.spans.length() - self.used < min_shared.max(1);
        (taken, if is_used_up { Then::Remove } else { Then::Keep })
    }
}

impl Endpoint {
    fn lists(&mut self, is_tagged: bool) -> &mut Lists<Receive, Message> {
        if is_tagged { &mut self.tagged } else { &mut self.plain }
    }
}

impl State {
    /// Posts a receive, or looks for a message.
    ///
    /// # Errors
    /// EINVAL: there is no such sender, endpoint or claimed message.
    ///
    /// # Safety
    /// The memory may be written by nobody else until the receive has ended.
    pub unsafe fn receive(&mut self, to: usize, receiver: &Receiver) -> Result<(), i32> {
        let endpoint = self.endpoint(to)?;
        if !endpoint.is_enabled {
            return Err(fi::EINVAL);
        }
        let (vector, bound, min_shared) = (endpoint.vector, endpoint.received, endpoint.min_shared);
        let is_directed = endpoint.is_directed && receiver.from != fi::ADDR_UNSPEC;
        let source = match is_directed {
            true => {
                let of = self.vector(vector.ok_or(fi::EINVAL)?)?;
                let entry = of.entries.get(receiver.from as usize).and_then(Option::as_ref);
                Some(entry.ok_or(fi::EINVAL)?.source())
            }
            false => None,
        };
        let (tag, ignore) = receiver.tag.unwrap_or((0, u64::MAX));
        let wanted = Wanted { tag, ignore, source };
        let is_tagged = receiver.tag.is_some();
        let mut receive = Receive {
            context: receiver.context,
            spans: receiver.spans,
            reports: receiver.asks_report || !bound.is_selective,
            shared: None,
            used: 0,
        };
        match receiver.looks {
            Looks::Takes => {}
            Looks::TakesClaimed | Looks::DiscardsClaimed => {
                let claimed = &mut self.endpoint(to)?.claimed;
                let is_it =
                    |it: &Claimed| it.context == receiver.context && it.is_tagged == is_tagged;
                let at = claimed.iter().position(is_it).ok_or(fi::EINVAL)?;
                let Claimed { tag, source, message, .. } = claimed.remove(at);
                if receiver.looks == Looks::DiscardsClaimed {
                    self.discard(to, message, receive, is_tagged, tag, source);
                } else {
                    self.begin_receive(to, receive, is_tagged, tag, source, message);
                }
                return Ok(());
            }
            Looks::Peeks | Looks::PeeksAndClaims | Looks::PeeksAndDiscards => {
                self.progress();
                self.look(to, receive, is_tagged, &wanted, receiver.looks);
                return Ok(());
            }
        }
        if receiver.is_shared {
            receive.shared = Some(self.shared.insert(SharedBuffer::default()));
        }
        loop {
            let lists = self.endpoint(to)?.lists(is_tagged);
            let Some((tag, source, message)) = lists.take(&wanted) else { break };
            let (taken, then) = receive.take(message.body.length(), min_shared);
            self.share(taken, then);
            self.begin_receive(to, taken, is_tagged, tag, source, message);
            if then == Then::Remove {
                return Ok(());
            }
        }
        let is_gone = |port| self.by_port.get(&port).is_some_and(|&at| self.peers[at].is_dead);
        if self.deaths > 0 && source.is_some_and(|source| is_gone(source.port)) {
            let end = self.unmatched(to, receive, is_tagged, &wanted);
            self.end_receive(end, 0, fi::ENOTCONN);
            return Ok(());
        }
        self.endpoint(to)?.lists(is_tagged).post(wanted, receive);
        Ok(())
    }

    /// A part of a buffer for several messages is in use.
    fn share(&mut self, taken: Receive, then: Then) {
        if let Some(shared) = taken.shared.and_then(|it| self.shared.get_mut(it)) {
            shared.under_way += 1;
            shared.is_used_up |= then == Then::Remove;
        }
    }

    fn unmatched(
        &self,
        endpoint: usize,
        receive: Receive,
        is_tagged: bool,
        wanted: &Wanted,
    ) -> Received {
        let nobody = Source { port: self.own.port, endpoint: u16::MAX };
        let (tag, source) = (wanted.tag, wanted.source.unwrap_or(nobody));
        Received { endpoint, receive, is_tagged, tag, source, data: None, length: 0 }
    }

    /// Reports the first message that fits, or that there is none.
    fn look(
        &mut self,
        to: usize,
        receive: Receive,
        is_tagged: bool,
        wanted: &Wanted,
        looks: Looks,
    ) {
        let mut end = self.unmatched(to, receive, is_tagged, wanted);
        let Ok(endpoint) = self.endpoint(to) else { return };
        let found = endpoint.lists(is_tagged).peek(wanted);
        let found =
            found.map(|(tag, source, message)| (tag, source, message.data, message.body.length()));
        let Some((tag, source, data, length)) = found else {
            self.end_receive(end, 0, fi::ENOMSG);
            return;
        };
        (end.tag, end.source, end.data, end.length) = (tag, source, data, length);
        if looks != Looks::Peeks {
            let Some((_, _, message)) = endpoint.lists(is_tagged).take(wanted) else { return };
            if looks == Looks::PeeksAndDiscards {
                self.discard(to, message, receive, is_tagged, tag, source);
                return;
            }
            let context = receive.context;
            endpoint.claimed.push(Claimed { context, is_tagged, tag, source, message });
        }
        self.report_received(end, length, 0, 0);
    }

    /// Drops a message; its sender hears that it was received.
    fn discard(
        &mut self,
        endpoint: usize,
        message: Message,
        receive: Receive,
        is_tagged: bool,
        tag: u64,
        source: Source,
    ) {
        let (length, data) = (message.body.length(), message.data);
        if let Body::Offer { peer, offer } = message.body {
            self.say_done(peer, offer.send, 0);
        }
        let end = Received { endpoint, receive, is_tagged, tag, source, data, length };
        self.report_received(end, length, 0, 0);
    }

    /// Takes a receive back that no message has come for.
    ///
    /// # Errors
    /// ENOENT: there is none.
    pub fn cancel(&mut self, of: usize, context: usize) -> Result<(), i32> {
        for is_tagged in [true, false] {
            let lists = self.endpoint(of)?.lists(is_tagged);
            if let Some((wanted, receive)) = lists.cancel(|_, it| it.context == context) {
                let end = self.unmatched(of, receive, is_tagged, &wanted);
                self.share(receive, Then::Remove);
                self.end_receive(end, 0, fi::ECANCELED);
                return Ok(());
            }
        }
        Err(fi::ENOENT)
    }

    /// Receives that only a peer that has ended could have served.
    pub fn fail_receives_from(&mut self, port: u64) {
        for of in 0..self.endpoints.len() {
            for is_tagged in [true, false] {
                while let Ok(endpoint) = self.endpoint(of) {
                    let lists = endpoint.lists(is_tagged);
                    let is_its = |wanted: &Wanted| wanted.source.is_some_and(|it| it.port == port);
                    let Some((wanted, receive)) = lists.cancel(|it, _| is_its(it)) else { break };
                    let end = self.unmatched(of, receive, is_tagged, &wanted);
                    self.share(receive, Then::Remove);
                    self.end_receive(end, 0, fi::ENOTCONN);
                }
            }
        }
    }

    /// A packet has come from a peer's port; `from` is the peer, if its medium says so.
    pub fn arrive(&mut self, from: Option<usize>, head: Head, payload: Foreign) {
        if head.kind == Kind::Hello {
            let address = Address::from_bytes(&payload.to_vec());
            match address.filter(|address| address.port == head.source) {
                Some(address) => drop(self.greet(from, &address)),
                None => self.refused += 1,
            }
            return;
        }
        let at = match self.last {
            Some((port, at)) if port == head.source => at,
            _ => match self.by_port.get(&head.source) {
                Some(&at) => at,
                None => {
                    self.refused += 1;
                    return;
                }
            },
        };
        if from.is_some_and(|from| from != at) {
            self.refused += 1;
            return;
        }
        self.last = Some((head.source, at));
        match head.kind {
            Kind::Hello | Kind::Bye => {}
            Kind::Eager => self.arrive_eager(head, payload),
            Kind::Offer => match Offer::from_bytes(&payload.to_vec()) {
                Some(offer) => self.arrive_offer(at, head, offer),
                None => self.refused += 1,
            },
            Kind::Pull => {
                let wanted = payload.to_vec().try_into().ok().map(u64::from_le_bytes);
                let wanted = wanted.and_then(|wanted| usize::try_from(wanted).ok());
                let (send, receive, from, to) = (head.tag, head.data, head.to, head.from);
                let wanted = wanted.unwrap_or(0);
                self.pulled(at, Stream { send, receive, from, to, offset: 0, wanted });
            }
            Kind::Part => self.arrive_part(at, head, payload),
            Kind::Done => self.delivered(at, head.tag, head.data),
        }
    }

    /// The receive for a message, if one waits.
    fn matched(&mut self, head: &Head, length: usize) -> Result<Option<Receive>, i32> {
        let endpoint = self.endpoint(head.to.into())?;
        if !endpoint.is_enabled {
            return Err(fi::EINVAL);
        }
        let (min_shared, source) = (endpoint.min_shared, source_of(head));
        let take = |receive: &mut Receive| {
            let (taken, then) = receive.take(length, min_shared);
            ((taken, then), then)
        };
        let found = endpoint.lists(head.is_tagged).arrive(head.tag, source, take);
        Ok(found.map(|(taken, then)| {
            self.share(taken, then);
            taken
        }))
    }

    fn arrive_eager(&mut self, head: Head, payload: Foreign) {
        let length = payload.length();
        match self.matched(&head, length) {
            Ok(Some(receive)) => {
                // SAFETY: the receive has not ended, so that its memory may be written.
                let got = unsafe { receive.spans.fill(payload) };
                self.end_receive(received(&head, receive, length), got, 0);
            }
            Ok(None) => self.keep(&head, Body::Bytes(payload.to_vec())),
            Err(_) => self.refused += 1,
        }
    }

    fn keep(&mut self, head: &Head, body: Body) {
        let message = Message { data: head.has_data.then_some(head.data), body };
        if let Ok(endpoint) = self.endpoint(head.to.into()) {
            endpoint.lists(head.is_tagged).keep(head.tag, source_of(head), message);
        }
    }

    fn arrive_offer(&mut self, at: usize, head: Head, offer: Offer) {
        match self.matched(&head, offer.length) {
            Ok(Some(receive)) => {
                let end = received(&head, receive, offer.length);
                self.accept(at, offer, end);
            }
            Ok(None) => self.keep(&head, Body::Offer { peer: at, offer }),
            Err(_) => {
                self.refused += 1;
                self.say_done(at, offer.send, fi::ENOTCONN);
            }
        }
    }

    fn begin_receive(
        &mut self,
        endpoint: usize,
        receive: Receive,
        is_tagged: bool,
        tag: u64,
        source: Source,
        message: Message,
    ) {
        let (length, data) = (message.body.length(), message.data);
        let end = Received { endpoint, receive, is_tagged, tag, source, data, length };
        match message.body {
            Body::Bytes(bytes) => {
                // SAFETY: the receive has not ended, so that its memory may be written.
                let got = unsafe { receive.spans.fill(Foreign::of(&bytes)) };
                self.end_receive(end, got, 0);
            }
            Body::Offer { peer, offer } => self.accept(peer, offer, end),
        }
    }

    /// Gets an offered message: in one copy where the kernel permits, else in parts.
    fn accept(&mut self, at: usize, offer: Offer, end: Received) {
        let wanted = offer.length.min(end.receive.spans.length());
        if wanted == 0 {
            self.say_done(at, offer.send, 0);
            self.end_receive(end, 0, 0);
            return;
        }
        let peer = &self.peers[at];
        if peer.is_dead {
            self.end_receive(end, 0, fi::ENOTCONN);
            return;
        }
        let own = self.own.host;
        let near = peer.address.filter(|address| address.host == own && address.pid != 0);
        let is_near = self.settings.may_copy
            && !peer.no_copy
            && matches!(peer.link, crate::peer::Link::SharedMemory(_));
        if let (true, Some(address)) = (is_near, near) {
            // SAFETY: the receive has not ended, so that its memory may be written.
            match unsafe { copy_from(address.pid, &offer.spans, &end.receive.spans) } {
                Ok(()) => {
                    self.say_done(at, offer.send, 0);
                    self.end_receive(end, wanted, 0);
                    return;
                }
                Err(error) if is_forbidden(&error) => {
                    let pid = address.pid;
                    let text = format!("long messages of process {pid} come in parts: {error}");
                    (self.log)(false, &text);
                    self.peers[at].no_copy = true;
                }
                Err(error) => {
                    let has_ended = error.raw_os_error() == Some(libc::ESRCH);
                    let number = if has_ended { fi::ENOTCONN } else { fi::EIO };
                    self.say_done(at, offer.send, fi::EIO);
                    self.end_receive(end, 0, number);
                    return;
                }
            }
        }
        let spans = end.receive.spans;
        let receiving = Receiving { peer: at, send: offer.send, spans, wanted, got: 0, end };
        let number = self.receives.insert(receiving);
        let mut head = self.head(Kind::Pull, end.endpoint as u16, end.source.endpoint);
        (head.tag, head.data) = (offer.send, number);
        let payload = (wanted as u64).to_le_bytes().to_vec();
        self.post(at, Packet { head, payload, ended: None });
    }

    fn arrive_part(&mut self, at: usize, head: Head, payload: Foreign) {
        let length = payload.length();
        let receiving = self.receives.get_mut(head.tag).filter(|receiving| {
            let is_next = receiving.got as u64 == head.data;
            receiving.peer == at && is_next && length <= receiving.wanted - receiving.got
        });
        let Some(receiving) = receiving else {
            self.refused += 1;
            return;
        };
        let part = receiving.spans.within(receiving.got, length);
        // SAFETY: the receive has not ended, so that its memory may be written.
        receiving.got += unsafe { part.fill(payload) };
        if receiving.got == receiving.wanted {
            if let Some(Receiving { end, got, .. }) = self.receives.remove(head.tag) {
                self.end_receive(end, got, 0);
            }
        }
    }

    fn say_done(&mut self, at: usize, send: u64, error: i32) {
        let mut head = self.head(Kind::Done, 0, 0);
        (head.tag, head.data) = (send, error as u64);
        self.post(at, Packet { head, payload: Vec::new(), ended: None });
    }

    /// Reports the end of a receive that has got so many bytes.
    pub fn end_receive(&mut self, end: Received, got: usize, error: i32) {
        let mut flags = 0;
        if let Some(number) = end.receive.shared {
            if let Some(shared) = self.shared.get_mut(number) {
                shared.under_way = shared.under_way.saturating_sub(1);
                if shared.under_way == 0 && shared.is_used_up {
                    flags = fi::MULTI_RECV;
                    self.shared.remove(number);
                }
            }
        }
        let is_cut = error == 0 && got < end.length;
        self.report_received(end, got, flags, if is_cut { fi::ETRUNC } else { error });
    }

    fn report_received(&mut self, end: Received, got: usize, flags: u64, error: i32) {
        let Received { endpoint, receive, is_tagged, tag, source, data, length } = end;
        let Ok(of) = self.endpoint(endpoint) else { return };
        let (bound, vector) = (of.received, of.vector.filter(|_| of.names_source));
        let places = vector.and_then(|it| self.vector(it).ok()).map(|it| &it.places);
        let source = places.and_then(|places| places.get(&source)).copied();
        let completion = Completion {
            context: receive.context,
            flags: flags
                | fi::RECV
                | if is_tagged { fi::TAGGED } else { fi::MSG }
                | if data.is_some() { fi::REMOTE_CQ_DATA } else { 0 },
            length: got,
            buffer: receive.spans.base(),
            data: data.unwrap_or(0),
            tag,
            source: source.unwrap_or(fi::ADDR_UNSPEC),
            missing: if error == fi::ETRUNC { length - got } else { 0 },
            error,
        };
        self.report(bound, receive.reports, completion);
    }
}

fn source_of(head: &Head) -> Source {
    Source { port: head.source, endpoint: head.from }
}

fn received(head: &Head, receive: Receive, length: usize) -> Received {
    Received {
        endpoint: head.to.into(),
        receive,
        is_tagged: head.is_tagged,
        tag: head.tag,
        source: source_of(head),
        data: head.has_data.then_some(head.data),
        length,
    }
}

fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS | libc::EACCES))
}
