//! Gradient buckets: which gradients travel together between ranks.
//!
//! The rules are those of PyTorch's DDP (`reducer.cpp`, `distributed.py`). All ranks make the same
//! buckets from the same parameters and reduce them in the same order; [`layout_hash`] tells whether
//! they did.

/// Bytes of the first bucket and of all others: torch's `kDefaultFirstBucketBytes` and
/// `bucket_cap_mb`. A small first bucket lets the reduction begin early.
pub const LIMITS: [u64; 2] = [1 << 20, 25 << 20];

/// A parameter, as far as buckets are concerned. `K` is the type of its numbers, in the words of the
/// caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter<K> {
    /// How many numbers it has.
    pub elements: u64,
    /// Bytes of one number.
    pub width: u64,
    /// Their type: a bucket holds numbers of one type.
    pub kind: K,
}

/// A bucket: gradients one behind the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket<K> {
    /// Type of the numbers.
    pub kind: K,
    /// Its content, in the order in which it lies there.
    pub slots: Vec<Slot>,
    /// Numbers in all of it.
    pub elements: u64,
}

/// The place of one gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Number of the parameter, in definition order.
    pub parameter: usize,
    /// Number of its first element in the bucket.
    pub offset: u64,
    /// How many it has.
    pub elements: u64,
}

/// The buckets of parameters whose gradients come in the order `arrival` (numbers in definition order, each
/// once): the small bucket is the first that is full. DDP rebuilds its buckets in this way after the first
/// backward pass; all ranks then use rank 0's order.
pub fn by_arrival<K: PartialEq + Copy>(
    parameters: &[Parameter<K>],
    arrival: &[usize],
    limits: &[u64],
) -> Vec<Bucket<K>> {
    filled(parameters, assign(parameters, arrival, limits))
}

/// torch's `compute_bucket_assignment_by_size`: a bucket is closed by the parameter that fills it, each
/// type of numbers has buckets and limits of its own, and those that are not full come last.
fn assign<K: PartialEq + Copy>(
    parameters: &[Parameter<K>],
    order: &[usize],
    limits: &[u64],
) -> Vec<Vec<usize>> {
    struct Open<K> {
        kind: K,
        group: Vec<usize>,
        bytes: u64,
        limit: usize,
    }
    let mut open: Vec<Open<K>> = Vec::new();
    let mut groups = Vec::new();
    for &number in order {
        let Parameter { elements, width, kind } = parameters[number];
        let bucket_index = open.iter().position(|open| open.kind == kind).unwrap_or_else(|| {
            open.push(Open { kind, group: Vec::new(), bytes: 0, limit: 0 });
            open.len() - 1
        });
        let bucket = &mut open[bucket_index];
        bucket.group.push(number);
        bucket.bytes += elements * width;
        if limits.get(bucket.limit).is_some_and(|limit| bucket.bytes >= *limit) {
            groups.push(std::mem::take(&mut bucket.group));
            bucket.bytes = 0;
            bucket.limit = (bucket.limit + 1).min(limits.len() - 1);
        }
    }
    groups.extend(open.into_iter().map(|open| open.group).filter(|group| !group.is_empty()));
    groups
}

/// Lays the parameters of each group one behind the other.
fn filled<K: Copy>(parameters: &[Parameter<K>], groups: Vec<Vec<usize>>) -> Vec<Bucket<K>> {
    groups
        .into_iter()
        .map(|group| {
            let kind = parameters[group[0]].kind;
            let mut elements = 0;
            let slots = group
                .into_iter()
                .map(|parameter| {
                    let slot = Slot {
                        parameter,
                        offset: elements,
                        elements: parameters[parameter].elements,
                    };
                    elements += slot.elements;
                    slot
                })
                .collect();
            Bucket { kind, slots, elements }
        })
        .collect()
}

