//! Certificates for a site that has nobody who signs them.
//!
//! All are PEM files in one directory: the signer `ca`, the server `etcd`, the administrator
//! `root`, and one for each host by its name. A signer that is there signs the others, so that
//! hosts can come later.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gang_cluster::keys::is_name;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

use crate::rights::user_of;

/// The certificates that are wanted.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    pub cluster: &'a str,
    /// Names and addresses by which hosts reach etcd.
    pub etcd: &'a [String],
    pub hosts: &'a [String],
    /// They are in force for so long.
    pub lasts: Duration,
}

/// Why certificates could not be written.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("{0:?} cannot be the name of a host")]
    Name(String),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: it cannot sign: {source}", path.display())]
    Signer { path: PathBuf, source: rcgen::Error },
    #[error(transparent)]
    Certificate(#[from] rcgen::Error),
}

/// The one that signs the others.
struct Signer {
    certificate: Certificate,
    key: KeyPair,
}

/// Writes the certificates that are not there, and their keys, which their owner alone can read.
/// Returns the files of the certificates, in order. Files that are there stay as they are.
///
/// # Errors
/// [`CertificateError`]. Some may have been written by then.
pub fn write_certificates(
    directory: &Path,
    wanted: &Wanted<'_>,
) -> Result<Vec<PathBuf>, CertificateError> {
    if let Some(name) = wanted.hosts.iter().find(|name| !is_name(name)) {
        return Err(CertificateError::Name(name.clone()));
    }
    fs::create_dir_all(directory).map_err(at(directory))?;
    let signer = signer(directory, wanted.cluster)?;
    let mut written = Vec::new();
    let server = ("etcd", "etcd".to_owned(), wanted.etcd);
    let root = ("root", "root".to_owned(), &[][..]);
    let hosts = wanted.hosts.iter();
    let hosts = hosts.map(|host| (host.as_str(), user_of(wanted.cluster, host), &[][..]));
    for (file, common_name, names) in [server, root].into_iter().chain(hosts) {
        let path = directory.join(format!("{file}.pem"));
        if path.exists() {
            continue;
        }
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, common_name);
        // etcd is a client of itself, too.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        last(&mut params, wanted.lasts);
        let certificate = params.signed_by(&key, &signer.certificate, &signer.key)?;
        write(&path.with_extension("key"), &key.serialize_pem(), 0o600)?;
        write(&path, &certificate.pem(), 0o644)?;
        written.push(path);
    }
    Ok(written)
}

/// The signer that is there, or a new one.
fn signer(directory: &Path, cluster: &str) -> Result<Signer, CertificateError> {
    let path = directory.join("ca.pem");
    let key_path = path.with_extension("key");
    if path.exists() {
        let [text, key] = [&path, &key_path].map(|path| fs::read_to_string(path).map_err(at(path)));
        let wrong = |source| CertificateError::Signer { path: path.clone(), source };
        let key = KeyPair::from_pem(&key?).map_err(wrong)?;
        let params = CertificateParams::from_ca_cert_pem(&text?).map_err(wrong)?;
        // The same certificate once more, for its name and its key: the one on file stays.
        let certificate = params.self_signed(&key).map_err(wrong)?;
        return Ok(Signer { certificate, key });
    }
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, format!("gang cluster {cluster}"));
    last(&mut params, SIGNER_LASTS);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    write(&key_path, &key.serialize_pem(), 0o600)?;
    write(&path, &certificate.pem(), 0o644)?;
    Ok(Signer { certificate, key })
}

/// A signer is in force for ten years.
const SIGNER_LASTS: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Clocks of hosts may be behind by so much.
const BEHIND: Duration = Duration::from_secs(86_400);

fn last(params: &mut CertificateParams, lasts: Duration) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = date_time_ymd(1970, 1, 1) + now;
    (params.not_before, params.not_after) = (now - BEHIND, now + lasts);
}

fn at(path: &Path) -> impl Fn(io::Error) -> CertificateError {
    let path = path.to_owned();
    move |source| CertificateError::File { path: path.clone(), source }
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(at(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn hosts_come_later_and_what_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let files = |hosts: &[&str]| {
            let (etcd, hosts) = (names(&["127.0.0.1", "etcd.example.org"]), names(hosts));
            let lasts = Duration::from_secs(3_600);
            let wanted = Wanted { cluster: "lab", etcd: &etcd, hosts: &hosts, lasts };
            let written = write_certificates(folder.path(), &wanted)?;
            let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
            Ok::<_, CertificateError>(written.into_iter().map(name).collect::<Vec<_>>())
        };
        assert_eq!(files(&["a"]).unwrap(), ["etcd.pem", "root.pem", "a.pem"]);
        let before = fs::read(folder.path().join("a.pem")).unwrap();
        assert_eq!(files(&["a", "b"]).unwrap(), ["b.pem"]);
        assert_eq!(fs::read(folder.path().join("a.pem")).unwrap(), before);
        let mode = fs::metadata(folder.path().join("b.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(files(&["../c"]), Err(CertificateError::Name(_))));
        fs::write(folder.path().join("ca.key"), "").unwrap();
        assert!(matches!(files(&["d"]), Err(CertificateError::Signer { .. })));
    }
}
