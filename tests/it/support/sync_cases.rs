//! The cases of `mp_sync_cases.json`, or of a file of the same form in the folder `$HPCSWEEP_CASES`: what
//! each rank sends, as a request of the sync protocol, and what each must get.
//!
//! A case becomes a request here as it does in a program: a value that no program can send becomes the error
//! that the program sends instead. Promises come from the file. If the file gives them in words (maps, uneven
//! lengths), [`joined`] carries the words out without the library.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hpcsweep::run::sync::frame::{Answer, Leaf, Request};
use hpcsweep::run::sync::gather::Flags;
use hpcsweep::run::sync::value::{Dtype, Form, Value};
use serde_json::{Map, Value as Json, json};

use crate::support::world::ROOT;

/// One case: all ranks ask at once.
pub(crate) struct Case {
    /// Name, world size and flags.
    pub(crate) name: String,
    /// What each rank asks for; as many as the world has ranks.
    pub(crate) requests: Vec<Request>,
    pub(crate) expect: Expect,
}

/// What all ranks must get.
#[derive(Debug, PartialEq)]
pub(crate) enum Expect {
    /// This, in the words of the file.
    Result(Json),
    /// The same error, which has these words in it.
    Error(Vec<String>),
    /// Whatever it is, the same.
    Agreement,
}

impl Case {
    /// The requests as messages.
    pub(crate) fn frames(&self) -> Vec<Vec<u8>> {
        let frame = |request: &Request| {
            let mut bytes = Vec::new();
            request.write(&mut bytes).unwrap();
            bytes
        };
        self.requests.iter().map(frame).collect()
    }

    /// Errors in the answers of the ranks.
    pub(crate) fn judge(&self, answers: &[Answer]) -> Result<(), String> {
        let Self { name, requests, expect } = self;
        if answers.len() != requests.len() {
            return Err(format!("{name}: {} answers of {} ranks", answers.len(), requests.len()));
        }
        let is_map = matches!(requests[0], Request::GatherMap(..));
        let got: Vec<Json> = answers.iter().map(|answer| described(answer, is_map)).collect();
        if let Some(rank) = got.iter().position(|other| *other != got[0]) {
            return Err(format!("{name}: rank 0 got {}, rank {rank} {}", got[0], got[rank]));
        }
        let fits = match expect {
            Expect::Agreement => true,
            Expect::Result(result) => got[0] == *result,
            Expect::Error(words) => {
                let error = got[0]["error"].as_str().unwrap_or_default();
                !error.is_empty() && words.iter().all(|word| error.contains(word))
            }
        };
        if fits { Ok(()) } else { Err(format!("{name}: got {}, expected {expect:?}", got[0])) }
    }
}

/// All cases: of the folder `$HPCSWEEP_CASES`, or else of our own.
pub(crate) fn cases() -> Vec<Case> {
    let own = || Path::new(ROOT).join("tests/cases");
    cases_in(&std::env::var_os("HPCSWEEP_CASES").map_or_else(own, PathBuf::from))
}

/// All cases of the file in this folder.
pub(crate) fn cases_in(folder: &Path) -> Vec<Case> {
    let path = folder.join("mp_sync_cases.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let all: Json = serde_json::from_str(&text).unwrap();
    let rows = |section: &str| all[section].as_array().cloned().unwrap_or_default();
    let mut cases: Vec<Case> = rows("cases").iter().map(row).collect();
    let uneven = rows("uneven");
    let inputs = uneven_inputs(&uneven);
    for row in &uneven {
        let known = &inputs[&(text_of(row, "case"), row["world_size"].as_u64().unwrap())];
        cases.push(uneven_row(row, known, &all["uneven_promises"]));
    }
    cases
}

/// A row of `cases`.
fn row(row: &Json) -> Case {
    let inputs = row["input"].as_array().unwrap();
    let name = name(row);
    if row["flags"].is_null() {
        return map_case(name, inputs);
    }
    let note = row["promise_note"].as_str().unwrap_or_default();
    let expect = match &row["promise"] {
        Json::Null if note.contains("clean error on every rank") => Expect::Error(Vec::new()),
        Json::Null => Expect::Agreement,
        promise => Expect::Result(promise.clone()),
    };
    let flags = flags(&row["flags"]);
    let requests = inputs.iter().map(|input| Request::Gather(value(input), flags)).collect();
    Case { name, requests, expect }
}

/// A row of `uneven`, with what each rank sends.
fn uneven_row(row: &Json, inputs: &[Json], promises: &Json) -> Case {
    let name = name(row);
    if row["flags"].is_null() {
        return map_case(name, inputs);
    }
    let flags = flags(&row["flags"]);
    let requests = inputs.iter().map(|input| Request::Gather(value(input), flags)).collect();
    let case = text_of(row, "case");
    let is_meant = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => case.starts_with(start),
        None => case == pattern,
    };
    let words = promises.as_object().unwrap().iter();
    let promise = words.filter(|(names, _)| names.split('/').any(is_meant)).map(|(_, text)| text);
    let promise = promise.map(|text| text.as_str().unwrap()).next().unwrap_or_default();
    let expect = if promise.starts_with("clean error") {
        Expect::Error(vec!["rank 0".to_owned(), "rank 1".to_owned()])
    } else if promise.is_empty() || !flags.concat {
        Expect::Agreement
    } else {
        Expect::Result(joined(inputs, flags))
    };
    Case { name, requests, expect }
}

