//! The provider within libfabric, and real MPIs on it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
    thread,
    time::Duration,
};

use gang_daemon::{Daemon, Options, Place, are_built};
use gang_fabric::{
    address::ADDRESS, completion::fi, queue::CELLS, sending::EAGER_MAX, slot, spans::SPANS_MAX,
};
use gang_harness::skipped;

/// Seconds after which a command hangs.
const BOUND: &str = "170";

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}

/// The room as a static library: the newest of those that cargo has made for this profile.
fn library(folder: &Path) -> PathBuf {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libgang_fabric-") && name.ends_with(".a")
    };
    let all = entries.filter(is_it).chain([folder.join("../libgang_fabric.a")]);
    let dated = all.filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)));
    dated.max().expect("cargo has made the library").1
}

/// The directory with the provider; none where there are no headers or no compiler for it.
fn provider() -> Option<&'static Path> {
    static PROVIDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let provider = PROVIDER.get_or_init(|| {
        let program = env::current_exe().unwrap();
        let library = library(program.parent().unwrap());
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program.file_name().unwrap());
        fs::create_dir_all(&directory).unwrap();
        let script = here().join("../../scripts/link-fabric");
        let output = Command::new(script).arg(&library).arg(&directory).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        directory.join("libgang-fi.so").exists().then_some(directory)
    });
    if provider.is_none() {
        skipped("needs the headers of libfabric: install libfabric-dev");
    }
    provider.as_deref()
}

/// Other providers stay where they are found.
fn path_of(provider: &Path) -> String {
    match env::var("FI_PROVIDER_PATH") {
        Ok(others) if !others.is_empty() => format!("{}:{others}", provider.display()),
        _ => provider.display().to_string(),
    }
}

fn bounded(provider: &Path, program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args([BOUND, program]).env("FI_PROVIDER_PATH", path_of(provider));
    command
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it)).concat()
}

#[test]
fn header_and_room_have_the_same_numbers() {
    let header =
        fs::read_to_string(here().join("../../integrations/fabric/gang_fabric.h")).unwrap();
    let defined = |name: &str| -> usize {
        let line = header.lines().find(|line| line.starts_with(&format!("#define {name} ")));
        line.unwrap().split_whitespace().nth(2).unwrap().parse().unwrap()
    };
    assert_eq!(defined("GANG_FABRIC_ADDRESS"), ADDRESS);
    assert_eq!(defined("GANG_FABRIC_EAGER"), EAGER_MAX);
    assert_eq!(defined("GANG_FABRIC_PARTS"), SPANS_MAX);
    assert_eq!(defined("GANG_FABRIC_CELLS"), CELLS as usize);
}

#[test]
fn errors_have_libfabrics_numbers() {
    let Some(_) = provider() else { return };
    let names = [
        ("FI_MSG", fi::MSG),
        ("FI_TAGGED", fi::TAGGED),
        ("FI_RECV", fi::RECV),
        ("FI_SEND", fi::SEND),
        ("FI_MULTI_RECV", fi::MULTI_RECV),
        ("FI_REMOTE_CQ_DATA", fi::REMOTE_CQ_DATA),
        ("FI_ENOENT", fi::ENOENT as u64),
        ("FI_EIO", fi::EIO as u64),
        ("FI_EAGAIN", fi::EAGAIN as u64),
        ("FI_ENOMEM", fi::ENOMEM as u64),
        ("FI_EBUSY", fi::EBUSY as u64),
        ("FI_EINVAL", fi::EINVAL as u64),
        ("FI_ENOMSG", fi::ENOMSG as u64),
        ("FI_EMSGSIZE", fi::EMSGSIZE as u64),
        ("FI_EOPNOTSUPP", fi::EOPNOTSUPP as u64),
        ("FI_ENOTCONN", fi::ENOTCONN as u64),
        ("FI_EHOSTUNREACH", fi::EHOSTUNREACH as u64),
        ("FI_ECANCELED", fi::ECANCELED as u64),
        ("FI_EAVAIL", fi::EAVAIL as u64),
        ("FI_ETRUNC", fi::ETRUNC as u64),
    ];
    let mut source = "#include <rdma/fabric.h>\n#include <rdma/fi_errno.h>\n".to_owned();
    for (name, number) in names {
        source += &format!("_Static_assert({name} == {number}ULL, \"{name}\");\n");
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("numbers.c");
    fs::write(&file, source).unwrap();
    let output = Command::new("cc").arg("-fsyntax-only").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn fi_info_lists_the_provider() {
    let Some(provider) = provider() else { return };
    if !has("fi_info") {
        return skipped("needs fi_info: install libfabric-bin");
    }
    let output = bounded(provider, "fi_info").args(["-p", "gang"]).output().unwrap();
    let said = said(&output);
    assert!(output.status.success() && said.contains("provider: gang"), "{said}");
    assert!(said.contains("FI_EP_RDM"), "{said}");
}

#[test]
fn pingpong_goes_over_each_medium() {
    let Some(provider) = provider() else { return };
    if !has("fi_pingpong") {
        return skipped("needs fi_pingpong: install libfabric-bin");
    }
    // After its last message fi_pingpong calls nothing: a frame that is lost then is never sent
    // again, as progress is manual. Open MPI goes on calling.
    let reliable = MEDIA.into_iter().filter(|(medium, _)| *medium != BAD);
    for (at, (medium, variables)) in (0..).zip(reliable) {
        let port = (20_000 + std::process::id() % 20_000 + at).to_string();
        let start = |arguments: &[&str]| {
            let mut command = bounded(provider, "fi_pingpong");
            command.args(["-p", "gang", "-e", "rdm", "-c", "-I", "20"]);
            command.args(arguments).envs(variables.iter().copied());
            command
        };
        let server = start(&["-B", &port]).spawn().unwrap();
        // The server listens once it has started; a client that comes before is refused.
        let client = (0..100).find_map(|_| {
            let output = start(&["-P", &port, "127.0.0.1"]).output().unwrap();
            if output.status.success() {
                return Some(output);
            }
            thread::sleep(Duration::from_millis(100));
            None
        });
        let server = server.wait_with_output().unwrap();
        assert!(client.is_some() && server.status.success(), "{medium}: {}", said(&server));
    }
}

type Variables = &'static [(&'static str, &'static str)];

/// The medium that loses and reorders.
const BAD: &str = "bad UDP";

const UDP: (&str, &str) = ("GANG_NET_MEDIUM", "udp");
const MEDIA: [(&str, Variables); 4] = [
    ("shared memory", &[]),
    ("parts", &[("GANG_NET_COPY", "segments")]),
    ("UDP", &[UDP]),
    (BAD, &[UDP, ("GANG_NET_FAULTS", "loss=1,reorder=5")]),
];

/// The program of the tests for Open MPI, once for all; none without Open MPI.
fn messages() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        if !has("mpicc.openmpi") || !has("mpirun.openmpi") {
            return None;
        }
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("messages");
        let output = Command::new("mpicc.openmpi")
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program)
            .arg(here().join("tests/messages.c"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
        Some(program)
    });
    if program.is_none() {
        skipped("needs Open MPI: install openmpi-bin and libopenmpi-dev");
    }
    program.as_deref()
}

