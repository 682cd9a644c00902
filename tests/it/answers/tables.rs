//! Answers of `collect` in other forms: Parquet and Arrow with types and a data dictionary, Markdown; columns that are
//! chosen and sorted; the trials of the plan at hand; attempts.

use std::fs::File;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    DurationMicrosecondType, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::FileReader;
use arrow_schema::{DataType, SchemaRef, TimeUnit};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Map, Value, json};

use crate::support::plans::shell;
use crate::support::world::World;

/// The columns of a file with their types, and its rows.
struct Read {
    schema: SchemaRef,
    rows: Vec<Map<String, Value>>,
}

impl Read {
    fn of(schema: SchemaRef, batches: impl Iterator<Item = RecordBatch>) -> Self {
        let mut rows = Vec::new();
        for batch in batches {
            for row in 0..batch.num_rows() {
                let cells = schema.fields().iter().zip(batch.columns());
                let cells = cells.map(|(field, array)| (field.name().clone(), value(array, row)));
                rows.push(cells.collect());
            }
        }
        Self { schema, rows }
    }

    fn parquet(world: &World, name: &str) -> Self {
        let reader =
            ParquetRecordBatchReaderBuilder::try_new(File::open(world.path(name)).unwrap())
                .unwrap();
        let schema = reader.schema().clone();
        Self::of(schema, reader.build().unwrap().map(Result::unwrap))
    }

    fn arrow(world: &World, name: &str) -> Self {
        let reader = FileReader::try_new(File::open(world.path(name)).unwrap(), None).unwrap();
        Self::of(reader.schema(), reader.map(Result::unwrap))
    }

    /// Names and types.
    fn types(&self) -> String {
        let shown = |field: &std::sync::Arc<arrow_schema::Field>| {
            format!("{}: {}", field.name(), shown(field.data_type()))
        };
        self.schema.fields().iter().map(shown).collect::<Vec<_>>().join("\n")
    }

    /// These columns of all rows.
    fn cells(&self, names: &[&str]) -> Value {
        let cells = |row: &Map<String, Value>| -> Value {
            names.iter().map(|name| row[*name].clone()).collect::<Vec<Value>>().into()
        };
        self.rows.iter().map(cells).collect::<Vec<Value>>().into()
    }
}

/// A type in a few words.
fn shown(of: &DataType) -> String {
    match of {
        DataType::List(item) => format!("[{}]", shown(item.data_type())),
        DataType::Struct(all) => {
            let member = |field: &std::sync::Arc<arrow_schema::Field>| {
                format!("{}: {}", field.name(), shown(field.data_type()))
            };
            format!("{{{}}}", all.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        DataType::Dictionary(key, words) => format!("{key} of {words}"),
        DataType::Duration(TimeUnit::Microsecond) => "duration".to_owned(),
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) => format!("time {zone}"),
        other => other.to_string(),
    }
}

/// A cell as JSON; a duration and a time in seconds.
fn value(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Boolean => array.as_boolean().value(row).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        DataType::Float64 => {
            let number = array.as_primitive::<Float64Type>().value(row);
            if number.is_finite() { number.into() } else { number.to_string().into() }
        }
        DataType::Utf8 => array.as_string::<i32>().value(row).into(),
        DataType::Dictionary(..) => {
            let all = array.as_dictionary::<Int32Type>();
            value(all.values(), all.keys().value(row) as usize)
        }
        DataType::Duration(_) => {
            (array.as_primitive::<DurationMicrosecondType>().value(row) as f64 / 1e6).into()
        }
        DataType::Timestamp(..) => {
            (array.as_primitive::<TimestampMicrosecondType>().value(row) as f64 / 1e6).into()
        }
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            (0..items.len()).map(|i| value(&items, i)).collect()
        }
        DataType::Struct(fields) => {
            let all = fields.iter().zip(array.as_struct().columns());
            all.map(|(field, array)| (field.name().clone(), value(array, row))).collect()
        }
        other => panic!("no column has the type {other}"),
    }
}

