//! The cells of a table, packed column by column. A million trials have some twenty million cells: as values of JSON, they
//! took 40 bytes each.
//!
//! A column of at most 255 different values has a byte for each row, any other nine; a column that few rows have holds
//! these rows alone, because programs may give each trial a metric of its own. Parts of a table are made on all threads,
//! and joined in order.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{BuildHasherDefault, Hasher};

use serde_json::Value;

use crate::plan::value::{text_float, write_float};

/// A value of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell<'a> {
    /// There is none.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number beyond those.
    Large(u64),
    /// A finite number that was written with a point or an exponent.
    Float(f64),
    /// A text; also the words for numbers that JSON does not have.
    Text(&'a str),
    /// A list or a table.
    Other(&'a Value),
}

impl<'a> From<&'a Value> for Cell<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(b) => Self::Bool(*b),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(int), _) => Self::Int(int),
                (None, Some(large)) => Self::Large(large),
                (None, None) => number.as_f64().map_or(Self::Null, Self::Float),
            },
            Value::String(text) => Self::Text(text),
            other => Self::Other(other),
        }
    }
}

impl<'a> Cell<'a> {
    /// A whole number.
    pub(super) fn whole(number: u64) -> Self {
        i64::try_from(number).map_or(Self::Large(number), Self::Int)
    }

    /// A number; nothing if JSON does not have it.
    pub(super) fn finite(number: f64) -> Self {
        if number.is_finite() { Self::Float(number) } else { Self::Null }
    }

    /// A number; a text if JSON does not have it.
    pub(super) fn number_of(number: f64) -> Self {
        match number {
            number if number.is_finite() => Self::Float(number),
            number if number.is_nan() => Self::Text("nan"),
            number if number > 0.0 => Self::Text("inf"),
            _ => Self::Text("-inf"),
        }
    }

    /// A whole number of at most 64 bits; the nearest number where it has more.
    pub(super) fn of_whole(whole: i128) -> Self {
        match (i64::try_from(whole), u64::try_from(whole)) {
            (Ok(int), _) => Self::Int(int),
            (_, Ok(large)) => Self::Large(large),
            _ => Self::Float(whole as f64),
        }
    }

    /// The whole number that it is, exact.
    pub(super) fn as_whole(self) -> Option<i128> {
        match self {
            Self::Int(int) => Some(int.into()),
            Self::Large(large) => Some(large.into()),
            _ => None,
        }
    }

    /// The order of two numbers, exact also beyond 2^53; `None` where one is no number.
    pub(crate) fn order(self, other: Cell<'_>) -> Option<Ordering> {
        if let (Some(a), Some(b)) = (self.as_whole(), other.as_whole()) {
            return Some(a.cmp(&b));
        }
        let (a, b) = (self.number()?, other.number()?);
        // Floats that are equal to the nearest one of a whole number of 64 bits are whole as well.
        let exact = |cell: Cell<'_>, number: f64| cell.as_whole().unwrap_or(number as i128);
        let order = a.partial_cmp(&b)?;
        Some(order.then_with(|| exact(self, a).cmp(&exact(other, b))))
    }

    /// Whether there is no value.
    pub fn is_null(self) -> bool {
        self == Cell::Null
    }

    /// The text that it is.
    pub fn as_str(self) -> Option<&'a str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// True or false.
    pub fn as_bool(self) -> Option<bool> {
        if let Self::Bool(b) = self { Some(b) } else { None }
    }