#[test]
fn open_mpi_gets_every_byte_over_each_medium() {
    let Some(provider) = provider() else { return };
    let Some(program) = messages() else { return };
    for (medium, variables) in MEDIA {
        for ranks in ["2", "3"] {
            let output = bounded(provider, "mpirun.openmpi")
                .args(["--allow-run-as-root", "--oversubscribe", "-n", ranks])
                .args([
                    "--mca",
                    "mpi_yield_when_idle",
                    "1",
                    "--mca",
                    "pml",
                    "cm",
                    "--mca",
                    "mtl",
                    "ofi",
                ])
                .args(["--mca", "mtl_ofi_provider_include", "gang", "-x", "FI_PROVIDER_PATH"])
                .args(
                    variables
                        .iter()
                        .flat_map(|(name, value)| ["-x".to_owned(), format!("{name}={value}")]),
                )
                .arg(program)
                .output()
                .unwrap();
            let said = said(&output);
            assert!(output.status.success(), "{medium}, {ranks} ranks: {said}");
            assert!(said.contains("all is well"), "{medium}, {ranks} ranks: {said}");
        }
    }
}

#[test]
fn gang_run_net_makes_open_mpi_use_it() {
    let Some(provider) = provider() else { return };
    let Some(program) = messages() else { return };
    if !are_built(&["gang", "gangd"]) {
        return;
    }
    let place = Place::with_copies(&["gang", "gangd"]);
    gang_daemon::copy(&[provider.join("libgang-fi.so")], place.directory.path());
    let daemon = Daemon::start_in(place, &Options::default());
    let run = |options: &[&str]| {
        let mpirun = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"];
        let yields = ["--mca", "mpi_yield_when_idle", "1", program.to_str().unwrap()];
        let gang = daemon.path("gang");
        let mut command = daemon.command("timeout");
        command.arg(BOUND).arg(gang).args(["run", "-q"]).args(options).arg("--");
        let output = command.args(mpirun).args(yields).env("FI_LOG_LEVEL", "info").output();
        let output = output.unwrap();
        let said = said(&output);
        assert!(output.status.success() && said.contains("all is well"), "{said}");
        said
    };
    let said = run(&["--net"]);
    // Each rank asks for the page of its job.
    assert!(said.contains("waits by the slot page of job "), "{said}");
    assert!(!said.contains("waits as in a slot"), "{said}");
    let said = run(&[]);
    assert!(!said.contains(":gang:"), "without --net it is used: {said}");
}

#[test]
fn slot_page_is_laid_out_as_in_gang_h() {
    let fields = [
        ("magic", slot::MAGIC_AT),
        ("version", slot::VERSION_AT),
        ("running", slot::RUNNING),
        ("validity", slot::VALIDITY),
    ];
    let mut source = "#include <gang.h>\n#include <stddef.h>\n".to_owned();
    for (name, offset) in fields {
        source +=
            &format!("_Static_assert(offsetof(gang_page, {name}) == {offset}, \"{name}\");\n");
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page.c");
    fs::write(&file, source).unwrap();
    let headers = here().join("../libgang/include");
    let output = Command::new("cc").arg("-fsyntax-only").arg("-I").arg(headers).arg(&file).output();
    match output {
        Ok(output) => assert!(output.status.success(), "{}", said(&output)),
        Err(_) => skipped("needs a C compiler"),
    }
}