/// A sweep of four trials, the last of which fails, whose parameters and metrics are of all types.
fn sweep() -> World {
    let world = World::new();
    let code = r#"case $HPCSWEEP_PARAM_N in
            1) echo '{"step": 1, "loss": 3, "mixed": 1, "ok": true}
                     {"step": 2, "loss": 0.5, "per_class": [1, 2], "boxes": [{"x": 1}, {"y": "a"}]}' ;;
            2) echo '{"step": 1, "loss": NaN, "mixed": "one", "per_class": [0.5, NaN], "boxes": []}' ;;
            3) echo '{"step": 1, "loss": 1, "mixed": [1], "per_class": [], "none": {}}' ;;
            4) exit 3 ;;
        esac >>$HPCSWEEP_METRICS"#;
    let rest = "[defaults]\nshape = [3, 3]\nname = \"a, b\"\n[grid]\nn = [1, 2, 3, 4]\n";
    assert_eq!(world.local(&shell(code, rest), &["-q"]).code, 1);
    world
}

const TYPES: &str = "\
trial: Int64
task_id: Utf8
link: Int64
state: Int32 of Utf8
cause: Int32 of Utf8
exit_code: Int64
attempts: Int64
duration_s: duration
last_duration_s: duration
host: Utf8
peak_memory: Int64
cpu_s: duration
read_bytes: Int64
written_bytes: Int64
job: Utf8
shape: [Int64]
name: Utf8
n: Int64
step: Int64
loss: Float64
loss.min: Float64
loss.max: Float64
mixed: Utf8
ok: Boolean
per_class: [Float64]
boxes: [{x: Int64, y: Utf8}]
none: Utf8";

#[test]
fn files_with_types_hold_every_value_with_the_type_of_its_column() {
    let world = sweep();
    for (name, read) in
        [("t.parquet", Read::parquet as fn(&World, &str) -> Read), ("t.arrow", Read::arrow)]
    {
        let ran = world.run(&["collect", "-o", name]);
        assert_eq!(ran.whole(), format!("4 rows in {name}\nexit code 0\n"));
        let read = read(&world, name);
        assert_eq!(read.types(), TYPES, "{name}");
        let names = [
            "trial",
            "state",
            "cause",
            "shape",
            "loss",
            "mixed",
            "ok",
            "per_class",
            "boxes",
            "none",
        ];
        assert_eq!(
            read.cells(&names),
            json!([
                [0, "done", null, [3, 3], 0.5, "1", true, [1.0, 2.0], [{"x": 1, "y": null}, {"x": null, "y": "a"}], null],
                [1, "done", null, [3, 3], "NaN", "one", null, [0.5, "NaN"], [], null],
                [2, "done", null, [3, 3], 1.0, "[1]", null, [], null, "{}"],
                [3, "failed", "exit-code", [3, 3], null, null, null, null, null, null],
            ]),
            "{name}"
        );
        let lines = world.run(&["collect", "--format", "jsonl"]);
        for (row, line) in read.rows.iter().zip(lines.ok().lines()) {
            let line: Value = serde_json::from_str(line).unwrap();
            for name in ["duration_s", "peak_memory", "cpu_s", "host", "attempts"] {
                assert_eq!(row[name].as_f64(), line[name].as_f64(), "{name}");
                assert!(!row[name].is_null(), "{name}");
            }
        }
    }
    let ran = world
        .command(crate::support::world::PROGRAM)
        .args(["collect", "--format", "parquet"])
        .output();
    assert_eq!(ran.unwrap().stdout, std::fs::read(world.path("t.parquet")).unwrap());
}

