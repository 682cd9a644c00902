//! The energy that this node has taken, where its kernel counts it.

use std::fs;
use std::path::{Path, PathBuf};

/// The counters of a node, and what they have counted since they were found.
#[derive(Debug)]
pub(crate) struct Energy {
    counters: Vec<Counter>,
    joules: f64,
    /// Whether the processors count, and not the whole node.
    pub(crate) is_rapl: bool,
}

#[derive(Debug)]
struct Counter {
    file: PathBuf,
    last: u64,
    /// Where it starts over.
    range: Option<u64>,
}

impl Energy {
    /// The counters of this node; `None` if there are none that this user may read.
    pub(crate) fn of_node() -> Option<Self> {
        Self::below(Path::new("/sys"))
    }

    fn below(sys: &Path) -> Option<Self> {
        let whole = sys.join("cray/pm_counters/energy");
        if let Some(last) = number(&whole) {
            let counters = vec![Counter { file: whole, last, range: None }];
            return Some(Self { counters, joules: 0.0, is_rapl: false });
        }
        let mut counters = Vec::new();
        for package in domains(&sys.join("class/powercap"), "package") {
            counters.extend(domains(&package, "dram").iter().filter_map(|dram| rapl(dram)));
            counters.push(rapl(&package)?);
        }
        (!counters.is_empty()).then_some(Self { counters, joules: 0.0, is_rapl: true })
    }

    /// Reads the counters, which start over after some minutes: to be called now and then. The joules so far.
    pub(crate) fn look(&mut self) -> f64 {
        let is_rapl = self.is_rapl;
        for counter in &mut self.counters {
            let Some(now) = number(&counter.file) else { continue };
            let more = since(counter.last, now, counter.range);
            counter.last = now;
            self.joules += if is_rapl { more as f64 / 1e6 } else { more as f64 };
        }
        self.joules
    }
}

/// What a counter has counted between two looks.
fn since(last: u64, now: u64, range: Option<u64>) -> u64 {
    match now.checked_sub(last) {
        Some(more) => more,
        None => range.map_or(0, |range| range.saturating_sub(last).saturating_add(now)),
    }
}

/// The folders `intel-rapl:...` in a folder whose name says this.
fn domains(folder: &Path, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_wanted = |path: &PathBuf| {
        let own =
            path.file_name().is_some_and(|file| file.to_string_lossy().starts_with("intel-rapl:"));
        own && fs::read_to_string(path.join("name")).is_ok_and(|text| text.starts_with(name))
    };
    let mut found: Vec<PathBuf> = entries.filter(is_wanted).collect();
    found.sort();
    found
}

fn rapl(folder: &Path) -> Option<Counter> {
    let file = folder.join("energy_uj");
    let last = number(&file)?;
    Some(Counter { file, last, range: number(&folder.join("max_energy_range_uj")) })
}

/// The number at the beginning of a file: `123`, or `123 J`.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_of_the_node_comes_before_those_of_its_processors() {
        let sys = tempfile::tempdir().unwrap();
        assert!(Energy::below(sys.path()).is_none());
        let write = |name: &str, text: &str| {
            let path = sys.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let package = "class/powercap/intel-rapl:0";
        for (domain, name, energy) in [
            (package.to_owned(), "package-0", "900"),
            (format!("{package}/intel-rapl:0:0"), "core", "100"),
            (format!("{package}/intel-rapl:0:1"), "dram", "500000"),
            // The first domain again, as the kernel links it, and the whole board, which has both in it.
            ("class/powercap/intel-rapl:0:1".to_owned(), "dram", "500000"),
            ("class/powercap/intel-rapl:1".to_owned(), "psys", "7"),
        ] {
            write(&format!("{domain}/name"), &format!("{name}\n"));
            write(&format!("{domain}/energy_uj"), energy);
            write(&format!("{domain}/max_energy_range_uj"), "1000");
        }
        let mut energy = Energy::below(sys.path()).unwrap();
        assert!(energy.is_rapl);
        // The package has started over, and its memory has used a joule and a half.
        write(&format!("{package}/energy_uj"), "100");
        write(&format!("{package}/intel-rapl:0:1/energy_uj"), "2000000");
        assert!((energy.look() - 1.5002).abs() < 1e-9);
        assert!((energy.look() - 1.5002).abs() < 1e-9);
        write("cray/pm_counters/energy", "5000 J 1234 us\n");
        let mut energy = Energy::below(sys.path()).unwrap();
        write("cray/pm_counters/energy", "5300 J 1299 us\n");
        assert!(!energy.is_rapl && energy.look() == 300.0);
    }
}
