//! A directory with a socket.

use std::{
    ffi::OsStr,
    fs::{Permissions, set_permissions},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output},
};

use gang_harness::TEST_TIMEOUT;
use gang_protocol::{client::Client, limits::WEIGHT_DEFAULT, paths::jobs_dir, v1};
use tempfile::TempDir;

use crate::{built, copy};

/// Variables by which a program would not be as a test wants it.
const FOREIGN: [&str; 5] =
    ["OMP_NUM_THREADS", "OMP_WAIT_POLICY", "RAYON_NUM_THREADS", "GOMAXPROCS", "GANG_JOB"];

/// A directory with a socket, for a daemon or for something that plays one.
pub struct Place {
    pub directory: TempDir,
    /// The directory of the project's programs.
    pub programs: PathBuf,
    /// GANG_TIMEOUT of commands, in seconds: as long as tests wait. Empty: as long as usual.
    pub timeout: String,
}

impl Place {
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Place {
        Place {
            directory: tempfile::tempdir().unwrap(),
            programs: built(),
            timeout: TEST_TIMEOUT.as_secs().to_string(),
        }
    }

    /// A place with copies of programs, and without those that are not named.
    pub fn with_copies(names: &[&str]) -> Place {
        let mut place = Place::new();
        place.copy_programs(names);
        place.programs = place.directory.path().to_owned();
        place
    }

    pub fn copy_programs(&self, names: &[&str]) {
        let programs: Vec<PathBuf> = names.iter().map(|name| self.programs.join(name)).collect();
        copy(&programs, self.directory.path());
    }

    /// Has every user reach the directory, by a mode such as 0o755.
    pub fn open_to_everybody(&self, mode: u32) {
        set_permissions(self.directory.path(), Permissions::from_mode(mode)).unwrap();
    }

    /// Makes the directory another user's: a daemon keeps files only in its user's own.
    pub fn give_to(&self, uid: u32) {
        self.open_to_everybody(0o755);
        std::os::unix::fs::chown(self.directory.path(), Some(uid), Some(uid)).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("gangd.sock")
    }

    /// The directory of what a daemon has on file of its jobs.
    pub fn jobs_dir(&self) -> PathBuf {
        jobs_dir(&self.socket())
    }

    /// A client that waits for as long as tests do: a daemon that is busy answers late.
    pub fn client(&self) -> Client {
        Client::connect_within(&self.socket(), TEST_TIMEOUT).unwrap()
    }

    /// The jobs that there are; none where there is no daemon.
    pub fn jobs(&self) -> Vec<v1::Job> {
        let client = Client::connect_within(&self.socket(), TEST_TIMEOUT);
        client.and_then(|mut client| client.list_jobs()).map_or_else(|_| Vec::new(), |it| it.jobs)
    }

    /// A program that finds the daemon of this place, and waits for it as long as tests do.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("GANG_SOCKET", self.socket()).env("GANG_TIMEOUT", &self.timeout);
        for name in FOREIGN {
            command.env_remove(name);
        }
        // The nice value that tests are run with would be the weight of their jobs.
        command.env("GANG_WEIGHT", WEIGHT_DEFAULT.to_string());
        command
    }

    /// `gang` with arguments.
    pub fn gang(&self, arguments: &[&str]) -> Command {
        let mut gang = self.command(self.programs.join("gang"));
        gang.args(arguments);
        gang
    }

    pub fn output(&self, arguments: &[&str]) -> Output {
        self.gang(arguments).output().unwrap()
    }
}
