//! Numbers of one type written as another, the way a cast of torch does it: whole numbers wrap, real
//! numbers round to the nearest, ties to even.

use std::borrow::Cow;

use half::{bf16, f16};

use super::value::Dtype;

/// The numbers as another type, in place where it is the same; `None` for complex numbers of another
/// type, which no caller lets through.
pub(super) fn convert(data: &[u8], from: Dtype, to: Dtype) -> Option<Cow<'_, [u8]>> {
    /// The numbers of some bytes, each widened without loss.
    macro_rules! read {
        ($type:ty, $wide:expr) => {
            data.as_chunks::<{ size_of::<$type>() }>()
                .0
                .iter()
                .map(|bytes| $wide(<$type>::from_le_bytes(*bytes)))
        };
    }
    if from == to {
        return Some(Cow::Borrowed(data));
    }
    let owned = match from {
        Dtype::Bool => from_ints(data.iter().map(|b| i64::from(*b != 0)), to),
        Dtype::Uint8 => from_ints(read!(u8, i64::from), to),
        Dtype::Int8 => from_ints(read!(i8, i64::from), to),
        Dtype::Int16 => from_ints(read!(i16, i64::from), to),
        Dtype::Int32 => from_ints(read!(i32, i64::from), to),
        Dtype::Int64 => from_ints(read!(i64, |n| n), to),
        Dtype::Float16 => from_floats(read!(f16, f64::from), to),
        Dtype::Bfloat16 => from_floats(read!(bf16, f64::from), to),
        Dtype::Float32 => from_floats(read!(f32, f64::from), to),
        Dtype::Float64 => from_floats(read!(f64, |n| n), to),
        Dtype::Complex64 | Dtype::Complex128 => None,
    };
    owned.map(Cow::Owned)
}

fn from_ints(numbers: impl ExactSizeIterator<Item = i64>, to: Dtype) -> Option<Vec<u8>> {
    Some(match to {
        Dtype::Bool => write(numbers.map(|n| [u8::from(n != 0)])),
        Dtype::Uint8 => write(numbers.map(|n| (n as u8).to_le_bytes())),
        Dtype::Int8 => write(numbers.map(|n| (n as i8).to_le_bytes())),
        Dtype::Int16 => write(numbers.map(|n| (n as i16).to_le_bytes())),
        Dtype::Int32 => write(numbers.map(|n| (n as i32).to_le_bytes())),
        Dtype::Int64 => write(numbers.map(i64::to_le_bytes)),
        Dtype::Float16 => write(numbers.map(|n| f16::from_f32(n as f32).to_le_bytes())),
        Dtype::Bfloat16 => write(numbers.map(|n| bf16::from_f32(n as f32).to_le_bytes())),
        Dtype::Float32 => write(numbers.map(|n| (n as f32).to_le_bytes())),
        Dtype::Float64 => write(numbers.map(|n| (n as f64).to_le_bytes())),
        Dtype::Complex64 | Dtype::Complex128 => return None,
    })
}

fn from_floats(numbers: impl ExactSizeIterator<Item = f64>, to: Dtype) -> Option<Vec<u8>> {
    Some(match to {
        Dtype::Float16 => write(numbers.map(|n| f16::from_f64(n).to_le_bytes())),
        Dtype::Bfloat16 => write(numbers.map(|n| bf16::from_f64(n).to_le_bytes())),
        Dtype::Float32 => write(numbers.map(|n| (n as f32).to_le_bytes())),
        Dtype::Float64 => write(numbers.map(f64::to_le_bytes)),
        // No two types have a common one below: only a rank without a value comes here.
        Dtype::Bool => write(numbers.map(|n| [u8::from(n != 0.0)])),
        Dtype::Uint8 => write(numbers.map(|n| (n as u8).to_le_bytes())),
        Dtype::Int8 => write(numbers.map(|n| (n as i8).to_le_bytes())),
        Dtype::Int16 => write(numbers.map(|n| (n as i16).to_le_bytes())),
        Dtype::Int32 => write(numbers.map(|n| (n as i32).to_le_bytes())),
        Dtype::Int64 => write(numbers.map(|n| (n as i64).to_le_bytes())),
        Dtype::Complex64 | Dtype::Complex128 => return None,
    })
}

/// The bytes one after the other. Indexed writes into a vector of the right length are what the
/// compiler makes vector instructions of.
fn write<const N: usize>(numbers: impl ExactSizeIterator<Item = [u8; N]>) -> Vec<u8> {
    let mut bytes = vec![0; numbers.len() * N];
    for (place, number) in bytes.as_chunks_mut::<N>().0.iter_mut().zip(numbers) {
        *place = number;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::value::Element;
    use super::*;

    fn to<T: Element>(numbers: &[impl Element], from: Dtype) -> Vec<T> {
        let bytes = convert(bytemuck::cast_slice(numbers), from, T::DTYPE).unwrap();
        bytemuck::allocation::pod_collect_to_vec(&bytes)
    }

    #[test]
    fn numbers_keep_their_value_where_the_type_can_hold_it() {
        assert_eq!(to::<f64>(&[7i64, -1, 1 << 53], Dtype::Int64), [7.0, -1.0, 9007199254740992.0]);
        assert_eq!(to::<f32>(&[0.1f64, 16777217.0], Dtype::Float64), [0.1, 16777216.0]);
        assert_eq!(to::<f64>(&[0u8, 1, 2], Dtype::Bool), [0.0, 1.0, 1.0]);
        assert_eq!(to::<i64>(&[200u8], Dtype::Uint8), [200]);
        assert_eq!(to::<i64>(&[-128i8], Dtype::Int8), [-128]);
        assert_eq!(to::<i32>(&[-300i16], Dtype::Int16), [-300]);
        assert_eq!(to::<f64>(&[f16::from_f32(0.25)], Dtype::Float16), [0.25]);
        assert_eq!(to::<f32>(&[bf16::from_f32(-3.0)], Dtype::Bfloat16), [-3.0]);
        assert_eq!(to::<f64>(&[0.1f32], Dtype::Float32), [0.10000000149011612]);
        assert_eq!(to::<f16>(&[100_000i64], Dtype::Int64), [f16::INFINITY]);
        assert!(to::<f64>(&[f32::NAN], Dtype::Float32)[0].is_nan());
    }

    #[test]
    fn the_same_type_is_not_copied_and_complex_is_refused() {
        let data = [1, 2, 3, 4];
        let same = convert(&data, Dtype::Float32, Dtype::Float32).unwrap();
        assert!(matches!(same, Cow::Borrowed(_)));
        assert_eq!(convert(&[0; 8], Dtype::Complex64, Dtype::Float64), None);
        assert_eq!(convert(&[0; 8], Dtype::Float64, Dtype::Complex128), None);
    }
}
