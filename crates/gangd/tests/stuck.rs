//! A program whose signal handler never returns: it holds up no other gang, and can be taken out of
//! its job.

mod place;

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Command,
};

use gang_harness::skipped;
use gang_protocol::client::Registration;
use place::{
    Place, Program, has_backend, is_root, job_with, machine, registration, wait_released,
    wait_until,
};

/// Neither handler may be interrupted by the other.
const NEVER_RETURNS: &str = r#"
#include <signal.h>
#include <unistd.h>

static void never_return(int signal)
{
    (void)signal;
    if (write(1, "inside\n", 7) == 7)
        for (;;)
            continue;
}

int main(void)
{
    struct sigaction action = {0};
    action.sa_handler = never_return;
    sigfillset(&action.sa_mask);
    sigaction(SIGUSR1, &action, 0);
    sigaction(SIGUSR2, &action, 0);
    for (;;)
        continue;
}
"#;

#[test]
fn needs_root_endless_handler_holds_up_no_slot() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (source, stuck) = (directory.path().join("stuck.c"), directory.path().join("stuck"));
    fs::write(&source, NEVER_RETURNS).unwrap();
    match Command::new("cc").arg("-O1").arg(&source).arg("-o").arg(&stuck).output() {
        Ok(compiled) => {
            assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        }
        Err(error) => return skipped(format!("needs a compiler of C: {error}")),
    }
    for backend in ["rt", "freeze"] {
        if !has_backend(backend) {
            continue;
        }
        let mut place = Place::new(&["--backend", backend, "--no-measure"]);
        let mut program = Program::shell(&format!("exec {}", stuck.display()));
        let mut said = BufReader::new(program.0.stdout.take().unwrap());
        let mut client = place.client();
        let listens = Registration { signals: true, ..registration("stuck", 1) };
        let job = client.register(&listens).unwrap();
        client.add_process(job, program.pid_i64()).unwrap();
        let rivals = [(); 2].map(|()| Program::spinner());
        let others = rivals.each_ref().map(|rival| job_with(&place, rival, machine()));
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "inside\n", "{backend}: it got the signal, and never comes back");
        let slots = |job: i64| place.job(job).unwrap().slots;
        for job in others.into_iter().chain([job]) {
            let before = slots(job);
            wait_until("ten more slots", || slots(job) > before + 10);
        }
        assert_eq!(place.client().check().unwrap().violations, [], "{backend}");
        // The program leaves, and is taken from a daemon that dies, as others are.
        place.client().remove_process(job, program.pid_i64()).unwrap();
        wait_released(program.pid(), "nothing of it is left");
        let again = client.register(&listens).unwrap();
        client.add_process(again, program.pid_i64()).unwrap();
        wait_until("slots again", || slots(again) > 3);
        place.kill();
        wait_released(program.pid(), "released");
        place.start();
    }
}
