//! A file in place of NVML: devices and what they say, as JSON. For trying things out, and for tests.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;

use super::{Device, Machine, Missing, Sample, Source};
use crate::base::host::disk;

/// A file as it is written: a [`Machine`] whose devices have samples, or what is missing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Written {
    /// Instead of everything else: what NVML would complain of.
    missing: Option<Missing>,
    driver: Option<String>,
    cuda: Option<String>,
    devices: Vec<WrittenDevice>,
}

#[derive(Debug, Deserialize)]
struct WrittenDevice {
    #[serde(flatten)]
    device: Device,
    /// One after the other; the last one stays.
    #[serde(default)]
    samples: Vec<Sample>,
}

/// The content of a file.
#[derive(Debug)]
pub(crate) struct File {
    machine: Machine,
    samples: HashMap<String, Vec<Sample>>,
    asked: HashMap<String, usize>,
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or is there to say that something is missing.
    pub(crate) fn open(path: &Path) -> Result<Self, Missing> {
        let text = disk::read(path).map_err(|error| Missing::Other(error.to_string()))?;
        let written: Written = serde_json::from_str(&text)
            .map_err(|error| Missing::Other(format!("`{}`: {error}", path.display())))?;
        if let Some(missing) = written.missing {
            return Err(missing);
        }
        let mut machine =
            Machine { driver: written.driver, cuda: written.cuda, devices: Vec::new() };
        let mut samples = HashMap::new();
        for WrittenDevice { device, samples: own } in written.devices {
            samples.insert(device.uuid.clone(), own);
            machine.devices.push(device);
        }
        Ok(Self { machine, samples, asked: HashMap::new() })
    }
}

impl Source for File {
    fn machine(&mut self) -> Result<Machine, Missing> {
        Ok(self.machine.clone())
    }

    fn sample(&mut self, uuid: &str) -> Sample {
        let all = self.samples.get(uuid).map_or(&[][..], Vec::as_slice);
        let turn = self.asked.entry(uuid.to_owned()).or_default();
        let sample = all.get(*turn).or(all.last()).cloned().unwrap_or_default();
        *turn += 1;
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(text: &str) -> Result<File, Missing> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        File::open(file.path())
    }

    #[test]
    fn samples_come_one_after_the_other_and_the_last_one_stays() {
        let mut file = opened(
            r#"{"driver": "550.54", "devices": [{"index": 3, "uuid": "GPU-a", "utilization": 7,
                "samples": [{"utilization": 1, "power_w": 50.5}, {"utilization": 2}]}]}"#,
        )
        .unwrap();
        let device =
            Device { index: 3, uuid: "GPU-a".into(), utilization: Some(7), ..Device::default() };
        let driver = Some("550.54".into());
        let machine = Machine { driver, cuda: None, devices: vec![device] };
        assert_eq!(file.machine(), Ok(machine));
        let said: Vec<_> = (0..4).map(|_| file.sample("GPU-a").utilization).collect();
        assert_eq!(said, [Some(1), Some(2), Some(2), Some(2)]);
        assert_eq!(file.sample("GPU-b"), Sample::default());
    }

    #[test]
    fn a_file_can_stand_for_a_host_without() {
        assert_eq!(opened(r#"{"missing": "mismatch"}"#).unwrap_err(), Missing::Mismatch);
        let other = opened(r#"{"missing": {"other": "GPU is lost"}}"#).unwrap_err();
        assert_eq!(other.to_string(), "NVML: GPU is lost");
        assert!(opened("{").unwrap_err().to_string().contains("EOF while parsing"));
    }
}
