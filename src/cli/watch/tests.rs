//! Screens and pages compared whole, and what keys do.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;

use super::*;
use crate::answers::watch::{Best, Failure, Gpu, Parameters, Place, Slow, UsedGpu};
use crate::base::cause::Cause;
use crate::sweep::standing::State;

fn drawn(frame: &Frame, view: &mut View, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|screen| draw::draw(screen, frame, view, 3.7, None)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let line = |cells: &[ratatui::buffer::Cell]| {
        let text: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.trim_end().to_owned() + "\n"
    };
    buffer.content.chunks(width).map(line).collect()
}

fn place(host: &str, busy: u32, ended: u64, seen: f64, silent: bool) -> Place {
    let (host, slots, seen_s) = (host.to_owned(), Some(8), Some(seen));
    Place { host, job: None, pid: None, busy, slots, ended, rate: None, seen_s, silent }
}

fn failure(trial: u64, host: &str, reason: &str, ago: f64) -> Failure {
    let (host, reason) = (host.to_owned(), reason.to_owned());
    Failure { trial, host, state: State::Failed, reason, ago_s: Some(ago) }
}

fn slow(trial: u64, host: &str, since_s: f64, times: f64) -> Slow {
    Slow { trial, host: host.to_owned(), since_s, times: Some(times), curve: None }
}

fn small() -> Frame {
    Frame {
        sweep: "digits".to_owned(),
        total: 40,
        counts: [
            (State::Done, 20),
            (State::Running, 2),
            (State::Pending, 16),
            (State::Failed, 1),
            (State::Skipped, 1),
        ]
        .into(),
        rate: Some(0.5),
        left_s: Some(36.0),
        took_s: Some(44.0),
        median_s: Some(3.2),
        places: vec![place("n1", 2, 22, 0.4, false)],
        failures: vec![failure(7, "n1", "exit code 3: no such file `data/x\x1b[31m`", 12.0)],
        slowest: vec![slow(21, "n1", 6.4, 2.0), slow(22, "n1", 1.6, 0.5)],
        ..Frame::default()
    }
}

/// A million trials, twelve agents, hundreds of failures, GPUs.
fn large() -> Frame {
    let gpu = Gpu {
        utilization: Some(97.0),
        memory_used: Some(40e9),
        power_w: Some(311.6),
        temperature_c: None,
    };
    let used = |trial, host: &str, number| UsedGpu { trial, host: host.to_owned(), number, gpu };
    Frame {
        sweep: "wide".to_owned(),
        total: 1_000_000,
        counts: [
            (State::Done, 812_345),
            (State::Running, 91),
            (State::Pending, 187_191),
            (State::Failed, 371),
            (State::Timeout, 2),
        ]
        .into(),
        rate: Some(312.4),
        left_s: Some(599.6),
        took_s: Some(2600.0),
        median_s: Some(0.21),
        places: (1..=12)
            .map(|i| Place {
                job: Some(format!("77_{i}")),
                rate: Some(i as f64 / 60.0),
                ..place(&format!("node{i:03}"), 8 - u32::from(i == 9) * 5, 67_000 + i, 2.0, i == 9)
            })
            .collect(),
        failures: (0..200)
            .map(|i| failure(900_000 - i, "node007", "signal 9: out of memory", 5.0 + i as f64))
            .collect(),
        slowest: (0..91).map(|i| slow(500_000 + i, "node003", 95.0 - i as f64, 450.0)).collect(),
        gpus: vec![used(812_000, "node001", 0), used(812_000, "node001", 1)],
        causes: vec![(Cause::OutOfMemory, 371), (Cause::Walltime, 2)],
        best: Some(Best {
            metric: "val_loss".to_owned(),
            max: false,
            assumed: true,
            trial: 4711,
            value: 0.012_345,
            parameters: Parameters {
                all: vec![
                    ("lr".to_owned(), "0.1".to_owned()),
                    ("name".to_owned(), "a\u{1b}[31m".to_owned()),
                ],
                varied: vec!["lr".to_owned()],
            },
        }),
        damage: vec![],
        notes: vec![
            "1 agent taken for dead; others have its trials".to_owned(),
            "no sign of life from 1 agent for more than 1 min 00 s".to_owned(),
        ],
    }
}