    /// The list or the table that it is.
    pub fn other(self) -> Option<&'a Value> {
        if let Self::Other(value) = self { Some(value) } else { None }
    }

    /// The whole number of 64 bits with a sign that it is.
    pub fn as_i64(self) -> Option<i64> {
        if let Self::Int(int) = self { Some(int) } else { None }
    }

    /// The number that it is in JSON.
    pub fn as_f64(self) -> Option<f64> {
        match self {
            Self::Int(int) => Some(int as f64),
            Self::Large(large) => Some(large as f64),
            Self::Float(float) => Some(float),
            _ => None,
        }
    }

    /// The number that it stands for: also one of those that JSON writes as text.
    pub fn number(self) -> Option<f64> {
        if let Self::Text(text) = self { text_float(text) } else { self.as_f64() }
    }

    /// As text: empty for nothing, lists and tables as JSON.
    pub fn text(self) -> Cow<'a, str> {
        match self {
            Self::Null => Cow::Borrowed(""),
            Self::Text(text) => Cow::Borrowed(text),
            Self::Bool(b) => Cow::Borrowed(if b { "true" } else { "false" }),
            other => {
                let mut text = String::new();
                other.write_in(&mut text);
                Cow::Owned(text)
            }
        }
    }

    /// Adds [`Cell::text`] to a text.
    pub(crate) fn write_in(self, out: &mut String) {
        // A text takes everything.
        let _ = match self {
            Self::Null => Ok(()),
            Self::Text(text) => out.write_str(text),
            Self::Bool(b) => write!(out, "{b}"),
            Self::Int(int) => write!(out, "{int}"),
            Self::Large(large) => write!(out, "{large}"),
            Self::Float(float) => write_float(out, float),
            Self::Other(value) => write!(out, "{value}"),
        };
    }

    /// As the text of a value of JSON.
    pub fn json(self) -> String {
        if let Self::Int(int) = self { int.to_string() } else { self.value().to_string() }
    }

    /// As a value of JSON.
    pub fn value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(b) => b.into(),
            Self::Int(int) => int.into(),
            Self::Large(large) => large.into(),
            Self::Float(float) => float.into(),
            Self::Text(text) => text.into(),
            Self::Other(value) => value.clone(),
        }
    }

    /// Whether both have the same spelling: 0 is not -0, and 1 is not 1.0.
    fn is_same(self, other: Cell<'_>) -> bool {
        match (self, other) {
            (Self::Float(a), Cell::Float(b)) => a.to_bits() == b.to_bits(),
            (Self::Other(_), Cell::Other(_)) => self.text() == other.text(),
            (a, b) => a == b,
        }
    }

    /// A number that is equal for cells which are the same.
    fn hash(self) -> u64 {
        let bytes = |bytes: &[u8]| {
            let mut all = bytes.chunks(8);
            all.try_fold(bytes.len() as u64, |hash, part| {
                let mut word = [0; 8];
                word[..part.len()].copy_from_slice(part);
                Some(mixed(hash ^ u64::from_le_bytes(word)))
            })
        };
        match self {
            Self::Null => 0,
            Self::Bool(b) => 1 + u64::from(b),
            Self::Int(int) => mixed(int as u64),
            Self::Large(large) => mixed(large),
            Self::Float(float) => mixed(!float.to_bits()),
            Self::Text(text) => bytes(text.as_bytes()).unwrap_or(0),
            Self::Other(value) => bytes(value.to_string().as_bytes()).unwrap_or(0),
        }
    }
}

fn mixed(bits: u64) -> u64 {
    let product = u128::from(bits ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    (product as u64) ^ (product >> 64) as u64
}

/// For keys that are hashes.
#[derive(Default)]
pub(super) struct Own(u64);

impl Hasher for Own {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, bits: u64) {
        self.0 = bits;
    }
}

/// Most different values of a column that has them in a list. Code 0 is none.
const MOST_CODES: usize = 255;

/// Cells of a column up to which it holds them alone.
const FEW: usize = 16;

/// One in so many rows has a cell of a column that holds its cells alone.
const SELDOM: usize = 64;

/// A column.
#[derive(Debug)]
pub(super) enum Column {
    /// Cells with their rows, in the order of rows.
    Few(Vec<(u32, Value)>),
    /// Places in a list of values, from 1.
    Coded(Coded),
    /// Each for itself.
    Loose(Loose),
}

#[derive(Debug, Default)]
pub(super) struct Coded {
    codes: Vec<u8>,
    values: Vec<Value>,
    /// The code that was given last, 0 before the first: most rows have the value of the row before.
    last: u8,
    places: HashMap<u64, u8, BuildHasherDefault<Own>>,
}

#[derive(Debug, Default)]
pub(super) struct Loose {
    kinds: Vec<Kind>,
    bits: Vec<u64>,
    /// All texts; the bits of one are its first byte and its length.
    text: String,
    /// What nothing else holds; the bits are its place.
    others: Vec<Value>,
}

/// How the bits of a cell are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    Null,
    False,
    True,
    Int,
    Large,
    Float,
    Text,
    Other,
}

/// Bits of the length of a text.
const LENGTH: u32 = 24;

