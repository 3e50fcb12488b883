//! Requests that were sent, and whose answers nobody waited for.
//!
//! Problem: a program that reports from the middle of a computation must not wait, least of all for
//! a daemon that hangs.
//!
//! Approach: such a request is sent without waiting. Its answer is taken when there is something
//! else to do on the connection. Answers come in the order of the requests, so counting them is
//! enough. As many requests are under way as surely fit into the socket. Beyond that nothing is
//! sent until answers have come.

use std::{
    collections::VecDeque,
    io::{self, BufRead, Cursor, Read},
    os::fd::AsFd,
};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::frame::{FrameError, read_message};
use crate::limits::REPLY_MAX;

/// Requests under way; each and its answer are some hundred bytes.
const MOST: usize = 8;

/// The requests of one connection, by the job that each is about.
#[derive(Debug, Default)]
pub struct Unanswered {
    jobs: VecDeque<i64>,
    /// Of an answer that has come in part.
    part: Vec<u8>,
}

impl Unanswered {
    pub fn is_full(&self) -> bool {
        self.jobs.len() >= MOST
    }

    /// Sends a request, whole or not at all.
    pub fn send(&mut self, stream: impl AsFd, job: i64, message: &[u8]) -> Result<(), FrameError> {
        match send(stream, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) if sent == message.len() => self.jobs.push_back(job),
            // Nothing is said with half a request, and nothing can be said after it.
            Ok(_) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        Ok(())
    }

    /// The answers that have come, each with its job; waits for none.
    pub fn take(&mut self, stream: impl AsFd) -> Result<Vec<(i64, Vec<u8>)>, FrameError> {
        let mut answers = Vec::new();
        while !self.jobs.is_empty() {
            let mut bytes = [0; 1024];
            match recv(&stream, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
                Ok((length, _)) => self.part.extend_from_slice(&bytes[..length]),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
            while let Some(end) = self.part.iter().position(|&byte| byte == 0) {
                let mut answer: Vec<u8> = self.part.drain(..=end).collect();
                answer.pop();
                let Some(job) = self.jobs.pop_front() else { break };
                answers.push((job, answer));
            }
            if self.part.len() > REPLY_MAX {
                return Err(FrameError::TooLong { max: REPLY_MAX });
            }
        }
        Ok(answers)
    }

    /// Waits until all answers have come. The next one on the stream is that of another request.
    pub fn wait(&mut self, stream: &mut impl BufRead) -> Result<(), FrameError> {
        let mut rest = Cursor::new(std::mem::take(&mut self.part)).chain(stream);
        while self.jobs.pop_front().is_some() {
            if read_message(&mut rest, REPLY_MAX)?.is_none() {
                return Err(io::Error::from(io::ErrorKind::ConnectionReset).into());
            }
        }
        Ok(())
    }
}
