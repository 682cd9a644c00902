//! Values as ranks exchange them: numbers with a type and a shape, and what they were for their owner.

use half::{bf16, f16};

use serde::{Deserialize, Serialize};

/// A number that is its own bytes.
pub trait Element: bytemuck::Pod {
    /// The type of its numbers in a [`Value`].
    const DTYPE: Dtype;
}

/// Ties each type of Rust to its name.
macro_rules! elements {
    ($($type:ty => $name:ident),+) => { $(
        impl Element for $type {
            const DTYPE: Dtype = Dtype::$name;
        }
    )+ };
}

elements!(u8 => Uint8, i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    f16 => Float16, bf16 => Bfloat16, f32 => Float32, f64 => Float64);

/// Type of the numbers; names are those of torch and numpy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// One byte, 0 or 1.
    Bool,
    /// 8 bit, without sign.
    Uint8,
    /// 8 bit, with a sign.
    Int8,
    /// 16 bit, with a sign.
    Int16,
    /// 32 bit, with a sign.
    Int32,
    /// 64 bit, with a sign.
    Int64,
    /// IEEE 754 binary16, 16 bit.
    Float16,
    /// The upper half of a binary32.
    Bfloat16,
    /// IEEE 754 binary32, 32 bit.
    Float32,
    /// IEEE 754 binary64, 64 bit.
    Float64,
    /// Two binary32: real part, imaginary part.
    Complex64,
    /// Two binary64: real part, imaginary part.
    Complex128,
}

impl Dtype {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 12] = [
        Self::Bool,
        Self::Uint8,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Float16,
        Self::Bfloat16,
        Self::Float32,
        Self::Float64,
        Self::Complex64,
        Self::Complex128,
    ];

    /// Bytes of one number.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => 1,
            Self::Int16 | Self::Float16 | Self::Bfloat16 => 2,
            Self::Int32 | Self::Float32 => 4,
            Self::Int64 | Self::Float64 | Self::Complex64 => 8,
            Self::Complex128 => 16,
        }
    }

    /// Its name in torch and numpy.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Uint8 => "uint8",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Complex64 => "complex64",
            Self::Complex128 => "complex128",
        }
    }

    /// Whether it holds whole numbers or truth values.
    pub const fn is_integer(self) -> bool {
        self.kind() < 2
    }

    /// Whether its numbers have two parts.
    pub const fn is_complex(self) -> bool {
        self.kind() == 3
    }

    /// Truth values, whole numbers, real numbers, complex numbers.
    const fn kind(self) -> u8 {
        match self {
            Self::Bool => 0,
            Self::Uint8 | Self::Int8 | Self::Int16 | Self::Int32 | Self::Int64 => 1,
            Self::Float16 | Self::Bfloat16 | Self::Float32 | Self::Float64 => 2,
            Self::Complex64 | Self::Complex128 => 3,
        }
    }

    /// The type that holds both, as `torch.promote_types` has it. A whole number joins a real one as
    /// that real type, whatever its size.
    #[must_use]
    pub fn promote(self, other: Self) -> Self {
        use Dtype::{
            Bfloat16, Complex64, Complex128, Float16, Float32, Float64, Int8, Int16, Uint8,
        };
        match (self, other) {
            (Uint8, Int8) | (Int8, Uint8) => Int16,
            (Float16, Bfloat16) | (Bfloat16, Float16) => Float32,
            (Complex64, Float64) | (Float64, Complex64) => Complex128,
            (a, b) if a.kind() != b.kind() => {
                if a.kind() > b.kind() {
                    a
                } else {
                    b
                }
            }
            (a, b) if a.size() >= b.size() => a,
            (_, b) => b,
        }
    }
}

/// The form of a value in its program; decides what it becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// A plain number of a language: float64, int64 or bool.
    Scalar,
    /// A list (of lists) of plain numbers.
    List,
    /// A number of an array library, which has a type of its own.
    Number,
    /// An array of an array library, with any number of dimensions.
    Array,
    /// A tensor, with any number of dimensions.
    Tensor,
}

impl Form {
    /// All of them, in the order of their codes.
    pub(crate) const ALL: [Self; 5] =
        [Self::Scalar, Self::List, Self::Number, Self::Array, Self::Tensor];
}

/// Numbers in C order, little-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Its form, or the form that it is to become.
    pub form: Form,
    /// Type of the numbers.
    pub dtype: Dtype,
    /// Lengths of its dimensions; empty for a single number.
    pub shape: Vec<u64>,
    /// The bytes of the numbers; [`Value::check`] tells whether they fit type and shape.
    pub data: Vec<u8>,
}

impl Value {
    /// A plain number of a language, in 64 bit.
    pub fn float(number: f64) -> Self {
        Self::from_numbers(Form::Scalar, Vec::new(), &[number])
    }

    /// A plain whole number.
    pub(crate) fn int(number: i64) -> Self {
        Self::from_numbers(Form::Scalar, Vec::new(), &[number])
    }