#[test]
fn a_file_says_what_its_columns_mean() {
    let world = sweep();
    world.run(&["collect", "-o", "t.parquet", "--columns", "trial,duration_s,shape,loss.min"]).ok();
    world.run(&["collect", "-o", "t.arrow", "--columns", "trial,duration_s,shape,loss.min"]).ok();
    let expected = json!([
        {"column": "trial", "meaning": "number of the trial in its sweep, from 0", "unit": null, "source": "plan"},
        {"column": "duration_s", "meaning": "time of all attempts of the learning curve together", "unit": "us",
         "source": "record"},
        {"column": "shape", "meaning": "parameter `shape`", "unit": null, "source": "parameter"},
        {"column": "loss.min", "meaning": "least value of `loss` over all steps", "unit": null, "source": "metric"},
    ]);
    for read in [Read::parquet(&world, "t.parquet"), Read::arrow(&world, "t.arrow")] {
        let about: Value = serde_json::from_str(&read.schema.metadata()["hpcsweep"]).unwrap();
        assert_eq!(about["columns"], expected);
        assert_eq!(about["sweeps"], json!([world.path("results/s")]));
        let field = read.schema.field(1);
        let said = ["meaning", "unit", "source"].map(|name| field.metadata()[name].as_str());
        assert_eq!(said, ["time of all attempts of the learning curve together", "us", "record"]);
    }
    let file = File::open(world.path("t.parquet")).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let pairs = reader.metadata().file_metadata().key_value_metadata().unwrap().clone();
    let keys: Vec<&str> = pairs.iter().map(|pair| pair.key.as_str()).collect();
    assert_eq!(keys.iter().filter(|key| **key == "hpcsweep").count(), 1, "{keys:?}");
}

#[test]
fn a_table_without_rows_is_a_whole_file_and_says_so() {
    let world = sweep();
    for (name, read) in
        [("t.parquet", Read::parquet as fn(&World, &str) -> Read), ("t.arrow", Read::arrow)]
    {
        let ran = world.run(&["collect", "--where", "n > 9", "-o", name]);
        let said = format!("0 rows in {name}\nno rows: no trial is meant\nexit code 0\n");
        assert_eq!(ran.whole(), said);
        let read = read(&world, name);
        assert_eq!((read.rows.len(), read.schema.field(3).name().as_str()), (0, "state"));
    }
    let chosen = ["--columns", "trial,n,loss", "--sort", "-loss", "--format", "csv"];
    let ran = world.run(&[&["collect", "--where", "n > 9"], &chosen[..]].concat());
    assert_eq!(ran.whole(), "trial,n,loss\nno rows: no trial is meant\nexit code 0\n");
    let ran = world.run(&["collect", "--steps", "3", "--format", "csv"]);
    assert_eq!(
        ran.whole(),
        "trial,task_id\nno rows: no trial that is meant has logged metrics\nexit code 0\n"
    );
    // A file that cannot be written leaves the one before it.
    let before = std::fs::read(world.path("t.parquet")).unwrap();
    let ran = world.run(&["collect", "--columns", "loss,los", "-o", "t.parquet"]);
    let said = "error: there is no column `los`\nhint: did you mean `loss`?\nexit code 2\n";
    assert_eq!(ran.whole(), said);
    assert_eq!(std::fs::read(world.path("t.parquet")).unwrap(), before);
    assert_eq!(world.files("").iter().filter(|name| name.starts_with(['t', '.'])).count(), 2);
}

