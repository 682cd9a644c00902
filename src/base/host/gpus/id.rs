//! How a device is named: by its number on the host, or by the UUID of a GPU or MIG device.

use std::fmt;
use std::sync::Arc;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of a device in a plan, in a table or in `CUDA_VISIBLE_DEVICES`. In JSON a number or a text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceId {
    /// The number of a GPU by its place on the bus, as NVML and `CUDA_DEVICE_ORDER=PCI_BUS_ID` count.
    Index(u32),
    /// `GPU-...` or `MIG-...`, perhaps only the beginning of it.
    Uuid(Arc<str>),
}

impl DeviceId {
    /// Reads an entry of a list; `None` if it can name no device.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            return text.parse().ok().map(Self::Index);
        }
        let rest = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-"))?;
        // Older drivers write `MIG-GPU-.../1/0`.
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-/_".contains(&b);
        (!rest.is_empty() && rest.bytes().all(is_name)).then(|| Self::Uuid(Arc::from(text)))
    }

    /// Whether both are the UUID of one device; one of them may be only the beginning.
    pub(crate) fn is_part_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Uuid(one), Self::Uuid(other)) => {
                one.starts_with(&**other) || other.starts_with(&**one)
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Uuid(uuid) => f.write_str(uuid),
        }
    }
}

impl Serialize for DeviceId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Index(index) => to.serialize_u32(*index),
            Self::Uuid(uuid) => to.serialize_str(uuid),
        }
    }
}

impl<'de> Deserialize<'de> for DeviceId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reads;
        impl Visitor<'_> for Reads {
            type Value = DeviceId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the number or the UUID of a device")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<DeviceId, E> {
                let index = u32::try_from(number).ok().map(DeviceId::Index);
                index.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<DeviceId, E> {
                let named = DeviceId::parse(text).filter(|id| matches!(id, DeviceId::Uuid(_)));
                named.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        from.deserialize_any(Reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_a_number_or_a_uuid() {
        let read = |text| DeviceId::parse(text).map(|id| id.to_string());
        for id in ["0", "17", "GPU-8932f937", "MIG-aa-bb", "MIG-GPU-8932/1/0"] {
            assert_eq!(read(id).as_deref(), Some(id));
        }
        for other in ["", "-1", "GPU-", "MIG-", "NoDevFiles", "GPU-a,1", "GPU-a b", "4294967296"] {
            assert_eq!(read(other), None, "{other}");
        }
        let ids: Vec<DeviceId> = serde_json::from_str(r#"[3, "MIG-a"]"#).unwrap();
        assert_eq!(serde_json::to_string(&ids).unwrap(), r#"[3,"MIG-a"]"#);
        for wrong in ["[-1]", r#"["3"]"#, "[4294967296]", "[1.5]"] {
            assert!(serde_json::from_str::<Vec<DeviceId>>(wrong).is_err(), "{wrong}");
        }
    }
}
