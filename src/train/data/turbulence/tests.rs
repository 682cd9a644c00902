//! The field against what it promises, by Fourier sums of its own.

use super::*;

fn field(size: u64, seed: u64) -> Turbulence {
    Turbulence::new(&Synthetic { synthetic: Field::Turbulence, samples: 10, size, seed }).unwrap()
}

/// Real and imaginary part of a Fourier sum along every edge of a cube, divided by its points.
fn transform(cube: &[f32], edge: usize) -> Vec<(f64, f64)> {
    let mut data: Vec<(f64, f64)> = cube.iter().map(|x| (f64::from(*x), 0.0)).collect();
    for stride in [1, edge, edge * edge] {
        let mut out = vec![(0.0, 0.0); data.len()];
        for (at, sum) in out.iter_mut().enumerate() {
            let k = at / stride % edge;
            for j in 0..edge {
                let (re, im) = data[at - k * stride + j * stride];
                let (sin, cos) = (-TAU * (k * j % edge) as f64 / edge as f64).sin_cos();
                sum.0 += (re * cos - im * sin) / edge as f64;
                sum.1 += (re * sin + im * cos) / edge as f64;
            }
        }
        data = out;
    }
    data
}

/// The wave number from -edge/2 up.
fn wave(index: usize, edge: usize) -> f64 {
    let k = index as f64;
    if index > edge / 2 { k - edge as f64 } else { k }
}

/// A point of Fourier space: its wave vector, and real and imaginary part of the three components.
type Point = ([f64; 3], [(f64, f64); 3]);

fn modes(sample: &[f32], edge: usize) -> Vec<Point> {
    let points = edge * edge * edge;
    let parts: Vec<_> = sample.chunks(points).map(|cube| transform(cube, edge)).collect();
    let at = |n: usize| {
        let k = [n / edge / edge, n / edge % edge, n % edge].map(|k| wave(k, edge));
        (k, [parts[0][n], parts[1][n], parts[2][n]])
    };
    (0..points).map(at).collect()
}

#[test]
fn it_has_no_divergence() {
    let sample = field(16, 3).sample(0);
    let (mut divergence, mut gradient) = (0.0, 0.0);
    for (k, u) in modes(&sample, 16) {
        let re: f64 = (0..3).map(|i| k[i] * u[i].0).sum();
        let im: f64 = (0..3).map(|i| k[i] * u[i].1).sum();
        divergence += re * re + im * im;
        let k2: f64 = k.iter().map(|k| k * k).sum();
        gradient += k2 * u.iter().map(|(re, im)| re * re + im * im).sum::<f64>();
    }
    // Of f32: 6e-8 a number.
    assert!((divergence / gradient).sqrt() < 1e-6, "{divergence} of {gradient}");
}

#[test]
fn its_energy_falls_as_kolmogorov_says() {
    let field = field(16, 1);
    let mut energy = [0.0; 9];
    for number in 0..10 {
        for (k, u) in modes(&field.sample(number), 16) {
            let length = k.iter().map(|k| k * k).sum::<f64>().sqrt();
            let shell = length.round() as usize;
            if let Some(sum) = energy.get_mut(shell) {
                *sum += u.iter().map(|(re, im)| re * re + im * im).sum::<f64>() / 2.0;
            }
        }
    }
    assert!(energy[0] < 1e-12 && energy[8] < 1e-12, "{energy:?}");
    // Slope of a straight line through the logarithms, shells 1 to 7.
    let points: Vec<(f64, f64)> = (1..8).map(|k| ((k as f64).ln(), energy[k].ln())).collect();
    let n = points.len() as f64;
    let (sx, sy): (f64, f64) = points.iter().fold((0.0, 0.0), |s, p| (s.0 + p.0, s.1 + p.1));
    let sxy: f64 = points.iter().map(|(x, y)| (x - sx / n) * (y - sy / n)).sum();
    let sxx: f64 = points.iter().map(|(x, _)| (x - sx / n).powi(2)).sum();
    let slope = sxy / sxx;
    assert!((slope + 5.0 / 3.0).abs() < 0.1, "slope {slope}: {energy:?}");
    // Three components, a half each.
    let all: f64 = energy.iter().sum::<f64>() / 10.0;
    assert!((all / (1.5 * RMS * RMS) - 1.0).abs() < 0.1, "{all}");
}

#[test]
fn seed_and_number_decide_it() {
    let sample = |seed, number| field(8, seed).sample(number);
    assert_eq!(sample(7, 3), sample(7, 3));
    assert_ne!(sample(7, 3), sample(7, 4));
    assert_ne!(sample(7, 3), sample(8, 3));
    // Pinned: the same bits on every machine and in every version.
    let bytes: Vec<u8> = sample(7, 3).iter().flat_map(|x| x.to_le_bytes()).collect();
    let hash = blake3::hash(&bytes).to_hex();
    assert_eq!(hash.as_str(), "7bdf47cd4da72a78e5c1fd004beb4e3729f7a25a4969a0e377ab0bcaf33c1790");
}

#[test]
fn what_cannot_be_made_is_refused() {
    let told = |samples, size| {
        let of = Synthetic { synthetic: Field::Turbulence, samples, size, seed: 0 };
        Turbulence::new(&of).map(|_| ()).unwrap_err().sentence
    };
    assert_eq!(told(0, 16), "a made-up field of 0 samples");
    assert_eq!(told(1, 2), "a made-up field cannot have the size 2");
    assert_eq!(told(1, u64::MAX), "a made-up field cannot have the size 18446744073709551615");
}
