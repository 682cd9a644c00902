//! `plot`: the text of terminals whole, what is in the files, what they refuse; and curves in the tables of `best` and `compare`.

use std::fs;

use crate::support::world::World;

/// Three rates, two widths, three seeds, four epochs. `time_s` halves with twice the width.
const PLAN: &str = r#"
version = 1
[sweep]
name = "s"
[run]
command = ["sh", "-c", '''
for epoch in 1 2 3 4; do
  echo "{\"epoch\": $epoch, \"loss\": $(( {{ lr }} * 10 + {{ width }} + {{ seed }} + 8 / epoch ))}" >> $HPCSWEEP_METRICS
done
echo "{\"epoch\": 4, \"loss\": $(( {{ lr }} * 10 + {{ width }} + {{ seed }} )), \"time_s\": $((64 / {{ width }}))}" >> $HPCSWEEP_METRICS
''']
[grid]
lr = [1, 2, 3]
width = [1, 2]
[replicates]
count = 3
"#;

fn sweep() -> World {
    let world = World::new();
    world.local(PLAN, &["-q"]);
    world
}

#[test]
fn every_kind_is_drawn_in_the_terminal() {
    let world = sweep();
    let shown = |args: &[&str]| world.run(&[&["plot"], args, &["--term"]].concat()).whole();
    assert_eq!(shown(&["curves", "-m", "loss", "--by", "lr"]), CURVES);
    assert_eq!(shown(&["heatmap", "-m", "loss", "--min"]), HEATMAP);
    assert_eq!(shown(&["effects", "-m", "loss"]), EFFECTS);
    assert_eq!(shown(&["scaling", "-m", "time_s", "--x", "width"]), SCALING);
    assert_eq!(shown(&["box", "-m", "loss", "--x", "lr"]), BOX);
}

const CURVES: &str = "\
loss
   │⣀⣀
 40┤  ⠉⠉⠉⠒⠒⠒⠤⠤⠤⣀⣀⣀⡀
   │              ⠈⠉⠉⠑⠒⠒⠢⠤⠤⢄⣀⣀⣀⡀
   │                           ⠈⠉⠉⠉⠉⠑⠒⠒⠒⠒⠢⠤⠤⠤⠤⢄⣀⣀⣀⣀⡀
   │                                               ⠈⠉⠉⠉⠉⠉⠉⠉⠉⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠢⠤⠤⠤⠤⠤⠤c
   │
 30┤⠉⠑⠒⠒⠢⠤⠤⣀⣀⣀
   │          ⠉⠉⠉⠒⠒⠢⠤⠤⢄⣀⣀
   │                     ⠉⠉⠉⠒⠒⠒⠒⠢⠤⠤⠤⠤⠤⢄⣀⣀⣀⣀⣀⡀
   │                                        ⠈⠉⠉⠉⠉⠉⠑⠒⠒⠒⠒⠒⠒⠒⠒⠒⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⢄⣀⣀⣀⣀⣀⣀b
   │
   │⠒⠢⠤⠤⢄⣀⣀
 20┤       ⠉⠉⠉⠒⠒⠒⠤⠤⢄⣀⣀⡀
   │                  ⠈⠉⠉⠒⠒⠒⠤⠤⠤⠤⢄⣀⣀⣀⣀⣀⡀
   │                                  ⠈⠉⠉⠉⠉⠉⠑⠒⠒⠒⠒⠒⠢⠤⠤⠤⠤⠤⠤⠤⠤⠤⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⡀      a
   │                                                                    ⠈⠉⠉⠉⠉⠉⠉
   └┬────────────────────────┬────────────────────────┬───────────────────────┬
    1                        2                        3                       4
                                                                          epoch
   a lr = 1
   b lr = 2
   c lr = 3
mean of 6 trials
averaged over `width` and `seed`
exit code 0
";

const HEATMAP: &str = "\
width
    2     14   ▒▒ 24   ██ 34
    1     13*  ▒▒ 23   ██ 33
   lr  1       2       3
loss, from 13 (light) to 34 (dark); * the best
mean of 3 trials
averaged over `seed`
the best is lr=1 width=1
exit code 0
";

const EFFECTS: &str = "\
part of the variance of loss (%)
   lr █████████████████████████████████████████████ 98.6
width ▏ 0.4
sums of squares of a complete grid of 18 trials
0.0 % is noise, and 1.0 % what repetitions have in common
averaged over `seed`
exit code 0
";

