//! Data sets of files on disk.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::super::batch::{Reals, Width};
use super::*;

/// A folder with files of a data set.
struct Folder(TempDir);

/// All files of a source.
fn open(source: &Source, base: &Path) -> Result<Dataset, Fault> {
    Dataset::open_some(source, "x", "y", base, &|_| true)
}

/// The bytes of some samples in place of what was in `x` and `y`.
fn gather(set: &Dataset, indices: &[u64], x: &mut Vec<u8>, y: &mut Vec<u8>) {
    (*x, *y) = (Vec::new(), Vec::new());
    let append = |_, inputs: &[u8], targets: &[u8]| {
        x.extend_from_slice(inputs);
        y.extend_from_slice(targets);
        Ok(())
    };
    set.each(indices, append).unwrap();
}

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes an array of bytes as `.npy`.
    fn npy(&self, name: &str, descr: &str, shape: &str, numbers: &[u8]) {
        fs::write(self.0.path().join(name), npy(descr, shape, numbers)).unwrap();
    }

    /// Writes an archive, stored, of the arrays `x` (uint8, one pair a sample) and `y` (int8).
    fn npz(&self, name: &str, x: &[[u8; 2]], y: &[i8]) {
        let y: Vec<u8> = y.iter().map(|b| *b as u8).collect();
        let file = fs::File::create(self.0.path().join(name)).unwrap();
        let mut zip = zip::ZipWriter::new(file);
        let stored = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored);
        for (name, bytes) in [
            ("x.npy", npy("|u1", &format!("{}, 2", x.len()), x.as_flattened())),
            ("y.npy", npy("|i1", &format!("{},", y.len()), &y)),
        ] {
            zip.start_file(name, stored).unwrap();
            std::io::Write::write_all(&mut zip, &bytes).unwrap();
        }
        zip.finish().unwrap();
    }

    fn open(&self, source: &Source) -> Result<Dataset, String> {
        let base = self.0.path();
        let root = format!("{}/", base.display());
        open(source, base).map_err(|f| f.sentence.replace(&root, ""))
    }

    fn pair(&self) -> Result<Dataset, String> {
        self.open(&Source::Pair { inputs: "x.npy".into(), targets: "y.npy".into() })
    }
}

fn npy(descr: &str, shape: &str, numbers: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(numbers);
    bytes
}

fn file(name: &str) -> Source {
    Source::File(name.into())
}

fn files(names: &[&str]) -> Source {
    Source::Files(names.iter().map(|n| (*n).to_owned()).collect())
}

/// Three files with 2, 0 and 3 samples: sample i has the inputs [i, 10 + i] and the target i.
fn three() -> Folder {
    let folder = Folder::new();
    folder.npz("s-0.npz", &[[0, 10], [1, 11]], &[0, 1]);
    folder.npz("s-1.npz", &[], &[]);
    folder.npz("s-2.npz", &[[2, 12], [3, 13], [4, 14]], &[2, 3, 4]);
    folder
}

const CLASSES: How = How { width: Width::F32, targets: Kind::Classes, scale: 1.0, offset: 0.0 };
const VALUES: How = How { width: Width::F64, targets: Kind::Values, scale: 0.5, offset: -1.0 };

#[test]
fn files_are_one_behind_the_other() {
    let folder = three();
    for source in [file("s-*.npz"), files(&["s-0.npz", "s-1.npz", "s-2.npz"])] {
        let set = folder.open(&source).unwrap();
        assert_eq!(
            (set.len(), set.sample_shape(), set.targets.shape.as_slice()),
            (5, &[2][..], &[][..])
        );
        assert_eq!((set.inputs.dtype, set.targets.dtype), (Dtype::Uint8, Dtype::Int8));
        let named: Vec<_> = set
            .files()
            .into_iter()
            .map(|s| (s.file.rsplit('/').next().unwrap().to_owned(), s.numbers))
            .collect();
        let expected = [("s-0.npz`", 0..2), ("s-1.npz`", 2..2), ("s-2.npz`", 2..5)]
            .map(|(f, r)| (f.into(), r));
        assert_eq!(named, expected);
        let (mut x, mut y) = (vec![9], vec![9]);
        gather(&set, &[4, 1, 2, 1], &mut x, &mut y);
        assert_eq!((x, y), (vec![4, 14, 1, 11, 2, 12, 1, 11], vec![4, 1, 2, 1]));
    }
    // The order of a list is its own.
    let set = folder.open(&files(&["s-2.npz", "s-0.npz"])).unwrap();
    let (mut x, mut y) = (Vec::new(), Vec::new());
    gather(&set, &[0, 3], &mut x, &mut y);
    assert_eq!((x, y), (vec![2, 12, 0, 10], vec![2, 0]));
}

