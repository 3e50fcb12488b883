//! How many threads the machine has to run, and whether new ones came.

use std::{fs::File, os::unix::fs::FileExt, path::Path};

use crate::{Error, Result};

/// The threads of the machine, as the last fields of `/proc/loadavg` have them (proc(5)). The file
/// stays open, since it is read at every slice. Reading it allocates nothing.
#[derive(Debug)]
pub struct Census(File);

/// The result of a [`Census`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Threads that are runnable at this moment, kernel threads included.
    pub runnable: u32,
    /// The number that was given last to a thread: as long as it stays, no thread was started.
    pub newest: u32,
}

impl Census {
    pub fn open(proc_root: &Path) -> Result<Census> {
        let path = proc_root.join("loadavg");
        File::open(&path).map(Census).map_err(|e| Error::new("open", path.display(), e))
    }

    pub fn count(&self) -> Option<Count> {
        let mut text = [0; 64];
        let read = self.0.read_at(&mut text, 0).ok()?;
        parse_loadavg(text.get(..read)?)
    }
}

fn parse_loadavg(loadavg: &[u8]) -> Option<Count> {
    let text = std::str::from_utf8(loadavg).ok()?;
    let mut fields = text.split_ascii_whitespace().skip(3);
    let (runnable, _) = fields.next()?.split_once('/')?;
    Some(Count { runnable: runnable.parse().ok()?, newest: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loadavg_gives_the_runnable_threads_and_the_newest() {
        let count = Count { runnable: 2, newest: 2345 };
        assert_eq!(parse_loadavg(b"0.00 0.02 0.00 2/76 2345\n"), Some(count));
        for garbage in [&b""[..], b"0.00 0.02", b"0 0 0 2 5", b"0 0 0 2/7", b"0 0 0 x/7 5", b"\xff"]
        {
            assert_eq!(parse_loadavg(garbage), None);
        }
    }

    #[test]
    fn a_new_thread_is_seen() {
        let census = Census::open(Path::new("/proc")).unwrap();
        assert!(census.count().unwrap().runnable >= 1, "this one is");
        let before = census.count().unwrap().newest;
        std::thread::spawn(|| {}).join().unwrap();
        assert_ne!(census.count().unwrap().newest, before);
    }
}
