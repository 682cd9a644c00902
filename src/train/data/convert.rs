//! Numbers of a file as a model takes them: reals of one width, scaled, or numbers of classes.
//!
//! Every number is widened to f64, scaled there, and rounded once. Integers of 64 bits lose their bits beyond
//! 2^53.

use half::{bf16, f16};

use super::array::Dtype;

/// A real number of the width that a model has.
pub(super) trait Real: Copy {
    fn nearest(x: f64) -> Self;
}

impl Real for f32 {
    fn nearest(x: f64) -> Self {
        x as Self
    }
}

impl Real for f64 {
    fn nearest(x: f64) -> Self {
        x
    }
}

/// What is done with each number: it is multiplied by `factor`, and then `offset` is added.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scaling {
    pub(super) factor: f64,
    pub(super) offset: f64,
}

impl Scaling {
    /// Numbers stay as they are.
    pub(super) const NONE: Self = Self { factor: 1.0, offset: 0.0 };
}

/// Appends the numbers in `bytes`, scaled.
pub(super) fn reals<R: Real>(dtype: Dtype, bytes: &[u8], scaling: Scaling, out: &mut Vec<R>) {
    // Without arithmetic if none is needed: this is faster, and a negative zero stays one.
    if scaling == Scaling::NONE {
        widened(dtype, bytes, R::nearest, out);
    } else {
        widened(dtype, bytes, |x| R::nearest(x * scaling.factor + scaling.offset), out);
    }
}

/// Appends `f` of each number in `bytes`, which are those of whole numbers of this type.
fn widened<R>(dtype: Dtype, bytes: &[u8], f: impl Fn(f64) -> R, out: &mut Vec<R>) {
    match dtype {
        Dtype::Bool => out.extend(bytes.iter().map(|b| f(f64::from(u8::from(*b != 0))))),
        Dtype::Uint8 => out.extend(bytes.iter().map(|b| f(f64::from(*b)))),
        Dtype::Int8 => out.extend(each(bytes, |b| f(i8::from_le_bytes(b).into()))),
        Dtype::Uint16 => out.extend(each(bytes, |b| f(u16::from_le_bytes(b).into()))),
        Dtype::Int16 => out.extend(each(bytes, |b| f(i16::from_le_bytes(b).into()))),
        Dtype::Uint32 => out.extend(each(bytes, |b| f(u32::from_le_bytes(b).into()))),
        Dtype::Int32 => out.extend(each(bytes, |b| f(i32::from_le_bytes(b).into()))),
        Dtype::Uint64 => out.extend(each(bytes, |b| f(u64::from_le_bytes(b) as f64))),
        Dtype::Int64 => out.extend(each(bytes, |b| f(i64::from_le_bytes(b) as f64))),
        Dtype::Float16 => out.extend(each(bytes, |b| f(f16::from_le_bytes(b).into()))),
        Dtype::Bfloat16 => out.extend(each(bytes, |b| f(bf16::from_le_bytes(b).into()))),
        Dtype::Float32 => out.extend(each(bytes, |b| f(f32::from_le_bytes(b).into()))),
        Dtype::Float64 => out.extend(each(bytes, |b| f(f64::from_le_bytes(b)))),
    }
}

fn each<'a, const N: usize, R>(
    bytes: &'a [u8],
    f: impl Fn([u8; N]) -> R + 'a,
) -> impl Iterator<Item = R> + 'a {
    bytes.as_chunks::<N>().0.iter().map(move |b| f(*b))
}

/// Appends the numbers in `bytes` as numbers of classes: whole, from 0. The first that is not one comes back
/// as text; the numbers before it have been appended.
pub(super) fn classes(dtype: Dtype, bytes: &[u8], out: &mut Vec<i64>) -> Result<(), String> {
    match dtype {
        Dtype::Int64 => whole(bytes, i64::from_le_bytes, out),
        Dtype::Uint64 => whole(bytes, u64::from_le_bytes, out),
        // All others are exact in f64, and so is what comes back of them.
        _ => {
            let mut numbers = Vec::with_capacity(bytes.len() / dtype.size());
            reals::<f64>(dtype, bytes, Scaling::NONE, &mut numbers);
            for x in numbers {
                // 2^53: beyond it an f64 no longer distinguishes neighbours.
                if !(0.0..9_007_199_254_740_992.0).contains(&x) || x.fract() != 0.0 {
                    return Err(x.to_string());
                }
                out.push(x as i64);
            }
            Ok(())
        }
    }
}

