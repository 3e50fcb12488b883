//! `gang top` as a person sees it: in a pseudo-terminal with a model of its screen, against a fake
//! daemon.

mod fake;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use fake::{Fake, Place, job};
use gang_harness::{TEST_TIMEOUT, skipped, wait_until};
use gang_protocol::v1;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// A program in a terminal of its own.
struct Terminal {
    master: File,
    slave: OwnedFd,
    screen: vt100::Parser,
    program: Child,
}

impl Terminal {
    fn open(place: &Place, args: &[&str], size: (u16, u16)) -> Terminal {
        Terminal::open_with(place, args, &[], size)
    }

    /// With variables of the environment.
    fn open_with(
        place: &Place,
        args: &[&str],
        variables: &[(&str, &str)],
        size: (u16, u16),
    ) -> Terminal {
        let mut command = Command::new(place.gang(&[]).get_program());
        command.arg("top").args(args).env("GANG_TIMEOUT", &place.timeout);
        command.env("GANG_SOCKET", place.socket()).env("LC_ALL", "C.UTF-8").env("TERM", "xterm");
        command.env_remove("NO_COLOR").envs(variables.iter().copied());
        Terminal::running(&command, size)
    }

    /// With another program in it, its arguments and its variables.
    fn running(wanted: &Command, (columns, lines): (u16, u16)) -> Terminal {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let stdio = || Stdio::from(slave.try_clone().unwrap());
        // A terminal belongs to a session.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(wanted.get_program()).args(wanted.get_args());
        for (name, value) in wanted.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let program = command.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().unwrap();
        let screen = vt100::Parser::new(lines, columns, 0);
        Terminal { master: master.into(), slave: slave.into(), screen, program }
    }

    fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// Waits until the screen is as it should be.
    fn expect(&mut self, what: &str, holds: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !holds(&self.text()) {
            let left = deadline.saturating_duration_since(Instant::now());
            let came = self.read_for(left);
            assert!(came, "{what} does not come:\n{}", self.text());
        }
    }

    /// Reads what comes within a time; false where nothing did.
    fn read_for(&mut self, time: Duration) -> bool {
        let timeout = Timespec::try_from(time).unwrap();
        let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
        if poll(&mut fds, Some(&timeout)).unwrap() == 0 {
            return false;
        }
        let mut chunk = [0; 65536];
        let length = self.master.read(&mut chunk).unwrap();
        self.screen.process(&chunk[..length]);
        true
    }

    /// Whether anything on the screen has a colour.
    fn has_colours(&self) -> bool {
        let screen = self.screen.screen();
        let (lines, columns) = screen.size();
        let cells = (0..lines).flat_map(|line| (0..columns).map(move |column| (line, column)));
        let is_plain = |cell: &vt100::Cell| {
            (cell.fgcolor(), cell.bgcolor()) == (vt100::Color::Default, vt100::Color::Default)
        };
        cells.filter_map(|(line, column)| screen.cell(line, column)).any(|cell| !is_plain(cell))
    }

    fn expect_text(&mut self, text: &str) {
        self.expect(&format!("{text:?}"), |screen| screen.contains(text));
    }

    fn send(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// The end of the program, and that the terminal is as it was.
    fn end(mut self) -> ExitStatus {
        let deadline = Instant::now() + TEST_TIMEOUT;
        let status = loop {
            if let Some(status) = self.program.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.text());
            // A terminal that nobody reads keeps who writes to it.
            self.read_for(Duration::from_millis(10));
        };
        while self.read_for(Duration::ZERO) {}
        let screen = self.screen.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor());
        let modes = tcgetattr(&self.slave).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
        status
    }

    /// gang itself, which setsid waits for.
    fn pid(&self) -> Pid {
        let children = format!("/proc/{0}/task/{0}/children", self.program.id());
        let children = std::fs::read_to_string(children).unwrap();
        let own = self.program.id().to_string();
        let pid = children.split_whitespace().next().unwrap_or(&own).parse().unwrap();
        Pid::from_raw(pid).unwrap()
    }
}

/// Two jobs that have their turns, of a daemon that obeys.
fn obedient() -> Fake {
    let mut jobs = vec![job(3, "lu.C"), job(12, "evil\u{1b}[2J")];
    for job in &mut jobs {
        job.state = v1::JobState::waiting;
    }
    Fake { obeys: true, ..Fake::with_jobs(jobs) }
}