const SCALING: &str = "\
time_s
   │   ⢀⡀
   │    ⠈⠑⠢⠤⣀
 60┤         ⠉⠓⠢⢄⣀
   │              ⠉⠒⠤⢄⡀
   │                  ⠈⠑⠒⠤⣀⡀
   │                       ⠈⠑⠲⠤⣀
 50┤                            ⠉⠓⠢⢄⣀
   │                                 ⠉⠒⠤⢄⡀
   │                                     ⠉⠑⠒⠤⣀
   │                                          ⠉⠑⠢⢤⣀
 40┤                                               ⠉⠒⠦⢄⡀
   │                                                   ⠈⠉⠒⠤⢄⡀
   │                                                        ⠈⠑⠒⠤⣀
   │                                                             ⠉⠑⠢⢤⣀
   │                                                                  ⠉⠒⠢⢄⡀
   │                                                                      ⠈⠁
   └───┬───────────────────────────────────────────────────────────────────┬───
       1                                                                   2
                                                                          width
dots: ideal scaling
geometric mean of 9 trials
efficiency from width 1 to 2: 100 %
averaged over `lr` and `seed`
exit code 0
";

const BOX: &str = "\
lr
 1 │   ├─▒▒┃▒──┤                                                          n=6
 2 │                              ├──▒┃▒──┤                               n=6
 3 │                                                         ├──▒┃▒▒─┤    n=6
   └───────────┬────────────┬─────────────┬─────────────┬────────────┬───
              15           20            25            30           35
                                                                     loss
6 trials each: median, quartiles, and whiskers to the last value within 1.5 interquartile ranges
exit code 0
";