#[test]
fn columns_are_chosen_and_rows_are_sorted() {
    let world = sweep();
    let csv = |args: &[&str]| {
        let ran = world.run(&[&["collect", "--format", "csv"], args].concat());
        ran.ok().to_owned()
    };
    assert_eq!(
        csv(&["--columns", "n,loss,state", "--sort", "loss"]),
        "n,loss,state\n1,0.5,done\n3,1,done\n2,NaN,done\n4,,failed\n"
    );
    assert_eq!(
        csv(&["--columns=n", "--columns=state", "--sort", "-state,-loss"]),
        "n,state\n4,failed\n3,done\n1,done\n2,done\n"
    );
    // The column need not be among those that are shown.
    assert_eq!(csv(&["--columns", "n", "--sort", "-n", "--where", "n < 3"]), "n\n2\n1\n");
    assert_eq!(
        csv(&["--steps", "--columns", "trial,step,loss", "--sort", "-loss"]),
        "trial,step,loss\n0,1,3\n2,1,1\n0,2,0.5\n1,1,NaN\n"
    );
    let jsonl = world.run(&["collect", "--format", "jsonl", "--columns", "loss,n", "1"]);
    assert_eq!(jsonl.ok(), "{\"loss\":\"nan\",\"n\":2}\n");
    let table = world.run(&["collect", "--columns", "n,loss"]);
    assert_eq!(table.ok(), "n  loss\n1   0.5\n2   nan\n3     1\n4\n");
    for (args, said) in [
        (&["--sort", "lss"][..], "error: there is no column `lss`\nhint: did you mean `loss`?\n"),
        (
            &["--columns", "zzz"],
            "error: there is no column `zzz`\n\
             hint: `--columns` without names, as the last word, lists the columns\n",
        ),
        (&["--columns", "n,n"], "error: column `n` is named twice\n"),
        (&["--format", "records", "--sort", "n"], "error: `--sort` is about tables, not records\n"),
    ] {
        let ran = world.run(&[&["collect"], args].concat());
        assert_eq!(ran.whole(), format!("{said}exit code 2\n"), "{args:?}");
    }
}

#[test]
fn a_condition_about_states_and_metrics_chooses_the_rows_of_every_table() {
    let world = sweep();
    let condition = ["--where", "n > 1 and state == 'done'", "--columns", "trial"];
    for (args, expected) in [
        (&[][..], "trial\n1\n2\n"),
        (&["--steps"], "trial\n1\n2\n"),
        (&["--attempts"], "trial\n1\n2\n"),
    ] {
        let ran = world.run(&[&["collect", "--format", "csv"], &condition[..], args].concat());
        assert_eq!(ran.ok(), expected, "{args:?}");
    }
}

#[test]
fn columns_without_names_are_listed_with_their_meanings() {
    let world = sweep();
    let ran = world.run(&["collect", "results/s", "--steps", "--columns"]);
    assert_eq!(
        ran.whole(),
        "\
column     meaning                                      unit  source
trial      number of the trial in its sweep, from 0           plan
task_id    name of the trial's chain                          plan
step       value of `step` in the line of metrics             metric
loss       value of `loss` in the line of metrics             metric
mixed      value of `mixed` in the line of metrics            metric
ok         value of `ok` in the line of metrics               metric
per_class  value of `per_class` in the line of metrics        metric
boxes      value of `boxes` in the line of metrics            metric
none       value of `none` in the line of metrics             metric
exit code 0
"
    );
    let ran = world.run(&["collect", "--format", "csv", "--columns"]);
    let lines: Vec<&str> = ran.ok().lines().collect();
    assert_eq!(lines.len(), 1 + TYPES.lines().count());
    assert!(
        lines.contains(&"duration_s,time of all attempts of the learning curve together,s,record")
    );
    let ran = world.run(&["collect", "--attempts", "--format", "jsonl", "--columns"]);
    let first = "{\"column\":\"trial\",\"meaning\":\"number of the trial in its sweep, from 0\",\"unit\":null,\
                 \"source\":\"plan\"}\n";
    assert!(ran.ok().starts_with(first), "{}", ran.out);
}

#[test]
fn markdown_shows_text_as_it_is() {
    let world = World::new();
    let rest = "[grid]\nname = [\"a|b\", \"*x*_\\n<y>\"]\n";
    world.local(&shell("true", rest), &["-q"]).ok();
    let ran = world.run(&["collect", "-o", "t.md", "--columns", "trial,name,state"]);
    assert_eq!(ran.whole(), "2 rows in t.md\nexit code 0\n");
    assert_eq!(
        world.read("t.md"),
        "| trial | name | state |\n| --- | --- | --- |\n| 0 | a\\|b | done |\n| 1 | \\*x\\*\\_ \\<y\\> | done |\n"
    );
}