#[test]
fn jobs_are_acted_on_and_daemon_is_found_again() {
    let fake = obedient();
    let place = Place::new();
    let listening = fake.listen_for_now(&place.socket());
    let mut terminal = Terminal::open(&place, &[], (80, 24));
    terminal.expect_text("lu.C");
    terminal.expect_text("evil\\u{1…");
    // Both have their turns, in the matrix and in the timeline.
    terminal.expect("turns", |screen| {
        screen.contains(" A  A ") && screen.contains(" B  B ") && screen.contains("ABABABAB")
    });
    assert!(terminal.screen.screen().alternate_screen());
    let line = |screen: &str, name: &str| -> String {
        screen.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned()
    };
    terminal.send("s");
    terminal.expect("suspension", |screen| line(screen, "lu.C").contains(" susp "));
    terminal.send("r");
    terminal.expect("resumption", |screen| line(screen, "lu.C").contains(" run "));
    terminal.send("cb");
    terminal.expect_text("job 3 is batch now");
    terminal.send("z4\r");
    terminal.expect_text("job 3 asks for 4 CPUs now");
    terminal.send("k");
    terminal.expect_text("kill job 3 lu.C (2 processes)? y: SIGTERM");
    terminal.send("n");
    terminal.expect("no question", |screen| !screen.contains("kill job 3"));
    terminal.send("\r");
    terminal.expect_text("job 3: lu.C");
    terminal.expect_text("Its share is 50.0 %");
    terminal.send("x");
    terminal.send("ky");
    terminal.expect("its end", |screen| !screen.contains("lu.C") && screen.contains("evil"));
    let calls = fake.calls();
    let acts: Vec<&str> =
        calls.iter().map(String::as_str).filter(|call| !call.starts_with("ShowJob")).collect();
    assert_eq!(
        acts,
        ["Suspend(3)", "Resume(3)", "SetJob(3, class batch)", "SetJob(3, cpus 4)", "Kill(3, 15)"]
    );
    // The daemon goes, and what was known stays; another comes.
    drop(listening);
    terminal.expect_text("looking for it again; what is shown is older");
    assert!(terminal.text().contains("evil"));
    let mut other = obedient();
    other.status.version = "0.1.7".into();
    let _listening = other.listen_for_now(&place.socket());
    terminal.expect_text("gangd 0.1.7 on ");
    terminal.expect_text("lu.C");
    terminal.send("q");
    assert!(terminal.end().success());
}

#[test]
fn a_refusal_is_shown_with_its_reason() {
    let fake = Fake { refuses: true, ..obedient() };
    let place = fake.place();
    let mut terminal = Terminal::open(&place, &["--no-color"], (80, 24));
    terminal.expect_text("lu.C");
    terminal.send("s");
    terminal.expect_text("suspending job 3 is not permitted: it is root's");
    terminal.send("\x03");
    assert!(terminal.end().success());
}

#[test]
fn option_and_environment_switch_colours_off() {
    let place = obedient().place();
    let (option, variable) = (&["--no-color"][..], &[("NO_COLOR", "1")][..]);
    for (args, variables, has_colours) in
        [(&[][..], &[][..], true), (option, &[], false), (&[], variable, false)]
    {
        let mut terminal = Terminal::open_with(&place, args, variables, (80, 24));
        terminal.expect("turns", |screen| screen.contains("ABABABAB"));
        assert_eq!(terminal.has_colours(), has_colours, "{args:?} {variables:?}");
        terminal.send("q");
        assert!(terminal.end().success());
    }
}

#[test]
fn it_fits_large_terminals_and_follows_their_size() {
    let place = obedient().place();
    let mut terminal = Terminal::open(&place, &["-r", "20"], (200, 60));
    terminal.expect("the wide table", |screen| {
        screen.contains("interactive active") && screen.contains("CPU TIME")
    });
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal.master, size).unwrap();
    terminal.screen.set_size(24, 80);
    kill_process(terminal.pid(), Signal::WINCH).unwrap();
    terminal.expect("the narrow table", |screen| {
        screen.contains("? help  q quit")
            && !screen.contains("CPU TIME")
            && screen.contains("inter")
    });
    terminal.send("q");
    assert!(terminal.end().success());
}

