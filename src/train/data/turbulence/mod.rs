//! A made-up turbulent velocity field: random Fourier modes, free of divergence, whose energy falls as
//! k^(-5/3) (Kolmogorov 1941), on a periodic cube.
//!
//! After Kraichnan, "Diffusion by a random velocity field", Phys. Fluids 13 (1970) 22: the sum of
//! `a cos(k x + phase)` with whole wave vectors `k` and amplitudes `a` across them. Seed and number of a
//! sample decide every bit of it, on every machine: the random numbers are a hash, the sums keep their
//! order, and cosines and powers are those of the crate `libm`, not of the system.

use std::f64::consts::TAU;

use crate::base::fault::Fault;
use crate::train::config::{Field, Synthetic};

/// Modes of each shell of wave numbers (k - 1/2, k + 1/2).
const MODES: u64 = 8;
/// Root mean square of each component.
const RMS: f64 = 0.1;
/// The longest edge: a sample then has 1.6 GB.
const LONGEST: u64 = 512;

/// The field: samples by number.
#[derive(Debug, Clone)]
pub(crate) struct Turbulence {
    samples: u64,
    size: u64,
    seed: u64,
    /// Squared amplitude of a mode, by shell from 1.
    energy: Vec<f64>,
}

/// One Fourier mode of a sample's field.
struct Mode {
    /// Whole waves along each edge, modulo the edge.
    k: [usize; 3],
    /// Amplitude of each component.
    a: [f64; 3],
    phase: f64,
}

impl Turbulence {
    /// The field that a plan asks for.
    ///
    /// # Errors
    /// When it asks for no samples, or for a cube of less than 3 or more than 512 points an edge.
    pub(crate) fn new(of: &Synthetic) -> Result<Self, Fault> {
        let Field::Turbulence = of.synthetic;
        if of.samples == 0 {
            return Err(Fault::request("a made-up field of 0 samples").hint("ask for at least 1"));
        }
        if !(3..=LONGEST).contains(&of.size) {
            return Err(Fault::request(format!(
                "a made-up field cannot have the size {}",
                of.size
            ))
            .hint(format!("`size` is the points along an edge, from 3 to {LONGEST}")));
        }
        // The largest wave number that the points can tell: below half of them.
        let shells = (of.size - 1) / 2;
        let weights: Vec<f64> = (1..=shells).map(|k| libm::pow(k as f64, -5.0 / 3.0)).collect();
        // The mean square of a cosine is 1/2, and the three components share the energy.
        let weight_sum: f64 = weights.iter().map(|w| w * MODES as f64).sum();
        let energy = weights.iter().map(|w| w / weight_sum * 6.0 * RMS * RMS).collect();
        Ok(Self { samples: of.samples, size: of.size, seed: of.seed, energy })
    }

    /// How many samples there are.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Points along an edge.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Sample `number`: component, then the three edges; component i is the velocity along edge i.
    pub(crate) fn sample(&self, number: u64) -> Vec<f32> {
        let edge = self.size as usize;
        let points = edge * edge * edge;
        let mut field = vec![0.0_f64; 3 * points];
        let (x, rest) = field.split_at_mut(points);
        let (y, z) = rest.split_at_mut(points);
        // At every point the wave is a whole number of steps of 1/edge of a turn from its start, so that
        // it has `edge` values, and a row of points is one of `edge` rows.
        let mut rows = vec![0.0_f64; edge * edge];
        for mode in self.modes(number) {
            let turn = |steps| TAU * steps as f64 / edge as f64;
            let values: Vec<f64> =
                (0..edge).map(|steps| libm::cos(turn(steps) + mode.phase)).collect();
            for (start, row) in rows.chunks_exact_mut(edge).enumerate() {
                for (along, value) in row.iter_mut().enumerate() {
                    *value = values[(start + mode.k[2] * along) % edge];
                }
            }
            for at in 0..edge * edge {
                let start = (mode.k[0] * (at / edge) + mode.k[1] * (at % edge)) % edge;
                let row = &rows[start * edge..][..edge];
                for (out, a) in [&mut *x, &mut *y, &mut *z].into_iter().zip(mode.a) {
                    for (value, cosine) in out[at * edge..][..edge].iter_mut().zip(row) {
                        *value += a * cosine;
                    }
                }
            }
        }
        field.into_iter().map(|value| value as f32).collect()
    }

    fn modes(&self, number: u64) -> Vec<Mode> {
        let mut draw = Draw::new(self.seed, number);
        let mut modes = Vec::new();
        for (shell, energy) in (1_i64..).zip(&self.energy) {
            for _ in 0..MODES {
                modes.push(self.mode(shell, *energy, &mut draw));
            }
        }
        modes
    }

    /// Draws a mode of a shell; drawn again until the wave vector lies in the shell, and the direction of
    /// the velocity is not nearly that of the wave.
    fn mode(&self, shell: i64, energy: f64, draw: &mut Draw) -> Mode {
        loop {
            let towards = draw.direction();
            let k = towards.map(|part| (part * shell as f64).round());
            // Twice the length lies between 2 shell - 1 and 2 shell + 1: compared in whole numbers.
            let squared = k.iter().map(|part| 4 * (*part as i64).pow(2)).sum::<i64>();
            if !((2 * shell - 1).pow(2)..(2 * shell + 1).pow(2)).contains(&squared) {
                continue;
            }
            let perpendicular = draw.direction();
            let across = [
                k[1] * perpendicular[2] - k[2] * perpendicular[1],
                k[2] * perpendicular[0] - k[0] * perpendicular[2],
                k[0] * perpendicular[1] - k[1] * perpendicular[0],
            ];
            let length = across.iter().map(|part| part * part).sum::<f64>().sqrt();
            if length < 0.1 * shell as f64 {
                continue;
            }
            let amplitude = energy.sqrt() / length;
            return Mode {
                k: k.map(|part| (part as i64).rem_euclid(self.size as i64) as usize),
                a: across.map(|part| part * amplitude),
                phase: TAU * draw.unit(),
            };
        }
    }
}

/// Random numbers of one sample.
struct Draw(blake3::OutputReader);

impl Draw {
    fn new(seed: u64, number: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("hpcsweep turbulence 1");
        hasher.update(&seed.to_le_bytes()).update(&number.to_le_bytes());
        Self(hasher.finalize_xof())
    }

    /// From 0 up to but not 1.
    fn unit(&mut self) -> f64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        // The 53 bits of an f64, so that none of them is rounded.
        (u64::from_le_bytes(bytes) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A point of the unit sphere, all equally likely.
    fn direction(&mut self) -> [f64; 3] {
        let (z, turn) = (2.0 * self.unit() - 1.0, TAU * self.unit());
        let radius = (1.0 - z * z).sqrt();
        [radius * libm::cos(turn), radius * libm::sin(turn), z]
    }
}

#[cfg(test)]
mod tests;