fn whole<const N: usize, T: Copy + ToString + TryInto<i64>>(
    bytes: &[u8],
    from: impl Fn([u8; N]) -> T,
    out: &mut Vec<i64>,
) -> Result<(), String> {
    for x in each(bytes, from) {
        match x.try_into() {
            Ok(class) if class >= 0 => out.push(class),
            _ => return Err(x.to_string()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_reals<R: Real>(dtype: Dtype, bytes: &[u8], scaling: Scaling) -> Vec<R> {
        let mut out = Vec::new();
        reals(dtype, bytes, scaling, &mut out);
        out
    }

    #[test]
    fn every_type_is_widened() {
        let check = |dtype, bytes: &[u8], expected: &[f64]| {
            assert_eq!(as_reals::<f64>(dtype, bytes, Scaling::NONE), expected, "{dtype}");
            let scaled: Vec<f64> = expected.iter().map(|x| x * 0.5 - 3.0).collect();
            assert_eq!(
                as_reals::<f64>(dtype, bytes, Scaling { factor: 0.5, offset: -3.0 }),
                scaled,
                "{dtype}"
            );
            let narrow: Vec<f32> = expected.iter().map(|x| *x as f32).collect();
            assert_eq!(as_reals::<f32>(dtype, bytes, Scaling::NONE), narrow, "{dtype}");
        };
        check(Dtype::Bool, &[0, 1, 2], &[0.0, 1.0, 1.0]);
        check(Dtype::Uint8, &[0, 255], &[0.0, 255.0]);
        check(Dtype::Int8, &[0x7f, 0x80], &[127.0, -128.0]);
        check(Dtype::Uint16, &[0xfe, 0xff], &[65534.0]);
        check(Dtype::Int16, &[0xfe, 0xff, 1, 2], &[-2.0, 513.0]);
        check(Dtype::Uint32, &[0xfe, 0xff, 0xff, 0xff], &[4_294_967_294.0]);
        check(Dtype::Int32, &[0xfe, 0xff, 0xff, 0xff], &[-2.0]);
        check(Dtype::Uint64, &u64::MAX.to_le_bytes(), &[18_446_744_073_709_551_616.0]);
        check(Dtype::Int64, &(-3_i64).to_le_bytes(), &[-3.0]);
        check(Dtype::Float16, &[0x00, 0xc1], &[-2.5]);
        check(Dtype::Bfloat16, &[0x20, 0xc0], &[-2.5]);
        check(Dtype::Float32, &0.1_f32.to_le_bytes(), &[f64::from(0.1_f32)]);
        check(Dtype::Float64, &0.1_f64.to_le_bytes(), &[0.1]);
    }

    #[test]
    fn scaling_rounds_once() {
        // 1/255 in f32 and then times 253 is another number than 253/255 rounded once.
        let once = (253.0_f64 * (1.0 / 255.0)) as f32;
        assert_ne!(253.0 * (1.0 / 255.0) as f32, once);
        assert_eq!(
            as_reals::<f32>(Dtype::Uint8, &[253], Scaling { factor: 1.0 / 255.0, offset: 0.0 }),
            [once]
        );
        let zero = as_reals::<f32>(Dtype::Float32, &(-0.0_f32).to_le_bytes(), Scaling::NONE);
        assert!(zero[0].is_sign_negative());
    }

    #[test]
    fn classes_are_whole_and_not_negative() {
        let check = |dtype, bytes: &[u8]| {
            let mut out = Vec::new();
            classes(dtype, bytes, &mut out).map(|()| out)
        };
        assert_eq!(check(Dtype::Uint8, &[0, 9, 255]), Ok(vec![0, 9, 255]));
        assert_eq!(check(Dtype::Bool, &[0, 7]), Ok(vec![0, 1]));
        assert_eq!(check(Dtype::Int64, &i64::MAX.to_le_bytes()), Ok(vec![i64::MAX]));
        assert_eq!(check(Dtype::Float32, &3_f32.to_le_bytes()), Ok(vec![3]));
        let wrong = |dtype, bytes: &[u8]| check(dtype, bytes).unwrap_err();
        assert_eq!(wrong(Dtype::Int8, &[0, 0xff]), "-1");
        assert_eq!(wrong(Dtype::Int64, &(-7_i64).to_le_bytes()), "-7");
        assert_eq!(wrong(Dtype::Uint64, &u64::MAX.to_le_bytes()), "18446744073709551615");
        assert_eq!(wrong(Dtype::Float64, &2.5_f64.to_le_bytes()), "2.5");
        assert_eq!(wrong(Dtype::Float32, &f32::NAN.to_le_bytes()), "NaN");
        assert_eq!(wrong(Dtype::Float32, &f32::INFINITY.to_le_bytes()), "inf");
    }
}