/// The texts of an SVG in order; panics if it is not well-formed.
fn texts(svg: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).unwrap();
    let all = document.descendants().filter(|node| node.has_tag_name("text"));
    all.map(|node| node.text().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_picture_says_what_its_axes_and_lines_are() {
    let world = sweep();
    let texts = |args: &[&str]| {
        world.run(&[&["plot"], args, &["-o", "p.svg"]].concat()).ok();
        texts(&world.read("p.svg"))
    };
    let all = texts(&["curves", "-m", "loss", "--by", "lr", "--title", "Loss & rate"]);
    assert_eq!(all[..7], ["Loss & rate", "lr", "1", "2", "3", "epoch", "loss"]);
    let all = texts(&["curves", "-m", "loss", "--x-label", "Epochs", "--y-label", "Training loss"]);
    assert!(all.contains(&"lr=1 width=2".to_owned()), "{all:?}");
    assert!(
        all.contains(&"Epochs".to_owned()) && all.contains(&"Training loss".to_owned()),
        "{all:?}"
    );
    let all = texts(&["heatmap", "-m", "loss", "--min", "--y-label", "Loss"]);
    assert_eq!(all[..8], ["lr", "width", "13", "23", "33", "14", "24", "34"]);
    assert_eq!(all.last().unwrap(), "Loss");
    let all = texts(&["effects", "-m", "loss"]);
    assert_eq!(all[0], "part of the variance of loss (%)");
    assert_eq!(all[all.len() - 2..], ["lr", "width"]);
    let all = texts(&["scaling", "-m", "time_s", "--x", "width"]);
    assert_eq!(all[..4], ["measured", "ideal", "width", "time_s"]);
    let all = texts(&["box", "-m", "loss", "--x", "lr"]);
    assert_eq!(all[..5], ["lr", "loss", "1", "2", "3"]);
}

#[test]
fn a_logarithmic_axis_has_the_band_of_the_logarithms() {
    let world = World::new();
    // Around the mean of 0.01 and 1, a standard deviation reaches below 0.
    let code = r#"for epoch in 1 2; do echo "{\"epoch\": $epoch, \"loss\": $((HPCSWEEP_PARAM_SEED == 1 ? 1 : 100))e-2}" >> $HPCSWEEP_METRICS; done"#;
    world.local(
        &crate::support::plans::shell(code, "[grid]\nx = [1, 2]\n[replicates]\ncount = 2\n"),
        &["-q"],
    );
    let drawn = |more: &[&str]| {
        world.run(&[&["plot", "curves", "-m", "loss", "-o", "p.svg"], more].concat()).whole()
    };
    for (more, says) in [
        (&[][..], "mean of 2 trials; around it one standard deviation"),
        (&["--log-y"], "geometric mean of 2 trials; around it one geometric standard deviation"),
        (
            &["--log-y", "--band", "ci"],
            "geometric mean of 2 trials; around it the 95 % interval of the geometric mean",
        ),
    ] {
        assert_eq!(
            drawn(more),
            format!(
                "curves of `loss` in p.svg\nfor its caption: {says}; averaged over `seed`\nexit code 0\n"
            )
        );
    }
    let world = sweep();
    let ran = world.run(&["plot", "scaling", "-m", "time_s", "--x", "width", "-o", "p.svg"]);
    assert!(
        ran.whole()
            .contains(": geometric mean of 9 trials; around it one geometric standard deviation;"),
        "{}",
        ran.whole()
    );
}

#[test]
fn a_heat_map_of_random_numbers_has_ranges_and_says_them() {
    let world = World::new();
    let code = r#"echo "{\"loss\": $HPCSWEEP_TRIAL}" >> $HPCSWEEP_METRICS"#;
    let both: Vec<String> =
        (1..=12).map(|i| format!("[[trials]]\nlr = 0.{i:02}\nwidth = {}\n", 100 - i)).collect();
    world.local(&crate::support::plans::shell(code, &both.concat()), &["-q"]);
    let drawn = world.run(&["plot", "heatmap", "-m", "loss", "--min", "--term"]);
    assert_eq!(drawn.whole(), RANGES);
    // More values than fit, beside a few others.
    let many: Vec<String> = (1..=41).map(|i| i.to_string()).collect();
    let axes = format!("[grid]\na = [{}]\nb = [1, 2]\n", many.join(", "));
    let world = World::new();
    world.local(&crate::support::plans::shell(code, &axes), &["-q"]);
    let drawn = world.run(&["plot", "heatmap", "-m", "loss", "-o", "p.svg"]).whole();
    assert_eq!(
        drawn,
        "heatmap of `loss` in p.svg\nfor its caption: mean of 4 to 5 trials; `a` has 41 values, in 10 ranges with about as many each: \
         1 to 4, 5 to 8, 9 to 12, 13 to 16, 17 to 20, 21 to 24, 25 to 28, 29 to 32, 33 to 36, 37 to 41\nexit code 0\n"
    );
    // Texts have no ranges.
    let words: Vec<String> = (1..=41).map(|i| format!("\"w{i}\"")).collect();
    let axes = format!("[grid]\na = [{}]\nb = [1, 2]\n", words.join(", "));
    let world = World::new();
    world.local(&crate::support::plans::shell(code, &axes), &["-q"]);
    assert_eq!(
        world.run(&["plot", "heatmap", "-m", "loss", "--term"]).whole(),
        "error: `a` has 41 values, and 40 fit beside each other\nhint: choose fewer trials: `--where`\nexit code 2\n"
    );
}

const RANGES: &str = "\
width
98 to 99    *
      97
      96              ░░
      95                  ░░
      94                  ▒▒
92 to 93                      ▒▒  ▓▓
      91                              ▓▓
      90                                  ██
      89                                      ██
      88                                      ██
      lr  0.01    0.03    0.05 to 0.06    0.1 0.11
loss, from 0 (light) to 11 (dark); * the best
mean of 1 trial
`lr` has 12 values, in 10 ranges with about as many each: 0.01, 0.02, 0.03, 0.04, 0.05 to 0.06, 0.07, 0.08, 0.09, 0.1, 0.11 to 0.12
`width` has 12 values, in 10 ranges with about as many each: 88, 89, 90, 91, 92 to 93, 94, 95, 96, 97, 98 to 99
the best is lr=0.01 width=98 to 99
empty cells have no finished trial
exit code 0
";

#[test]
fn files_are_what_their_endings_say_and_two_runs_write_the_same_bytes() {
    let world = sweep();
    for (name, head) in
        [("p.svg", &b"<svg "[..]), ("p.png", b"\x89PNG\r\n\x1a\n"), ("p.pdf", b"%PDF-")]
    {
        let args = ["plot", "curves", "-m", "loss", "--min", "-o", name];
        assert_eq!(
            world.run(&args).whole(),
            format!(
                "curves of `loss` in {name}\nfor its caption: mean of 3 trials; around it one standard deviation; averaged over `seed`\nexit code 0\n"
            )
        );
        let first = fs::read(world.path(name)).unwrap();
        assert!(first.starts_with(head), "{name}");
        world.run(&args).ok();
        assert!(fs::read(world.path(name)).unwrap() == first, "{name} differs from run to run");
    }
    let svg = world.read("p.svg");
    assert!(
        svg.contains("@font-face{font-family:Arimo;src:url(data:font/ttf;base64,AAEAAAA"),
        "{svg:.300}"
    );
    assert!(
        svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"240.94pt\""),
        "{svg:.80}"
    );
    // 85 mm at 300 dots an inch, which the chunk behind the head says.
    let png = fs::read(world.path("p.png")).unwrap();
    assert_eq!(u32::from_be_bytes(png[16..20].try_into().unwrap()), 1004);
    assert_eq!(&png[37..41], b"pHYs");
    let pdf = String::from_utf8_lossy(&fs::read(world.path("p.pdf")).unwrap()).into_owned();
    for part in ["/FontFile2", "+Arimo", "/ToUnicode"] {
        assert!(pdf.contains(part), "{part}");
    }
    // A width of one's own.
    world.run(&["plot", "box", "-m", "loss", "--x", "lr", "--width", "7in", "-o", "w.png"]).ok();
    let png = fs::read(world.path("w.png")).unwrap();
    assert_eq!(u32::from_be_bytes(png[16..20].try_into().unwrap()), 2100);
}

