//! An answer as a Parquet file, or as an Arrow file (the IPC file format, Feather version 2): the type of each column is
//! that of all of its values, and the data dictionary is in the metadata.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, DurationMicrosecondArray, Float64Array, Int32Array,
    Int64Array, ListArray, RecordBatch, RecordBatchOptions, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};

use super::Cell;
use super::columns::{Column, Kind};
use super::sheet::{Line, Sheet};
use super::types::Type;

/// The key of the data dictionary in the metadata of a file.
const KEY: &str = "hpcsweep";

/// Most cells and most bytes of text of a batch, which is in memory as a whole.
const CELLS: usize = 1 << 20;
const BYTES: usize = 64 << 20;

/// Bytes of a row group of Parquet, which is in memory until it is written.
const GROUP: usize = 64 << 20;

/// Writes an answer as an Arrow file. Returns how many rows it has.
///
/// # Errors
/// When the rows cannot be read, or `out` cannot be written.
pub(super) fn ipc(sheet: &Sheet, out: &mut dyn Write) -> Result<usize> {
    let (shapes, schema) = shaped(sheet)?;
    let mut writer = FileWriter::try_new(out, &schema)?;
    let rows = batches(sheet, &shapes, &schema, |batch| Ok(writer.write(&batch)?))?;
    writer.finish()?;
    Ok(rows)
}

/// Writes an answer as a Parquet file. Returns how many rows it has.
///
/// # Errors
/// As [`ipc`].
pub(super) fn parquet(sheet: &Sheet, out: &mut dyn Write) -> Result<usize> {
    let (shapes, schema) = shaped(sheet)?;
    let pipe = Pipe::default();
    let dictionary = schema.metadata().get(KEY).cloned();
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_key_value_metadata(Some(vec![KeyValue::new(KEY.to_owned(), dictionary)]))
        .build();
    let mut writer = ArrowWriter::try_new(pipe.clone(), Arc::clone(&schema), Some(properties))?;
    let rows = batches(sheet, &shapes, &schema, |batch| {
        writer.write(&batch)?;
        if writer.in_progress_size() > GROUP {
            writer.flush()?;
        }
        Ok(pipe.drain(out)?)
    })?;
    writer.close()?;
    pipe.drain(out)?;
    Ok(rows)
}

/// How each column is stored, and the columns as Arrow describes them.
fn shaped(sheet: &Sheet) -> Result<(Vec<Shape>, SchemaRef)> {
    let types = sheet.types()?;
    let shapes: Vec<Shape> =
        sheet.columns.iter().zip(types).map(|(column, of)| Shape::of(column, of)).collect();
    let schema = Arc::new(schema(sheet, &shapes)?);
    Ok((shapes, schema))
}

/// What the writer of Parquet has written: it takes only what may go to other threads.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<Vec<u8>>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Pipe {
    fn drain(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(&bytes)?;
        bytes.clear();
        Ok(())
    }
}

/// How the values of a column are stored.
#[derive(Debug)]
enum Shape {
    Bool,
    Int,
    Float,
    Text,
    /// Places in a list of words.
    Word(Arc<StringArray>, Vec<String>),
    Duration,
    Time,
    List(Box<Shape>),
    Table(Vec<(String, Shape)>),
}

impl Shape {
    fn of(column: &Column, (of, words): (Type, Vec<String>)) -> Self {
        match column.kind {
            Kind::Any => Self::of_type(of),
            Kind::Bool => Self::Bool,
            Kind::Int | Kind::Bytes => Self::Int,
            Kind::Float => Self::Float,
            Kind::Text => Self::Text,
            Kind::Word => Self::Word(Arc::new(StringArray::from_iter_values(&words)), words),
            Kind::Seconds => Self::Duration,
            Kind::Time => Self::Time,
        }
    }

    fn of_type(of: Type) -> Self {
        match of {
            Type::Bool => Self::Bool,
            Type::Int => Self::Int,
            Type::Float | Type::NotFinite => Self::Float,
            // Parquet has no table without members.
            Type::Null | Type::Text => Self::Text,
            Type::Table(all) if all.is_empty() => Self::Text,
            Type::List(inner) => Self::List(Box::new(Self::of_type(*inner))),
            Type::Table(all) => {
                Self::Table(all.into_iter().map(|(name, of)| (name, Self::of_type(of))).collect())
            }
        }
    }

