//! Values as people read them, as in the views; and as programs do.

pub use gang_view::values::{Owners, count, duration, flushes, moment, percent, size, word};

/// Prints a reply as JSON, with the names of the interface file.
pub fn print_json(reply: &impl serde::Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(reply)?);
    Ok(())
}