impl Default for Column {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Column {
    /// The cell of a row.
    pub(super) fn get(&self, row: usize) -> Cell<'_> {
        match self {
            Self::Few(all) => {
                let at = all.binary_search_by_key(&row, |(row, _)| *row as usize);
                at.map_or(Cell::Null, |at| Cell::from(&all[at].1))
            }
            Self::Coded(all) => match all.codes.get(row).copied().unwrap_or(0) {
                0 => Cell::Null,
                code => Cell::from(&all.values[usize::from(code) - 1]),
            },
            Self::Loose(all) => all.get(row),
        }
    }

    /// Gives a row of `rows` a cell; nothing is no cell, and leaves what is there.
    pub(super) fn set(&mut self, row: usize, cell: Cell<'_>, rows: usize) {
        if cell.is_null() {
            return;
        }
        match self {
            Self::Few(all) => {
                let place = all.binary_search_by_key(&row, |(row, _)| *row as usize);
                match place {
                    Ok(at) => all[at].1 = cell.value(),
                    Err(at) => all.insert(at, (row as u32, cell.value())),
                }
                if all.len() > FEW.max(rows / SELDOM) {
                    let all = std::mem::take(all);
                    let mut coded = Coded::default();
                    coded.codes.reserve_exact(rows);
                    *self = Self::Coded(coded);
                    all.iter().for_each(|(row, v)| self.set(*row as usize, v.into(), rows));
                }
            }
            Self::Coded(all) => {
                if let Some(code) = all.code(cell) {
                    grow(&mut all.codes, row);
                    all.codes[row] = code;
                } else {
                    self.loosen(rows).set(row, cell);
                }
            }
            Self::Loose(all) => all.set(row, cell),
        }
    }

    /// Makes it loose.
    fn loosen(&mut self, rows: usize) -> &mut Loose {
        if !matches!(self, Self::Loose(_)) {
            let mut loose = Loose::default();
            loose.kinds.reserve_exact(rows);
            loose.bits.reserve_exact(rows);
            match self {
                Self::Few(all) => {
                    all.iter().for_each(|(row, value)| loose.set(*row as usize, value.into()));
                }
                _ => (0..self.len()).for_each(|row| loose.set(row, self.get(row))),
            }
            *self = Self::Loose(loose);
        }
        match self {
            Self::Loose(loose) => loose,
            _ => unreachable!("made above"),
        }
    }

    /// The row behind the last that may have a cell.
    fn len(&self) -> usize {
        match self {
            Self::Few(all) => all.last().map_or(0, |(row, _)| *row as usize + 1),
            Self::Coded(all) => all.codes.len(),
            Self::Loose(all) => all.kinds.len(),
        }
    }

    /// Adds the cells of a column of a part, of which `places` has the row of each row among `rows`.
    pub(super) fn join(&mut self, part: &Self, places: &[u32], rows: usize) {
        match (&mut *self, part) {
            (Self::Coded(all), Self::Coded(part)) => {
                let codes = part.values.iter().map(|value| all.code(value.into()));
                if let Some(codes) = codes.collect::<Option<Vec<u8>>>() {
                    let coded = part.codes.iter().zip(places).filter(|(code, _)| **code > 0);
                    for (code, row) in coded {
                        grow(&mut all.codes, *row as usize);
                        all.codes[*row as usize] = codes[usize::from(*code) - 1];
                    }
                    return;
                }
            }
            (Self::Few(_) | Self::Coded(_), Self::Loose(_)) => drop(self.loosen(rows)),
            _ => {}
        }
        part.each(|row, cell| self.set(places[row] as usize, cell, rows));
    }

    /// Calls `with` for each cell and its row, in the order of rows.
    pub(super) fn each<'a>(&'a self, mut with: impl FnMut(usize, Cell<'a>)) {
        match self {
            Self::Few(all) => all.iter().for_each(|(row, value)| with(*row as usize, value.into())),
            _ => {
                let cells = (0..self.len()).map(|row| (row, self.get(row)));
                cells.filter(|(_, cell)| !cell.is_null()).for_each(|(row, cell)| with(row, cell));
            }
        }
    }

    /// The rows of its cells, if it holds them alone.
    pub(super) fn few(&self) -> Option<impl Iterator<Item = u32>> {
        match self {
            Self::Few(all) => Some(all.iter().map(|(row, _)| *row)),
            _ => None,
        }
    }
}

