//! `hpcsweep report --serve`: whole answers, what it refuses, how it follows a sweep, and how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::plans::shell;
use crate::support::world::{Started, World, wait_until};

/// Trial 0 is done at once, the others when there is a file `go`.
const PLAN: &str = "[ $HPCSWEEP_PARAM_X = 0 ] || while [ ! -e go ]; do sleep 0.01; done
    echo \"{\\\"loss\\\": $HPCSWEEP_PARAM_X.5}\" >> $HPCSWEEP_METRICS";

/// A page that is served.
struct Served {
    program: Started,
    /// The line below the address.
    hint: String,
    port: u16,
    secret: String,
    /// Standard output, which is held: without a reader the program ends.
    out: Option<BufReader<std::process::ChildStdout>>,
}

impl Served {
    fn new(world: &World, more: &[&str]) -> Self {
        let mut program = world.start(&[&["report", "--serve", "--every", "0.5"], more].concat());
        let mut out = BufReader::new(program.child.stdout.take().unwrap());
        let mut line = || {
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        let (url, hint) = (line(), line());
        let rest = url.strip_prefix("http://127.0.0.1:").unwrap_or_else(|| panic!("{url:?}"));
        let (port, secret) = rest.strip_suffix('/').unwrap().split_once('/').unwrap();
        let (port, secret) = (port.parse().unwrap(), secret.to_owned());
        Self { program, hint, port, secret, out: Some(out) }
    }

    /// What is answered to these bytes.
    fn raw(&self, bytes: &[u8]) -> String {
        self.try_raw(bytes).unwrap()
    }

    fn try_raw(&self, bytes: &[u8]) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(240)))?;
        stream.write_all(bytes)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn ask(&self, method: &str, path: &str, headers: &str) -> String {
        let secret = &self.secret;
        self.raw(
            format!("{method} /{secret}/{path} HTTP/1.1\r\nHost: localhost:1\r\n{headers}\r\n")
                .as_bytes(),
        )
    }

    /// How many trials are done, by the data; and their tag.
    fn done(&self) -> (usize, String) {
        let answer = self.ask("GET", "data", "");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let tag = head.split("ETag: ").nth(1).unwrap().split("\r\n").next().unwrap();
        let value: Value = serde_json::from_str(body).unwrap();
        let columns = value["data"]["trials"]["columns"].as_array().unwrap();
        let states = columns.iter().find(|column| column["name"] == "state").unwrap();
        let words = states["d"].as_array().unwrap();
        let done = |v: &&Value| v.as_u64().is_some_and(|place| words[place as usize] == "done");
        (states["v"].as_array().unwrap().iter().filter(done).count(), tag.to_owned())
    }
}

const ALWAYS: &str = "Cache-Control: no-store\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
                      Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\r\n";

fn refused(words: &str, more: &str) -> String {
    format!(
        "HTTP/1.1 {words}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n{more}{ALWAYS}{words}\n",
        words.len() + 1
    )
}

#[test]
fn a_served_report_answers_those_who_have_the_address_and_nobody_else() {
    let world = World::new();
    world.local(&shell("true", "[grid]\nx = [0]\n"), &["-q"]);
    let served = Served::new(&world, &[]);
    let (port, secret) = (served.port, &served.secret);
    assert_eq!(secret.len(), 64);
    let user = hpcsweep::base::host::vars::user_name();
    let host = hpcsweep::base::host::vars::hostname();
    assert_eq!(
        served.hint,
        format!(
            "to open it on your own computer, run there: ssh -N -L {port}:127.0.0.1:{port} {user}@{host}"
        )
    );

    // The page is that of the file, but for what it may connect to, and for its tag.
    world.run(&["report"]).ok();
    let file = world.read("report.html");
    let page = served.ask("GET", "", "");
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    let policy = file.split("content=\"").nth(1).unwrap().split('"').next().unwrap();
    let expected = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nETag: \"1\"\r\n\
         Content-Security-Policy: {policy}; connect-src 'self'; frame-ancestors 'none'\r\n{}",
        body.len(),
        ALWAYS.trim_end()
    );
    assert_eq!(head, expected);
    let timeless = |page: &str| {
        let (before, data) = page.split_once("<script id=\"data\"").unwrap();
        (before.to_owned(), data.split_once("</script>").unwrap().1.to_owned())
    };
    let expected = file.replace(policy, &format!("{policy}; connect-src 'self'")).replace(
        "<link rel=\"icon\"",
        "<meta name=\"live\" content=\"0.5 1\">\n<link rel=\"icon\"",
    );
    assert_eq!(timeless(body), timeless(&expected));
    let markup = file.split("<script").next().unwrap();
    assert!(!markup.contains("connect-src") && !markup.contains("name=\"live\""));

    // The data alone; not again to those who have them; the head alone.
    let data = served.ask("GET", "data?x", "");
    let (head, body) = data.split_once("\r\n\r\n").unwrap();
    let expected = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nETag: \"1\"\r\n\
         Content-Security-Policy: default-src 'none'\r\n{}",
        body.len(),
        ALWAYS.trim_end()
    );
    assert_eq!(head, expected);
    let value: Value = serde_json::from_str(body).unwrap();
    assert_eq!(value["data"]["trials"]["total"], 1);
    assert!(value["summary"]["tiles"].as_array().unwrap().len() > 1);
    assert_eq!(served.ask("HEAD", "data", ""), format!("{head}\r\n\r\n"));
    let same = format!("HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n{ALWAYS}");
    assert_eq!(served.ask("GET", "data", "If-None-Match: \"1\"\r\n"), same);
    assert_eq!(served.ask("GET", "", "If-None-Match: W/\"0\", \"1\"\r\n"), same);

    // Everything else is refused.
    let forbidden = refused("403 Forbidden", "");
    let of = |path: &str, host: &str| format!("GET {path} HTTP/1.1\r\n{host}\r\n");
    let short = &secret[1..];
    for request in [
        of("/", "Host: 127.0.0.1\r\n"),
        of("/data", "Host: 127.0.0.1\r\n"),
        of(&format!("/{short}/"), "Host: 127.0.0.1\r\n"),
        of(&format!("/{secret}0/data"), "Host: 127.0.0.1\r\n"),
        of(&format!("/?{secret}/"), "Host: 127.0.0.1\r\n"),
        of(&format!("/{secret}/"), ""),
        of(&format!("/{secret}/"), "Host: evil.example\r\n"),
        of(&format!("/{secret}/"), "Host: 127.0.0.1.evil.example\r\n"),
        of(&format!("/{secret}/"), "Host: 127.0.0.1\r\nHost: 127.0.0.1\r\n"),
        "POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".to_owned(),
    ] {
        assert_eq!(served.raw(request.as_bytes()), forbidden, "{request}");
    }
    let not_allowed = refused("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
    for method in ["POST", "PUT", "OPTIONS", "DELETE"] {
        assert_eq!(served.ask(method, "data", "Content-Length: 0\r\n"), not_allowed, "{method}");
    }
    assert_eq!(served.ask("GET", "../data", ""), refused("404 Not Found", ""));
    assert_eq!(served.raw(b"hello\r\n\r\n"), refused("400 Bad Request", ""));
    let large = served.ask("GET", "", &format!("X: {}\r\n", "a".repeat(100_000)));
    assert_eq!(large, refused("431 Request Header Fields Too Large", ""));
}