/// What each rank of each uneven case sends. The file lacks the input of a rank that was killed in every
/// one of its runs: it was one row shorter than another's, or a single number.
fn uneven_inputs(rows: &[Json]) -> BTreeMap<(String, u64), Vec<Json>> {
    let mut known: BTreeMap<(String, u64), Vec<Json>> = BTreeMap::new();
    for row in rows {
        let world = row["world_size"].as_u64().unwrap();
        let inputs = known.entry((text_of(row, "case"), world)).or_default();
        inputs.resize(world as usize, Json::Null);
        for run in row["repeats"].as_array().unwrap() {
            for (input, rank) in inputs.iter_mut().zip(run.as_array().unwrap()) {
                if !rank["input"].is_null() {
                    *input = rank["input"].clone();
                }
            }
        }
    }
    for ((case, _), inputs) in &mut known {
        let longest = inputs.iter().find(|input| !input.is_null()).cloned().unwrap();
        for input in inputs.iter_mut().filter(|input| input.is_null()) {
            *input = if case.contains("scalar_vs") {
                json!({"type": "float", "value": 1.0})
            } else {
                let mut shorter = longest.clone();
                let rows = shorter["value"].as_array_mut().unwrap();
                rows.pop();
                let len = json!(rows.len());
                let place = if shorter["shape"].is_array() { "/shape/0" } else { "/len" };
                *shorter.pointer_mut(place).unwrap() = len;
                shorter
            };
        }
    }
    known
}

/// A case of `mp_sync_dict`, whose promises are words: matched by key, errors that name key and rank.
fn map_case(name: String, inputs: &[Json]) -> Case {
    let maps: Vec<Vec<(Vec<String>, Json)>> = inputs.iter().map(|map| leaves(&[], map)).collect();
    let keys: Vec<BTreeSet<&Vec<String>>> =
        maps.iter().map(|map| map.iter().map(|(key, _)| key).collect()).collect();
    let mut words = Vec::new();
    for key in keys.iter().flatten().collect::<BTreeSet<_>>() {
        for rank in (0..maps.len()).filter(|rank| !keys[*rank].contains(key)) {
            words.extend([format!("`{}`", key.join(".")), rank.to_string()]);
        }
    }
    let is_bad = maps.iter().flatten().any(|(_, leaf)| value(leaf).is_err());
    let expect = if is_bad || !words.is_empty() {
        Expect::Error(words)
    } else {
        let at = |key: &Vec<String>, map: &[(Vec<String>, Json)]| {
            map.iter().find(|(other, _)| other == key).unwrap().1.clone()
        };
        let items = maps[0].iter().map(|(key, _)| {
            let all: Vec<Json> = maps.iter().map(|map| at(key, map)).collect();
            (key.clone(), joined(&all, Flags::default()))
        });
        Expect::Result(nested(items))
    };
    let request = |map: Vec<(Vec<String>, Json)>| {
        let leaves: Vec<Leaf> = map.into_iter().map(|(key, leaf)| (key, value(&leaf))).collect();
        Request::GatherMap(leaves, Flags::default())
    };
    Case { name, requests: maps.into_iter().map(request).collect(), expect }
}

/// The leaves of a described map, in its own order.
fn leaves(path: &[String], map: &Json) -> Vec<(Vec<String>, Json)> {
    let entries = map["value"].as_object().unwrap().iter();
    entries
        .flat_map(|(key, inner)| {
            let path = [path, std::slice::from_ref(key)].concat();
            match inner["type"].as_str() {
                Some("dict") => leaves(&path, inner),
                _ => vec![(path, inner.clone())],
            }
        })
        .collect()
}

/// Items by path, as a described map.
fn nested(items: impl IntoIterator<Item = (Vec<String>, Json)>) -> Json {
    let mut top = json!({"type": "dict", "value": {}});
    for (path, item) in items {
        let mut place = &mut top;
        for step in path {
            let inner = place["value"].as_object_mut().unwrap();
            place = inner.entry(step).or_insert_with(|| json!({"type": "dict", "value": {}}));
        }
        *place = item;
    }
    top
}

