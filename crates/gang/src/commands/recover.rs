//! `gang recover`: undo what a dead daemon left.

use anyhow::Result;
use gang_protocol::client::Client;
use gang_protocol::paths::{SYSTEM_SOCKET, Surroundings};

use crate::leftovers;

pub fn recover(surroundings: &Surroundings) -> Result<()> {
    for socket in surroundings.candidates() {
        match Client::connect(&socket) {
            Ok(_) => println!(
                "gangd listens at {} and holds its jobs; `gang shutdown` ends it",
                socket.display()
            ),
            Err(error) if !error.is_no_daemon() => return Err(error.into()),
            // Only root can release the leftovers of the machine's daemon.
            Err(_) if surroundings.uid != 0 && socket.as_os_str() == SYSTEM_SOCKET => {
                leftovers::report_roots(&socket, surroundings.uid);
            }
            Err(_) => {
                let said = leftovers::harmless(&leftovers::release(&socket)?.stdout);
                if said.is_empty() {
                    println!("nothing to recover at {}", socket.display());
                }
                print!("{said}");
            }
        }
    }
    Ok(())
}