    fn data_type(&self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Text => DataType::Utf8,
            Self::Word(..) => {
                DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
            }
            Self::Duration => DataType::Duration(TimeUnit::Microsecond),
            Self::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::List(inner) => DataType::List(item(inner)),
            Self::Table(all) => DataType::Struct(members(all)),
        }
    }

    /// The values as an array; what has no place in it is left out.
    fn array(&self, values: &[Cell<'_>]) -> Result<ArrayRef> {
        let each = values.iter().copied();
        let micros = |value: Cell<'_>| value.as_f64().map(|s| (s * 1e6).round() as i64);
        Ok(match self {
            Self::Bool => Arc::new(each.map(Cell::as_bool).collect::<BooleanArray>()),
            Self::Int => Arc::new(each.map(Cell::as_i64).collect::<Int64Array>()),
            Self::Float => Arc::new(each.map(Cell::number).collect::<Float64Array>()),
            Self::Text => {
                let texts = each.map(|value| (!value.is_null()).then(|| value.text()));
                Arc::new(texts.collect::<StringArray>())
            }
            Self::Word(all, words) => {
                let key = |value: Cell<'_>| {
                    let word = value.text();
                    words
                        .binary_search_by(|known| known.as_str().cmp(&word))
                        .ok()
                        .and_then(|place| i32::try_from(place).ok())
                };
                let keys: Int32Array = each.map(key).collect();
                let all: ArrayRef = Arc::clone(all) as ArrayRef;
                Arc::new(DictionaryArray::<Int32Type>::try_new(keys, all)?)
            }
            Self::Duration => Arc::new(each.map(micros).collect::<DurationMicrosecondArray>()),
            Self::Time => {
                let times: TimestampMicrosecondArray = each.map(micros).collect();
                Arc::new(times.with_timezone("UTC"))
            }
            Self::List(inner) => {
                let lists: Vec<Option<&Vec<Value>>> =
                    each.map(|value| value.other()?.as_array()).collect();
                let offsets =
                    OffsetBuffer::from_lengths(lists.iter().map(|list| list.map_or(0, Vec::len)));
                let all: Vec<Cell<'_>> =
                    lists.iter().flatten().copied().flatten().map(Cell::from).collect();
                let nulls = NullBuffer::from_iter(lists.iter().map(Option::is_some));
                Arc::new(ListArray::try_new(item(inner), offsets, inner.array(&all)?, Some(nulls))?)
            }
            Self::Table(all) => {
                let of = |name: &String| -> Vec<Cell<'_>> {
                    let own = each.clone().map(|value| value.other().and_then(|of| of.get(name)));
                    own.map(|value| value.map_or(Cell::Null, Cell::from)).collect()
                };
                let arrays: Result<Vec<ArrayRef>> =
                    all.iter().map(|(name, shape)| shape.array(&of(name))).collect();
                let nulls = NullBuffer::from_iter(
                    each.clone().map(|value| value.other().is_some_and(Value::is_object)),
                );
                Arc::new(StructArray::try_new(members(all), arrays?, Some(nulls))?)
            }
        })
    }
}

fn item(inner: &Shape) -> FieldRef {
    Arc::new(Field::new_list_field(inner.data_type(), true))
}

fn members(all: &[(String, Shape)]) -> Fields {
    all.iter().map(|(name, shape)| Field::new(name, shape.data_type(), true)).collect()
}

/// The columns with what the dictionary says of them.
fn schema(sheet: &Sheet, shapes: &[Shape]) -> Result<Schema> {
    let mut fields = Vec::with_capacity(shapes.len());
    let mut dictionary = Vec::with_capacity(shapes.len());
    for (column, shape) in sheet.columns.iter().zip(shapes) {
        // The type says it; a reader that knows only the integers below needs to know.
        let unit = if matches!(shape, Shape::Duration) { Some("us") } else { column.unit };
        let mut metadata = HashMap::from([
            ("meaning".to_owned(), column.meaning.clone()),
            ("source".to_owned(), column.source.to_owned()),
        ]);
        metadata.extend(unit.map(|unit| ("unit".to_owned(), unit.to_owned())));
        fields.push(Field::new(&column.name, shape.data_type(), true).with_metadata(metadata));
        dictionary.push(json!({
            "column": column.name, "meaning": column.meaning, "unit": unit, "source": column.source,
        }));
    }
    let sweeps: Vec<String> =
        sheet.sources.iter().map(|source| source.dir.display().to_string()).collect();
    let about = json!({
        "version": env!("CARGO_PKG_VERSION"), "sweeps": sweeps, "columns": dictionary,
    });
    let metadata = HashMap::from([(KEY.to_owned(), serde_json::to_string(&about)?)]);
    Ok(Schema::new_with_metadata(fields, metadata))
}

/// Calls `with` for the rows, some at a time. Returns how many there are.
fn batches(
    sheet: &Sheet,
    shapes: &[Shape],
    schema: &SchemaRef,
    mut with: impl FnMut(RecordBatch) -> Result<()>,
) -> Result<usize> {
    let most = (CELLS / shapes.len().max(1)).clamp(1, 1 << 14);
    let (mut held, mut bytes, mut rows) = (Vec::new(), 0, 0);
    sheet.each(&mut |row| {
        rows += 1;
        bytes += row.cells().into_iter().map(|(_, cell)| size(cell)).sum::<usize>();
        held.push(row);
        if held.len() >= most || bytes >= BYTES {
            bytes = 0;
            with(batch(shapes, schema, &std::mem::take(&mut held))?)?;
        }
        Ok(())
    })?;
    if !held.is_empty() {
        with(batch(shapes, schema, &held)?)?;
    }
    Ok(rows)
}

fn batch(shapes: &[Shape], schema: &SchemaRef, rows: &[Line<'_>]) -> Result<RecordBatch> {
    let mut arrays = Vec::with_capacity(shapes.len());
    for (c, shape) in shapes.iter().enumerate() {
        let values: Vec<Cell<'_>> = rows.iter().map(|row| row.get(c)).collect();
        arrays.push(shape.array(&values)?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)?)
}

/// About how many bytes a value takes.
fn size(cell: Cell<'_>) -> usize {
    match cell {
        Cell::Text(text) => text.len(),
        Cell::Other(Value::Array(all)) => all.iter().map(|value| size(value.into())).sum(),
        Cell::Other(Value::Object(all)) => {
            all.iter().map(|(name, value)| name.len() + size(value.into())).sum()
        }
        _ => 8,
    }
}
