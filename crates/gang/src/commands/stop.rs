//! `gang stop`: the end of a daemon.

use anyhow::Result;

use crate::connect::connect;

pub fn stop() -> Result<()> {
    let mut client = connect()?;
    client.stop()?;
    println!("gangd at {} has released its jobs and ends", client.socket().display());
    Ok(())
}