#[test]
fn terminal_is_given_back_after_any_signal() {
    let place = obedient().place();
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP] {
        let mut terminal = Terminal::open(&place, &[], (80, 24));
        terminal.expect_text("lu.C");
        kill_process(terminal.pid(), signal).unwrap();
        let status = terminal.end();
        assert!(!status.success(), "{signal:?}");
    }
}

#[test]
fn it_ends_with_its_terminal() {
    let place = obedient().place();
    let mut terminal = Terminal::open(&place, &[], (80, 24));
    terminal.expect_text("lu.C");
    let Terminal { master, mut program, .. } = terminal;
    // As when a connection of ssh breaks.
    drop(master);
    wait_until("it ends with its terminal", || program.try_wait().unwrap().is_some());
}

/// A connection of ssh to this machine and this user, with keys of its own and a server that
/// listens nowhere. The command to run is appended. None where there is no server of OpenSSH; the
/// test then says so.
fn ssh(directory: &Path) -> Option<Command> {
    let sshd =
        ["/usr/sbin/sshd", "/usr/bin/sshd"].into_iter().find(|path| Path::new(path).exists());
    let Some(sshd) = sshd.filter(|_| rustix::process::geteuid().is_root()) else {
        skipped("needs root and the server of OpenSSH");
        return None;
    };
    // Where the server's system has not been started, its directory is not there yet.
    std::fs::create_dir_all("/run/sshd").unwrap();
    let file = |name: &str| directory.join(name).display().to_string();
    for key in ["host", "user"] {
        let mut keygen = Command::new("ssh-keygen");
        let done = keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", &file(key)]).status();
        assert!(done.unwrap().success());
    }
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(directory, mode).unwrap();
    let config = format!(
        "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nPermitRootLogin yes\nUsePAM no\n",
        file("host"),
        file("user.pub")
    );
    std::fs::write(file("config"), config).unwrap();
    let mut ssh = Command::new("ssh");
    ssh.args(["-tt", "-F", "none", "-i", &file("user"), "-o", "StrictHostKeyChecking=no"]);
    ssh.arg("-o").arg(format!("UserKnownHostsFile={}", file("known")));
    ssh.arg("-o").arg(format!("ProxyCommand={sshd} -i -f {}", file("config")));
    ssh.arg("root@this").env("TERM", "xterm");
    Some(ssh)
}

#[test]
fn needs_root_and_sshd_top_ends_with_its_connection() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut ssh) = ssh(directory.path()) else { return };
    let place = obedient().place();
    ssh.arg("exec").arg("env").arg(format!("GANG_SOCKET={}", place.socket().display()));
    ssh.arg("LC_ALL=C.UTF-8").arg(format!("GANG_TIMEOUT={}", place.timeout));
    ssh.arg(place.gang(&[]).get_program()).arg("top");
    let mut terminal = Terminal::running(&ssh, (80, 24));
    terminal.expect_text("lu.C");
    terminal.send("?");
    terminal.expect_text("any other key goes back");
    terminal.send("qq");
    assert!(terminal.end().success());

    let mut terminal = Terminal::running(&ssh, (80, 24));
    terminal.expect_text("lu.C");
    let socket = format!("GANG_SOCKET={}", place.socket().display());
    let is_there = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut environments =
            processes.filter_map(|of| std::fs::read(of.path().join("environ")).ok());
        environments.any(|it| it.split(|&byte| byte == 0).any(|one| one == socket.as_bytes()))
    };
    assert!(is_there());
    kill_process(terminal.pid(), Signal::KILL).unwrap();
    wait_until("it ends with its connection", || !is_there());
}

#[test]
fn no_slice_of_a_millisecond_is_missed() {
    let mut fake = obedient();
    fake.status.slice_ns = 1_000_000;
    let place = fake.place();
    let mut terminal = Terminal::open(&place, &[], (80, 24));
    terminal.expect_text("lu.C");
    // Columns stand for fewer slices with each.
    terminal.send("+++++++++");
    terminal.expect_text("a column is 1 slice, 1 ms");
    // The jobs take turns, so two of the same, or none, would be a slice that was not seen.
    let strict = |screen: &str| {
        let line = screen.lines().find(|line| line.contains("CPU 0 "))?;
        let columns: Vec<char> = line.split("CPU 0").last()?.trim().chars().collect();
        let is_turn = |pair: &[char]| matches!(pair, ['A', 'B'] | ['B', 'A']);
        Some(columns.len() > 40 && columns.windows(2).all(is_turn))
    };
    for _ in 0..20 {
        let before = terminal.text();
        terminal.expect("the next picture, with every slice", |screen| {
            *screen != before && strict(screen) == Some(true)
        });
    }
    terminal.send("q");
    assert!(terminal.end().success());
}

