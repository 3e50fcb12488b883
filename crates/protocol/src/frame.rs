//! Messages from a stream of bytes, without trust in the sender.
//!
//! A message is JSON that ends with a zero byte. Whatever arrives, reading takes memory for at
//! most one message of the given size, and ends in a message or in an error, never in a panic.

use std::io::{self, BufRead};

use varlink::Request;

/// Why no message came of a stream. After any of them the stream cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("a message is longer than {max} bytes")]
    TooLong { max: usize },
    #[error("the stream ended in the middle of a message, after {received} bytes of it")]
    Truncated { received: usize },
    #[error("cannot read from the stream")]
    Io(#[from] io::Error),
}

/// Why a message is no request.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("the message is not a request in JSON")]
    Json(#[from] serde_json::Error),
    #[error("the method {method:?} is not the name of an interface, a dot and a method")]
    Method { method: String },
    #[error("the parameters of {method} are not a JSON object")]
    Parameters { method: String },
    #[error("{method} asks for an upgrade of the connection, which no method here has")]
    Upgrade { method: String },
}

/// Reads up to the next zero byte; `None` where the stream ended before a message began.
///
/// `max` counts bytes without the zero byte. A message that is too long is refused as soon as
/// that is known, with the rest of it unread.
pub fn read_message(reader: &mut impl BufRead, max: usize) -> Result<Option<Vec<u8>>, FrameError> {
    let mut message = Vec::new();
    loop {
        let arrived = match reader.fill_buf() {
            Ok(arrived) => arrived,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        if arrived.is_empty() {
            return match message.len() {
                0 => Ok(None),
                received => Err(FrameError::Truncated { received }),
            };
        }
        let end = arrived.iter().position(|&byte| byte == 0);
        let part = &arrived[..end.unwrap_or(arrived.len())];
        if message.len() + part.len() > max {
            return Err(FrameError::TooLong { max });
        }
        message.extend_from_slice(part);
        let consumed = part.len() + usize::from(end.is_some());
        reader.consume(consumed);
        if end.is_some() {
            return Ok(Some(message));
        }
    }
}

/// The request in a message that [`read_message`] returned.
///
/// The request has a method of the form `interface.Method`, parameters that are an object or
/// absent, and asks for no upgrade. Whether interface, method and parameters exist is for the
/// interface to say.
pub fn parse_request(message: &[u8]) -> Result<Request<'static>, RequestError> {
    let request: Request<'static> = serde_json::from_slice(message)?;
    let method = || request.method.clone().into_owned();
    match request.method.rsplit_once('.') {
        Some((interface, name)) if !interface.is_empty() && !name.is_empty() => {}
        _ => return Err(RequestError::Method { method: method() }),
    }
    if request.parameters.as_ref().is_some_and(|parameters| !parameters.is_object()) {
        return Err(RequestError::Parameters { method: method() });
    }
    if request.upgrade == Some(true) {
        return Err(RequestError::Upgrade { method: method() });
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};

    use super::*;

    #[test]
    fn splits_at_zero_bytes_whatever_the_chunks() {
        let stream = b"{\"a\":1}\0\0{}\0";
        for chunk in 1..=stream.len() {
            let mut reader = BufReader::with_capacity(chunk, &stream[..]);
            let mut next = || read_message(&mut reader, 100).unwrap();
            assert_eq!(next().as_deref(), Some(&b"{\"a\":1}"[..]));
            assert_eq!(next().as_deref(), Some(&b""[..]));
            assert_eq!(next().as_deref(), Some(&b"{}"[..]));
            assert_eq!(next(), None);
        }
    }

    #[test]
    fn the_limit_counts_bytes_before_the_zero_byte() {
        assert_eq!(read_message(&mut &b"12345\0"[..], 5).unwrap().unwrap(), b"12345");
        assert!(matches!(
            read_message(&mut &b"123456\0"[..], 5),
            Err(FrameError::TooLong { max: 5 })
        ));
    }

    #[test]
    fn an_endless_message_is_refused_at_the_limit() {
        let mut endless = BufReader::new(io::repeat(b'x'));
        assert!(matches!(read_message(&mut endless, 1000), Err(FrameError::TooLong { max: 1000 })));
    }

    #[test]
    fn a_stream_that_ends_within_a_message_is_truncated() {
        assert!(matches!(
            read_message(&mut &b"{\"method"[..], 100),
            Err(FrameError::Truncated { received: 8 })
        ));
        assert!(read_message(&mut io::empty(), 100).unwrap().is_none());
    }

    #[test]
    fn a_timeout_is_passed_on() {
        struct Hangs;
        impl Read for Hangs {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
        let error = read_message(&mut BufReader::new(Hangs), 100).unwrap_err();
        assert!(matches!(error, FrameError::Io(e) if e.kind() == io::ErrorKind::WouldBlock));
    }

    #[test]
    fn accepts_requests() {
        let request = parse_request(br#"{"method":"org.gangd.v1.ListJobs"}"#).unwrap();
        assert_eq!(request.method, "org.gangd.v1.ListJobs");
        assert_eq!(request.parameters, None);
        let kill = br#"{"method":"org.gangd.v1.Kill","parameters":{"job":1,"signal":15}}"#;
        assert_eq!(parse_request(kill).unwrap().parameters.unwrap()["signal"], 15);
    }

    #[test]
    fn refuses_garbage() {
        let json = |message: &[u8]| {
            assert!(
                matches!(parse_request(message), Err(RequestError::Json(_))),
                "{:?}",
                String::from_utf8_lossy(message)
            );
        };
        json(b"");
        json(b"GET / HTTP/1.1\r\n\r\n");
        json(b"\xff\xfe\x00");
        json(b"[]");
        json(b"null");
        json(br#"{"method":5}"#);
        json(br#"{"parameters":{}}"#);
        json(br#"{"method":"a.B"} {"method":"a.B"}"#);
        json(br#"{"method":"a.B","method":"c.D"}"#);
        json(br#"{"method":"a.B","more":"yes"}"#);
        let deep = [br#"{"method":"a.B","parameters":"#.to_vec(), b"[".repeat(50_000)].concat();
        json(&deep);

        for method in ["", "ListJobs", ".ListJobs", "org.gangd.v1."] {
            let message = format!(r#"{{"method":"{method}"}}"#);
            assert!(matches!(
                parse_request(message.as_bytes()),
                Err(RequestError::Method { method: m }) if m == method
            ));
        }
        assert!(matches!(
            parse_request(br#"{"method":"a.B","parameters":[1]}"#),
            Err(RequestError::Parameters { .. })
        ));
        assert!(matches!(
            parse_request(br#"{"method":"a.B","upgrade":true}"#),
            Err(RequestError::Upgrade { .. })
        ));
    }
}
