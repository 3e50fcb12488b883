//! The terminal: taken, and given back whatever happens.

use std::io::{self, BufWriter, Stdout, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};

static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// The terminal, in raw mode and on its other screen, until this is dropped. A panic of any thread
/// gives the terminal back first, so that the message can be read. Then it ends the program,
/// because other threads would go on drawing.
pub struct Screen {
    pub terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl Screen {
    /// # Errors
    /// The terminal cannot be set, or not be written to.
    pub fn take() -> io::Result<Screen> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            HAS_PANICKED.store(true, Ordering::Relaxed);
            give_back();
            before(panic);
            // As the runtime does for the main thread.
            std::process::exit(101);
        }));
        enter()?;
        // A picture is one write.
        let writer = BufWriter::with_capacity(1 << 16, stdout());
        let terminal = Terminal::new(CrosstermBackend::new(writer)).inspect_err(|_| give_back())?;
        Ok(Screen { terminal })
    }

    /// Draws a picture, unless the terminal was given back by a panic.
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        while HAS_PANICKED.load(Ordering::Relaxed) {
            // The thread that panicked is about to end the program.
            thread::park();
        }
        self.terminal.draw(picture).map(drop)
    }

    /// Takes it again, after somebody else had it.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_again(&mut self) -> io::Result<()> {
        enter()?;
        self.terminal.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen).inspect_err(|_| give_back())
}

/// Leaves the terminal as it was found. A terminal that has gone away needs nothing.
pub fn give_back() {
    let _ = disable_raw_mode();
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
}

#[cfg(test)]
mod tests {
    //! This test program starts itself once more, at a terminal.

    use std::fs::File;
    use std::io::Read;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};

    use super::*;

    /// Which thread is to panic; set for the one that is started.
    const PART: &str = "GANG_TEST_PANICS";

    #[test]
    fn panic_of_any_thread_gives_back_terminal_and_ends() {
        if let Ok(part) = std::env::var(PART) {
            return panic_at_a_terminal(&part);
        }
        for part in ["the one that draws", "another one"] {
            let (said, is_cooked, code) = at_a_terminal(part);
            let taken = said.find("\x1b[?1049h").expect("it takes the terminal");
            let given_back = said.find("\x1b[?1049l").expect("it gives the terminal back");
            let reported = said.find("on purpose").expect("it says what went wrong");
            assert!(taken < given_back && given_back < reported, "{part}: {said:?}");
            assert!(
                !said[reported..].contains("a picture"),
                "{part} is followed by pictures: {said:?}"
            );
            assert!(is_cooked, "{part}");
            assert_eq!(code, Some(101), "{part}");
        }
    }

    fn panic_at_a_terminal(part: &str) {
        let mut screen = Screen::take().unwrap();
        let draw = |frame: &mut Frame<'_>| {
            frame.buffer_mut().set_string(0, 0, "a picture", ratatui::style::Style::new());
        };
        screen.draw(draw).unwrap();
        if part == "the one that draws" {
            panic!("on purpose");
        }
        thread::spawn(|| panic!("on purpose"));
        loop {
            screen.terminal.clear().unwrap();
            screen.draw(draw).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the output to the terminal, whether the terminal takes lines afterwards, and the
    /// exit code.
    fn at_a_terminal(part: &str) -> (String, bool, Option<i32>) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let stdio = || Stdio::from(slave.try_clone().unwrap());
        let test = "panic_of_any_thread_gives_back_terminal_and_ends";
        // A terminal belongs to a session.
        let mut command = Command::new("timeout");
        command.args(["60", "setsid", "--ctty", "--wait"]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("top::screen::tests::{test}"), "--nocapture"]);
        command.env(PART, part).env("TERM", "xterm").env("RUST_BACKTRACE", "0");
        let mut program = command.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().unwrap();
        // It has the terminal open, too.
        drop(command);
        // In a thread, so that nothing that is written waits for room.
        let mut reader = File::from(master.try_clone().unwrap());
        let read = thread::spawn(move || {
            let (mut said, mut chunk) = (Vec::new(), [0; 4096]);
            // The end of a terminal is an error.
            while let Ok(length @ 1..) = reader.read(&mut chunk) {
                said.extend_from_slice(&chunk[..length]);
            }
            String::from_utf8_lossy(&said).into_owned()
        });
        let code = program.wait().unwrap().code();
        let modes = tcgetattr(&slave).unwrap().local_modes;
        drop(slave);
        (read.join().unwrap(), modes.contains(LocalModes::ICANON | LocalModes::ECHO), code)
    }
}