#[test]
fn clients_that_say_nothing_do_not_keep_others_out_for_long() {
    let world = World::new();
    world.local(&shell("true", "[grid]\nx = [0]\n"), &["-q"]);
    let served = Served::new(&world, &[]);
    let mut silent: Vec<TcpStream> =
        (0..30).map(|_| TcpStream::connect(("127.0.0.1", served.port)).unwrap()).collect();
    // Those beyond the most are sent away at once, the others when their time is over.
    let mut answer = String::new();
    silent[29].set_read_timeout(Some(Duration::from_secs(240))).unwrap();
    silent[29].read_to_string(&mut answer).unwrap();
    assert_eq!(
        answer,
        refused("503 Service Unavailable", "").replace("503 Service Unavailable\n", "")
    );
    let head = format!("HEAD /{}/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", served.secret);
    let is_page = |answer: String| answer.starts_with("HTTP/1.1 200 OK\r\n");
    wait_until("there is a place again", || served.try_raw(head.as_bytes()).is_ok_and(is_page));
}

#[test]
fn a_served_report_follows_its_sweep_and_ends_as_it_is_asked_to() {
    let world = World::new();
    world.write("plan.toml", &shell(PLAN, "[grid]\nx = [0, 1, 2]\n"));
    let runs = world.start(&["submit", "plan.toml", "--local", "-j", "3", "-q"]);
    wait_until("a trial is done", || {
        world.run(&["status", "--json", "results/s"]).out.contains("\"done\":1")
    });
    for end in [Some(Signal::SIGINT), Some(Signal::SIGTERM), Some(Signal::SIGHUP), None] {
        let mut served = Served::new(&world, &["--metric", "loss", "--min", "results/s"]);
        if end == Some(Signal::SIGINT) {
            let (done, tag) = served.done();
            assert_eq!((done, tag.as_str()), (1, "\"1\""));
            world.write("go", "");
            wait_until("all are done", || served.done().0 == 3);
            let (_, tag) = served.done();
            assert_ne!(tag, "\"1\"");
            // Nothing changes any more, and nothing is made again.
            std::thread::sleep(Duration::from_millis(1200));
            served.done();
            std::thread::sleep(Duration::from_millis(1200));
            let later = served.done().1;
            std::thread::sleep(Duration::from_millis(1200));
            assert_eq!(served.done().1, later);
        }
        match end {
            Some(signal) => served.program.signal(signal),
            None => drop(served.out.take()),
        }
        let status = served.program.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{end:?}");
        assert!(TcpStream::connect(("127.0.0.1", served.port)).is_err());
    }
    assert_eq!(runs.end(&world).code, 0);
}

#[test]
fn a_port_that_is_taken_and_a_request_that_makes_no_sense_are_said() {
    let world = World::new();
    world.local(&shell("true", "[grid]\nx = [0]\n"), &["-q"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    assert_eq!(
        world.run(&["report", &format!("--serve={port}")]).whole(),
        format!(
            "error: cannot listen on 127.0.0.1:{port}: address already in use\n\
             hint: `--serve` without a port takes a free one\nexit code 4\n"
        )
    );
    assert_eq!(world.run(&["report", "--serve", "-o", "x.html"]).code, 2);
    assert_eq!(world.run(&["report", "--every", "5"]).code, 2);
    assert_eq!(world.run(&["report", "--serve=0"]).code, 2);
    assert_eq!(
        world.run(&["report", "--serve", "--metric", "los", "--min"]).whole(),
        "error: no trial has a metric `los`\nhint: no trial has recorded any metric: programs write JSON lines to the file `$HPCSWEEP_METRICS`, or `[metrics] output` in the plan finds numbers in what they print, `[metrics] file` in files that they leave\nexit code 2\n"
    );
    assert!(!world.exists("report.html"));
}
