//! The random numbers of torch's CPU generator, and the permutations it makes of them.
//!
//! MT19937 (Matsumoto and Nishimura 1998), seeded as `torch.Generator.manual_seed` does: only the low
//! 32 bits of a seed count. [`randperm`] takes them as `randperm_cpu` of `TensorFactories.cpp` does, so
//! that an order drawn here is the order a PyTorch program would have had.

/// Words of the state, and words made at once.
const N: usize = 624;
/// Distance of the word that is mixed in.
const M: usize = 397;

/// The first number of elements for which torch takes 64 bits for each: `(2^32 - 1) / 20`.
const LARGE: u64 = u32::MAX as u64 / 20;

/// A stream of random words. Words are made 624 at a time, in loops without branches.
#[derive(Debug, Clone)]
pub(crate) struct Mt19937 {
    state: [u32; N],
    words: [u32; N],
    next: usize,
}

impl Mt19937 {
    /// The stream of `torch.Generator().manual_seed(seed)`. A negative seed is its two's complement.
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = [seed as u32; N];
        for i in 1..N {
            let previous = state[i - 1];
            state[i] =
                1_812_433_253_u32.wrapping_mul(previous ^ (previous >> 30)).wrapping_add(i as u32);
        }
        Self { state, words: [0; N], next: N }
    }

    /// The next 32 bits: torch's `random()`.
    fn next_u32(&mut self) -> u32 {
        if self.next == N {
            self.refill();
            self.next = 0;
        }
        self.next += 1;
        self.words[self.next - 1]
    }

    /// The next 64 bits: torch's `random64()`, whose upper half is drawn first.
    fn next_u64(&mut self) -> u64 {
        let high = u64::from(self.next_u32());
        high << 32 | u64::from(self.next_u32())
    }

    /// Makes the next words.
    fn refill(&mut self) {
        let state = &mut self.state;
        let mix = |this: u32, next: u32| {
            let both = (this & 0x8000_0000) | (next & 0x7fff_ffff);
            (both >> 1) ^ (0x9908_b0df & 0_u32.wrapping_sub(next & 1))
        };
        for i in 0..N - M {
            state[i] = state[i + M] ^ mix(state[i], state[i + 1]);
        }
        for i in N - M..N - 1 {
            state[i] = state[i + M - N] ^ mix(state[i], state[i + 1]);
        }
        state[N - 1] = state[M - 1] ^ mix(state[N - 1], state[0]);
        for (word, state) in self.words.iter_mut().zip(state) {
            let mut w = *state;
            w ^= w >> 11;
            w ^= (w << 7) & 0x9d2c_5680;
            w ^= (w << 15) & 0xefc6_0000;
            *word = w ^ (w >> 18);
        }
    }
}

/// The numbers 0 to `n - 1` in the order of `torch.randperm(n, generator=g)` on the CPU, where `g` was
/// seeded with `seed`.
pub fn randperm(n: u64, seed: u64) -> Vec<u64> {
    match u32::try_from(n) {
        Ok(n) => randperm32(n, seed).into_iter().map(u64::from).collect(),
        Err(_) => inside_out(n, &mut Mt19937::new(seed), |i| i),
    }
}

/// The same in half the memory.
pub(super) fn randperm32(n: u32, seed: u64) -> Vec<u32> {
    let mut words = Mt19937::new(seed);
    if u64::from(n) < LARGE {
        swapped(n, &mut words)
    } else {
        inside_out(n.into(), &mut words, |i| i as u32)
    }
}

/// Fewer than [`LARGE`] elements: each place is swapped with one behind it or itself, chosen by a
/// remainder of 32 bits.
fn swapped(n: u32, stream: &mut Mt19937) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n).collect();
    let mut ahead = [0_u32; N];
    let mut unshuffled = order.as_mut_slice();
    while unshuffled.len() > 1 {
        stream.refill();
        let steps = (unshuffled.len() - 1).min(N);
        // All remainders first: the divisions then run several at a time, and the swaps, which wait
        // for memory, one behind the other.
        let n_unshuffled = unshuffled.len() as u32;
        for ((ahead, word), k) in ahead.iter_mut().zip(&stream.words).zip(0..) {
            *ahead = remainder(*word, n_unshuffled.wrapping_sub(k).max(1));
        }
        for (k, ahead) in ahead[..steps].iter().enumerate() {
            unshuffled.swap(k, k + *ahead as usize);
        }
        unshuffled = &mut unshuffled[steps..];
    }
    order
}

