//! The cluster that the host belongs to, and how good its clock is.

use std::{
    fs,
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};
use gang_cluster::keys::is_name;
use gang_etcd::{Address, Tls};
use serde::Deserialize;

use super::duration;

/// `[cluster]`, as written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct File {
    /// The cluster; without it the host is in none.
    name: Option<String>,
    /// URLs of etcd.
    endpoints: Vec<String>,
    /// The name of this host in the cluster; its host name unless it is set.
    host: Option<String>,
    /// PEM files: who signs etcd's certificates, and this host's own certificate and key.
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    /// A user of etcd, and the file with its password, where certificates do not say who the host
    /// is.
    user: Option<String>,
    password_file: Option<PathBuf>,
}

/// The cluster that the host belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub name: String,
    pub host: String,
    file: Where,
}

/// Where etcd is, and the files that say as whom to ask it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Where {
    endpoints: Vec<String>,
    /// Signer, certificate, key.
    tls: Option<[PathBuf; 3]>,
    user: Option<(String, PathBuf)>,
}

impl File {
    pub fn read(&self) -> anyhow::Result<Option<Cluster>> {
        let File { name, endpoints, host, ca, certificate, key, user, password_file } = self;
        let Some(name) = name else {
            let is_empty = *self == File::default();
            ensure!(is_empty, "cluster.name: [cluster] needs the name of the cluster");
            return Ok(None);
        };
        ensure!(is_name(name), "cluster.name: {name:?}: {NAME}");
        ensure!(!endpoints.is_empty(), "cluster.endpoints: name the URL of etcd at least once");
        let is_url = |url: &String| url.starts_with("https://") || url.starts_with("http://");
        for url in endpoints {
            ensure!(is_url(url), "cluster.endpoints: {url:?} is no URL such as https://etcd:2379");
        }
        let host = match host {
            Some(host) => host.clone(),
            None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
        };
        ensure!(is_name(&host), "cluster.host: {host:?}: {NAME}");
        let tls = match (ca, certificate, key) {
            (Some(ca), Some(certificate), Some(key)) => {
                Some([ca.clone(), certificate.clone(), key.clone()])
            }
            (None, None, None) => None,
            _ => anyhow::bail!("cluster.certificate: ca, certificate and key belong together"),
        };
        let is_secret = endpoints.iter().any(|url| url.starts_with("https://"));
        ensure!(!is_secret || tls.is_some(), "cluster.ca: https needs ca, certificate and key");
        let user = match (user, password_file) {
            (Some(user), Some(file)) => Some((user.clone(), file.clone())),
            (None, None) => None,
            _ => anyhow::bail!("cluster.user: user and password_file belong together"),
        };
        let file = Where { endpoints: endpoints.clone(), tls, user };
        Ok(Some(Cluster { name: name.clone(), host, file }))
    }
}

/// The rule for names.
const NAME: &str = "a name has letters, digits, dots, - and _";

impl Cluster {
    /// Where etcd is, with what the files say.
    pub fn address(&self) -> anyhow::Result<Address> {
        let read = |path: &PathBuf| {
            fs::read(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let tls = match &self.file.tls {
            Some([ca, certificate, key]) => {
                Some(Tls { ca: read(ca)?, certificate: read(certificate)?, key: secret(key)? })
            }
            None => None,
        };
        let user = match &self.file.user {
            Some((user, file)) => {
                let password = String::from_utf8_lossy(&secret(file)?).trim().to_owned();
                Some((user.clone(), password))
            }
            None => None,
        };
        Ok(Address { endpoints: self.file.endpoints.clone(), tls, user })
    }
}

/// Reads a file that says who this host is. One that everybody can read or write is no secret.
fn secret(path: &Path) -> anyhow::Result<Vec<u8>> {
    let cannot = || format!("cannot read {}", path.display());
    let mut file = fs::File::open(path).with_context(cannot)?;
    let mode = file.metadata().with_context(cannot)?.mode();
    ensure!(mode & 0o007 == 0, "{}: others may use it; chmod o= keeps them out", path.display());
    let mut text = Vec::new();
    file.read_to_end(&mut text).with_context(cannot)?;
    Ok(text)
}

/// `[clock]`, as written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClockFile {
    /// The word on how good the clock is: "auto", "adjtimex", "chrony" or "ptp".
    source: Source,
    /// The bound of a clock that PTP disciplines, such as "20us": no program says it.
    bound: Option<String>,
    /// The part of a slice by which the clock may be off, in percent, for slots of spanning jobs.
    slice_percent: Option<u32>,
}

/// The source of the clock's quality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// chronyd where it answers, the kernel where not.
    #[default]
    Auto,
    Adjtimex,
    Chrony,
    Ptp,
}

/// The word on how good the clock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    pub source: Source,
    /// Of PTP alone.
    pub bound: Duration,
    /// The clock may be off by this part of a slice.
    pub slice_percent: u32,
}

/// A twentieth of a slice.
const SLICE_PERCENT: u32 = 5;

impl Default for Clock {
    fn default() -> Clock {
        Clock { source: Source::Auto, bound: Duration::ZERO, slice_percent: SLICE_PERCENT }
    }
}

impl ClockFile {
    pub fn read(&self) -> anyhow::Result<Clock> {
        let bound = self.bound.as_deref().map(duration).transpose();
        let bound = bound.map_err(anyhow::Error::msg).context("clock.bound")?;
        let slice_percent = self.slice_percent.unwrap_or(SLICE_PERCENT);
        let is_part = (1..=50).contains(&slice_percent);
        ensure!(is_part, "clock.slice_percent: it is 1 to 50, not {slice_percent}");
        let bound = match (self.source, bound) {
            (Source::Ptp, None) => anyhow::bail!("clock.bound: source = \"ptp\" needs it"),
            (Source::Ptp, Some(bound)) => bound,
            (_, Some(_)) => anyhow::bail!("clock.bound: it is for source = \"ptp\" alone"),
            (_, None) => Duration::ZERO,
        };
        Ok(Clock { source: self.source, bound, slice_percent })
    }
}