/// What joining these must give, by the words of the file and by nothing else: pieces in rank order, plain
/// floats as float32 unless double precision is asked for, floats and whole numbers together as floats.
fn joined(inputs: &[Json], flags: Flags) -> Json {
    let rows = inputs.iter().flat_map(|input| match &input["value"] {
        Json::Array(rows) => rows.clone(),
        number => vec![number.clone()],
    });
    let rows: Vec<Json> = rows.collect();
    let is = |kind: &str| inputs.iter().all(|input| input["type"] == kind);
    let own = || inputs[0]["dtype"].as_str().unwrap().to_owned();
    let dtype = match () {
        () if is("torch.Tensor") => own(),
        () if flags.double_precision => "float64".to_owned(),
        () if is("numpy.ndarray") => own(),
        () if rows.iter().any(|row| row.to_string().contains('.')) => "float32".to_owned(),
        () => "int64".to_owned(),
    };
    fn cast(row: &Json, dtype: &str) -> Json {
        match (row, dtype) {
            (Json::Array(rows), _) => rows.iter().map(|row| cast(row, dtype)).collect(),
            (number, "float32") => json!(f64::from(number.as_f64().unwrap() as f32)),
            (number, "float64") => json!(number.as_f64().unwrap()),
            (other, _) => other.clone(),
        }
    }
    let rows: Vec<Json> = rows.iter().map(|row| cast(row, &dtype)).collect();
    let kind = match () {
        () if flags.return_tensor => "torch.Tensor",
        () if is("numpy.ndarray") => "numpy.ndarray",
        () => return json!({"type": "list", "len": rows.len(), "value": rows}),
    };
    let mut shape = vec![json!(rows.len())];
    shape.extend(rows.first().and_then(|row| row.as_array()).map(|row| json!(row.len())));
    json!({"type": kind, "dtype": dtype, "shape": shape, "value": rows})
}

/// A described value, as a program sends it.
pub(crate) fn value(described: &Json) -> Result<Value, String> {
    let inner = &described["value"];
    let kind = described["type"].as_str().unwrap();
    let (form, dtype) = match kind {
        "float" => (Form::Scalar, Some(Dtype::Float64)),
        "int" => (Form::Scalar, Some(Dtype::Int64)),
        "bool" => (Form::Scalar, Some(Dtype::Bool)),
        "list" | "tuple" => (Form::List, plain_type(inner)?),
        "numpy.ndarray" => (Form::Array, named(described["dtype"].as_str())),
        "torch.Tensor" => (Form::Tensor, named(described["dtype"].as_str())),
        _ => (Form::Number, named(kind.strip_prefix("numpy.").map(|n| n.trim_end_matches('_')))),
    };
    let dtype = dtype.ok_or_else(|| format!("cannot sync a `{kind}` of this type"))?;
    let shape = match &described["shape"] {
        Json::Array(shape) => shape.iter().map(|d| d.as_u64().unwrap()).collect(),
        _ => plain_shape(inner),
    };
    let mut data = Vec::new();
    encode(inner, dtype, &mut data)?;
    let value = Value { form, dtype, shape, data };
    value.check().map_err(|_| "cannot sync lists of different lengths in one".to_owned())?;
    Ok(value)
}

fn named(name: Option<&str>) -> Option<Dtype> {
    Dtype::ALL.into_iter().find(|dtype| Some(dtype.name()) == name)
}

/// The type of a list of plain numbers.
fn plain_type(list: &Json) -> Result<Option<Dtype>, String> {
    Ok(Some(match list {
        Json::Array(rows) => {
            let types = rows.iter().map(plain_type).collect::<Result<Vec<_>, _>>()?;
            types.into_iter().flatten().reduce(Dtype::promote).unwrap_or(Dtype::Float64)
        }
        Json::Bool(_) => Dtype::Bool,
        Json::Number(n) if n.is_f64() => Dtype::Float64,
        Json::Number(_) => Dtype::Int64,
        other => return Err(format!("cannot sync a list with {other} in it")),
    }))
}

/// The shape of a list of lists, by its first ones.
fn plain_shape(list: &Json) -> Vec<u64> {
    let Json::Array(rows) = list else { return Vec::new() };
    let mut shape = vec![rows.len() as u64];
    shape.extend(rows.first().map(plain_shape).unwrap_or_default());
    shape
}

