//! `watch`: pages of text compared whole, a dashboard on a terminal of its own, and what both cost a scheduler.
//! Long because pages stand here as they are seen.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;

use crate::support::agents::made_up;
use crate::support::plans::shell;
use crate::support::slurm::slurm;
use crate::support::world::{PROGRAM, World, wait_until};

/// Text without what differs from run to run: times become `_ s`, rates `_ trials/s`, and columns a space.
fn masked(text: &str) -> String {
    const UNITS: [&str; 7] = ["s", "s,", "min", "min,", "trials/s,", "trials/min,", "h"];
    let line = |line: &str| {
        let indent: String = line.chars().take_while(|c| *c == ' ').take(2).collect();
        let words: Vec<&str> = line.split_whitespace().collect();
        let mask = |(i, word): (usize, &&str)| {
            let is_time = words.get(i + 1).is_some_and(|next| UNITS.contains(next));
            let is_pace = word.strip_suffix("/min").is_some_and(|n| n.parse::<f64>().is_ok());
            match is_time && word.parse::<f64>().is_ok() {
                true => "_".to_owned(),
                false if is_pace => "_/min".to_owned(),
                false => (*word).to_owned(),
            }
        };
        indent + &words.iter().enumerate().map(mask).collect::<Vec<_>>().join(" ") + "\n"
    };
    // A slow machine takes larger units.
    let text: String = text.lines().map(line).collect();
    text.replace("_ trials/min", "_ trials/s").replace("_ min _ s", "_ s")
}

/// Trial 0 is done, trial 1 fails, the others wait for the file `go`.
const WAITS: &str = "case $HPCSWEEP_PARAM_A in 0) exit 0 ;; 1) exit 3 ;; esac
    while [ ! -e go ]; do sleep 0.01; done";

const FIVE: &str = "[grid]\na = [0, 1, 2, 3, 4]\n[pull]\nbind = false\n";