fn grow<T: Copy + Default>(all: &mut Vec<T>, row: usize) {
    if row >= all.len() {
        all.resize(row + 1, T::default());
    }
}

impl Coded {
    /// The code of a value, which is added where it is new; `None` where there are too many.
    fn code(&mut self, cell: Cell<'_>) -> Option<u8> {
        let last = usize::from(self.last).checked_sub(1).map(|at| &self.values[at]);
        if last.is_some_and(|last| cell.is_same(last.into())) {
            return Some(self.last);
        }
        let code = self.look_up(cell)?;
        self.last = code;
        Some(code)
    }

    fn look_up(&mut self, cell: Cell<'_>) -> Option<u8> {
        let mut hash = cell.hash();
        loop {
            match self.places.get(&hash) {
                Some(code) if cell.is_same(Cell::from(&self.values[usize::from(*code) - 1])) => {
                    return Some(*code);
                }
                Some(_) => hash = hash.wrapping_add(1),
                None if self.values.len() == MOST_CODES => return None,
                None => {
                    self.values.push(cell.value());
                    let code = self.values.len() as u8;
                    self.places.insert(hash, code);
                    return Some(code);
                }
            }
        }
    }
}

impl Loose {
    fn get(&self, row: usize) -> Cell<'_> {
        let (Some(kind), Some(bits)) = (self.kinds.get(row), self.bits.get(row)) else {
            return Cell::Null;
        };
        match kind {
            Kind::Null => Cell::Null,
            Kind::False => Cell::Bool(false),
            Kind::True => Cell::Bool(true),
            Kind::Int => Cell::Int(*bits as i64),
            Kind::Large => Cell::Large(*bits),
            Kind::Float => Cell::Float(f64::from_bits(*bits)),
            Kind::Text => {
                let (from, len) = ((bits >> LENGTH) as usize, *bits as usize & ((1 << LENGTH) - 1));
                Cell::Text(&self.text[from..from + len])
            }
            Kind::Other => Cell::from(&self.others[*bits as usize]),
        }
    }

    fn set(&mut self, row: usize, cell: Cell<'_>) {
        let (kind, bits) = match cell {
            Cell::Null => return,
            Cell::Bool(false) => (Kind::False, 0),
            Cell::Bool(true) => (Kind::True, 0),
            Cell::Int(int) => (Kind::Int, int as u64),
            Cell::Large(large) => (Kind::Large, large),
            Cell::Float(float) => (Kind::Float, float.to_bits()),
            Cell::Text(text) if text.len() >> LENGTH == 0 => {
                let from = self.text.len() as u64;
                self.text.push_str(text);
                (Kind::Text, from << LENGTH | text.len() as u64)
            }
            Cell::Text(_) | Cell::Other(_) => {
                self.others.push(cell.value());
                (Kind::Other, self.others.len() as u64 - 1)
            }
        };
        grow(&mut self.kinds, row);
        grow(&mut self.bits, row);
        (self.kinds[row], self.bits[row]) = (kind, bits);
    }
}

/// Columns by name, in the order in which rows have them first.
#[derive(Debug, Default)]
pub(super) struct Named {
    pub(super) names: Vec<String>,
    pub(super) columns: Vec<Column>,
    places: HashMap<String, usize>,
    /// Of each the first row that has it, and the place there.
    first: Vec<(u32, u32)>,
    /// The place behind the one that was asked for last: rows have their columns in the same order.
    next: usize,
}

impl Named {
    /// The place of a column, which is added where it is new; it is the `nth` of a row.
    pub(super) fn place(&mut self, name: &str, (row, nth): (u32, u32)) -> usize {
        let guess = if nth == 0 { 0 } else { self.next };
        let is_it = self.names.get(guess).is_some_and(|known| known == name);
        let known = if is_it { Some(guess) } else { self.places.get(name).copied() };
        self.next = known.unwrap_or(self.names.len()) + 1;
        if let Some(place) = known {
            self.first[place] = self.first[place].min((row, nth));
            return place;
        }
        self.places.insert(name.to_owned(), self.names.len());
        self.names.push(name.to_owned());
        self.first.push((row, nth));
        self.columns.push(Column::default());
        self.names.len() - 1
    }

    /// Gives a row of `rows` a cell of a column, the `nth` that it has.
    pub(super) fn set(&mut self, name: &str, (row, nth): (u32, u32), cell: Cell<'_>, rows: usize) {
        let place = self.place(name, (row, nth));
        self.columns[place].set(row as usize, cell, rows);
    }

