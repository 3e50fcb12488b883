//! The connection of one host.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, Error, LeaseKeepAliveStream, LeaseKeeper, PutOptions,
    TlsOptions, WatchOptions, WatchStream,
};
use gang_cluster::change::{Granted, Refused, Wish};
use gang_cluster::member::{Identity, Member, Note, Now, Observation, Overview, Request, Ticket};
use gang_cluster::store::{Bound, Outcome, Revision, Snapshot};
use gang_cluster::timeline::Timeline;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use crate::convert::{self, ReadError};

/// A host whose daemon is gone is away after this time, s.
pub const TTL_S: i64 = 5;
/// The lease is kept alive so often.
pub const KEEP_ALIVE: Duration = Duration::from_millis(1_500);
/// The time between two looks of the host at itself.
const LOOK: Duration = Duration::from_millis(200);
/// etcd answers within this time, or is away.
const ANSWER: Duration = Duration::from_secs(3);
/// The least step back of the clock that counts as one.
const SET_BACK_NS: u64 = 10_000_000;
/// After a connection that failed, the next try comes so much later.
const RETRY: Duration = Duration::from_millis(500);
/// A registry of which there is too much is read again after that time, which doubles so often:
/// each try reads much.
const DOUBLES_MAX: u32 = 6;

/// Certificates, as PEM.
#[derive(Debug, Clone)]
pub struct Tls {
    pub ca: Vec<u8>,
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

impl Tls {
    /// The moment at which the certificate has expired, if it has (UTC).
    fn expired(&self) -> Option<String> {
        let (_, pem) = x509_parser::pem::parse_x509_pem(&self.certificate).ok()?;
        let until = pem.parse_x509().ok()?.validity().not_after;
        let is_over = until < x509_parser::time::ASN1Time::now();
        // As RFC 3339 has it.
        is_over.then(|| until.to_datetime().to_string())
    }
}

/// Where etcd is, and as whom.
#[derive(Debug, Clone, Default)]
pub struct Address {
    /// URLs; any of them will do.
    pub endpoints: Vec<String>,
    pub tls: Option<Tls>,
    /// Name and password, where etcd does not know its users by their certificates.
    pub user: Option<(String, String)>,
}

impl Address {
    /// Connects to the first endpoint that answers.
    ///
    /// # Errors
    /// None does, or the last one does not accept who we are.
    pub async fn connect(&self) -> Result<Client, Error> {
        let mut failed = Error::InvalidArgs("etcd has no endpoint".to_owned());
        for turn in 0..self.endpoints.len() {
            match self.connect_to(turn).await {
                Ok(client) => return Ok(client),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Connects to one endpoint: turn by turn to another. A client of several would ask one that
    /// is dead now and then.
    async fn connect_to(&self, turn: usize) -> Result<Client, Error> {
        let mut options = ConnectOptions::new()
            .with_timeout(ANSWER)
            .with_connect_timeout(ANSWER)
            .with_keep_alive(Duration::from_secs(2), ANSWER)
            .with_require_leader(true);
        if let Some(tls) = &self.tls {
            let certificates = TlsOptions::new()
                .ca_certificate(Certificate::from_pem(&tls.ca))
                .identity(etcd_client::Identity::from_pem(&tls.certificate, &tls.key));
            options = options.with_tls(certificates);
        }
        if let Some((name, password)) = &self.user {
            // etcd forgets who somebody is after some minutes.
            options = options.with_user(name, password).with_auto_token_refresh(true);
        }
        let at = turn.checked_rem(self.endpoints.len()).unwrap_or(0);
        let endpoint = self.endpoints.get(at).map(String::as_str).unwrap_or_default();
        let mut client = Client::connect([endpoint], Some(options)).await?;
        // It connects with the first request.
        client.status().await?;
        Ok(client)
    }
}

/// The daemon, as far as the driver needs it.
pub trait Host: Send {
    fn now(&self) -> Now;
    /// The first slice that is not planned yet.
    fn first_slice(&self) -> u64;
    fn seen(&mut self) -> Observation;
    /// The steps that an earlier daemon of this host has followed, where it knows them.
    fn kept(&mut self) -> Option<Timeline> {
        None
    }
    /// The rows that this host follows may have changed, or what it knows of the others.
    fn changed(&mut self, member: &Member);
    fn note(&mut self, note: Note);
    /// The link to etcd came, or went and why.
    fn link(&mut self, is_up: Result<(), String>);
}

/// A question to the driver, and where its answer goes.
pub enum Ask {
    Wish(Box<Wish>, oneshot::Sender<Result<Granted, Refused>>),
    /// The cluster as it is now.
    Look(oneshot::Sender<Overview>),
    /// This host has something to see, at once.
    See,
}

/// Says where etcd is, each time that it is to be connected: certificates are renewed.
pub type Find = Box<dyn Fn() -> Result<Address, String> + Send + Sync>;

/// One host's link to etcd.
pub struct Driver {
    find: Find,
    /// The endpoint that is asked, or the next one after each failure.
    turn: usize,
    me: Identity,
    member: Member,
    host: Box<dyn Host>,
    asks: mpsc::Receiver<Ask>,
    waiting: BTreeMap<Ticket, oneshot::Sender<Result<Granted, Refused>>>,
    looks: Vec<oneshot::Sender<Overview>>,
    /// The last look at the clock.
    last: Now,
    /// How often there was too much in the registry, one time after the other.
    too_much: u32,
}

/// A connection that works.
struct Link {
    client: Client,
    watch: Option<WatchStream>,
    lease: Lease,
}

struct Lease {
    id: i64,
    keeper: LeaseKeeper,
    kept: LeaseKeepAliveStream,
}

/// Why a link ended.
enum End {
    /// Nobody can ask anything any more.
    Closed,
    Failed(String),
    /// The registry has more than is read.
    TooMuch(String),
}

impl From<Error> for End {
    fn from(err: Error) -> End {
        End::Failed(text(&err))
    }
}

impl From<ReadError> for End {
    fn from(err: ReadError) -> End {
        match err {
            ReadError::Etcd(err) => err.into(),
            ReadError::TooMuch { .. } => End::TooMuch(err.to_string()),
        }
    }
}

/// An error with all of its causes, each said once.
fn text(err: &Error) -> String {
    let mut text = err.to_string();
    let mut cause = std::error::Error::source(err);
    while let Some(err) = cause {
        let said = err.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = err.source();
    }
    text
}

impl Driver {
    pub fn new(
        find: Find,
        me: Identity,
        keys: gang_cluster::keys::Keys,
        host: Box<dyn Host>,
        asks: mpsc::Receiver<Ask>,
    ) -> Driver {
        let (mut host, mut member) = (host, Member::new(me.clone(), keys));
        if let Some(kept) = host.kept() {
            member.remember(kept);
        }
        // Hosts ask different members of etcd.
        let turn = me.name.bytes().map(usize::from).sum();
        let (waiting, looks, last) = (BTreeMap::new(), Vec::new(), host.now());
        Driver { find, turn, me, member, host, asks, waiting, looks, last, too_much: 0 }
    }

    /// Keeps so much of the registry at most.
    #[must_use]
    pub fn keeping_at_most(mut self, bound: Bound) -> Driver {
        self.member.keep_at_most(bound);
        self
    }

    /// Runs until nobody can ask anything any more.
    pub async fn run(mut self) {
        loop {
            let end = match timeout(ANSWER, Driver::link(&self.find, self.turn)).await {
                Ok(Ok(link)) => {
                    self.member.is_reachable();
                    self.follow(link).await
                }
                Ok(Err(end)) => end,
                Err(_) => End::Failed("no answer".to_owned()),
            };
            self.member.lost();
            self.turn = self.turn.wrapping_add(1);
            // A wish whose answer does not come is given up, and nothing is to be done while away.
            let _ = self.member.next(self.host.now());
            self.report();
            let mut retry = RETRY;
            match end {
                End::Closed => return,
                End::Failed(why) => self.host.link(Err(why)),
                End::TooMuch(why) => {
                    retry *= 1 << self.too_much.min(DOUBLES_MAX);
                    self.too_much = self.too_much.saturating_add(1);
                    self.host.link(Err(why));
                }
            }
            // Wishes are refused meanwhile.
            let retry_at = Instant::now() + retry;
            loop {
                tokio::select! {
                    ask = self.asks.recv() => match ask {
                        Some(ask) => self.take(ask),
                        None => return,
                    },
                    () = sleep_until(retry_at) => break,
                }
                self.report();
            }
        }
    }

    async fn link(find: &Find, turn: usize) -> Result<Link, End> {
        let address = find().map_err(End::Failed)?;
        let linked = async {
            let mut client = address.connect_to(turn).await?;
            let lease = Driver::lease(&mut client).await?;
            Ok(Link { client, watch: None, lease })
        };
        linked.await.map_err(|err: Error| {
            // etcd does not say why it takes no certificate.
            let expired = address.tls.as_ref().and_then(Tls::expired);
            End::Failed(match expired {
                Some(on) => {
                    format!("this host's certificate has expired, on {on} ({})", text(&err))
                }
                None => text(&err),
            })
        })
    }

    async fn lease(client: &mut Client) -> Result<Lease, Error> {
        let id = client.lease_grant(TTL_S, None).await?.id();
        let (keeper, kept) = client.lease_keep_alive(id).await?;
        Ok(Lease { id, keeper, kept })
    }

    fn take(&mut self, ask: Ask) {
        match ask {
            Ask::Wish(wish, answer) => {
                let ticket = self.member.wish(*wish);
                self.waiting.insert(ticket, answer);
            }
            Ask::Look(answer) => {
                self.member.look(self.host.now());
                self.looks.push(answer);
            }
            Ask::See => self.see(),
        }
    }

    fn see(&mut self) {
        self.member.see(self.host.seen());
    }

    /// Slices begin anew where the clock was set back.
    fn follow_clock(&mut self) {
        let now = self.host.now();
        let passed_ns = now.monotonic_ns.saturating_sub(self.last.monotonic_ns);
        if now.utc_ns + SET_BACK_NS < self.last.utc_ns + passed_ns {
            self.member.clock_was_set_back(self.host.first_slice());
        }
        self.last = now;
    }

    /// Hands on answers, notes and rows.
    fn report(&mut self) {
        for note in self.member.take_notes() {
            self.host.note(note);
        }
        for (ticket, answer) in self.member.take_answers() {
            // The one who asked may have gone.
            self.waiting.remove(&ticket).map(|to| to.send(answer));
        }
        if self.member.has_looked() && !self.looks.is_empty() {
            let seen = self.member.overview();
            for answer in self.looks.drain(..) {
                let _ = answer.send(seen.clone());
            }
        }
        self.host.changed(&self.member);
    }

    /// Follows the registry as long as the link works.
    async fn follow(&mut self, mut link: Link) -> End {
        let (mut look, mut keep) = (interval(LOOK), interval(KEEP_ALIVE));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        keep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while let Some(what) = self.member.next(self.host.now()) {
                if let Err(end) = self.carry_out(&mut link, what).await {
                    return end;
                }
            }
            self.report();
            let done = tokio::select! {
                message = next_message(&mut link.watch) => self.watched(&mut link, message),
                ask = self.asks.recv() => match ask {
                    Some(ask) => {
                        self.take(ask);
                        Ok(())
                    }
                    None => Err(End::Closed),
                },
                kept = link.lease.kept.message() => match kept {
                    Ok(Some(kept)) if kept.ttl() > 0 => Ok(()),
                    Ok(_) => self.renew_lease(&mut link).await,
                    Err(err) => Err(err.into()),
                },
                _ = keep.tick() => link.lease.keeper.keep_alive().await.map_err(End::from),
                _ = look.tick() => {
                    self.follow_clock();
                    self.see();
                    Ok(())
                }
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    /// The lease has ended: this machine stood still for longer than it lasts.
    async fn renew_lease(&mut self, link: &mut Link) -> Result<(), End> {
        self.member.lease_ended();
        link.lease = Driver::lease(&mut link.client).await?;
        Ok(())
    }

    fn watched(
        &mut self,
        link: &mut Link,
        message: Result<Option<etcd_client::WatchResponse>, Error>,
    ) -> Result<(), End> {
        let Some(message) = message? else {
            return Err(End::Failed("the watch has ended".to_owned()));
        };
        if message.canceled() || message.compact_revision() > 0 {
            // Revisions were compacted before they were read: all is read anew.
            link.watch = None;
            self.member.is_stale();
            return Ok(());
        }
        for (revision, events) in convert::revisions(&message) {
            let (now, first) = (self.host.now(), self.host.first_slice());
            self.member.watched(now, first, revision, &events);
        }
        Ok(())
    }

    async fn carry_out(&mut self, link: &mut Link, what: Request) -> Result<(), End> {
        let (keys, bound) = (self.member.view().keys().clone(), self.member.view().bound());
        match what {
            Request::Read => {
                let snapshot = convert::read(&mut link.client, &keys, bound).await?;
                let from = snapshot.revision;
                link.watch = Some(watch(&mut link.client, &keys.registry(), from).await?);
                self.read(&snapshot);
                self.host.link(Ok(()));
            }
            Request::ReadAlive => {
                let alive = convert::read_alive(&mut link.client, &keys, bound).await?;
                self.too_much = 0;
                self.member.read_alive(self.host.now(), alive);
            }
            Request::Announce { key, value } => {
                let options = PutOptions::new().with_lease(link.lease.id);
                let put = link.client.put(key, value, Some(options)).await;
                self.member.announced();
                match put {
                    Ok(_) => {}
                    // The lease is gone, or etcd does not permit it.
                    Err(Error::GRpcStatus(status)) if status.code() as i32 == 5 => {
                        self.renew_lease(link).await?;
                    }
                    Err(err) => return Err(err.into()),
                }
            }
            Request::Commit(txn) => {
                let outcome = convert::commit(&mut link.client, &txn, link.lease.id).await;
                let unknown = Outcome::Unknown;
                self.member.committed(self.host.now(), outcome.as_ref().unwrap_or(&unknown));
                outcome?;
            }
        }
        Ok(())
    }

    fn read(&mut self, snapshot: &Snapshot) {
        let (now, first) = (self.host.now(), self.host.first_slice());
        self.member.read(now, first, snapshot);
    }

    /// This host.
    pub fn me(&self) -> &Identity {
        &self.me
    }
}

async fn watch(client: &mut Client, prefix: &str, from: Revision) -> Result<WatchStream, Error> {
    let next = i64::try_from(from + 1).unwrap_or(i64::MAX);
    let options = WatchOptions::new().with_prefix().with_start_revision(next);
    client.watch(prefix, Some(options)).await
}

/// The next message of a watch; it never comes where there is none.
async fn next_message(
    watch: &mut Option<WatchStream>,
) -> Result<Option<etcd_client::WatchResponse>, Error> {
    match watch {
        Some(watch) => watch.message().await,
        None => std::future::pending().await,
    }
}
