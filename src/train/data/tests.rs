//! Files of every form, as NumPy and safetensors wrote them (`tests/cases/data`), and broken ones.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::array::{Array, Bytes, Dtype};
use super::convert;
use super::files::Arrays;

const SUFFIXES: [&str; 4] = ["npy", "npz", "safetensors", ""];

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/data").join(name)
}

/// Type, shape and numbers.
type Content = (Dtype, Vec<u64>, Vec<f64>);

fn content(array: &Array) -> Content {
    let mut numbers = Vec::new();
    convert::reals(array.dtype(), array.bytes(), convert::Scaling::NONE, &mut numbers);
    (array.dtype(), array.shape().to_vec(), numbers)
}

fn one(name: &str) -> Content {
    content(&Arrays::open(&case(name)).unwrap().array("?").unwrap())
}

/// The sentence of a fault in a file with these bytes.
fn told(bytes: &[u8], suffix: &str) -> String {
    let read = |bytes: &[u8]| {
        let arrays = Arrays::read(bytes.to_vec().into(), suffix, "`f`".into())?;
        arrays.array("x")
    };
    read(bytes).map(|array| content(&array)).unwrap_err().sentence
}

#[test]
fn npy_of_all_versions_and_orders() {
    let plain = (0..6).map(|i| f64::from(i) / 4.0).collect();
    assert_eq!(one("plain.npy"), (Dtype::Float32, vec![2, 3], plain));
    assert_eq!(one("version2.npy"), (Dtype::Int16, vec![2, 2], vec![1.0, -2.0, 3.0, -4.0]));
    assert_eq!(one("version3.npy"), (Dtype::Bool, vec![3], vec![1.0, 0.0, 1.0]));
    assert_eq!(one("half.npy"), (Dtype::Float16, vec![3], vec![1.5, -0.25, 65504.0]));
    assert_eq!(one("single.npy"), (Dtype::Float64, vec![], vec![7.0]));
    let turned = (0..12).map(|i| f64::from(i) * 1000.0 - 5000.0).collect();
    assert_eq!(one("big_endian_fortran.npy"), (Dtype::Int32, vec![2, 3, 2], turned));
}

#[test]
fn npy_without_numbers_is_refused() {
    let told = |name: &str| told(&fs::read(case(name)).unwrap(), "npy");
    let no_numbers = "which are not numbers to train with";
    assert_eq!(told("words.npy"), format!("`f` holds `<U3`, {no_numbers}"));
    assert_eq!(told("objects.npy"), format!("`f` holds `|O`, {no_numbers}"));
    assert_eq!(
        told("records.npy"),
        format!("`f` holds `[('a', '<i4'), ('b', '<f8')]`, {no_numbers}")
    );
}

#[test]
fn broken_npy_says_what_is_broken() {
    let whole = fs::read(case("plain.npy")).unwrap();
    assert_eq!(told(b"PK\x03\x04", "npy"), "`f` is not a `.npy` file: it does not begin as one");
    assert_eq!(told(&whole[..7], "npy"), "`f` is cut off within its header");
    assert_eq!(told(&whole[..9], "npy"), "`f` is cut off within its header");
    assert_eq!(told(&whole[..100], "npy"), "`f` is cut off within its header");
    assert_eq!(
        told(&whole[..150], "npy"),
        "`f` is cut off: it says that it holds float32 of shape [2, 3], 24 bytes, and has 22"
    );
    assert_eq!(
        told(&[&whole[..], &[0; 3]].concat(), "npy"),
        "`f` has 3 bytes behind its last number"
    );
    let mut newer = whole.clone();
    newer[6] = 4;
    let known = "1.0, 2.0 and 3.0 are known";
    assert_eq!(told(&newer, "npy"), format!("`f` has version 4.0 of the `.npy` format; {known}"));
    let mut odd = whole;
    odd[10] = b'(';
    assert_eq!(
        told(&odd, "npy"),
        "`f` has a header that cannot be read: `('descr': '<f4', 'fortran_order': False, 'shape': (2, 3),...`"
    );
}

#[test]
fn npz_stored_and_packed_hold_the_same() {
    let x = (Dtype::Uint8, vec![4, 1, 2, 3], (0..24).map(f64::from).collect());
    let y = (Dtype::Int64, vec![4], vec![3.0, 0.0, 1.0, 2.0]);
    for (name, place) in [("stored.npz", "of Map("), ("packed.npz", "in memory")] {
        let arrays = Arrays::open(&case(name)).unwrap();
        assert_eq!(arrays.names(), Some(vec!["x".to_owned(), "y".to_owned()]));
        let array = arrays.array("x").unwrap();
        assert_eq!(content(&array), x, "{name}");
        assert!(format!("{array:?}").contains(place), "{name}: {array:?}");
        assert_eq!(content(&arrays.array("y").unwrap()), y, "{name}");
        let fault = arrays.array("z").unwrap_err().sentence;
        assert!(
            fault.ends_with(&format!("{name}` has no array `z`; it has `x` and `y`")),
            "{fault}"
        );
    }
}

#[test]
fn broken_npz_says_what_is_broken() {
    let whole = fs::read(case("packed.npz")).unwrap();
    let cut = told(&whole[..whole.len() - 30], "npz");
    assert!(cut.starts_with("`f` is not a whole `.npz` file: "), "{cut}");
    let at = whole.windows(5).position(|w| w == b"x.npy").unwrap() + 60;
    let mut changed = whole;
    changed[at] ^= 0xff;
    let changed = told(&changed, "npz");
    assert!(changed.starts_with("array `x` of `f` cannot be read: "), "{changed}");
    // One that lies there as it is has a checksum too.
    let stored = fs::read(case("stored.npz")).unwrap();
    let data = stored.windows(6).position(|w| w == b"\x93NUMPY").unwrap() + 128;
    for at in data..data + 24 {
        let mut changed = stored.clone();
        changed[at] ^= 1;
        let said = told(&changed, "npz");
        assert!(said.starts_with("array `x` of `f` cannot be read: "), "{at}: {said}");
    }
}

