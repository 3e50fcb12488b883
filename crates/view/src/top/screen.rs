//! The terminal: taken, and given back whatever happens.

use std::io::{self, BufWriter, Stdout, stdout};

use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

/// The terminal, in raw mode and on its other screen, until this is dropped. A panic gives it back
/// first, so that what it says can be read.
pub struct Screen {
    pub terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl Screen {
    /// # Errors
    /// The terminal cannot be set, or not be written to.
    pub fn take() -> io::Result<Screen> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        enter()?;
        // A picture is one write.
        let writer = BufWriter::with_capacity(1 << 16, stdout());
        let terminal = Terminal::new(CrosstermBackend::new(writer)).inspect_err(|_| give_back())?;
        Ok(Screen { terminal })
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

/// As it was found. Whoever has gone away cannot be given anything.
pub fn give_back() {
    let _ = disable_raw_mode();
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
}
