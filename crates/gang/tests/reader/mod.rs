//! A running `gang web`, and its reader: requests, answers and the stream of events, byte for byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};

use gang_harness::TEST_TIMEOUT;

use crate::fake::Place;

/// A running `gang web`. It ends when this is dropped.
pub struct Web {
    pub child: Child,
    pub address: SocketAddr,
    pub token: String,
}

impl Web {
    pub fn start(place: &Place, options: &[&str]) -> Web {
        let anywhere: &[&str] = match options.contains(&"--listen") {
            true => &[],
            false => &["--listen", "127.0.0.1:0"],
        };
        let args = [&["web"], anywhere, options].concat();
        let mut child = place.gang(&args).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (address, token) = line.trim().split_once("/#token=").unwrap();
        let address = address.split_once("http://").unwrap().1.parse().unwrap();
        Web { child, address, token: token.to_owned() }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream
    }

    /// Sends a request with these headers, and `Host`.
    pub fn send(&self, line: &str, headers: &[String], body: &str) -> TcpStream {
        let mut stream = self.connect();
        let host = format!("Host: {}", self.address);
        let headers = [&[host][..], headers].concat().join("\r\n");
        let length = body.len();
        let request =
            format!("{line} HTTP/1.1\r\n{headers}\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    pub fn authorization(&self) -> String {
        format!("Authorization: Bearer {}", self.token)
    }

    pub fn get(&self, path: &str) -> Answer {
        Answer::read(self.send(&format!("GET {path}"), &[self.authorization()], ""))
    }

    pub fn post(&self, path: &str, body: &str) -> Answer {
        let headers = [
            self.authorization(),
            format!("Origin: http://{}", self.address),
            "Content-Type: application/json".to_owned(),
        ];
        Answer::read(self.send(&format!("POST {path}"), &headers, body))
    }

    /// A reader of the stream.
    pub fn follow(&self) -> Events {
        Events::of(self.send("GET /api/live", &[self.authorization()], ""))
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn read(stream: impl Read) -> Answer {
        let mut reader = BufReader::new(stream);
        let head = head(&mut reader);
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.parse().unwrap())
        });
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body: String::from_utf8(body).unwrap() }
    }

    /// The content of an answer that refuses.
    pub fn refusal(&self) -> (u16, String, String) {
        let json: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        let text = |name: &str| json["error"][name].as_str().unwrap().to_owned();
        (self.status, text("code"), text("message"))
    }
}

fn head(reader: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "the connection ended after {head:?}");
    }
    head
}

/// Server-sent events as they come in chunks.
pub struct Events {
    reader: BufReader<TcpStream>,
    rest: String,
}

impl Events {
    pub fn of(stream: TcpStream) -> Events {
        let mut reader = BufReader::new(stream);
        let head = head(&mut reader);
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
        Events { reader, rest: String::new() }
    }

    pub fn next(&mut self) -> (String, serde_json::Value) {
        loop {
            if let Some((event, rest)) = self.rest.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.rest = rest;
                let Some((name, data)) = event.split_once("\ndata: ") else { continue };
                let name = name.strip_prefix("event: ").unwrap().to_owned();
                return (name, serde_json::from_str(data).unwrap());
            }
            let mut size = String::new();
            self.reader.read_line(&mut size).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            self.reader.read_exact(&mut chunk).unwrap();
            self.rest.push_str(std::str::from_utf8(&chunk[..size]).unwrap());
        }
    }

    /// The next event of this name.
    pub fn until(&mut self, wanted: &str) -> serde_json::Value {
        loop {
            let (name, said) = self.next();
            if name == wanted {
                return said;
            }
        }
    }
}