#[test]
fn a_batch_has_the_numbers_a_model_takes() {
    let set = three().open(&file("s-*.npz")).unwrap();
    let expected = Batch {
        inputs: Reals::F32(vec![3.0, 13.0, 0.0, 10.0]),
        input_shape: vec![2, 2],
        targets: Targets::Classes(vec![3, 0]),
        target_shape: vec![2],
    };
    let classes = set.batch(&[3, 0], &CLASSES, None).unwrap();
    assert_eq!(classes, expected);
    let expected = Batch {
        inputs: Reals::F64(vec![0.5, 5.5]),
        input_shape: vec![1, 2],
        targets: Targets::Values(Reals::F64(vec![3.0])),
        target_shape: vec![1],
    };
    // In the memory of a batch of another kind.
    assert_eq!(set.batch(&[3], &VALUES, Some(classes)).unwrap(), expected);
}

#[test]
fn a_sample_may_be_seen_in_another_shape() {
    let set = three().open(&file("s-0.npz")).unwrap().with_shape(&[1, 2, 1]).unwrap();
    assert_eq!(set.sample_shape(), [1, 2, 1]);
    let batch = set.batch(&[1, 0, 1], &CLASSES, None).unwrap();
    assert_eq!((batch.input_shape, batch.target_shape), (vec![3, 1, 2, 1], vec![3]));
    let fault = set.with_shape(&[3]).unwrap_err().sentence;
    assert_eq!(fault, "samples of shape [1, 2, 1] cannot be seen as [3]");
}