    /// The numbers of a slice, of the shape given. Whether they fit it is for [`Value::check`].
    pub fn from_numbers<T: Element>(form: Form, shape: Vec<u64>, numbers: &[T]) -> Self {
        Self { form, dtype: T::DTYPE, shape, data: bytemuck::cast_slice(numbers).to_vec() }
    }

    /// The numbers; `None` when they are of another type.
    pub(crate) fn numbers<T: Element>(&self) -> Option<Vec<T>> {
        let fits = self.dtype == T::DTYPE && self.data.len().is_multiple_of(size_of::<T>());
        fits.then(|| bytemuck::allocation::pod_collect_to_vec(&self.data))
    }

    /// Whether shape, type and form fit the bytes.
    ///
    /// # Errors
    /// A sentence, lower case and without a period, when they do not.
    pub fn check(&self) -> Result<(), String> {
        check(self.form, self.dtype, &self.shape, self.data.len() as u64)
    }
}

/// Whether a value of this form, type and shape has so many bytes.
///
/// # Errors
/// A sentence when it has not.
pub(super) fn check(form: Form, dtype: Dtype, shape: &[u64], bytes: u64) -> Result<(), String> {
    match form {
        Form::Scalar | Form::Number if !shape.is_empty() => {
            return Err(format!("a single number cannot have the shape {shape:?}"));
        }
        Form::List if shape.is_empty() => return Err("a list has at least one dimension".into()),
        _ => {}
    }
    let name = dtype.name();
    let expected = shape.iter().try_fold(dtype.size() as u64, |n, d| n.checked_mul(*d));
    match expected {
        Some(expected) if expected == bytes => Ok(()),
        Some(expected) => Err(format!(
            "`{name}` of the shape {shape:?} takes {expected} bytes, and there are {bytes}"
        )),
        None => Err(format!("`{name}` of the shape {shape:?} is larger than any memory")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `torch.promote_types` of torch 2.11, in the order of [`Dtype::ALL`]; indices into it.
    const TORCH: [[usize; 12]; 12] = [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        [1, 1, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        [2, 3, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        [3, 3, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        [4, 4, 4, 4, 4, 5, 6, 7, 8, 9, 10, 11],
        [5, 5, 5, 5, 5, 5, 6, 7, 8, 9, 10, 11],
        [6, 6, 6, 6, 6, 6, 6, 8, 8, 9, 10, 11],
        [7, 7, 7, 7, 7, 7, 8, 7, 8, 9, 10, 11],
        [8, 8, 8, 8, 8, 8, 8, 8, 8, 9, 10, 11],
        [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 11, 11],
        [10, 10, 10, 10, 10, 10, 10, 10, 10, 11, 10, 11],
        [11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11],
    ];

    #[test]
    fn two_types_have_the_common_type_of_torch() {
        let ours = Dtype::ALL.map(|a| {
            Dtype::ALL.map(|b| Dtype::ALL.iter().position(|d| *d == a.promote(b)).unwrap())
        });
        assert_eq!(ours, TORCH);
    }

    #[test]
    fn names_and_codes_are_those_of_the_protocol() {
        for (code, dtype) in Dtype::ALL.into_iter().enumerate() {
            assert_eq!(dtype as usize, code);
            assert_eq!(serde_json::to_string(&dtype).unwrap(), format!("\"{}\"", dtype.name()));
        }
        for (code, form) in Form::ALL.into_iter().enumerate() {
            assert_eq!(form as usize, code);
        }
    }

    #[test]
    fn bytes_that_do_not_fit_are_told() {
        let value = |form, shape: &[u64], n| Value {
            form,
            dtype: Dtype::Float32,
            shape: shape.to_vec(),
            data: vec![0; n],
        };
        assert_eq!(value(Form::Array, &[2, 3], 24).check(), Ok(()));
        assert_eq!(value(Form::Array, &[2, 0, 3], 0).check(), Ok(()));
        assert_eq!(
            value(Form::Array, &[2, 3], 23).check().unwrap_err(),
            "`float32` of the shape [2, 3] takes 24 bytes, and there are 23"
        );
        assert_eq!(
            value(Form::Tensor, &[u64::MAX, 3], 0).check().unwrap_err(),
            "`float32` of the shape [18446744073709551615, 3] is larger than any memory"
        );
        assert_eq!(
            value(Form::Scalar, &[1], 4).check().unwrap_err(),
            "a single number cannot have the shape [1]"
        );
        assert_eq!(
            value(Form::List, &[], 4).check().unwrap_err(),
            "a list has at least one dimension"
        );
    }

    #[test]
    fn a_slice_goes_in_and_comes_out() {
        let value = Value::from_numbers(Form::List, vec![3], &[1.5f64, -0.0, f64::INFINITY]);
        assert_eq!(value.dtype, Dtype::Float64);
        assert_eq!(value.numbers::<f64>().unwrap(), [1.5, -0.0, f64::INFINITY]);
        assert_eq!(value.numbers::<f32>(), None);
        assert_eq!(Value::int(-2).numbers::<i64>().unwrap(), [-2]);
        assert_eq!(Value::float(0.1).numbers::<f64>().unwrap(), [0.1]);
    }
}
