//! Certificates: who is let in, and what is said of those that have expired.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use gang_cluster::keys::Keys;
use gang_etcd::{Address, Find, Tls, init, permit_host, user_of};
use gang_harness::etcd::Etcd;
use gang_harness::{wait_for, wait_until};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use tempfile::TempDir;

use crate::hosts::{Running, job, runtime, settings};

/// Somebody who signs certificates, and the folder in which all of them are.
struct Signer {
    folder: TempDir,
    certificate: Certificate,
    key: KeyPair,
}

impl Signer {
    fn new() -> Signer {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let signer = Signer { folder: TempDir::new().unwrap(), certificate, key };
        fs::write(signer.path("ca.pem"), signer.certificate.pem()).unwrap();
        signer
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Signs a certificate of a common name, in force until the begin of a year.
    fn sign(&self, file: &str, common_name: &str, until: i32) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        (params.not_before, params.not_after) =
            (date_time_ymd(2001, 1, 1), date_time_ymd(until, 1, 1));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.certificate, &self.key).unwrap();
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).unwrap();
        fs::write(self.path(&format!("{file}.pem")), certificate.pem()).unwrap();
    }

    fn options(&self) -> Vec<OsString> {
        let file = |option: &str, name: &str| [option.into(), self.path(name).into_os_string()];
        let files = [
            file("--cert-file", "etcd.pem"),
            file("--key-file", "etcd.key"),
            file("--trusted-ca-file", "ca.pem"),
        ];
        files.into_iter().flatten().chain(["--client-cert-auth".into()]).collect()
    }

    /// Where etcd is, with the certificate that a file has by then.
    fn find(&self, etcd: &Etcd, file: &str) -> Find {
        let [ca, certificate, key] =
            ["ca.pem", &format!("{file}.pem"), &format!("{file}.key")].map(|name| self.path(name));
        let endpoints = vec![etcd.url()];
        Box::new(move || {
            let read = |path: &PathBuf| fs::read(path).map_err(|error| error.to_string());
            let tls = Tls { ca: read(&ca)?, certificate: read(&certificate)?, key: read(&key)? };
            Ok(Address { endpoints: endpoints.clone(), tls: Some(tls), user: None })
        })
    }
}

const LATER: i32 = 2090;
const PAST: i32 = 2020;

#[test]
fn etcd_knows_hosts_by_certificates_expired_are_said() {
    let signer = Signer::new();
    signer.sign("etcd", "etcd", LATER);
    signer.sign("root", "root", LATER);
    for host in ["a", "b"] {
        signer.sign(host, &user_of("test", host), LATER);
    }
    let Some(mut etcd) = Etcd::with(signer.options()) else { return };
    let runtime = runtime();
    let keys = Keys::new("test").unwrap();
    let root = signer.find(&etcd, "root")().unwrap();
    wait_for("etcd answers", || runtime.block_on(init(&root, &keys, &settings())).ok());
    runtime.block_on(async {
        let mut client = root.connect().await.expect("a connection");
        for host in ["a", "b"] {
            permit_host(&mut client, "test", host, None).await.expect("a user");
        }
        client.user_add("root", "secret", None).await.expect("a user");
        client.user_grant_role("root", "root").await.expect("a role");
        client.auth_enable().await.expect("users are asked who they are");
    });
    let start =
        |host: &str, file: &str| Running::find(&runtime, "test", signer.find(&etcd, file), host, 4);
    let (a, b) = (start("a", "a"), start("b", "b"));
    wait_until("both join", || a.is_in() && b.is_in());
    let id = a.register(&job("one", &[("a", 1), ("b", 1)]));
    wait_until("b has the job, too", || b.cpus_of(id).is_some());

    // With the certificate of another host it may read, and cannot join.
    let c = start("c", "b");
    wait_until("it reads", || c.is_up());
    let why = wait_for("it says why it is not in", || c.look(|it| it.overview().unwilling));
    assert!(why.contains("permission denied"), "{why}");

    // One that has expired keeps its host out at its next connection, until it is renewed.
    signer.sign("a", &user_of("test", "a"), PAST);
    etcd.stop();
    etcd.start_again();
    let says = |of: &'static str| {
        let why = wait_for("it says so", || a.away().filter(|why| why.contains(of)));
        assert!(a.cpus_of(id).is_some(), "the rows go on");
        why
    };
    says("this host's certificate has expired, on 2020-01-01");
    wait_until("b is back", || b.is_up());
    signer.sign("a", &user_of("test", "a"), LATER);
    wait_until("the link is back", || a.is_up());

    // So does etcd's.
    signer.sign("etcd", "etcd", PAST);
    etcd.stop();
    etcd.start_again();
    let why = says("certificate expired");
    assert!(why.contains("certificate expired"), "{why}");
    signer.sign("etcd", "etcd", LATER);
    etcd.stop();
    etcd.start_again();
    wait_until("both are back", || a.is_up() && b.is_up());

    // One of another signer is nobody's.
    let other = Signer::new();
    other.sign("a", &user_of("test", "a"), LATER);
    fs::copy(other.path("a.pem"), signer.path("other.pem")).unwrap();
    fs::copy(other.path("a.key"), signer.path("other.key")).unwrap();
    let stranger = signer.find(&etcd, "other")().unwrap();
    assert!(runtime.block_on(stranger.connect()).is_err());
}