#[test]
fn values_of_a_hostile_trial_stay_text() {
    let hostile = "</text><script>alert(1)</script>";
    let world = World::new();
    let word = serde_json::json!([hostile, "a\u{1b}[31m\u{202e}b"]);
    let plan = format!(
        "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"sh\", \"-c\", '''\nfor step in 1 2; do echo \"{{\\\"step\\\": $step, \
         \\\"loss\\\": $step}}\" >> $HPCSWEEP_METRICS; done\n''']\n[grid]\nword = {word}\n"
    );
    world.local(&plan, &["-q"]);
    for kind in ["curves", "box"] {
        world.run(&["plot", kind, "-m", "loss", "--title", hostile, "-o", "p.svg"]).ok();
        let svg = world.read("p.svg");
        assert!(
            !svg.contains("<script") && !svg.contains('\u{1b}') && !svg.contains('\u{202e}'),
            "{svg}"
        );
        let all = texts(&svg);
        assert_eq!(all[0], hostile);
        assert!(
            all[1..].iter().any(|text| text == hostile || text.starts_with("</text><scrip")),
            "{all:?}"
        );
        let shown = world.run(&["plot", kind, "-m", "loss", "--term"]);
        assert!(!shown.ok().contains(['\u{1b}', '\u{202e}']), "{}", shown.out);
    }
}

#[test]
fn what_cannot_be_drawn_is_said_and_leaves_no_file() {
    let world = sweep();
    for (args, says) in [
        (
            &["curves", "-m", "loss"][..],
            "error: where is the picture to be drawn?\nhint: name a file, `-o curves.svg` (or .png, .pdf), or draw in the terminal: `--term`\n",
        ),
        (
            &["curves", "-m", "loss", "-o", "p.gif"],
            "error: `.gif` is no format of pictures\nhint: end the name in .svg, .png or .pdf\n",
        ),
        (
            &["curves", "-m", "loss", "-o", "p"],
            "error: `p` has no ending that says how to store a picture\nhint: end the name in .svg, .png or .pdf\n",
        ),
        (
            &["curves", "-m", "los", "-o", "p.svg"],
            "error: no trial has a metric `los`\nhint: did you mean `loss`?\n",
        ),
        (
            &["box", "-m", "loss", "--x", "widht", "-o", "p.svg"],
            "error: no trial has a parameter `widht`\nhint: did you mean `width`?\n",
        ),
        (
            &["box", "-m", "loss", "-o", "p.svg"],
            "error: which axis? the trials differ in `lr` and `width`\nhint: name it: `--x lr`\n",
        ),
        (
            &["heatmap", "-m", "loss", "--x", "lr", "--y", "lr", "-o", "p.svg"],
            "error: `lr` cannot be both axes\nhint: name two\n",
        ),
        (
            &["box", "-m", "loss", "--y", "lr", "-o", "p.svg"],
            "error: `--y` says nothing about `box`\nhint: each box has all trials of its value\n",
        ),
        (
            &["heatmap", "-o", "p.svg"],
            "error: `heatmap` is drawn of a metric\nhint: name one, such as `--metric loss`; `hpcsweep collect --columns` lists them\n",
        ),
        (
            &["curves", "-m", "time_s", "-o", "p.svg"],
            "error: no finished trial has logged `time_s` more than once\nhint: a learning curve needs a line of metrics for each step: `hpcsweep collect --steps` shows them\n",
        ),
        (
            &["curves", "-m", "loss", "--by", "trial", "-o", "p.svg"],
            "error: 18 settings, of which 7 can have a colour each\nhint: say `--min` or `--max` to have those of the best, or make fewer settings: `--by NAME`\n",
        ),
        (
            &["box", "-m", "loss", "--x", "lr", "--width", "15mm", "-o", "p.svg"],
            "error: the picture is too small for its labels and what is to be seen\nhint: make it larger, 85 mm is the width of a column: `--width 85mm`, `--height 60mm`\n",
        ),
    ] {
        let ran = world.run(&[&["plot"], args].concat());
        assert_eq!(ran.whole(), format!("{says}exit code 2\n"), "{args:?}");
        assert!(!world.exists("p.svg"), "{args:?}");
    }
    let failed = World::new();
    failed.local(
        "version = 1\n[sweep]\nname = \"f\"\n[run]\ncommand = [\"false\"]\n[grid]\nx = [1, 2]\n",
        &["-q"],
    );
    assert_eq!(
        failed.run(&["plot", "curves", "-m", "loss", "--term"]).whole(),
        "error: no trial has finished: there is nothing to draw\nhint: `hpcsweep status results/f` shows how the trials stand\nexit code 2\n"
    );
}

