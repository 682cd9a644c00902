//! Rank 0 among ranks and strangers.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::run::worker::ranks::peers::{Line, Meanwhile};

const NAME: &str = "0-abc";

/// The file of a meeting, once rank 0 has written it.
fn meeting(dir: &Path) -> Meeting {
    loop {
        if let Ok(Some(text)) = disk::read_if_there(&dir.join(format!("{NAME}.json"))) {
            return serde_json::from_str(&text).unwrap();
        }
        std::thread::yield_now();
    }
}

fn connect(meeting: &Meeting) -> TcpStream {
    TcpStream::connect(("127.0.0.1", meeting.port)).unwrap()
}

const SEAT: Seat<'_> = Seat { host: "a", node: "a/" };

fn hello(token: &str, rank: u32, world: u32, host: &str) -> Vec<u8> {
    let [token, host] = [token, host].map(str::to_owned);
    let node = format!("{host}/");
    let hello = Up::Hello { token, rank, world, host, node };
    let mut bytes = serde_json::to_vec(&hello).unwrap();
    bytes.push(b'\n');
    bytes
}

fn join(dir: &Path, rank: u32) -> (Line, Receiver<Down>) {
    let seat = Seat { host: "b", node: "b/" };
    peers::join(dir, NAME, rank, 3, seat, Duration::from_secs(60), || Meanwhile::Nothing).unwrap()
}

/// What rank 0 of three gets while `others` does what it likes beside it.
fn gather(patience: Duration, others: impl FnOnce(&Path) + Send) -> Result<Crew> {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("meet");
    std::thread::scope(|scope| {
        let rank0 = scope.spawn(|| Crew::gather(&dir, NAME, 3, SEAT, patience, || false));
        others(&dir);
        rank0.join().unwrap()
    })
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn only_the_owner_can_read_the_token() {
    let crew = gather(LONG, |dir| {
        meeting(dir);
        let file = std::fs::metadata(dir.join(format!("{NAME}.json"))).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        let _ranks = [join(dir, 1), join(dir, 2)];
    });
    let hosts = crew.unwrap().hosts.clone();
    assert_eq!(hosts, [(0, "a".into()), (1, "b".into()), (2, "b".into())].into());
}

/// Strangers that are silent, that drip, and that flood are all still there when the last rank has come: if any of them
/// were waited for, the ranks would not have gathered.
#[test]
fn strangers_keep_no_rank_waiting() {
    let crew = gather(LONG, |dir| {
        let meeting = meeting(dir);
        let silent: Vec<TcpStream> =
            (0..MOST_UNIDENTIFIED + 20).map(|_| connect(&meeting)).collect();
        let mut slow = connect(&meeting);
        slow.write_all(b"{").unwrap();
        let mut flood = connect(&meeting);
        flood.set_write_timeout(Some(LONG)).unwrap();
        // Rank 0 reads its 4 KiB and hangs up: the rest cannot be sent.
        let chunk = [b'x'; 1 << 16];
        while flood.write_all(&chunk).is_ok() {}
        let _one = join(dir, 1);
        slow.write_all(b"\"say\"").unwrap();
        let _two = join(dir, 2);
        drop(silent);
    });
    assert_eq!(crew.unwrap().hosts.len(), 3);
}

#[test]
fn a_process_that_contradicts_the_others_is_sent_away_and_the_trial_goes_on() {
    let crew = gather(LONG, |dir| {
        let meeting = meeting(dir);
        let one = join(dir, 1);
        let refused = |rank, world, why: &str| {
            let mut stream = connect(&meeting);
            stream.write_all(&hello(&meeting.token, rank, world, "c")).unwrap();
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer).unwrap();
            assert_eq!(answer, format!("{{\"say\":\"refused\",\"reason\":\"{why}\"}}\n"));
        };
        refused(1, 3, "two processes say they are rank 1: b and c");
        refused(0, 3, "a process on c says it is rank 0 of 3");
        refused(3, 3, "a process on c says it is rank 3 of 3");
        refused(2, 4, "rank 2 on c sees 4 ranks, rank 0 sees 3");
        // The first rank 1 still has its connection.
        one.0.say(&Up::Line { text: "still here".to_owned() });
        join(dir, 2).0.say(&Up::Line { text: "and I".to_owned() });
    });
    let crew = crew.unwrap();
    let mut heard = Vec::new();
    while heard.len() < 2 {
        if let FromRank { rank, said: Some(Up::Line { text }), .. } = crew.inbox.recv().unwrap() {
            heard.push((rank, text));
        }
    }
    heard.sort_unstable();
    assert_eq!(heard, [(1, "still here".to_owned()), (2, "and I".to_owned())]);
}

#[test]
fn a_message_behind_the_hello_is_not_lost() {
    let crew = gather(LONG, |dir| {
        let meeting = meeting(dir);
        let mut both = hello(&meeting.token, 1, 3, "b");
        both.extend(b"{\"say\":\"line\",\"text\":\"early\"}\n");
        let mut stream = connect(&meeting);
        stream.write_all(&both).unwrap();
        join(dir, 2);
    });
    let crew = crew.unwrap();
    let early = crew.inbox.iter().find_map(|event| match event.said {
        Some(Up::Line { text }) => Some((event.rank, text)),
        _ => None,
    });
    assert_eq!(early, Some((1, "early".to_owned())));
}

#[test]
fn the_missing_ranks_are_named_with_what_was_turned_away() {
    let turned_away = AtomicBool::new(false);
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("meet");
    // Rank 0 is asked to stop once the strangers have been turned away: no clock decides.
    let stop = || turned_away.load(Ordering::SeqCst);
    let fault = std::thread::scope(|scope| {
        let rank0 = scope.spawn(|| Crew::gather(&dir, NAME, 3, SEAT, LONG, stop));
        let meeting = meeting(&dir);
        for said in [&b"GET / HTTP/1.1\n"[..], &hello("guess", 2, 3, "evil"), &[b'x'; 5000]] {
            let mut stream = connect(&meeting);
            let _ = stream.write_all(said);
            // Rank 0 hangs up, with or without a reset.
            let _ = stream.read(&mut [0; 1]);
        }
        let mut stream = connect(&meeting);
        stream.write_all(&hello(&meeting.token, 2, 2, "c")).unwrap();
        assert!(stream.read(&mut [0; 1]).unwrap() > 0);
        turned_away.store(true, Ordering::SeqCst);
        rank0.join().unwrap().err().unwrap()
    });
    assert_eq!(
        fault.to_string(),
        "told to stop while ranks gathered\n  \
         refused: rank 2 on c sees 2 ranks, rank 0 sees 3\n  \
         closed 3 connections that did not say which rank they are: 3 from 127.0.0.1"
    );
    let late = gather(Duration::from_millis(1), |_| {}).err().unwrap();
    assert!(late.to_string().starts_with("ranks 1, 2 did not arrive within"), "{late}");
}
