//! Tables for people, that fit the terminal.

use std::io::IsTerminal;

pub use gang_view::table::{Align, render};

/// Width of the terminal on standard output; `None` where it is none, as in a pipe.
pub fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let columns = rustix::termios::tcgetwinsize(&stdout).map_or(0, |size| size.ws_col);
    Some(if columns == 0 { 80 } else { columns.into() })
}