#[test]
fn tables_of_the_plan_at_hand_are_in_its_order() {
    let world = sweep();
    let plan = world.read("plan.toml").replace("[1, 2, 3, 4]", "[4, 9, 2]");
    world.write("plan.toml", &plan);
    let said = "$WORLD/results/s: 1 trial of the plan is not in the sweep yet\n";
    for (args, expected) in [
        (&["plan.toml"][..], "trial,n\n3,4\n1,2\n"),
        (&["plan.toml", "--sort", "n"], "trial,n\n1,2\n3,4\n"),
        (&["plan.toml", "--where", "state == 'done'"], "trial,n\n1,2\n"),
    ] {
        let ran = world.run(
            &[&["collect", "--planned", "--format", "csv", "--columns=trial,n"], args].concat(),
        );
        assert_eq!((ran.ok(), ran.err.as_str()), (expected, said), "{args:?}");
    }
    // Without a plan, that of the sweep's folder.
    let ran = world.run(&["collect", "--planned", "--steps", "--format", "csv", "--columns=trial"]);
    assert_eq!(ran.whole(), "trial\n0\n0\n1\n2\nexit code 0\n");
}

#[test]
fn attempts_are_a_table_of_their_own() {
    let world = World::new();
    let code = "[ $HPCSWEEP_ATTEMPT = 2 ] || exit 3";
    let rest = "[resources]\nmemory = \"2G\"\nwalltime = \"10m\"\n[grid]\na = [1, 2]\n";
    for args in [
        &["submit", "plan.toml", "--local", "-q"][..],
        &["worker", "--pull", "plan.toml", "--slots", "1", "-q"],
    ] {
        let world = if args[0] == "worker" { &World::new() } else { &world };
        world.write("plan.toml", &shell(code, rest).replace("[run]", "[run]\nattempts = 2"));
        world.run(args).ok();
        let ran = world.run(&[
            "collect", "--attempts", "--format", "csv", "--sort", "trial", "--columns",
            "trial,attempt,state,counts,cause,reason,exit_code,asked_nodes,asked_cores,asked_gpus,asked_memory,asked_walltime_s",
        ]);
        assert_eq!(
            ran.whole(),
            "\
trial,attempt,state,counts,cause,reason,exit_code,asked_nodes,asked_cores,asked_gpus,asked_memory,asked_walltime_s
0,1,failed,false,exit-code,exit code 3,3,1,1,0,2147483648,600
0,2,done,true,,,0,1,1,0,2147483648,600
1,1,failed,false,exit-code,exit code 3,3,1,1,0,2147483648,600
1,2,done,true,,,0,1,1,0,2147483648,600
exit code 0
",
            "{args:?}"
        );
        world.run(&["collect", "--attempts", "-o", "a.parquet"]).ok();
        let read = Read::parquet(world, "a.parquet");
        let lines = world.run(&["collect", "--attempts", "--format", "jsonl"]);
        let records = world.run(&["collect", "--format", "records"]);
        let last: Value = serde_json::from_str(records.ok().lines().next().unwrap()).unwrap();
        let own = read.rows.iter().filter(|row| row["trial"] == 0 && row["attempt"] == 2);
        assert_eq!(
            own.map(|row| row["start"].clone()).collect::<Vec<_>>(),
            [last["start"].clone()]
        );
        for (row, line) in read.rows.iter().zip(lines.ok().lines()) {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(row["agent"].is_null(), args[0] == "submit");
            for name in
                ["host", "duration_s", "cpu_user_s", "cpu_system_s", "peak_memory", "version"]
            {
                assert!(!row[name].is_null() && row[name] == line[name], "{name}: {line}");
            }
            for name in ["start", "end"] {
                let (time, text) = (row[name].as_f64().unwrap(), line[name].as_str().unwrap());
                assert!(time > 1.7e9 && text.starts_with("20") && text.ends_with('Z'), "{text}");
            }
        }
    }
}