#[test]
fn a_pair_of_files_is_one_data_set() {
    let folder = Folder::new();
    let x: Vec<u8> = [1.5_f32, -2.0, 0.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    folder.npy("x.npy", "<f4", "2, 2", &x);
    folder.npy("y.npy", "|u1", "2, 1", &[7, 8]);
    let set = folder.pair().unwrap();
    let batch = set.batch(&[1, 0], &CLASSES, None).unwrap();
    let expected = Batch {
        inputs: Reals::F32(vec![0.0, 4.0, 1.5, -2.0]),
        input_shape: vec![2, 2],
        targets: Targets::Classes(vec![8, 7]),
        target_shape: vec![2], // a column of classes is a list
    };
    assert_eq!(batch, expected);
    assert_eq!(set.batch(&[1, 0], &VALUES, None).unwrap().target_shape, [2, 1]);
}

#[test]
fn a_made_up_field_is_its_own_target() {
    let source = Source::Synthetic(crate::train::config::Synthetic {
        synthetic: crate::train::config::Field::Turbulence,
        samples: 3,
        size: 4,
        seed: 1,
    });
    let set = open(&source, Path::new("")).unwrap();
    assert_eq!((set.len(), set.sample_shape()), (3, &[3, 4, 4, 4][..]));
    assert_eq!((set.targets.shape.as_slice(), set.files()), (&[192][..], vec![]));
    let how = How { width: Width::F32, scale: 1.0, offset: 0.0, ..VALUES };
    let batch = set.batch(&[2, 0], &how, None).unwrap();
    assert_eq!(batch.input_shape, [2, 3, 4, 4, 4]);
    assert_eq!((batch.targets, batch.target_shape), (Targets::Values(batch.inputs), vec![2, 192]));
}

#[test]
fn targets_that_are_no_classes_are_told() {
    let folder = three();
    folder.npz("s-3.npz", &[[5, 15], [6, 16]], &[5, -1]);
    let set = folder.open(&file("s-*.npz")).unwrap();
    let fault = set.batch(&[0, 6], &CLASSES, None).unwrap_err();
    let place = format!("sample 1 of `{}/s-3.npz`", folder.0.path().display());
    assert_eq!(fault.sentence, format!("{place} has the target -1, which is not a class"));
    assert!(set.batch(&[0, 6], &VALUES, None).is_ok());
}

#[test]
fn a_number_that_is_no_samples_is_our_bug() {
    let set = three().open(&file("s-*.npz")).unwrap();
    let fault = set.batch(&[5], &CLASSES, None).unwrap_err();
    assert_eq!((fault.kind, &*fault.sentence), (fault::Kind::Bug, "sample 5 of a data set of 5"));
}

#[test]
fn what_does_not_belong_together_is_told() {
    let folder = three();
    let told = |source: &Source| folder.open(source).map(|_| ()).unwrap_err();
    folder.npz("short.npz", &[[0, 1], [2, 3]], &[1]);
    assert_eq!(told(&file("short.npz")), "`short.npz` has inputs for 2 samples and targets for 1");
    assert_eq!(told(&file("s-1.npz")), "`s-1.npz` has no samples");
    assert_eq!(told(&file("none-*.npz")), "no file matches `none-*.npz`");
    assert_eq!(told(&file("none.npz")), "there is no file `none.npz`");
    assert_eq!(told(&files(&[])), "a data set without files");
    folder.npy("x.npy", "|u1", "2, 3", &[0; 6]);
    folder.npy("y.npy", "|i1", "2,", &[0; 2]);
    assert_eq!(told(&file("x.npy")), "`x.npy` holds one array: inputs or targets");
    let pair = |inputs: &str, targets: &str| Source::Pair {
        inputs: inputs.into(),
        targets: targets.into(),
    };
    assert_eq!(
        told(&pair("s-*.npz", "y.npy")),
        "3 files of `s-*.npz` and 1 file of `y.npy` are not pairs"
    );
    folder.npy("one.npy", "|u1", "", &[1]);
    assert_eq!(
        told(&pair("one.npy", "y.npy")),
        "`one.npy` holds a single number where samples should be"
    );
    folder.npy("none.npy", "|u1", "2, 0", &[]);
    assert_eq!(told(&pair("none.npy", "y.npy")), "`none.npy` has samples of shape [0]: no numbers");
    folder.npz("wide-0.npz", &[[0, 1]], &[1]);
    fs::copy(
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases/data/stored.npz"),
        folder.0.path().join("wide-1.npz"),
    )
    .unwrap();
    assert_eq!(
        told(&file("wide-*.npz")),
        "inputs of `wide-0.npz` are uint8 of shape [2], those of `wide-1.npz` are uint8 of shape [1, 2, 3]"
    );
}

#[test]
fn the_digits_of_the_example_are_whole() {
    let base = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/data");
    let set = open(&file("digits.npz"), &base).unwrap();
    assert_eq!((set.len(), set.sample_shape()), (1797, &[1, 8, 8][..]));
    let all: Vec<u64> = (0..set.len()).collect();
    let (mut x, mut y) = (Vec::new(), Vec::new());
    gather(&set, &all, &mut x, &mut y);
    assert_eq!((x.iter().min(), x.iter().max()), (Some(&0), Some(&16)));
    let of_digit = |digit| y.iter().filter(|y| **y == digit).count();
    let counts: Vec<usize> = (0..10).map(of_digit).collect();
    assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    // The first image is a 0; its sums of rows, as in the source.
    let rows: Vec<u32> = x[..64].chunks(8).map(|r| r.iter().map(|x| u32::from(*x)).sum()).collect();
    assert_eq!(rows, [28, 58, 39, 32, 30, 35, 43, 29]);
}