    /// As [`Column::join`], of all columns.
    pub(super) fn join(&mut self, part: &Self, places: &[u32], rows: usize) {
        for ((name, column), (row, nth)) in part.names.iter().zip(&part.columns).zip(&part.first) {
            let own = self.place(name, (places[*row as usize], *nth));
            self.columns[own].join(column, places, rows);
        }
    }

    /// The column of a name.
    pub(super) fn get(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// Brings the columns into the order in which rows have them first.
    pub(super) fn sort(&mut self) {
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        order.sort_by_key(|place| self.first[*place]);
        let names = std::mem::take(&mut self.names);
        let mut columns: Vec<Column> = std::mem::take(&mut self.columns);
        let take = |place: &usize| std::mem::take(&mut columns[*place]);
        self.columns = order.iter().map(take).collect();
        self.names = order.iter().map(|place| names[*place].clone()).collect();
        self.first = order.iter().map(|place| self.first[*place]).collect();
        let places = self.names.iter().enumerate().map(|(place, name)| (name.clone(), place));
        self.places = places.collect();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Values of every kind, of which some are alike but not the same.
    fn value(of: u32) -> Value {
        let all = [
            json!(null),
            json!(true),
            json!(false),
            json!(0),
            json!(0.0),
            json!(-0.0),
            json!(1),
            json!(1.0),
            json!("1"),
            json!(""),
            json!("nan"),
            json!(u64::MAX),
            json!(i64::MIN),
            json!([1, "ü"]),
            json!([-0.0]),
            json!({"a": [0.0]}),
        ];
        all.get(of as usize).cloned().unwrap_or_else(|| match of % 3 {
            0 => json!(of),
            1 => json!(f64::from(of) / 7.0),
            _ => json!(format!("text {of}")),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

        /// However many cells it has and however they are joined, a column has the last value that each row was given.
        #[test]
        fn a_column_has_what_its_rows_were_given(
            cells in prop::collection::vec((0..700_u32, 0..1500_u32, 0..4_usize), 0..1200),
            different in prop_oneof![Just(16_u32), Just(200), Just(1500)],
        ) {
            let (mut model, mut parts) = (HashMap::new(), Vec::new());
            parts.resize_with(4, Column::default);
            for (row, of, part) in &cells {
                let value = value(of % different);
                parts[*part].set(*row as usize, Cell::from(&value), 700);
                if !value.is_null() {
                    model.insert((*row, *part), value);
                }
            }
            let mut whole = Column::default();
            // Each part has rows of its own.
            for (at, part) in (0..).zip(&parts) {
                let places: Vec<u32> = (0..700).map(|row| row * 4 + at).collect();
                whole.join(part, &places, 2800);
            }
            let mut seen = Vec::new();
            whole.each(|row, cell| seen.push((row, cell.json())));
            let mut expected: Vec<(usize, String)> = model
                .iter()
                .map(|((row, part), value)| (*row as usize * 4 + part, value.to_string()))
                .collect();
            expected.sort_unstable();
            prop_assert_eq!(seen, expected);
            for row in 0..2800 {
                let own = model.get(&(row / 4, row as usize % 4)).unwrap_or(&Value::Null);
                prop_assert_eq!(whole.get(row as usize).value().to_string(), own.to_string());
            }
        }
    }

    #[test]
    fn columns_are_in_the_order_of_the_rows_that_have_them_first() {
        let (mut whole, mut late) = (Named::default(), Named::default());
        let one = || Cell::Int(1);
        late.set("d", (0, 0), one(), 9);
        late.set("b", (0, 1), one(), 9);
        whole.join(&late, &[7], 9);
        whole.set("b", (3, 1), one(), 9);
        whole.set("a", (3, 0), one(), 9);
        whole.set("c", (3, 2), Cell::Null, 9);
        whole.sort();
        assert_eq!(whole.names, ["a", "b", "c", "d"]);
        let rows = |column: &Column| column.few().unwrap().collect::<Vec<_>>();
        assert_eq!(
            whole.columns.iter().map(rows).collect::<Vec<_>>(),
            [vec![3], vec![3, 7], vec![], vec![7]]
        );
        assert_eq!(whole.get("d"), Some(3));
    }
}
