//! NumPy's `.npy`, versions 1.0 to 3.0 (numpy.lib.format).
//!
//! A header of its own rather than a crate's: it is read from a map, so that its length is checked before
//! anything is allocated, and shapes too large to be true must not overflow. Numbers in C order and
//! little-endian stay where they are; big-endian ones and Fortran order are turned once, in memory.

use super::array::{self, Array, Bytes, Dtype};
use crate::base::fault::Fault;
use crate::base::words;

const MAGIC: &[u8] = b"\x93NUMPY";

/// The content of a header.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    /// NumPy's name of the type: `<f4`.
    descr: String,
    fortran: bool,
    shape: Vec<u64>,
}

/// Reads a whole file. `name` is what faults call it, with backticks.
pub(super) fn read(bytes: &Bytes, name: &str) -> Result<Array, Fault> {
    let cut_off = || {
        Fault::request(format!("{name} is cut off within its header"))
            .hint("copy it again from where it came from")
    };
    if !bytes.starts_with(MAGIC) {
        return Err(Fault::request(format!(
            "{name} is not a `.npy` file: it does not begin as one"
        )));
    }
    // Magic, two bytes of version, and the length of the header in 2 or 4 bytes.
    let (start, length) = match (bytes.get(6..8), bytes.get(8..10), bytes.get(8..12)) {
        (Some([1, 0]), Some([a, b]), _) => (10, usize::from(u16::from_le_bytes([*a, *b]))),
        (Some([2 | 3, 0]), _, Some([a, b, c, d])) => {
            (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize)
        }
        (Some([1..=3, 0]) | None, ..) => return Err(cut_off()),
        (Some(version), ..) => {
            let version = format!("{}.{}", version[0], version[1]);
            return Err(Fault::request(format!(
                "{name} has version {version} of the `.npy` format; 1.0, 2.0 and 3.0 are known"
            )));
        }
    };
    let text = bytes.get(start..start + length).ok_or_else(cut_off)?;
    let header = parse(&String::from_utf8_lossy(text)).ok_or_else(|| {
        let text = words::short(&String::from_utf8_lossy(text), 60);
        Fault::request(format!("{name} has a header that cannot be read: `{}`", text.trim_end()))
    })?;
    let (dtype, swapped) = dtype(&header.descr).ok_or_else(|| {
        let descr = words::short(&header.descr, 40);
        Fault::request(format!("{name} holds `{descr}`, which are not numbers to train with"))
            .hint("save it as an array of float32, float64, or of integers")
    })?;
    let numbers = bytes.piece(start + length..bytes.len()).ok_or_else(cut_off)?;
    let array = Array::new(dtype, header.shape, numbers, name)?;
    // Of one dimension or none, both orders are one.
    let turned = header.fortran && array.shape().len() > 1;
    if !turned && !swapped {
        return Ok(array);
    }
    let mut numbers = match turned {
        true => c_order(array.bytes(), array.shape(), dtype.size()),
        false => array.bytes().to_vec(),
    };
    if swapped {
        swap(&mut numbers, dtype.size());
    }
    Array::new(dtype, array.shape().to_vec(), numbers.into(), name)
}

/// Bytes of the whole file, according to its first ones; `None` if its header is not complete or not valid.
pub(super) fn whole_size(bytes: &[u8]) -> Option<u64> {
    let after_magic = bytes.strip_prefix(MAGIC)?;
    let (start, length) = match *after_magic {
        [1, 0, a, b, ..] => (10_usize, usize::from(u16::from_le_bytes([a, b]))),
        [2 | 3, 0, a, b, c, d, ..] => (12, u32::from_le_bytes([a, b, c, d]) as usize),
        _ => return None,
    };
    let header = parse(&String::from_utf8_lossy(bytes.get(start..start.checked_add(length)?)?))?;
    array::size(dtype(&header.descr)?.0, &header.shape)?.checked_add((start + length) as u64)
}

/// Reverses the bytes of each number.
pub(super) fn swap(bytes: &mut [u8], size: usize) {
    bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
}

