//! How long a client may take for its part of a conversation.
//!
//! Problem: a timeout of a socket is one of each call. A client that sends a byte now and then, or
//! takes one, keeps a thread of the daemon for as long as there are bytes.
//!
//! Approach: a whole message has an end, and each call has the time that is left until then.

use std::{
    io::{self, BufReader, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::conduct::at_work;

/// Bytes that the kernel takes in one piece; of more on a Unix socket it may make several.
const PIECE: usize = 16 * 1024;

/// The rest of a time; none is an error.
fn left(ends: Instant) -> io::Result<Duration> {
    let left = ends.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Whether the kernel takes something without a wait.
fn is_writable(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// A reader that gives up when a message takes too long, however slowly its bytes drop in.
pub struct DeadlineReader<'a> {
    reader: &'a mut BufReader<UnixStream>,
    ends: Instant,
}

impl<'a> DeadlineReader<'a> {
    pub fn new(reader: &'a mut BufReader<UnixStream>, io_deadline: Duration) -> DeadlineReader<'a> {
        DeadlineReader { reader, ends: Instant::now() + io_deadline }
    }
}

impl io::Read for DeadlineReader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.reader.read(bytes)
    }
}

impl io::BufRead for DeadlineReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.reader.buffer().is_empty() {
            // A client that sends its last byte at the last moment has no more than the rest.
            self.reader.get_ref().set_read_timeout(Some(left(self.ends)?))?;
        }
        self.reader.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.reader.consume(amount);
    }
}

/// A writer that gives up when an answer is not taken, however slowly its bytes are, and knows it.
pub struct DeadlineWriter {
    stream: UnixStream,
    io_deadline: Duration,
    /// The end of the answer that is being written, from its first byte on: before that, the daemon
    /// may take long to find the answer.
    ends: Option<Instant>,
    broken: Option<io::Error>,
}

impl DeadlineWriter {
    pub fn new(stream: UnixStream, io_deadline: Duration) -> DeadlineWriter {
        DeadlineWriter { stream, io_deadline, ends: None, broken: None }
    }

    /// Another answer follows.
    pub fn begin(&mut self) {
        self.ends = None;
    }

    /// The answer is over; an error where a part of it was not taken, and so nothing can follow it.
    pub fn end(&mut self) -> io::Result<()> {
        self.broken.take().map_or(Ok(()), Err)
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let io_deadline = self.io_deadline;
        let ends = *self.ends.get_or_insert_with(|| Instant::now() + io_deadline);
        self.stream.set_write_timeout(Some(left(ends)?))?;
        // A call for more than the kernel takes in one piece waits for each piece as long.
        let piece = &bytes[..bytes.len().min(PIECE)];
        if is_writable(&self.stream) {
            return self.stream.write(piece);
        }
        // No other request of its user waits for a client that does not read.
        at_work::outside(|| self.stream.write(piece))
    }
}

impl Write for DeadlineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.try_write(bytes);
        match &written {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => self.broken = Some(error.kind().into()),
            Ok(_) => {}
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, Read};

    use super::*;

    /// Longer than what the kernel keeps for a socket.
    const LONG: usize = 16 << 20;

    #[test]
    fn bytes_of_a_message_share_one_deadline() {
        let (mut client, stream) = UnixStream::pair().unwrap();
        let mut reader = BufReader::new(stream);
        let io_deadline = Duration::from_secs(3600);
        let mut message = DeadlineReader::new(&mut reader, io_deadline);
        let mut allowed = Vec::new();
        for _ in 0..3 {
            client.write_all(b"x").unwrap();
            assert_eq!(message.fill_buf().unwrap(), b"x");
            message.consume(1);
            allowed.push(message.reader.get_ref().read_timeout().unwrap().unwrap());
            // The kernel counts these times in ticks.
            std::thread::sleep(Duration::from_millis(30));
        }
        assert!(allowed[0] <= io_deadline && allowed.windows(2).all(|pair| pair[1] < pair[0]));
        let mut late = DeadlineReader::new(&mut reader, Duration::ZERO);
        client.write_all(b"x").unwrap();
        assert_eq!(late.fill_buf().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn slow_reader_of_an_answer_is_given_up() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut writer = DeadlineWriter::new(ours, Duration::from_millis(200));
        let (stop, stopped) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            // Each time there is room for more, so that no single call takes long.
            let mut bytes = vec![0; 4096];
            while stopped.recv_timeout(Duration::from_millis(20)).is_err() {
                theirs.read_exact(&mut bytes).unwrap();
            }
        });
        writer.begin();
        writer.write_all(&vec![1; LONG]).unwrap_err();
        assert!(writer.end().is_err());
        stop.send(()).unwrap();
        reader.join().unwrap();
    }

    #[test]
    fn reader_gets_whole_answers() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut writer = DeadlineWriter::new(ours, Duration::from_secs(60));
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; 2 * LONG];
            theirs.read_exact(&mut bytes).unwrap();
        });
        for _ in 0..2 {
            writer.begin();
            writer.write_all(&vec![1; LONG]).unwrap();
            writer.end().unwrap();
        }
        reader.join().unwrap();
    }
}