/// Numbers as bytes.
fn encode(numbers: &Json, dtype: Dtype, data: &mut Vec<u8>) -> Result<(), String> {
    if let Json::Array(rows) = numbers {
        return rows.iter().try_for_each(|row| encode(row, dtype, data));
    }
    if dtype.is_complex() {
        let part = if dtype == Dtype::Complex64 { Dtype::Float32 } else { Dtype::Float64 };
        return ["re", "im"].iter().try_for_each(|name| encode(&numbers[name], part, data));
    }
    let wrong = || format!("cannot sync {numbers} as `{}`", dtype.name());
    let whole = match numbers {
        Json::Bool(is) => Some(i64::from(*is)),
        number => number.as_i64(),
    };
    // What JSON has no numbers for is written in words.
    let real = match numbers {
        Json::String(word) => word.parse().ok(),
        _ => numbers.as_f64().or(whole.map(|n| n as f64)),
    };
    if dtype.is_integer() {
        data.extend_from_slice(&whole.ok_or_else(wrong)?.to_le_bytes()[..dtype.size()]);
        return Ok(());
    }
    let real: f64 = real.ok_or_else(wrong)?;
    match dtype {
        Dtype::Float16 => data.extend(half::f16::from_f64(real).to_le_bytes()),
        Dtype::Bfloat16 => data.extend(half::bf16::from_f64(real).to_le_bytes()),
        Dtype::Float32 => data.extend((real as f32).to_le_bytes()),
        _ => data.extend(real.to_le_bytes()),
    }
    Ok(())
}

/// An answer in the words of the file; an error as `{"error": ...}`.
pub(crate) fn described(answer: &Answer, is_map: bool) -> Json {
    let apart = |values: &Vec<Value>| {
        let values: Vec<Json> = values.iter().map(described_value).collect();
        json!({"type": "list", "per_rank": values})
    };
    let mut items: Vec<(Vec<String>, Json)> = match answer {
        Answer::Failed(fault) => return json!({"error": fault.sentence}),
        Answer::Hello { rank, .. } => return json!({"hello": rank}),
        Answer::Joined(all) => all.iter().map(|(k, v)| (k.clone(), described_value(v))).collect(),
        Answer::PerRank(all) => all.iter().map(|(k, v)| (k.clone(), apart(v))).collect(),
    };
    if is_map { nested(items) } else { items.pop().unwrap().1 }
}

fn described_value(value: &Value) -> Json {
    /// The numbers, one list within the other.
    fn nest(shape: &[u64], numbers: &mut impl Iterator<Item = Json>) -> Json {
        match shape {
            [] => numbers.next().unwrap(),
            [rows, inner @ ..] => (0..*rows).map(|_| nest(inner, numbers)).collect(),
        }
    }
    let each = value.data.chunks_exact(value.dtype.size());
    let numbers = nest(&value.shape, &mut each.map(|bytes| number(bytes, value.dtype)));
    let rows = value.shape.first();
    let kind = match value.form {
        Form::Tensor => "torch.Tensor",
        Form::Array => "numpy.ndarray",
        _ => return json!({"type": "list", "len": rows, "value": numbers}),
    };
    json!({"type": kind, "dtype": value.dtype.name(), "shape": value.shape, "value": numbers})
}

fn number(bytes: &[u8], dtype: Dtype) -> Json {
    let float = |x: f64| if x.is_finite() { json!(x) } else { json!(x.to_string()) };
    match (dtype, bytes) {
        (Dtype::Bool, [b]) => json!(*b != 0),
        (Dtype::Uint8, [b]) => json!(b),
        (Dtype::Int8, [b]) => json!(*b as i8),
        (Dtype::Int16, b) => json!(i16::from_le_bytes(b.try_into().unwrap())),
        (Dtype::Int32, b) => json!(i32::from_le_bytes(b.try_into().unwrap())),
        (Dtype::Int64, b) => json!(i64::from_le_bytes(b.try_into().unwrap())),
        (Dtype::Float16, b) => float(half::f16::from_le_bytes(b.try_into().unwrap()).into()),
        (Dtype::Bfloat16, b) => float(half::bf16::from_le_bytes(b.try_into().unwrap()).into()),
        (Dtype::Float32, b) => float(f32::from_le_bytes(b.try_into().unwrap()).into()),
        (Dtype::Float64, b) => float(f64::from_le_bytes(b.try_into().unwrap())),
        (_, b) => {
            let (re, im) = b.split_at(b.len() / 2);
            let part = if re.len() == 4 { Dtype::Float32 } else { Dtype::Float64 };
            json!({"re": number(re, part), "im": number(im, part)})
        }
    }
}

fn flags(row: &Json) -> Flags {
    let is = |name: &str| row[name].as_bool().unwrap();
    Flags {
        double_precision: is("double_precision"),
        concat: is("concat_mp_data"),
        return_tensor: is("return_tensor"),
    }
}

fn name(row: &Json) -> String {
    let empty = Map::new();
    let flags = row["flags"].as_object().unwrap_or(&empty).iter();
    let on: Vec<&str> =
        flags.filter(|(_, on)| **on == true).map(|(name, _)| name.as_str()).collect();
    format!("{} on {} ranks [{}]", text_of(row, "case"), row["world_size"], on.join(" "))
}

fn text_of(row: &Json, field: &str) -> String {
    row[field].as_str().unwrap().to_owned()
}