/// A hash of what is reduced: names, shapes and types of numbers, in their order. Ranks with different
/// models would wait for each other or mix their numbers; they compare this before the first step.
pub fn layout_hash<'a>(
    parameters: impl IntoIterator<Item = (&'a str, &'a [i64], &'a str)>,
) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    // Lengths in front, so that no two layouts are the same bytes.
    let mut text = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    for (name, shape, dtype) in parameters {
        text(name);
        text(dtype);
        text(&shape.iter().map(|length| format!("{length},")).collect::<String>());
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Kind {
        Half,
        Single,
        Double,
    }
    use Kind::{Double, Half, Single};

    fn parameters(sizes: &[(u64, Kind)]) -> Vec<Parameter<Kind>> {
        let width = |kind| match kind {
            Half => 2,
            Single => 4,
            Double => 8,
        };
        let parameter =
            |&(elements, kind): &(u64, Kind)| Parameter { elements, width: width(kind), kind };
        sizes.iter().map(parameter).collect()
    }

    /// The layout of DDP with `find_unused_parameters`: filled from the first parameter to the last, the list reversed.
    fn by_definition(parameters: &[Parameter<Kind>], limits: &[u64]) -> Vec<Bucket<Kind>> {
        let order: Vec<usize> = (0..parameters.len()).collect();
        let mut buckets = by_arrival(parameters, &order, limits);
        buckets.sort_by_key(|bucket| bucket.slots.iter().map(|slot| slot.parameter).min());
        buckets.reverse();
        buckets
    }

    fn numbers(buckets: &[Bucket<Kind>]) -> Vec<Vec<usize>> {
        let of = |bucket: &Bucket<Kind>| bucket.slots.iter().map(|slot| slot.parameter).collect();
        buckets.iter().map(of).collect()
    }

    /// Against `torch.distributed._compute_bucket_assignment_by_size`, reversed.
    fn check(sizes: &[(u64, Kind)], limits: &[u64], expected: &[&[usize]]) {
        assert_eq!(numbers(&by_definition(&parameters(sizes), limits)), expected);
    }

    #[test]
    fn buckets_are_those_of_torch() {
        check(&[(100, Single); 3], &[400, 800], &[&[1, 2], &[0]]);
        let sizes = [50, 60, 200, 10, 300, 1, 1].map(|size| (size, Single));
        check(&sizes, &[400, 800], &[&[5, 6], &[3, 4], &[2], &[0, 1]]);
        check(
            &[(10, Single), (10, Half), (10, Single), (10, Half)],
            &[400, 800],
            &[&[1, 3], &[0, 2]],
        );
        let sizes = [
            (50, Single),
            (60, Double),
            (200, Single),
            (10, Double),
            (300, Single),
            (1, Single),
            (1, Double),
            (70, Single),
        ];
        check(&sizes, &[400, 800], &[&[5, 7], &[4], &[3, 6], &[1], &[0, 2]]);
        let sizes = [784 * 512, 512, 4096 * 1024, 1024, 4096 * 4096, 10, 3_000_000, 512];
        let sizes = sizes.map(|size| (size, Single));
        check(&sizes, &LIMITS, &[&[5, 6, 7], &[1, 2, 3, 4], &[0]]);
        check(&sizes, &LIMITS[1..], &[&[5, 6, 7], &[0, 1, 2, 3, 4]]);
        check(&[], &LIMITS, &[]);
    }

    #[test]
    fn in_order_of_arrival_the_small_bucket_is_the_first() {
        let sizes = [50, 60, 200, 10, 300, 1, 1].map(|size| (size, Single));
        let arrival = [6, 5, 4, 3, 2, 1, 0];
        let buckets = by_arrival(&parameters(&sizes), &arrival, &[400, 800]);
        assert_eq!(numbers(&buckets), [vec![6, 5, 4], vec![3, 2], vec![1, 0]]);
    }

    #[test]
    fn slots_lie_one_behind_the_other() {
        let sizes = [(50, Single), (60, Double), (7, Single), (0, Single), (3, Single)];
        let buckets = by_definition(&parameters(&sizes), &[1000]);
        let slot = |parameter, offset, elements| Slot { parameter, offset, elements };
        let expected = [
            Bucket { kind: Double, slots: vec![slot(1, 0, 60)], elements: 60 },
            Bucket {
                kind: Single,
                slots: vec![slot(0, 0, 50), slot(2, 50, 7), slot(3, 57, 0), slot(4, 57, 3)],
                elements: 60,
            },
        ];
        assert_eq!(buckets, expected);
    }

    #[test]
    fn every_parameter_is_in_one_bucket() {
        let kinds = [Single, Double, Half];
        let sizes: Vec<(u64, Kind)> =
            (0..200).map(|k| (k * 7919 % 1000, kinds[k as usize % 5 % 3])).collect();
        let parameters = parameters(&sizes);
        let buckets = by_definition(&parameters, &[1000, 9000]);
        let mut all = numbers(&buckets).concat();
        all.sort_unstable();
        assert_eq!(all, (0..200).collect::<Vec<usize>>());
        for bucket in buckets {
            assert!(bucket.slots.iter().all(|slot| parameters[slot.parameter].kind == bucket.kind));
        }
    }

    #[test]
    fn every_part_of_a_layout_changes_its_hash() {
        let hash =
            |name, shape: &[i64], dtype| layout_hash([(name, shape, dtype), ("b", &[3], "float")]);
        let one = hash("a", &[2, 3], "float");
        assert_eq!(hash("a", &[2, 3], "float"), one);
        for other in [
            hash("c", &[2, 3], "float"),
            hash("a", &[3, 2], "float"),
            hash("a", &[23], "float"),
            hash("a", &[2, 3], "double"),
            layout_hash([("b", &[3][..], "float"), ("a", &[2, 3], "float")]),
            layout_hash([("a", &[2, 3][..], "float")]),
        ] {
            assert_ne!(other, one);
        }
    }
}
