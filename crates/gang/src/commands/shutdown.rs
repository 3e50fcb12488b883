//! `gang shutdown`: the end of a daemon.

use anyhow::Result;
use gang_protocol::paths::Surroundings;

use crate::connect::connect;

pub fn shutdown(daemon: &Surroundings) -> Result<()> {
    let mut client = connect(daemon)?;
    client.shutdown()?;
    println!("gangd at {} has released its jobs and ends", client.socket().display());
    Ok(())
}