/// `word % divisor` for a divisor below 2^31, without a division of integers, which no vector unit has.
///
/// The quotient of two numbers below 2^32 is rounded to a whole one, which is the right one or one too
/// large; the remainder then is negative. Adding 2^52 puts the whole number into the lowest bits.
#[inline(always)]
fn remainder(word: u32, divisor: u32) -> u32 {
    const MAGIC: f64 = (1_u64 << 52) as f64;
    let float = |x: u32| f64::from_bits(MAGIC.to_bits() | u64::from(x)) - MAGIC;
    let quotient = (float(word) / float(divisor) + MAGIC).to_bits() as u32;
    let difference = word.wrapping_sub(quotient.wrapping_mul(divisor));
    difference.wrapping_add(divisor & ((difference as i32) >> 31) as u32)
}

/// [`LARGE`] elements or more: each is put in at a place chosen by a remainder of 64 bits.
fn inside_out<T: Copy>(n: u64, stream: &mut Mt19937, element: impl Fn(u64) -> T) -> Vec<T> {
    let mut order = Vec::with_capacity(n as usize);
    for i in 0..n {
        let swap_with = stream.next_u64() % (i + 1);
        order.push(element(i));
        order.swap(swap_with as usize, i as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_that_of_the_standard() {
        // C++ [rand.predef]: the 10000th output of a default-constructed `std::mt19937` (seed 5489).
        let mut stream = Mt19937::new(5489);
        assert_eq!((0..10_000).map(|_| stream.next_u32()).last(), Some(4_123_659_995));
    }

    #[test]
    fn permutations_are_those_of_torch() {
        let check = |n, seed, expected: &[u64]| assert_eq!(randperm(n, seed), expected, "{seed}");
        check(10, 0, &[4, 1, 7, 5, 3, 9, 0, 8, 6, 2]);
        check(10, 1, &[5, 6, 1, 2, 0, 8, 9, 3, 7, 4]);
        check(10, 42, &[2, 6, 1, 8, 4, 5, 0, 9, 3, 7]);
        check(5, 42, &[2, 4, 3, 0, 1]);
        check(1, 42, &[0]);
        check(0, 42, &[]);
        // Only 32 bits of the seed count.
        check(10, (1 << 32) + 1, &[5, 6, 1, 2, 0, 8, 9, 3, 7, 4]);
        check(10, (1 << 53) - 1, &[1, 4, 6, 2, 0, 5, 8, 7, 9, 3]);
        // `manual_seed(-1)`.
        check(10, (-1_i64) as u64, &[1, 4, 6, 2, 0, 5, 8, 7, 9, 3]);
    }

    #[test]
    fn the_remainder_is_the_remainder() {
        let mut stream = Mt19937::new(3);
        let edges = [0, 1, 2, 3, 1 << 16, (1 << 28) - 1, 1 << 31, u32::MAX - 1, u32::MAX];
        for divisor in (1..2000).chain([65_535, 65_536, 214_748_363, 214_748_364, (1 << 31) - 1]) {
            let near = [divisor - 1, divisor, divisor + 1, u32::MAX / divisor * divisor];
            for word in edges.into_iter().chain(near).chain((0..50).map(|_| stream.next_u32())) {
                assert_eq!(remainder(word, divisor), word % divisor, "{word} % {divisor}");
            }
        }
    }

    #[test]
    fn every_length_is_permuted_as_by_the_formula() {
        // Lengths around those at which a new block of words begins.
        for n in [2, 3, 623, 624, 625, 626, 1247, 1248, 1249, 1250, 5000] {
            let mut stream = Mt19937::new(7);
            let mut expected: Vec<u64> = (0..n).collect();
            for i in 0..n - 1 {
                let ahead = u64::from(stream.next_u32()) % (n - i);
                expected.swap(i as usize, (i + ahead) as usize);
            }
            assert_eq!(randperm(n, 7), expected, "{n}");
        }
    }

    #[test]
    fn the_way_of_large_sets_is_the_formula_of_torch() {
        let n = 3000_u64;
        let mut stream = Mt19937::new(11);
        let mut expected = vec![0; n as usize];
        for i in 0..n as usize {
            let z = (stream.next_u64() % (i as u64 + 1)) as usize;
            expected[i] = expected[z];
            expected[z] = i as u64;
        }
        assert_eq!(inside_out(n, &mut Mt19937::new(11), |i| i), expected);
        assert_eq!(LARGE, 214_748_364);
    }
}