/// The rows of a query, cells as SQL writes them.
fn query(world: &World, name: &str, sql: &str) -> Vec<String> {
    let database = rusqlite::Connection::open(world.path(name)).unwrap();
    let mut query = database.prepare(sql).unwrap();
    let columns = query.column_count();
    let cell =
        |row: &rusqlite::Row, c: usize| match row.get::<_, rusqlite::types::Value>(c).unwrap() {
            rusqlite::types::Value::Null => "NULL".to_owned(),
            rusqlite::types::Value::Integer(n) => n.to_string(),
            rusqlite::types::Value::Real(n) => format!("{n:?}"),
            rusqlite::types::Value::Text(text) => format!("'{text}'"),
            rusqlite::types::Value::Blob(bytes) => format!("{bytes:?}"),
        };
    let line = |row: &rusqlite::Row| {
        Ok((0..columns).map(|c| cell(row, c)).collect::<Vec<String>>().join(" "))
    };
    query.query_map([], line).unwrap().map(Result::unwrap).collect()
}

#[test]
fn a_sqlite_database_has_the_rows_with_their_types_and_what_the_columns_mean() {
    let world = sweep();
    assert_eq!(
        world.run(&["collect", "-o", "t.sqlite"]).whole(),
        "4 rows in t.sqlite\nexit code 0\n"
    );
    let some =
        "SELECT trial, state, shape, n, loss, \"loss.min\", mixed, ok, per_class FROM trials";
    assert_eq!(
        query(&world, "t.sqlite", some),
        [
            "0 'done' '[3,3]' 1 0.5 0.5 '1' 1 '[1,2]'",
            "1 'done' '[3,3]' 2 NULL NULL 'one' NULL '[0.5,\"nan\"]'",
            "2 'done' '[3,3]' 3 1.0 1.0 '[1]' NULL '[]'",
            "3 'failed' '[3,3]' 4 NULL NULL NULL NULL NULL",
        ]
    );
    // What is not a number does not count in a mean.
    assert_eq!(query(&world, "t.sqlite", "SELECT avg(loss), count(loss) FROM trials"), ["0.75 2"]);
    assert_eq!(
        query(&world, "t.sqlite", "SELECT * FROM columns WHERE name IN ('loss.min', 'cpu_s')"),
        [
            "'cpu_s' 'processor time of the attempt that counts' 's' 'record'",
            "'loss.min' 'least value of `loss` over all steps' NULL 'metric'",
        ]
    );
    let types = "SELECT group_concat(name || ' ' || type, ', ') FROM pragma_table_info('trials') WHERE name \
                 IN ('trial', 'state', 'duration_s', 'peak_memory', 'loss', 'ok', 'per_class')";
    assert_eq!(
        query(&world, "t.sqlite", types),
        [
            "'trial INTEGER, state TEXT, duration_s REAL, peak_memory INTEGER, loss REAL, ok INTEGER, per_class TEXT'"
        ]
    );
    world.run(&["collect", "--steps", "--format", "sqlite", "-o", "steps"]).ok();
    assert_eq!(
        query(&world, "steps", "SELECT trial, step, loss FROM steps")[..2],
        ["0 1 3.0", "0 2 0.5"]
    );
    world.run(&["collect", "--attempts", "-o", "a.db", "0"]).ok();
    assert_eq!(
        query(&world, "a.db", "SELECT trial, start GLOB '20??-??-??T??:??:??.???Z' FROM attempts"),
        ["0 1"]
    );
}

#[test]
fn columns_that_sqlite_takes_for_the_same_have_names_of_their_own() {
    let world = World::new();
    let code = "echo '{\"LR\": 1, \"lr_2\": 2, \"a\\\"b\": 3, \"Trial\": 4}' >>$HPCSWEEP_METRICS";
    world.local(&shell(code, "[grid]\nlr = [0.5]\n"), &["-q"]).ok();
    world.run(&["collect", "-o", "t.db"]).ok();
    assert_eq!(
        query(&world, "t.db", "SELECT lr, LR_3, lr_2, \"a\"\"b\", trial, Trial_2 FROM trials"),
        ["0.5 1 2 3 0 4"]
    );
    assert_eq!(
        query(&world, "t.db", "SELECT name FROM columns WHERE name LIKE 'lr%'"),
        ["'LR_3'", "'lr'", "'lr_2'"]
    );
}
