//! The key of a trial, as far as records name it: a number that is compared for each trial of a sweep.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The first half of a trial's key: what a record says of its trial.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(u64);

/// Hexadecimal digits of a [`Key`].
const DIGITS: usize = 16;

/// The value of each byte as a hexadecimal digit; more than 15 of a byte that is none.
const VALUES: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value as usize] as usize] = value;
        values[b"0123456789ABCDEF"[value as usize] as usize] = value;
        value += 1;
    }
    values
};

impl Key {
    /// That of a whole key, as tables have it; `None` of any other text.
    pub(crate) fn of(key: &str) -> Option<Self> {
        Self::of_digits(key.as_bytes())
    }

    /// As [`Key::of`], of bytes. Readers call it for each trial of a sweep.
    pub(in crate::sweep::tree) fn of_digits(key: &[u8]) -> Option<Self> {
        let digits = key.first_chunk::<DIGITS>()?;
        let (mut number, mut seen) = (0, 0);
        for digit in digits {
            let value = VALUES[usize::from(*digit)];
            seen |= value;
            number = number << 4 | u64::from(value & 15);
        }
        (seen < 16).then_some(Self(number))
    }

    pub(in crate::sweep::tree) fn number(self) -> u64 {
        self.0
    }

    pub(in crate::sweep::tree) fn of_number(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let key = Self::of(&text).filter(|_| text.len() == DIGITS);
        key.ok_or_else(|| D::Error::custom("a key has 16 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::Key;

    #[test]
    fn a_key_is_read_as_its_digits_say() {
        for text in ["0123456789abcdef", "ffffffffffffffff", "0123456789ABCDEF0123"] {
            let key = Key::of(text).map(Key::number);
            assert_eq!(key, u64::from_str_radix(&text[..16], 16).ok(), "{text}");
        }
        for text in
            ["", "0123456789abcde", "0123456789abcdeg", "0123456789abcde ", "+123456789abcdef"]
        {
            assert_eq!(Key::of(text), None, "{text}");
        }
    }
}
