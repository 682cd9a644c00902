//! Web pages for the browsers of one user: a small HTTP/1.1 server on the loopback interface, whose pages are found only by
//! those who know a secret.
//!
//! Other users of the host can connect, too. They get nothing without the secret, and may neither keep connections nor make the
//! server read or start more than a little: each connection has one short request and a few seconds to send it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{clock, disk, threads};
use crate::base::fault::Fault;

/// Bytes of the largest head of a request.
pub const MOST_HEAD: usize = 8 << 10;

/// Connections that are served at once.
const MOST_AT_ONCE: usize = 16;

/// How long a client may take to send its request, and to take the whole answer.
const REQUEST: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(300);

/// How long a client may take nothing of an answer.
const STALLED: Duration = Duration::from_secs(20);

/// A client that still sends is read for so long after the answer, and so many bytes: it could not read the answer
/// otherwise.
const LINGER: Duration = Duration::from_secs(1);
const MOST_LINGER: usize = 256 << 10;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method, as it was sent: `GET`.
    pub method: String,
    /// The path without its query.
    pub path: String,
    /// The one header `Host`, if there is exactly one.
    pub host: Option<String>,
    /// What the client has already: its `If-None-Match`.
    pub has: Option<String>,
}

/// Reads the head of a request, which ends with an empty line; `None` if it is no HTTP.
pub fn request(head: &[u8]) -> Option<Request> {
    let text = std::str::from_utf8(head).ok()?;
    let mut lines = text.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target, version) = (first.next()?, first.next()?, first.next()?);
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase());
    let is_plain = |text: &str| text.bytes().all(|b| b.is_ascii_graphic());
    if first.next().is_some()
        || !is_word(method)
        || !target.starts_with('/')
        || !is_plain(target)
        || !matches!(version, "HTTP/1.1" | "HTTP/1.0")
    {
        return None;
    }
    let path = target.split(['?', '#']).next().unwrap_or_default().to_owned();
    let mut request = Request { method: method.to_owned(), path, host: None, has: None };
    let mut hosts = 0;
    for line in lines.take_while(|line| !line.is_empty()) {
        // A line that continues another one, and spaces before the colon, have led to attacks.
        let (name, value) = line.split_once(':')?;
        if name.is_empty() || !is_plain(name) {
            return None;
        }
        let value = value.trim_matches([' ', '\t']);
        if name.eq_ignore_ascii_case("host") {
            hosts += 1;
            request.host = Some(value.to_owned());
        } else if name.eq_ignore_ascii_case("if-none-match") {
            request.has = Some(value.to_owned());
        }
    }
    request.host = request.host.filter(|_| hosts == 1);
    Some(request)
}

/// Whether a request was meant for this host. A page of another site whose name leads here (DNS rebinding) names that one.
fn is_local(host: &str) -> bool {
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    (name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost")) && port.is_none_or(is_port)
}

/// A page, or another answer that a client who knows the secret gets.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    /// The media type, for the header `Content-Type`.
    pub(crate) kind: &'static str,
    /// The scripts and connections that it may have.
    pub(crate) policy: String,
    /// Changes whenever the body does. Without quotes.
    pub(crate) tag: String,
    pub(crate) body: Arc<Vec<u8>>,
}

/// What a client is told.
enum Answer {
    Page(Page),
    /// The client has it already.
    Same(String),
    Refused(u16, &'static str),
}

/// A server that listens and does not answer yet.
pub(crate) struct Server {
    listener: TcpListener,
    secret: String,
    port: u16,
}

impl Server {
    /// Listens on a port of 127.0.0.1, without a port on a free one.
    ///
    /// # Errors
    /// When the port is taken, or may not be used.
    pub(crate) fn bind(port: Option<u16>) -> Result<Self> {
        let wanted = port.unwrap_or(0);
        let fail = |e: &io::Error| {
            let sentence = format!("cannot listen on 127.0.0.1:{wanted}: {}", disk::reason(e));
            Fault::machine(sentence).hint("`--serve` without a port takes a free one")
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, wanted)).map_err(|e| fail(&e))?;
        let port = listener.local_addr().map_err(|e| fail(&e))?.port();
        let secret = clock::secret()
            .map_err(|e| Fault::machine(format!("no random numbers: {}", disk::reason(&e))))?;
        Ok(Self { listener, secret, port })
    }