/// Numbers in Fortran order, put into C order: `bytes` are those of an array of this shape.
fn c_order(bytes: &[u8], shape: &[u64], size: usize) -> Vec<u8> {
    let mut strides = vec![size; shape.len()];
    for k in 1..shape.len() {
        strides[k] = strides[k - 1] * shape[k - 1] as usize;
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = vec![0; shape.len()];
    let mut offset = 0;
    while out.len() < bytes.len() {
        out.extend_from_slice(&bytes[offset..offset + size]);
        for k in (0..shape.len()).rev() {
            index[k] += 1;
            offset += strides[k];
            if index[k] < shape[k] {
                break;
            }
            offset -= strides[k] * shape[k] as usize;
            index[k] = 0;
        }
    }
    out
}

/// The type, and whether its bytes are the other way round.
fn dtype(descr: &str) -> Option<(Dtype, bool)> {
    let order = descr.chars().next()?;
    let dtype = match &descr[order.len_utf8()..] {
        "b1" => Dtype::Bool,
        "u1" => Dtype::Uint8,
        "i1" => Dtype::Int8,
        "u2" => Dtype::Uint16,
        "i2" => Dtype::Int16,
        "u4" => Dtype::Uint32,
        "i4" => Dtype::Int32,
        "u8" => Dtype::Uint64,
        "i8" => Dtype::Int64,
        "f2" => Dtype::Float16,
        "f4" => Dtype::Float32,
        "f8" => Dtype::Float64,
        _ => return None,
    };
    match order {
        '<' => Some((dtype, false)),
        '>' => Some((dtype, dtype.size() > 1)),
        '|' if dtype.size() == 1 => Some((dtype, false)),
        _ => None,
    }
}

/// A header: the literal of a Python dictionary with three keys, in any order.
fn parse(text: &str) -> Option<Header> {
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    let mut text = Scanner(text);
    text.sign('{')?;
    while text.sign('}').is_none() {
        let key = text.string()?;
        text.sign(':')?;
        match key {
            "descr" => descr = Some(text.descr()?),
            "fortran_order" => fortran = Some(text.boolean()?),
            "shape" => shape = Some(text.tuple()?),
            _ => return None,
        }
        if text.sign(',').is_none() {
            text.sign('}')?;
            break;
        }
    }
    text.0.trim().is_empty().then_some(())?;
    Some(Header { descr: descr?, fortran: fortran?, shape: shape? })
}

/// The rest of a header. Every method skips white space and takes what it is named for.
struct Scanner<'a>(&'a str);

impl<'a> Scanner<'a> {
    fn sign(&mut self, sign: char) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(sign)?;
        Some(())
    }

    fn string(&mut self) -> Option<&'a str> {
        let text = self.0.trim_start();
        let quote = text.chars().next().filter(|c| ['\'', '"'].contains(c))?;
        let (inside, rest) = text[1..].split_once(quote)?;
        self.0 = rest;
        Some(inside)
    }

    /// A name of a type. A list, which is the type of records, is kept as a text that is not a type.
    fn descr(&mut self) -> Option<String> {
        if !self.0.trim_start().starts_with('[') {
            return self.string().map(str::to_owned);
        }
        let end = self.0.rfind(']')? + 1;
        let (list, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(list.trim_start().to_owned())
    }

    fn boolean(&mut self) -> Option<bool> {
        let text = self.0.trim_start();
        let (value, rest) = match (text.strip_prefix("True"), text.strip_prefix("False")) {
            (Some(rest), _) => (true, rest),
            (_, rest) => (false, rest?),
        };
        self.0 = rest;
        Some(value)
    }

    fn tuple(&mut self) -> Option<Vec<u64>> {
        self.sign('(')?;
        let mut numbers = Vec::new();
        while self.sign(')').is_none() {
            let text = self.0.trim_start();
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            numbers.push(text[..end].parse().ok()?);
            // Python 2 wrote large ones as `4L`.
            self.0 = text[end..].strip_prefix('L').unwrap_or(&text[end..]);
            if self.sign(',').is_none() {
                self.sign(')')?;
                break;
            }
        }
        Some(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_python_writes_them() {
        let header = |descr: &str, fortran, shape: &[u64]| {
            Some(Header { descr: descr.into(), fortran, shape: shape.to_vec() })
        };
        assert_eq!(
            parse("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n"),
            header("<f4", false, &[2, 3])
        );
        assert_eq!(
            parse("{\"shape\":(7L,),\"descr\":\"|u1\",\"fortran_order\":True}"),
            header("|u1", true, &[7])
        );
        assert_eq!(
            parse("{'descr': '>i2', 'fortran_order': False, 'shape': ()}\n"),
            header(">i2", false, &[])
        );
        let records = parse(
            "{'descr': [('a', '<f4'), ('b', '<i4', (2,))], 'fortran_order': False, 'shape': (2,), }",
        );
        assert_eq!(records, header("[('a', '<f4'), ('b', '<i4', (2,))]", false, &[2]));
    }

    #[test]
    fn what_is_no_header_is_refused() {
        for text in [
            "",
            "{}",
            "{'descr': '<f4', 'fortran_order': False}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } more",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3), }",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
            "{'descr': '<f4' 'fortran_order': False, 'shape': (2,), }",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn fortran_order_becomes_c_order() {
        // a[i, j, k] = 100 i + 10 j + k, of shape [2, 3, 2].
        let value = |i: u8, j: u8, k: u8| 100 * i + 10 * j + k;
        let (mut c, mut fortran) = (Vec::new(), Vec::new());
        for n in 0..12 {
            c.push(value(n / 6, n / 2 % 3, n % 2));
            fortran.push(value(n % 2, n / 2 % 3, n / 6));
        }
        assert_eq!(c_order(&fortran, &[2, 3, 2], 1), c);
        assert_eq!(c_order(&[], &[2, 0, 2], 1), [0; 0]);
    }
}
