//! `gang completions`: completions of a shell.

use anyhow::Result;
use clap_complete::Shell;

use crate::cli;

pub fn completions(shell: Shell) -> Result<()> {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut cli::documented(), "gang", &mut out);
    std::io::Write::write_all(&mut std::io::stdout(), &out)?;
    Ok(())
}