#[test]
fn tables_have_curves_where_trials_have_steps_and_only_for_people() {
    let world = sweep();
    let ran = world.run(&["best", "-m", "loss", "--min", "-n", "2"]);
    let lines: Vec<&str> = ran.ok().lines().collect();
    assert_eq!(
        lines[..3],
        [
            "lr  width  loss  95 % interval  sd  n  p  curve  trials",
            " 1      1  13.0  [10.7, 15.7]    1  3     █▄▂▁   0-2",
            " 1      2  14.0  [11.7, 16.7]    1  3  1  █▄▂▁   3-5",
        ]
    );
    let json = world.run(&["best", "-m", "loss", "--min", "--json"]);
    assert!(!json.ok().contains("curve"), "{}", json.out);
    let ran = world.run(&["compare", "lr=1", "lr=2", "-m", "loss"]);
    assert!(ran.ok().lines().next().unwrap().ends_with("  curve"), "{}", ran.out);
    assert!(ran.out.lines().nth(1).unwrap().ends_with("  █▄▂▁"), "{}", ran.out);
    // The time is logged once.
    let ran = world.run(&["best", "-m", "time_s", "--min"]);
    assert!(!ran.ok().contains("curve"), "{}", ran.out);
}

#[test]
fn a_heat_map_that_is_too_wide_for_the_terminal_has_shades_alone() {
    let world = World::new();
    let code = r#"echo "{\"loss\": 0.9999$HPCSWEEP_PARAM_A}" >>$HPCSWEEP_METRICS"#;
    let axes = "[grid]\na = [1, 2, 3, 4, 5, 6, 7, 8, 9]\nb = [1, 2]\n";
    world.local(&crate::support::plans::shell(code, axes), &["-q"]).ok();
    let drawn = world.run(&["plot", "heatmap", "-m", "loss", "--term"]);
    assert_eq!(
        drawn.ok(),
        "\
b
2          ░░  ░░  ▒▒  ▓▓  ▓▓  ██  ██
1          ░░  ░░  ▒▒  ▓▓  ▓▓  ██  ██
a  1   2   3   4   5   6   7   8   9
loss, from 0.99991 (light) to 0.99999 (dark)
mean of 1 trial
"
    );
}

#[test]
fn values_that_read_alike_have_different_labels() {
    let world = World::new();
    let code = "echo \"{\\\"loss\\\": $HPCSWEEP_TRIAL}\" >>$HPCSWEEP_METRICS";
    let plan = crate::support::plans::shell(code, "[grid]\nx = [1, 1.0, \"1\", 2]\n");
    world.local(&plan, &["-q"]);
    let ran = world.run(&["plot", "box", "-m", "loss", "--term"]);
    let labels: Vec<&str> =
        ran.ok().lines().filter_map(|line| Some(line.split_once('│')?.0.trim())).collect();
    assert_eq!(labels, ["1", "1.0", "\"1\"", "2"], "{}", ran.whole());
}

#[test]
fn a_metric_that_was_logged_once_has_no_curve_whatever_is_asked() {
    let world = World::new();
    let code = "echo \"{\\\"loss\\\": $HPCSWEEP_TRIAL}\" >>$HPCSWEEP_METRICS";
    world.local(
        &crate::support::plans::shell(code, "[grid]\nx = [1, 2, 3, 4, 5, 6, 7, 8, 9]\n"),
        &["-q"],
    );
    for more in [&[][..], &["--min"]] {
        let ran = world.run(&[&["plot", "curves", "-m", "loss", "--term"], more].concat());
        assert_eq!(
            ran.whole(),
            "error: no finished trial has logged `loss` more than once\n\
             hint: a learning curve needs a line of metrics for each step: `hpcsweep collect --steps` shows them\n\
             exit code 2\n"
        );
    }
}
