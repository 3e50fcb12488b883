//! A client of Redis with the two commands that CoHMM's cache needs (X7), in the protocol's inline
//! form.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, bail};

pub struct Cache {
    stream: BufReader<UnixStream>,
}

impl Cache {
    pub fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket)
            .with_context(|| format!("connecting to Redis at {}", socket.display()))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Looks a result up, and stores it where it is not there, as CoHMM does.
    pub fn look_up(&mut self, key: u64) -> Result<()> {
        if self.ask(&format!("GET {key}\r\n"))?.is_none() {
            self.ask(&format!("SET {key} {}\r\n", key.wrapping_mul(3)))?;
        }
        Ok(())
    }

    /// The reply to one command; none where there is no such key.
    fn ask(&mut self, command: &str) -> Result<Option<String>> {
        self.stream.get_mut().write_all(command.as_bytes()).context("writing to Redis")?;
        let mut line = String::new();
        self.stream.read_line(&mut line).context("reading from Redis")?;
        let line = line.trim_end();
        match line.split_at_checked(1) {
            Some(("+", text)) => Ok(Some(text.into())),
            Some(("$", "-1")) => Ok(None),
            Some(("$", length)) => {
                let length: usize = length.parse().context("reading the length of a reply")?;
                let mut text = vec![0; length + "\r\n".len()];
                self.stream.read_exact(&mut text).context("reading from Redis")?;
                text.truncate(length);
                Ok(Some(String::from_utf8_lossy(&text).into_owned()))
            }
            _ => bail!("Redis answered {line:?} to {:?}", command.trim_end()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Answers one line after the other with what was given.
    fn answers(replies: &'static [&'static str]) -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("redis");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            for reply in replies {
                stream.read_line(&mut String::new()).unwrap();
                stream.get_mut().write_all(reply.as_bytes()).unwrap();
            }
        });
        let cache = Cache::connect(&path).unwrap();
        (dir, cache)
    }

    #[test]
    fn what_is_not_there_is_stored() {
        let (_dir, mut cache) = answers(&["$-1\r\n", "+OK\r\n", "$2\r\n21\r\n"]);
        cache.look_up(7).unwrap();
        assert_eq!(cache.ask("GET 7\r\n").unwrap().as_deref(), Some("21"));
    }

    #[test]
    fn an_error_is_told() {
        let (_dir, mut cache) = answers(&["-NOAUTH no\r\n"]);
        let error = cache.look_up(7).unwrap_err().to_string();
        assert!(error.contains("NOAUTH"), "{error}");
    }
}