#[test]
fn safetensors_stay_where_they_are() {
    let arrays = Arrays::open(&case("tensors.safetensors")).unwrap();
    let names = ["x", "y", "b"].map(str::to_owned).to_vec();
    assert_eq!(arrays.names(), Some(names));
    let x = (0..24).map(|i| f64::from(i) / 8.0).collect();
    let array = arrays.array("x").unwrap();
    assert_eq!(content(&array), (Dtype::Float32, vec![4, 1, 2, 3], x));
    assert!(format!("{array:?}").contains("of Map("), "{array:?}");
    let y = vec![3.0, 0.0, 1.0, 2.0];
    assert_eq!(content(&arrays.array("y").unwrap()), (Dtype::Uint32, vec![4], y));
    let b = (Dtype::Bfloat16, vec![2], vec![1.0, -2.5]);
    assert_eq!(content(&arrays.array("b").unwrap()), b);
    let fault = arrays.array("z").unwrap_err().sentence;
    assert!(fault.ends_with("` has no array `z`; it has `x`, `y` and `b`"), "{fault}");
    let whole = fs::read(case("tensors.safetensors")).unwrap();
    assert_eq!(
        told(&whole[..whole.len() - 1], "safetensors"),
        "`f` is not a whole `.safetensors` file: incomplete metadata, file not fully covered"
    );
}

/// An IDX file as MNIST has them.
fn idx(kind: u8, shape: &[u32], numbers: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, kind, shape.len() as u8];
    bytes.extend(shape.iter().flat_map(|n| n.to_be_bytes()));
    bytes.extend_from_slice(numbers);
    bytes
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn idx_is_known_by_its_first_bytes() {
    let read = |bytes: Vec<u8>| {
        content(&Arrays::read(bytes.into(), "gz", "`f`".into()).unwrap().array("?").unwrap())
    };
    let images = idx(8, &[2, 1, 3], &[0, 1, 2, 3, 4, 255]);
    let expected = (Dtype::Uint8, vec![2, 1, 3], vec![0.0, 1.0, 2.0, 3.0, 4.0, 255.0]);
    assert_eq!(read(images.clone()), expected);
    assert_eq!(read(packed(&images)), expected);
    let wide = |kind, bytes: &[u8]| read(idx(kind, &[1], bytes)).2[0];
    assert_eq!(wide(9, &[0xff]), -1.0);
    assert_eq!(wide(11, &[0x01, 0x02]), 258.0);
    assert_eq!(wide(12, &(-5_i32).to_be_bytes()), -5.0);
    assert_eq!(wide(13, &1.5_f32.to_be_bytes()), 1.5);
    assert_eq!(wide(14, &1.5_f64.to_be_bytes()), 1.5);
}

#[test]
fn what_is_no_idx_is_told() {
    let images = idx(8, &[2, 1, 3], &[0; 6]);
    assert_eq!(
        told(&images[..20], ""),
        "`f` is cut off: it says that it holds uint8 of shape [2, 1, 3], 6 bytes, and has 4"
    );
    assert_eq!(told(&images[..10], ""), "`f` is cut off within its header");
    assert_eq!(told(&idx(7, &[1], &[0]), ""), "`f` is not a file of arrays");
    assert_eq!(told(b"x,y\n1,2\n", "csv"), "`f` is not a file of arrays");
    assert_eq!(told(&packed(b"x,y\n1,2\n"), "gz"), "`f` holds no IDX file");
    let cut = told(&packed(&images)[..20], "gz");
    assert!(cut.starts_with("`f` cannot be unpacked: "), "{cut}");
}

/// Reads all that there is; faults are as good as numbers.
fn read_all(bytes: Vec<u8>, suffix: &str) {
    let Ok(arrays) = Arrays::read(Bytes::from(bytes), suffix, "`f`".into()) else { return };
    for name in arrays.names().unwrap_or_else(|| vec!["x".into()]) {
        if let Ok(array) = arrays.array(&name) {
            content(&array);
        }
    }
}

fn whole_files() -> Vec<(String, Vec<u8>)> {
    let mut files = vec![
        (String::new(), idx(11, &[2, 2], &[1; 8])),
        ("gz".into(), packed(&idx(8, &[2, 1, 3], &[7; 6]))),
    ];
    for entry in fs::read_dir(case("")).unwrap() {
        let path = entry.unwrap().path();
        let suffix = path.extension().unwrap().to_str().unwrap().to_owned();
        files.push((suffix, fs::read(path).unwrap()));
    }
    files.sort();
    files
}

#[test]
fn no_cut_makes_a_reader_panic() {
    for (suffix, whole) in whole_files() {
        for end in 0..=whole.len() {
            read_all(whole[..end].to_vec(), &suffix);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_changed_byte_makes_a_reader_panic(
        file in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let files = whole_files();
        let (suffix, mut bytes) = files[file.index(files.len())].clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read_all(bytes, &suffix);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(
        start in prop::sample::select(vec![
            &b""[..], b"\x93NUMPY\x01\x00", b"\x93NUMPY\x02\x00", b"PK\x03\x04", b"PK\x05\x06",
            b"\x00\x00\x08\x02", b"\x1f\x8b\x08", b"\x10\x00\x00\x00\x00\x00\x00\x00{",
        ]),
        rest in prop::collection::vec(any::<u8>(), 0..200),
        suffix in prop::sample::select(SUFFIXES.to_vec()),
    ) {
        read_all([start, &rest].concat(), suffix);
    }
}
