//! Says on the standard error how far a run is.

use std::io::{IsTerminal, Write};

use indicatif::{HumanDuration, ProgressBar, ProgressFinish, ProgressState, ProgressStyle};

/// Shows how far a run is and how long it will take; nothing where nobody watches.
pub(super) fn bar(experiment: &'static str, steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64).with_finish(ProgressFinish::AndClear);
    let style =
        ProgressStyle::with_template("{prefix} {bar:20} {pos}/{len}, {left} left: {wide_msg}");
    // Without a style of its own the bar says the same in another order.
    if let Ok(style) = style {
        bar.set_style(style.with_key("left", left));
    }
    bar.set_prefix(experiment);
    // No thread that redraws it: the lab uses no CPU while it measures.
    bar
}

/// How much longer it takes, which nobody knows before something was measured.
fn left(state: &ProgressState, to: &mut dyn std::fmt::Write) {
    let _ = match state.pos() {
        0 => write!(to, "not known how long is"),
        _ => write!(to, "{}", HumanDuration(state.eta())),
    };
}

/// Shows what is being done, in place; nothing where nobody watches.
pub fn say(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
    }
}
