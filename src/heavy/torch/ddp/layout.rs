//! Proof that all ranks mean the same gradients.

use hpcsweep::base::fault::Fault;
use hpcsweep::run::sync::peers::Peers;
use hpcsweep::train::bucket::layout_hash;

use crate::torch::model::Named;

/// Compares names, shapes and kinds of all tensors, in their order, over all ranks. Collective.
///
/// # Errors
/// The same one on every rank, when two ranks differ.
pub(super) fn agree(
    peers: &mut dyn Peers,
    parameters: &[Named],
    buffers: &[Named],
) -> Result<(), Fault> {
    let mine = describe(parameters, buffers);
    let mut descriptions = vec![0; mine.len() * peers.size() as usize];
    peers.all_gather(&mine, &mut descriptions)?;
    let records: Vec<&[u8]> = descriptions.chunks(mine.len()).collect();
    let Some(rank) = records.iter().position(|record| *record != records[0]) else {
        return Ok(());
    };
    let (other, first) = (counts(records[rank]), counts(records[0]));
    let difference = if other == first {
        "names, shapes or kinds of its tensors differ".to_owned()
    } else {
        format!(
            "{} parameters with {} numbers and {} buffers instead of {} with {} and {}",
            other[0], other[1], other[2], first[0], first[1], first[2]
        )
    };
    Err(Fault::request(format!("rank {rank} has another model than rank 0: {difference}"))
        .hint("all ranks need the same plan, the same program and the same model file"))
}

/// Bytes of the hash in front of a record.
const HASH: usize = 32;

/// A hash of everything, then a description for users.
fn describe(parameters: &[Named], buffers: &[Named]) -> Vec<u8> {
    let mark = |word: &str, list: &[Named]| -> Vec<(String, Vec<i64>, String)> {
        list.iter()
            .map(|named| {
                let kind = format!("{:?}", named.tensor.kind());
                (format!("{word} {}", named.name), named.tensor.size(), kind)
            })
            .collect()
    };
    let tensors = [mark("parameter", parameters), mark("buffer", buffers)].concat();
    let tensor_rows =
        tensors.iter().map(|(name, shape, kind)| (name.as_str(), &shape[..], kind.as_str()));
    let mut record = layout_hash(tensor_rows).to_vec();
    let numbers: usize = parameters.iter().map(|p| p.tensor.numel()).sum();
    for count in [parameters.len(), numbers, buffers.len()] {
        record.extend((count as u64).to_le_bytes());
    }
    record
}

fn counts(record: &[u8]) -> [u64; 3] {
    let mut counts = [0; 3];
    for (count, bytes) in counts.iter_mut().zip(record[HASH..].chunks(8)) {
        *count = bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
    }
    counts
}

#[cfg(test)]
mod tests {
    use hpcsweep::base::fault::Kind;
    use tch::{Device, Tensor};

    use super::*;

    /// Two ranks; the other one sends `other`.
    struct Two {
        other: Vec<u8>,
    }

    impl Peers for Two {
        fn rank(&self) -> u32 {
            0
        }
        fn size(&self) -> u32 {
            2
        }
        fn all_gather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), Fault> {
            all.copy_from_slice(&[mine, &self.other].concat());
            Ok(())
        }
        fn all_gather_pieces(&mut self, _: &[u8], _: &[usize], _: &mut [u8]) -> Result<(), Fault> {
            Err(Fault::new(Kind::Bug, "not here"))
        }
        fn broadcast(&mut self, _: u32, _: &mut [u8]) -> Result<(), Fault> {
            Err(Fault::new(Kind::Bug, "not here"))
        }
    }

    fn named(name: &str, shape: &[i64], kind: tch::Kind) -> Named {
        Named { name: name.into(), tensor: Tensor::zeros(shape, (kind, Device::Cpu)) }
    }

    #[test]
    fn another_model_on_another_rank_is_a_fault() {
        use tch::Kind::{Double, Float};
        let mine = [named("a", &[2, 3], Float), named("b", &[2], Float)];
        let say = |other: &[Named], buffers: &[Named]| {
            let result = agree(&mut Two { other: describe(other, buffers) }, &mine, &[]);
            result.err().map(|fault| fault.sentence)
        };
        let same = [named("a", &[2, 3], Float), named("b", &[2], Float)];
        assert_eq!(say(&same, &[]), None);
        let differs = Some(
            "rank 1 has another model than rank 0: names, shapes or kinds of its tensors differ"
                .into(),
        );
        assert_eq!(say(&[named("b", &[2], Float), named("a", &[2, 3], Float)], &[]), differs);
        assert_eq!(say(&[named("a", &[3, 2], Float), named("b", &[2], Float)], &[]), differs);
        assert_eq!(say(&[named("a", &[2, 3], Double), named("b", &[2], Float)], &[]), differs);
        assert_eq!(
            say(&same[..1], &[named("c", &[], Float)]),
            Some(
                "rank 1 has another model than rank 0: 1 parameters with 6 numbers and 1 buffers \
                 instead of 2 with 8 and 0"
                    .into()
            )
        );
    }
}