#[test]
fn it_stops_with_the_terminal_given_back_and_goes_on() {
    let place = obedient().place();
    let mut terminal = Terminal::open(&place, &[], (80, 24));
    terminal.expect_text("lu.C");
    let pid = terminal.pid();
    terminal.send("\x1a");
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
        stat.rsplit(')').next().unwrap().trim_start().chars().next()
    };
    wait_until("it stops", || state() == Some('T'));
    let modes = tcgetattr(&terminal.slave).unwrap().local_modes;
    assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO));
    // Its earlier output is read first.
    terminal.expect("the other screen", |screen| !screen.contains("lu.C"));
    kill_process(pid, Signal::CONT).unwrap();
    terminal.expect_text("lu.C");
    terminal.send("q");
    assert!(terminal.end().success());
}

#[test]
fn without_a_daemon_it_waits_for_one() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place, &[], (80, 24));
    terminal.expect_text("no gangd for ");
    terminal.expect_text("no gangd listens at");
    obedient().listen(&place.socket());
    terminal.expect_text("lu.C");
    terminal.send("q");
    assert!(terminal.end().success());
}

#[test]
fn daemon_of_other_version_or_hanging_is_named() {
    let place = Place { timeout: "2".to_owned(), ..Place::new() };
    // It takes connections and says nothing.
    let silent = std::os::unix::net::UnixListener::bind(place.socket()).unwrap();
    // Wide enough for any path of a socket.
    let mut terminal = Terminal::open(&place, &[], (240, 24));
    terminal.expect_text("gangd silent for ");
    terminal.expect_text("did not answer within 2 s");
    // Keys are obeyed meanwhile.
    terminal.send("?");
    terminal.expect_text("choose a job");
    terminal.send("?");
    drop(silent);
    std::fs::remove_file(place.socket()).unwrap();
    let strange = std::os::unix::net::UnixListener::bind(place.socket()).unwrap();
    std::thread::spawn(move || {
        for stream in strange.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"{\"parameters\":{\"state\":\"of the art\"}}\0");
        }
    });
    terminal.expect_text("gangd of another version for ");
    terminal.expect_text("are both of the same version?");
    terminal.send("q");
    assert!(terminal.end().success());
}

/// CPU time that a process has used, with that of its threads.
fn cpu_time(pid: Pid) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The figure of SPECIFICATION.md. It judges nothing:
/// `cargo test --release -p gang --test top -- --ignored --nocapture`.
#[test]
#[ignore = "nightly: needs an optimised build and 30 s, to measure"]
fn what_it_costs() {
    for (slice_ns, size) in
        [(10_000_000, (80, 24)), (10_000_000, (200, 60)), (1_000_000, (200, 60))]
    {
        let jobs = (1..=20).map(|id| v1::Job {
            state: v1::JobState::waiting,
            ..job(id, &format!("program-{id}"))
        });
        let mut fake = Fake { obeys: true, ..Fake::with_jobs(jobs.collect()) };
        fake.status.slice_ns = slice_ns;
        let place = fake.place();
        let mut terminal = Terminal::open(&place, &["-r", "10"], size);
        terminal.expect_text("program-1");
        let (pid, begin) = (terminal.pid(), Instant::now());
        let before = cpu_time(pid);
        while begin.elapsed() < Duration::from_secs(10) {
            let mut chunk = [0; 65536];
            let length = terminal.master.read(&mut chunk).unwrap();
            terminal.screen.process(&chunk[..length]);
        }
        let used = (cpu_time(pid) - before).as_secs_f64() / begin.elapsed().as_secs_f64();
        println!(
            "gang top, 10 pictures a second of {} by {}, 20 jobs, slice {} ms: {:.2} % of a CPU",
            size.0,
            size.1,
            slice_ns / 1_000_000,
            100.0 * used
        );
        terminal.send("q");
        assert!(terminal.end().success());
    }
}
