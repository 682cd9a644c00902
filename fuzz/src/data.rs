//! Files of training data.

use hpcsweep::train::data::array::Bytes;
use hpcsweep::train::data::files::Arrays;

pub(crate) fn npy(bytes: &[u8]) {
    arrays(bytes, "npy");
}

pub(crate) fn npz(bytes: &[u8]) {
    arrays(bytes, "npz");
}

pub(crate) fn safetensors(bytes: &[u8]) {
    arrays(bytes, "safetensors");
}

/// IDX, also packed with gzip.
pub(crate) fn idx(bytes: &[u8]) {
    arrays(bytes, "");
}

fn arrays(bytes: &[u8], suffix: &str) {
    let Ok(file) = Arrays::read(Bytes::from(bytes.to_vec()), suffix, "`f`".to_owned()) else {
        return;
    };
    for name in file.names().unwrap_or_else(|| vec![String::new()]) {
        if let Ok(array) = file.array(&name) {
            let numbers: u64 = array.shape().iter().product();
            assert_eq!(numbers * array.dtype().size() as u64, array.bytes().len() as u64);
        }
    }
}