    /// The TCP port of 127.0.0.1 on which it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The address of its first page. Who has it may read all pages.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.secret)
    }

    /// Answers for ever. `page` returns the page of a path, which has no secret and no `/` before it any more.
    pub(crate) fn serve(self, page: impl Fn(&str) -> Option<Page> + Send + Sync + 'static) -> ! {
        let secret: Arc<str> = self.secret.into();
        let (page, busy) = (Arc::new(page), Arc::new(AtomicUsize::new(0)));
        loop {
            let Ok((mut stream, _)) = self.listener.accept() else {
                // No descriptors are left, perhaps for a moment.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            let place = Place::take(&busy);
            let Some(place) = place else {
                let _ = stream.set_nonblocking(true);
                let _ = write(&mut stream, &Answer::Refused(503, "Service Unavailable"), false);
                continue;
            };
            let (page, secret) = (Arc::clone(&page), Arc::clone(&secret));
            // Without a thread the connection is closed.
            let _ = threads::start("http", move || {
                let _place = place;
                converse(&mut stream, &secret, &*page);
            });
        }
    }
}

/// One of the connections that are served at once.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(busy: &Arc<AtomicUsize>) -> Option<Self> {
        let before = busy.fetch_add(1, Ordering::AcqRel);
        let place = Self(Arc::clone(busy));
        (before < MOST_AT_ONCE).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One request, its answer, and the end of the connection. A client that does not keep to the times gets nothing more.
fn converse(stream: &mut TcpStream, secret: &str, page: &dyn Fn(&str) -> Option<Page>) {
    let Ok(head) = read_head(stream) else { return };
    let request = head.as_deref().map(request);
    let (answer, has_body) = match request {
        None => (Answer::Refused(431, "Request Header Fields Too Large"), true),
        Some(None) => (Answer::Refused(400, "Bad Request"), true),
        Some(Some(request)) => (answer(&request, secret, page), request.method != "HEAD"),
    };
    if write(stream, &answer, has_body).is_ok() {
        let _ = linger(stream);
    }
}

/// The head of a request; `None` if it is too large.
fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let until = Instant::now() + REQUEST;
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        let n = match stream.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        // The end may have begun in the piece before.
        let from = head.len().saturating_sub(3);
        head.extend_from_slice(&piece[..n]);
        let end = head[from..].windows(4).position(|four| four == b"\r\n\r\n");
        match end {
            Some(at) if from + at + 4 <= MOST_HEAD => {
                head.truncate(from + at + 4);
                return Ok(Some(head));
            }
            None if head.len() < MOST_HEAD => {}
            _ => return Ok(None),
        }
    }
}

/// What is left of a time.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn answer(request: &Request, secret: &str, page: &dyn Fn(&str) -> Option<Page>) -> Answer {
    if !request.host.as_deref().is_some_and(is_local) {
        return Answer::Refused(403, "Forbidden");
    }
    let known = request.path.strip_prefix('/').and_then(|path| path.split_once('/'));
    let Some((_, path)) = known.filter(|(word, _)| is_equal(word, secret)) else {
        return Answer::Refused(403, "Forbidden");
    };
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        return Answer::Refused(405, "Method Not Allowed");
    }
    let Some(page) = page(path) else { return Answer::Refused(404, "Not Found") };
    let quoted = format!("\"{}\"", page.tag);
    let has = |has: &str| has.split(',').any(|own| own.trim().trim_start_matches("W/") == quoted);
    match request.has.as_deref().is_some_and(has) {
        true => Answer::Same(page.tag),
        false => Answer::Page(page),
    }
}

