//! `collect --tensorboard`: event files read back by a reader of their own, which checks each checksum.

use std::fs;

use crate::support::plans::shell;
use crate::support::world::World;

/// CRC-32C, a bit at a time, masked as in TFRecords.
fn masked_crc(data: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in data {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    (!crc).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The records of an event file.
fn records(file: &[u8]) -> Vec<Vec<u8>> {
    let (mut rest, mut all) = (file, Vec::new());
    while !rest.is_empty() {
        let (head, after) = rest.split_at(12);
        let length = u64::from_le_bytes(head[..8].try_into().unwrap()) as usize;
        assert_eq!(masked_crc(&head[..8]).to_le_bytes(), head[8..]);
        let (data, after) = after.split_at(length);
        let (crc, after) = after.split_at(4);
        assert_eq!(masked_crc(data).to_le_bytes(), crc);
        all.push(data.to_vec());
        rest = after;
    }
    all
}

/// A member of a message.
#[derive(Debug, Clone)]
enum Member {
    Number(u64),
    Double(f64),
    Float(f32),
    Bytes(Vec<u8>),
}

/// A message: its members in order.
struct Message(Vec<(u64, Member)>);

impl Message {
    fn read(mut data: &[u8]) -> Self {
        fn varint(data: &mut &[u8]) -> u64 {
            let (mut n, mut shift) = (0, 0);
            loop {
                let byte = data[0];
                *data = &data[1..];
                n |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return n;
                }
            }
        }
        let mut all = Vec::new();
        while !data.is_empty() {
            let key = varint(&mut data);
            let mut take = |n: usize| {
                let (own, rest) = data.split_at(n);
                data = rest;
                own
            };
            let member = match key & 7 {
                0 => Member::Number(varint(&mut data)),
                1 => Member::Double(f64::from_le_bytes(take(8).try_into().unwrap())),
                5 => Member::Float(f32::from_le_bytes(take(4).try_into().unwrap())),
                2 => {
                    let length = varint(&mut data) as usize;
                    let (own, rest) = data.split_at(length);
                    data = rest;
                    Member::Bytes(own.to_vec())
                }
                wire => panic!("wire type {wire}"),
            };
            all.push((key >> 3, member));
        }
        Self(all)
    }

    fn all(&self, field: u64) -> impl Iterator<Item = &Member> {
        self.0.iter().filter(move |(own, _)| *own == field).map(|(_, member)| member)
    }

    /// The messages in a member.
    fn messages(&self, field: u64) -> Vec<Self> {
        let of = |member: &Member| match member {
            Member::Bytes(data) => Self::read(data),
            other => panic!("{field}: {other:?}"),
        };
        self.all(field).map(of).collect()
    }

    fn message(&self, field: u64) -> Self {
        self.messages(field).remove(0)
    }

    fn text(&self, field: u64) -> String {
        match self.all(field).next() {
            Some(Member::Bytes(data)) => String::from_utf8(data.clone()).unwrap(),
            other => panic!("{field}: {other:?}"),
        }
    }

    fn number(&self, field: u64) -> f64 {
        match self.all(field).next() {
            Some(Member::Number(n)) => *n as f64,
            Some(Member::Double(n)) => *n,
            Some(Member::Float(n)) => f64::from(*n),
            None => 0.0,
            other => panic!("{field}: {other:?}"),
        }
    }

    /// A `google.protobuf.Value`.
    fn value(&self) -> String {
        match &self.0[..] {
            [(2, Member::Double(n))] => n.to_string(),
            [(3, Member::Bytes(text))] => format!("{:?}", String::from_utf8_lossy(text)),
            [(4, Member::Number(n))] => (*n == 1).to_string(),
            other => panic!("{other:?}"),
        }
    }
}

/// What an event file says, a line each; times are left out.
fn shown(file: &[u8]) -> String {
    let mut out = String::new();
    for (i, data) in records(file).iter().enumerate() {
        let event = Message::read(data);
        assert!(event.number(1) > 1e9, "a wall time");
        if i == 0 {
            out.push_str(&format!("{}\n", event.text(3)));
            continue;
        }
        let value = event.message(5).message(1);
        let tag = value.text(1);
        if value.all(9).next().is_none() {
            out.push_str(&format!("{tag} {} {}\n", event.number(2), value.number(2)));
            continue;
        }
        assert!(value.all(8).next().is_some(), "a tensor");
        let plugin = value.message(9).message(1);
        assert_eq!(plugin.text(1), "hparams");
        let content = plugin.message(2);
        out.push_str(&tag);
        for info in content.messages(2) {
            assert!(info.number(3) > 1e9);
            for parameter in info.messages(4) {
                let domain = parameter.messages(5);
                let values: Vec<String> =
                    domain.iter().flat_map(|list| list.messages(1)).map(|v| v.value()).collect();
                let ends: Vec<f64> = parameter
                    .messages(6)
                    .iter()
                    .flat_map(|ends| [ends.number(1), ends.number(2)])
                    .collect();
                out.push_str(&format!(
                    " {}{}:{}:{}{ends:?}",
                    if parameter.number(7) == 1.0 { "*" } else { "" },
                    parameter.text(1),
                    parameter.number(4),
                    values.join(",")
                ));
            }
            let metrics = info.messages(5);
            metrics.iter().for_each(|m| out.push_str(&format!(" {}", m.message(1).text(2))));
        }
        for start in content.messages(3) {
            assert!(start.number(5) > 1e9);
            for entry in start.messages(1) {
                out.push_str(&format!(" {}={}", entry.text(1), entry.message(2).value()));
            }
        }
        for end in content.messages(4) {
            assert!(end.number(2) > 1e9);
            out.push_str(&format!(" status {}", end.number(1)));
        }
        out.push('\n');
    }
    out
}

/// Trial 1 resumes from a checkpoint of its first attempt, and trial 2 fails.
const PLAN: &str = r#"
version = 1
[sweep]
name = "s"
[run]
attempts = 2
command = ["sh", "-c", '''
log() { echo "$1" >> $HPCSWEEP_METRICS; }
case {{ x }} in
  1) if [ ! -e again ]; then touch again; log '{"epoch": 1, "loss": 8}'; log '{"epoch": 2, "loss": 7}'; exit 3; fi ;;
  2) exit 1 ;;
esac
log '{"epoch": 2, "loss": 4, "note": "a"}'; log '{"epoch": 3, "loss": 3.5, "rank": 1}'; log '{"epoch": 3, "loss": 3}'
echo '{"loss": 3, "test": {"accuracy": 0.5}}' > $HPCSWEEP_RESULT
''']
[grid]
x = [0, 1, 2]
[defaults]
name = "a"
flag = true
"#;

const EVENTS: &str = "events.out.tfevents.0.hpcsweep";

#[test]
fn each_trial_is_a_run_with_its_curve_its_parameters_and_its_final_metrics() {
    let world = World::new();
    world.local(PLAN, &["-q", "-j", "1"]);
    world.write("tb/mine.txt", "mine");
    let ran = world.run(&["collect", "--tensorboard", "tb"]);
    assert_eq!(ran.whole(), "3 runs in tb: tensorboard --logdir tb\nexit code 0\n");
    let names = |end: &[&str]| -> Vec<String> {
        let runs = end.iter().map(|run| format!("{run}{EVENTS}"));
        let mut all: Vec<String> =
            ["hpcsweep-runs.json", "mine.txt"].into_iter().map(str::to_owned).chain(runs).collect();
        all.sort();
        all
    };
    assert_eq!(world.files("tb"), names(&["", "trial-0/", "trial-1/", "trial-2/"]));
    let read = |name: &str| shown(&fs::read(world.path(&format!("tb/{name}{EVENTS}"))).unwrap());
    assert_eq!(
        read(""),
        "brain.Event:2\n_hparams_/experiment name:1:\"a\"[] flag:2:true[] *x:3:0,1,2[] loss test.accuracy\n"
    );
    let end = "loss/rank 1 3 3.5\ntest.accuracy 0 0.5\n_hparams_/session_end_info status 1\n";
    assert_eq!(
        read("trial-0/"),
        format!(
            "brain.Event:2\n_hparams_/session_start_info name=\"a\" flag=true x=0\nloss 2 4\nloss 3 3\n{end}"
        )
    );
    assert_eq!(
        read("trial-1/"),
        format!(
            "brain.Event:2\n_hparams_/session_start_info name=\"a\" flag=true x=1\nloss 1 8\nloss 2 4\nloss 3 3\n{end}"
        )
    );
    assert_eq!(
        read("trial-2/"),
        "brain.Event:2\n_hparams_/session_start_info name=\"a\" flag=true x=2\n_hparams_/session_end_info status 2\n"
    );

    // Another call replaces what the first one has written, and nothing else.
    world.write("tb/trial-2/mine.txt", "mine");
    let before = fs::read(world.path(&format!("tb/trial-0/{EVENTS}"))).unwrap();
    assert_eq!(world.run(&["collect", "0", "--tensorboard", "tb"]).code, 0);
    let mut expected = names(&["", "trial-0/"]);
    expected.push("trial-2/mine.txt".to_owned());
    assert_eq!(world.files("tb"), expected);
    assert!(!world.exists("tb/trial-1"));
    assert_eq!(fs::read(world.path(&format!("tb/trial-0/{EVENTS}"))).unwrap(), before);
    // A list that leads elsewhere removes nothing.
    world.write("tb/hpcsweep-runs.json", "{\"runs\":[\"../results\"]}");
    assert_eq!(
        world.run(&["collect", "--tensorboard", "tb"]).whole(),
        "error: the list of runs that were written before cannot be read\n  tb/hpcsweep-runs.json\n\
         hint: remove the file and the runs, or name another folder\nexit code 2\n"
    );
}

#[test]
fn what_cannot_be_runs_is_said() {
    let world = World::new();
    world.local(&shell("true", "[grid]\nx = [0]\n"), &["-q"]);
    world.write("file", "");
    assert_eq!(
        world.run(&["collect", "--tensorboard", "file"]).whole(),
        "error: `file` is a file\nhint: name a folder: `--tensorboard runs`\nexit code 2\n"
    );
    let within = world.run(&["collect", "--tensorboard", "results/s/work"]);
    assert_eq!(
        within.whole(),
        "error: `results/s/work` lies within the sweep `results/s`\nhint: name a folder that is not part of a sweep\nexit code 2\n"
    );
    assert_eq!(world.run(&["collect", "--tensorboard", "tb", "--steps"]).code, 2);
    assert_eq!(world.run(&["collect", "--tensorboard", "tb", "-o", "x.csv"]).code, 2);
    assert!(!world.exists("tb"));
}
