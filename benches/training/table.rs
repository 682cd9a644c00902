//! Rows of ratios.

/// Prints the line above all rows.
pub(crate) fn head() {
    println!("{:<66} {:>10} {:>10} {:>7} {:>7}", "what", "median", "beside", "ratio", "bound");
}

/// A row of times taken in turn: medians, and the median of the ratios round by round. `bound` is the most
/// that the ratio may be; a `!` stands behind one that is larger.
pub(crate) fn row(what: &str, ours: &[f64], beside: &[f64], bound: Option<f64>) {
    let ratios: Vec<f64> = ours.iter().zip(beside).map(|(a, b)| a / b).collect();
    let ratio = median(&ratios);
    let (told, mark) = match bound {
        None => (String::new(), ""),
        Some(bound) => (format!("{bound}"), if ratio > bound { " !" } else { "" }),
    };
    let (ours, beside) = (time(median(ours)), time(median(beside)));
    println!("{what:<66} {ours:>10} {beside:>10} {ratio:>7.3} {told:>7}{mark}");
}

/// A row of one time.
pub(crate) fn single(what: &str, times: &[f64]) {
    println!("{what:<66} {:>10}", time(median(times)));
}

/// A row of a share or another number without a unit.
pub(crate) fn share(what: &str, shares: &[f64]) {
    println!("{what:<66} {:>10} {:>10} {:>7.3}", "", "", median(shares));
}

/// The middle one.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    let mut numbers = numbers.to_vec();
    numbers.sort_by(f64::total_cmp);
    let half = numbers.len() / 2;
    if numbers.len().is_multiple_of(2) {
        (numbers[half - 1] + numbers[half]) / 2.0
    } else {
        numbers[half]
    }
}

/// Seconds in a unit of their size.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.2} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