#[test]
fn a_page_tells_how_a_sweep_stands_while_it_runs_and_after() {
    let mut world = World::new();
    world.set("SLURMD_NODENAME", "n1");
    world.write("plan.toml", &shell(WAITS, FIVE));
    let agent = world.start(&["worker", "--pull", "plan.toml", "--slots", "2"]);
    let page = || masked(&world.run(&["watch"]).out);
    wait_until("two trials run", || page().contains("done 1 running 2 queued 1 failed 1"));
    let ran = world.run(&["watch", "--once", "plan.toml"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let expected = "\
s: 5 trials
done 1 running 2 queued 1 failed 1
[##########!!!!!!!!!!>>>>>>>>>>>>>>>>>>>>..........] 40.0 %
_ trials/s, _ s left, began _ s ago
causes: 1 exit-code

agents: 1
  host pid busy ended pace last sign
  n1 PID 2/2 2 _/min _ s ago

failures: 1
  last host log to read why
  _ s ago n1 hpcsweep logs 1 1 x exit code 3 (trial 1)

slowest: 2
  trial host runs for x median
  2 n1 _ s
  3 n1 _ s
";
    assert_eq!(masked(&ran.out), expected.replace("PID", &agent.pid().to_string()));
    world.write("go", "");
    assert_eq!(agent.end(&world).code, 1);
    let expected = "\
s: 5 trials
done 4 failed 1
[########################################!!!!!!!!!!] 100.0 %
median _ s, took _ s
causes: 1 exit-code

failures: 1
  last host log to read why
  _ s ago n1 hpcsweep logs 1 1 x exit code 3 (trial 1)
";
    assert_eq!(page(), expected);
    assert_eq!(world.status()["counts"].to_string(), r#"{"done":4,"failed":1}"#);
}

#[test]
fn gpus_of_trials_that_run_show_their_newest_samples() {
    let samples = r#"{"devices": [{"index": 0, "uuid": "GPU-a", "name": "NVIDIA T4", "samples": [
        {"utilization": 5, "memory_used": 1048576},
        {"utilization": 90, "memory_used": 314572800, "power_w": 250.4, "temperature_c": 70}]}]}"#;
    for (name, args) in [
        ("of an agent", &["worker", "--pull", "plan.toml", "--slots", "1"][..]),
        ("here", &["submit", "plan.toml", "--local"]),
    ] {
        let mut world = World::new();
        world.write("nvml.json", samples);
        world.set("HPCSWEEP_NVML_FILE", &world.text_path("nvml.json"));
        world.set("HPCSWEEP_GPU_SAMPLE_S", "0.05");
        world.set("SLURMD_NODENAME", "n1");
        let rest = "[run.env]\nCUDA_VISIBLE_DEVICES = \"0\"\n[grid]\na = [2]\n";
        world.write("plan.toml", &shell(WAITS, rest));
        let runs = world.start(args);
        let expected = "
GPUs: 1
  host trial gpu util % MiB used watt deg C
  n1 0 0 90 300 250 70
";
        wait_until(name, || masked(&world.run(&["watch"]).out).ends_with(expected));
        world.write("go", "");
        assert_eq!(runs.end(&world).code, 0);
        assert!(!world.run(&["watch"]).ok().contains("GPUs"));
    }
}

#[test]
fn a_sweep_run_here_is_told_from_its_records() {
    let world = World::new();
    world.local(&shell("exit $HPCSWEEP_PARAM_A", "[grid]\na = [0, 2, 0]\n"), &["-j", "1"]);
    let ran = world.run(&["watch", "results/s"]);
    let host = hpcsweep::base::host::vars::hostname();
    let expected = format!(
        "\
s: 3 trials
done 2 failed 1
[#################################!!!!!!!!!!!!!!!!!] 100.0 %
took _ s
causes: 1 exit-code
seen by: the results tree alone: no job was submitted

failures: 1
  last host log to read why
  _ s ago {host} hpcsweep logs 1 1 x exit code 2 (trial 1)
"
    );
    assert_eq!(masked(ran.ok()), expected);
}

#[test]
fn the_best_trial_so_far_is_shown_with_its_parameters_however_the_sweep_is_run() {
    let log = "echo \"{\\\"epoch\\\": 1, \\\"loss\\\": $HPCSWEEP_PARAM_A.5, \\\"size\\\": $HPCSWEEP_PARAM_A}\" >> $HPCSWEEP_METRICS";
    let plan = shell(log, "[grid]\na = [3, 1, 2]\n[pull]\nbind = false\n");
    for args in
        [&["submit", "plan.toml", "--local", "-q"][..], &["worker", "--pull", "plan.toml", "-q"]]
    {
        let world = World::new();
        world.write("plan.toml", &plan);
        world.run(args).ok();
        let best = |args: &[&str]| {
            let page = world.run(&[&["watch"], args].concat());
            let mut lines = page.ok().lines().filter(|line| line.starts_with("best "));
            lines.next().map(str::to_owned)
        };
        let words = |words: &str| Some(words.to_owned());
        assert_eq!(best(&[]), words("best loss 1.5 (least, assumed): trial 1, a=1"));
        assert_eq!(
            best(&["--metric", "size", "--max"]),
            words("best size 3 (greatest): trial 0, a=3")
        );
        assert_eq!(best(&["--metric", "siz", "--max"]), None);
        let page = world.run(&["watch", "--metric", "siz", "--max"]);
        assert!(page.ok().contains("no trial that is done has a metric `siz`\n"), "{}", page.out);
        assert_eq!(world.run(&["watch", "--metric", "size"]).code, 2);
        // Of trials that repeat a setting it was the luckiest, and may be of none of the good settings.
        world.write(
            "seeds.toml",
            &plan.replace("[grid]", "[grid]\nseed = [0, 1]").replace("\"s\"", "\"seeds\""),
        );
        world.run(&["submit", "seeds.toml", "--local", "-q"]).ok();
        let page = world.run(&["watch", "seeds.toml"]);
        let luckiest = "\nluckiest loss 1.5 (least, assumed): trial 1, seed=0 a=1; `hpcsweep best` averages over `seed`\n";
        assert!(page.ok().contains(luckiest), "{}", page.out);
        // One seed for all of them repeats nothing.
        let one =
            plan.replace("[grid]", "[defaults]\nseed = 7\n[grid]").replace("\"s\"", "\"one\"");
        world.write("one.toml", &one);
        world.run(&["submit", "one.toml", "--local", "-q"]).ok();
        let page = world.run(&["watch", "one.toml"]);
        let best = "\nbest loss 1.5 (least, assumed): trial 1, seed=7 a=1\n";
        assert!(page.ok().contains(best), "{}", page.out);
    }
}

#[test]
fn wrong_requests_are_refused() {
    let world = World::new();
    let ran = world.run(&["watch", "nowhere"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.starts_with("error: no sweep is called `nowhere`\n"), "{}", ran.err);
    let ran = world.run(&["watch", "--interval", "0.1"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("a number of seconds from 0.5 to 86400"), "{}", ran.err);
}

#[test]
fn a_hundred_thousand_trials_are_counted_right() {
    let world = World::new();
    made_up(&world, 100_000, 4);
    let ran = world.run(&["watch", "results/big"]);
    let page = masked(ran.ok());
    // Of each agent 24,899 have ended, one runs, a hundred wait.
    let head = "\
big: 100,000 trials
done 89636 running 4 queued 400 failed 9960
[############################################!!!!>.] 99.5 %
";
    assert!(page.starts_with(head), "{page}");
    let agents = "
causes: 9960 exit-code

agents: 4
  host busy ended pace last sign
  n0 1/8 24899 _/min _ s ago
  n1 1/8 24899 _/min _ s ago
  n2 1/8 24899 _/min _ s ago
  n3 1/8 24899 _/min _ s ago

failures: 9960
";
    assert!(page.contains(agents), "{page}");
}

/// `hpcsweep watch` on a terminal of its own.
struct Dashboard {
    child: Child,
    keys: File,
    out: Receiver<Vec<u8>>,
    /// All that it wrote, and what of it has been shown.
    raw: String,
    shown: usize,
    screen: Vec<Vec<char>>,
    cursor: (usize, usize),
    /// The other side of the terminal: it stays open, so that its settings can be asked.
    side: OwnedFd,
    before: Termios,
}

impl Dashboard {
    fn start(world: &World, vars: &[(&str, &str)], args: &[&str]) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let before = tcgetattr(&pty.slave).unwrap();
        let side = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut command = world.command(PROGRAM);
        command.arg("watch").args(args).env("TERM", "xterm").envs(vars.iter().copied());
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let keys = File::from(pty.master.try_clone().unwrap());
        let mut master = File::from(pty.master);
        let (tell, out) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n) = master.read(&mut bytes) {
                if n == 0 || tell.send(bytes[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        let (raw, screen) = (String::new(), vec![vec![' '; 200]; 60]);
        let (shown, cursor, side) = (0, (0, 0), pty.slave);
        Self { child, keys, out, raw, shown, screen, cursor, side, before }
    }

    /// Waits until something is so, reading what it writes meanwhile.
    #[track_caller]
    fn wait_until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            let left = Duration::from_secs(240).saturating_sub(since.elapsed());
            let Ok(bytes) = self.out.recv_timeout(left) else {
                panic!("waited for ever for {what}:\n{}\n{:?}", self.text(), self.raw);
            };
            self.raw.push_str(std::str::from_utf8(&bytes).unwrap());
            self.show();
        }
    }

    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        self.wait_until(&format!("`{text}`"), |dashboard| dashboard.text().contains(text));
    }

    /// Does what a terminal does, as far as it is asked to: letters, places, a screen wiped clean.
    fn show(&mut self) {
        while let Some(c) = self.raw[self.shown..].chars().next() {
            let rest = &self.raw[self.shown..];
            let Some(command) = rest.strip_prefix("\x1b[") else {
                assert!(!c.is_control(), "{rest:?}");
                self.screen[self.cursor.0][self.cursor.1] = c;
                self.cursor.1 += 1;
                self.shown += c.len_utf8();
                continue;
            };
            let Some(end) = command.find(|c: char| c.is_ascii_alphabetic()) else { return };
            let (numbers, letter) = (&command[..end], &command[end..=end]);
            match letter {
                "H" => {
                    let (row, column) = numbers.split_once(';').unwrap_or(("1", "1"));
                    let number = |text: &str| text.parse::<usize>().unwrap() - 1;
                    self.cursor = (number(row), number(column));
                }
                "J" => self.screen.iter_mut().for_each(|line| line.fill(' ')),
                _ => {}
            }
            self.shown += 2 + end + 1;
        }
    }

    /// The text on its screen.
    fn text(&self) -> String {
        let line = |line: &Vec<char>| line.iter().collect::<String>().trim_end().to_owned() + "\n";
        self.screen.iter().map(line).collect::<String>().trim_end().to_owned() + "\n"
    }

    /// The codes that it wrote to choose a colour.
    fn colours(&self) -> Vec<&str> {
        let numbers = self.raw.split("\x1b[").filter_map(|rest| {
            rest.split_once('m').map(|(numbers, _)| numbers).filter(|n| !n.contains('H'))
        });
        let is_colour = |n: &str| matches!(n.parse(), Ok(30..=38 | 40..=48 | 90..=107));
        numbers.filter(|numbers| numbers.split(';').any(is_colour)).collect()
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Waits for its end and returns the exit code; the terminal is as it was before.
    #[track_caller]
    fn end(mut self) -> Option<i32> {
        // The alternate screen is left, and the cursor is there.
        self.wait_until("the end", |dashboard| {
            let left = dashboard.raw.split("\x1b[?1049l").nth(1);
            left.is_some_and(|rest| rest.contains("\x1b[?25h"))
        });
        let status = self.child.wait().unwrap();
        assert_eq!(tcgetattr(&self.side).unwrap(), self.before);
        status.code()
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_dashboard_follows_a_sweep_and_leaves_the_terminal_as_it_was() {
    let mut world = World::new();
    world.set("SLURMD_NODENAME", "n1");
    world.write("plan.toml", &shell(WAITS, FIVE));
    let agent = world.start(&["worker", "--pull", "plan.toml", "--slots", "2"]);
    let page = || masked(&world.run(&["watch"]).out);
    wait_until("two trials run", || page().contains("done 1 running 2 queued 1 failed 1"));
    let mut dashboard = Dashboard::start(&world, &[("NO_COLOR", "1")], &["--interval", "0.5"]);
    dashboard.wait_for("q quit");
    let expected = "\
s: 5 trials read _ s ago
done 1 running 2 queued 1 failed 1
[##############!!!!!!!!!!!!!!>>>>>>>>>>>>>>>>>>>>>>>>>>>>...............] 40.0 %
_ trials/s, _ s left, began _ s ago
causes: 1 exit-code
-- [1] agents: 1 ---------------------------------------------------------------
host pid busy ended pace last sign
n1 PID 2/2 2 _/min _ s ago
== [2] failures: 1 =============================================================
last host log to read why
_ s ago n1 hpcsweep logs 1 1 x exit code 3 (trial 1)








-- [3] slowest: 2 --------------------------------------------------------------
trial host runs for x median
  2 n1 _ s
  3 n1 _ s
q quit Tab 1-4 list arrows PgUp PgDn Home End select Enter trial b best
";
    assert_eq!(masked(&dashboard.text()), expected.replace("PID", &agent.pid().to_string()));
    assert_eq!(dashboard.colours(), [""; 0]);
    // The trial of the selected row, and back.
    dashboard.press("\r");
    dashboard.wait_for("it has printed nothing");
    let text = dashboard.text();
    assert!(
        text.starts_with("trial 1\nparameters:\n  a  1\nattempts:\n  1: failed (exit-code), "),
        "{text}"
    );
    assert!(text.contains(", on n1: exit code 3\nit has printed nothing\n"), "{text}");
    dashboard.press("q");
    dashboard.wait_for("== [2] failures: 1 ==");
    dashboard.press("3");
    dashboard.wait_for("== [3] slowest: 2 ==");
    // A larger window is drawn anew.
    let mut resize = world.command("stty");
    resize.args(["rows", "40", "cols", "120"]).stdin(dashboard.side.try_clone().unwrap());
    assert!(resize.status().unwrap().success());
    dashboard.signal(Signal::SIGWINCH);
    dashboard.wait_for(&"=".repeat(100));
    world.write("go", "");
    assert_eq!(agent.end(&world).code, 1);
    dashboard.wait_for("100.0 %");
    dashboard.press("q");
    assert_eq!(dashboard.end(), Some(0));
}

#[test]
fn every_way_out_puts_the_terminal_right() {
    let world = World::new();
    world.local(&shell("exit 0", ""), &[]).ok();
    let dashboard = || {
        let mut dashboard = Dashboard::start(&world, &[], &[]);
        dashboard.wait_for("q quit");
        assert!(!dashboard.colours().is_empty());
        dashboard
    };
    let mut interrupted = dashboard();
    interrupted.press("\x03");
    assert_eq!(interrupted.end(), Some(130));
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
        let dashboard = dashboard();
        dashboard.signal(signal);
        assert_eq!(dashboard.end(), Some(code));
    }
}

#[test]
fn a_scheduler_is_asked_once_however_often_the_tree_is_read() {
    let world = slurm();
    world.write("plan.toml", &shell("exit $HPCSWEEP_PARAM_A", "[grid]\na = [0, 1, 2]\n"));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    let log = world.text_path("calls");
    let answer = "101_[0-2]|PENDING|Resources|x\\n";
    world.program("squeue", &format!("#!/bin/sh\necho squeue >>'{log}'\nprintf '{answer}'\n"));
    world.write("calls", "");
    let mut dashboard = Dashboard::start(&world, &[], &["--interval", "0.5"]);
    dashboard.wait_for("queued 3");
    dashboard.wait_for("seen by: squeue");
    // Element 1 has ended, which its record says; of the others the word stands.
    let mut command = world.command("bash");
    command.arg(world.path("results/s/jobs/0001.sh")).env("SLURM_ARRAY_TASK_ID", "1");
    command.env("SLURM_ARRAY_JOB_ID", "101").env("SLURM_JOB_ID", "102");
    command.env("SLURM_PROCID", "0").env("SLURM_NTASKS", "1");
    // A worker that knows when its job ends does not ask the scheduler.
    command.env("SLURM_JOB_END_TIME", "4102444800");
    command.output().unwrap();
    dashboard.wait_for("exit code 1");
    assert_eq!(world.read("calls"), "squeue\n");
    dashboard.press("q");
    assert_eq!(dashboard.end(), Some(0));
}