#[test]
fn a_small_sweep_on_a_small_terminal() {
    let expected = "\
digits: 40 trials                                                   read 4 s ago
done 20  running 2  pending 16  failed 1  skipped 1
[###################################!!!>>>..............................] 55.0 %
30.0 trials/min, 36 s left, median 3.2 s, began 44 s ago
-- [1] agents: 1 ---------------------------------------------------------------
host  busy  ended  last sign
n1    2/8      22  0.4 s ago
== [2] failures: 1 =============================================================
last      host  log to read      why
12 s ago  n1    hpcsweep logs 7  1 x exit code 3: no such file `data/x\\u{1b}[31m









-- [3] slowest: 2 --------------------------------------------------------------
trial  host  runs for  x median
   21  n1    6.4 s          2.0
   22  n1    1.6 s          0.5
q quit   Tab 1-4 list   arrows PgUp PgDn Home End select   Enter trial   b best
";
    let mut view = View::new(true);
    assert_eq!(lines(&drawn(&small(), &mut view, 80, 24)), expected);
}

#[test]
fn a_large_sweep_on_a_large_terminal() {
    let expected = "\
wide: 1,000,000 trials                                                                  read 4 s ago
done 812345  running 91  pending 187191  failed 371  timeout 2
[#########################################################################!>................] 81.2 %
312 trials/s, 10 min 00 s left, median 0.2 s, began 43 min 20 s ago
best val_loss 0.012345 (least, assumed): trial 4711, lr=0.1 name=a\\u{1b}[31m
causes: 371 out-of-memory, 2 walltime
1 agent taken for dead; others have its trials
no sign of life from 1 agent for more than 1 min 00 s
== [1] agents: 12 ==================================================================================
host     job    busy  ended  pace      last sign
node001  77_1   8/8   67001  1.0/min   2.0 s ago
node002  77_2   8/8   67002  2.0/min   2.0 s ago
node003  77_3   8/8   67003  3.0/min   2.0 s ago
node004  77_4   8/8   67004  4.0/min   2.0 s ago
node005  77_5   8/8   67005  5.0/min   2.0 s ago
node006  77_6   8/8   67006  6.0/min   2.0 s ago
node007  77_7   8/8   67007  7.0/min   2.0 s ago
node008  77_8   8/8   67008  8.0/min   2.0 s ago
node009  77_9   3/8   67009  9.0/min   2.0 s ago (silent)
node010  77_10  8/8   67010  10.0/min  2.0 s ago
node011  77_11  8/8   67011  11.0/min  2.0 s ago
node012  77_12  8/8   67012  12.0/min  2.0 s ago



-- [2] failures: 373 -------------------------------------------------------------------------------
last       host     log to read           why, of the newest
5.0 s ago  node007  hpcsweep logs 899801  200 x signal 9: out of memory (trials 899801-900000)
-- [3] slowest: 91 (1 to 5) ------------------------------------------------------------------------
 trial  host     runs for    x median
500000  node003  1 min 35 s     450.0
500001  node003  1 min 34 s     450.0
500002  node003  1 min 33 s     450.0
500003  node003  1 min 32 s     450.0
500004  node003  1 min 31 s     450.0
-- [4] GPUs: 2 -------------------------------------------------------------------------------------
host      trial  gpu  util %  MiB used  watt  deg C
node001  812000    0      97     38147   312
node001  812000    1      97     38147   312
q quit   Tab 1-4 list   arrows PgUp PgDn Home End select   Enter trial   b best
";
    let mut view = View { focus: 1, ..View::new(true) };
    assert_eq!(lines(&drawn(&large(), &mut view, 100, 40)), expected);
}

#[test]
fn a_page_of_text() {
    let expected = "\
digits: 40 trials
done 20  running 2  pending 16  failed 1  skipped 1
[#########################!!>>.....................] 55.0 %
30.0 trials/min, 36 s left, median 3.2 s, began 44 s ago

agents: 1
  host  busy  ended  last sign
  n1    2/8      22  0.4 s ago

failures: 1
  last      host  log to read      why
  12 s ago  n1    hpcsweep logs 7  1 x exit code 3: no such file `data/x\\u{1b}[31m` (trial 7)

slowest: 2
  trial  host  runs for  x median
     21  n1    6.4 s          2.0
     22  n1    1.6 s          0.5
";
    assert_eq!(text::plain(&small()), expected);
    let expected = "\
wide: 1,000,000 trials
done 812345  running 91  pending 187191  failed 371  timeout 2
[########################################!>........] 81.2 %
312 trials/s, 10 min 00 s left, median 0.2 s, began 43 min 20 s ago
best val_loss 0.012345 (least, assumed): trial 4711, lr=0.1 name=a\\u{1b}[31m
causes: 371 out-of-memory, 2 walltime
1 agent taken for dead; others have its trials
no sign of life from 1 agent for more than 1 min 00 s

agents: 12
  host     job    busy  ended  pace      last sign
  node001  77_1   8/8   67001  1.0/min   2.0 s ago
  node002  77_2   8/8   67002  2.0/min   2.0 s ago
  node003  77_3   8/8   67003  3.0/min   2.0 s ago
  node004  77_4   8/8   67004  4.0/min   2.0 s ago
  node005  77_5   8/8   67005  5.0/min   2.0 s ago
  node006  77_6   8/8   67006  6.0/min   2.0 s ago
  node007  77_7   8/8   67007  7.0/min   2.0 s ago
  node008  77_8   8/8   67008  8.0/min   2.0 s ago
  node009  77_9   3/8   67009  9.0/min   2.0 s ago (silent)
  node010  77_10  8/8   67010  10.0/min  2.0 s ago
  ... and 2 more

failures: 373
  last       host     log to read           why, of the newest
  5.0 s ago  node007  hpcsweep logs 899801  200 x signal 9: out of memory (trials 899801-900000)

slowest: 91
   trial  host     runs for    x median
  500000  node003  1 min 35 s     450.0
  500001  node003  1 min 34 s     450.0
  500002  node003  1 min 33 s     450.0
  500003  node003  1 min 32 s     450.0
  500004  node003  1 min 31 s     450.0
  500005  node003  1 min 30 s     450.0
  500006  node003  1 min 29 s     450.0
  500007  node003  1 min 28 s     450.0
  500008  node003  1 min 27 s     450.0
  500009  node003  1 min 26 s     450.0
  ... and 81 more

GPUs: 2
  host      trial  gpu  util %  MiB used  watt  deg C
  node001  812000    0      97     38147   312
  node001  812000    1      97     38147   312
";
    assert_eq!(text::plain(&large()), expected);
}

#[test]
fn without_colour_no_cell_has_one() {
    let coloured = |view: &mut View| {
        let buffer = drawn(&large(), view, 80, 24);
        buffer.content.iter().filter(|c| (c.fg, c.bg) != (Color::Reset, Color::Reset)).count()
    };
    assert_eq!(coloured(&mut View::new(false)), 0);
    assert!(coloured(&mut View::new(true)) > 50);
}

#[test]
fn any_size_of_a_terminal_will_do() {
    for (width, height) in [(1, 1), (3, 2), (20, 5), (80, 9), (80, 17), (300, 90)] {
        for frame in [&Frame::default(), &small(), &large()] {
            for focus in 1..=4 {
                let mut view = View { focus, ..View::new(true) };
                let buffer = drawn(frame, &mut view, width, height);
                assert_eq!(lines(&buffer).lines().count(), usize::from(height));
            }
        }
    }
}

#[test]
fn the_bar_shows_whatever_there_is_one_of() {
    let bar = |counts: &[(State, u64)], width| {
        let counts: std::collections::BTreeMap<State, u64> = counts.iter().cloned().collect();
        let frame = Frame { total: counts.values().sum(), counts, ..Frame::default() };
        let bar: String = text::bar(&frame, width).into_iter().map(text::Piece::symbol).collect();
        format!("{bar} {}", text::percent(&frame))
    };
    let (done, failed, running) = (State::Done, State::Failed, State::Running);
    assert_eq!(bar(&[], 4), ".... 0.0 %");
    assert_eq!(bar(&[(done.clone(), 3), (State::Pending, 1)], 8), "######.. 75.0 %");
    let rare = [(done.clone(), 5), (failed.clone(), 1), (running, 1), (State::Pending, 99_993)];
    assert_eq!(bar(&rare, 8), "#!>..... 0.0 %");
    assert_eq!(bar(&[(done.clone(), 99_999), (State::Pending, 1)], 8), "#######. 99.9 %");
    assert_eq!(bar(&[(done, 2), (failed, 1)], 8), "#####!!! 100.0 %");
}

#[test]
fn keys_choose_and_scroll_lists() {
    let mut view = View::new(true);
    let press = |code, view: &mut View| super::press(KeyEvent::from(code), view);
    // Failures that have nothing in common.
    let mut frame = large();
    for (i, failure) in frame.failures.iter_mut().enumerate() {
        let letter = |n: usize| char::from(b'a' + (n % 26) as u8);
        failure.reason = format!("no file {}{}", letter(i / 26), letter(i));
    }
    // The list shows how far it is scrolled, which is never further than it is long.
    let seen = |view: &mut View| {
        let screen = lines(&drawn(&frame, view, 100, 40));
        screen.lines().find(|line| line.starts_with("==")).unwrap().to_owned()
    };
    let check = |view: &mut View, expected: &str| {
        assert_eq!(seen(view).trim_end_matches(['=', ' ']), expected);
    };
    check(&mut view, "== [2] failures: 373 (1 to 11)");
    assert_eq!(press(KeyCode::Down, &mut view), None);
    check(&mut view, "== [2] failures: 373 (1 to 11)");
    press(KeyCode::PageDown, &mut view);
    check(&mut view, "== [2] failures: 373 (2 to 12)");
    press(KeyCode::End, &mut view);
    check(&mut view, "== [2] failures: 373 (190 to 200)");
    press(KeyCode::Up, &mut view);
    check(&mut view, "== [2] failures: 373 (190 to 200)");
    press(KeyCode::Home, &mut view);
    check(&mut view, "== [2] failures: 373 (1 to 11)");
    press(KeyCode::Tab, &mut view);
    check(&mut view, "== [3] slowest: 91 (1 to 11)");
    press(KeyCode::Char('1'), &mut view);
    check(&mut view, "== [1] agents: 12 (1 to 11)");
    press(KeyCode::BackTab, &mut view);
    check(&mut view, "== [4] GPUs: 2");
    press(KeyCode::Tab, &mut view);
    check(&mut view, "== [1] agents: 12 (1 to 11)");
    assert_eq!(press(KeyCode::Char('q'), &mut view), Some(0));
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(super::press(interrupt, &mut view), Some(130));
    // Without GPUs there are three lists.
    view.focus = 4;
    let screen = lines(&drawn(&small(), &mut view, 100, 40));
    assert!(screen.contains("== [3] slowest: 2 ==") && !screen.contains("GPUs"), "{screen}");
}

fn trial() -> trial::Trial {
    trial::Trial {
        trial: 7,
        parameters: vec![
            ("lr".into(), "0.1".into()),
            ("optimizer".into(), "adam\u{1b}[31m".into()),
        ],
        attempts: vec!["failed (exit-code), 3.2 s, on n1, job 12_7: exit code 3".into()],
        log: (1..=40).map(|i| format!("epoch\t{i}")).collect(),
        is_left_out: false,
        command: "hpcsweep logs 7 results/digits".into(),
    }
}

#[test]
fn enter_shows_the_trial_of_the_selected_row_and_escape_goes_back() {
    let mut view = View::new(true);
    let press = |code, view: &mut View| super::press(KeyEvent::from(code), view);
    let opened = |view: &mut View, keys: &[KeyCode]| {
        drawn(&large(), view, 100, 40);
        keys.iter().for_each(|key| assert_eq!(press(*key, view), None));
        let opened = view.opened;
        assert_eq!(press(KeyCode::Esc, view), None);
        assert_eq!(view.opened, None);
        opened
    };
    assert_eq!(opened(&mut view, &[KeyCode::Enter]), Some(899_801));
    assert_eq!(opened(&mut view, &[KeyCode::Char('b')]), Some(4711));
    opened(&mut view, &[KeyCode::Tab, KeyCode::Down, KeyCode::Down]);
    assert_eq!(opened(&mut view, &[KeyCode::Enter]), Some(500_002));
    opened(&mut view, &[KeyCode::Tab, KeyCode::End]);
    assert_eq!(opened(&mut view, &[KeyCode::Enter]), Some(812_000));
    // Agents have no trial.
    opened(&mut view, &[KeyCode::Char('1')]);
    assert_eq!(opened(&mut view, &[KeyCode::Enter]), None);
    // In a trial, q goes back, and Ctrl-C ends the program.
    view.opened = Some(7);
    assert_eq!(press(KeyCode::Char('q'), &mut view), None);
    assert_eq!((view.opened, press(KeyCode::Char('q'), &mut view)), (None, Some(0)));
    view.opened = Some(7);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(super::press(interrupt, &mut view), Some(130));
}

#[test]
fn a_trial_is_seen_from_its_end_and_scrolled() {
    let seen = |trial: Option<Result<trial::Trial, String>>, view: &mut View, height| {
        let mut terminal = Terminal::new(TestBackend::new(80, height)).unwrap();
        terminal.draw(|screen| trial::draw(screen, 7, trial.as_ref(), view)).unwrap();
        lines(terminal.backend().buffer())
    };
    let mut view = View { opened: Some(7), ..View::new(true) };
    let expected = "\
trial 7
  epoch    38
  epoch    39
  epoch    40
Esc back   arrows PgUp PgDn Home End scroll
";
    assert_eq!(seen(Some(Ok(trial())), &mut view, 5), expected);
    super::press(KeyEvent::from(KeyCode::Home), &mut view);
    let expected = "\
trial 7
parameters:
  lr         0.1
  optimizer  adam\\u{1b}[31m
attempts:
  1: failed (exit-code), 3.2 s, on n1, job 12_7: exit code 3
the end of its log (hpcsweep logs 7 results/digits prints all):
  epoch    1
Esc back   arrows PgUp PgDn Home End scroll
";
    assert_eq!(seen(Some(Ok(trial())), &mut view, 9), expected);
    super::press(KeyEvent::from(KeyCode::PageDown), &mut view);
    assert!(
        seen(Some(Ok(trial())), &mut view, 9)
            .ends_with("  epoch    11\nEsc back   arrows PgUp PgDn Home End scroll\n")
    );
    assert_eq!(
        seen(None, &mut view, 3),
        "trial 7\nit is being read\nEsc back   arrows PgUp PgDn Home End scroll\n"
    );
    let error = Some(Err("no trial 7".to_owned()));
    assert_eq!(
        seen(error, &mut view, 3),
        "trial 7\nno trial 7\nEsc back   arrows PgUp PgDn Home End scroll\n"
    );
    for height in 1..4 {
        assert_eq!(seen(Some(Ok(trial())), &mut view, height).lines().count(), usize::from(height));
    }
}