/// Compares all bytes, so that the time tells nothing about them.
fn is_equal(word: &str, secret: &str) -> bool {
    let differ = word.bytes().zip(secret.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    word.len() == secret.len() && differ == 0
}

/// Nothing of an answer is kept, guessed, framed, or told to others.
const ALWAYS: &str = "Cache-Control: no-store\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
                      Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n";

fn write(stream: &mut TcpStream, answer: &Answer, has_body: bool) -> io::Result<()> {
    let refused;
    let (head, body): (String, &[u8]) = match answer {
        Answer::Page(page) => {
            let (kind, policy, tag, len) = (page.kind, &page.policy, &page.tag, page.body.len());
            let own = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\nETag: \"{tag}\"\r\n\
                 Content-Security-Policy: {policy}\r\n"
            );
            (own, &page.body)
        }
        Answer::Same(tag) => (format!("HTTP/1.1 304 Not Modified\r\nETag: \"{tag}\"\r\n"), b""),
        Answer::Refused(code, words) => {
            refused = format!("{code} {words}\n");
            let allow = if *code == 405 { "Allow: GET, HEAD\r\n" } else { "" };
            let own = format!(
                "HTTP/1.1 {code} {words}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n{allow}",
                refused.len()
            );
            (own, refused.as_bytes())
        }
    };
    let until = Instant::now() + ANSWER;
    let mut whole = format!("{head}{ALWAYS}\r\n").into_bytes();
    if has_body {
        whole.extend_from_slice(body);
    }
    for piece in whole.chunks(64 << 10) {
        stream.set_write_timeout(Some(left(until)?.min(STALLED)))?;
        stream.write_all(piece)?;
    }
    Ok(())
}

/// Ends the connection so that the client can read the answer, even if it still sends.
fn linger(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    let until = Instant::now() + LINGER;
    let mut piece = [0; 4096];
    let mut all = 0;
    while all < MOST_LINGER {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut piece)? {
            0 => break,
            n => all += n,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &str, expected: Option<(&str, &str, Option<&str>, Option<&str>)>) {
        let found = request(head.as_bytes());
        let found = found
            .as_ref()
            .map(|own| (&*own.method, &*own.path, own.host.as_deref(), own.has.as_deref()));
        assert_eq!(found, expected, "{head:?}");
    }

    #[test]
    fn a_request_is_read_as_it_is_or_not_at_all() {
        check(
            "GET /a/b?c=1 HTTP/1.1\r\nhOST: \tlocalhost:80 \r\nIf-None-Match: \"1\"\r\nX:\r\n\r\n",
            Some(("GET", "/a/b", Some("localhost:80"), Some("\"1\""))),
        );
        check("POST / HTTP/1.0\r\n\r\n", Some(("POST", "/", None, None)));
        // Two hosts are none.
        check(
            "GET / HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n",
            Some(("GET", "/", None, None)),
        );
        for head in [
            "",
            "\r\n\r\n",
            "GET /\r\n\r\n",
            "GET / HTTP/2\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "get / HTTP/1.1\r\n\r\n",
            "GET http://localhost/ HTTP/1.1\r\n\r\n",
            "GET /\u{e4} HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
            "GET / HTTP/1.1\r\n folded: yes\r\n\r\n",
        ] {
            check(head, None);
        }
    }

    #[test]
    fn only_this_host_is_local() {
        for host in ["127.0.0.1", "127.0.0.1:8000", "localhost", "LocalHost:1"] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost:",
            "localhost:x",
            "127.0.0.2",
            "[::1]:80",
            "localhost:1:2",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn connections_beyond_the_most_have_no_place_until_one_ends() {
        let busy = Arc::new(AtomicUsize::new(0));
        let mut places: Vec<Place> =
            (0..MOST_AT_ONCE).map(|_| Place::take(&busy).unwrap()).collect();
        assert!(Place::take(&busy).is_none() && Place::take(&busy).is_none());
        places.pop();
        assert!(Place::take(&busy).is_some());
    }
}
