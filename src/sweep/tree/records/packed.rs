//! A record as bytes of an index: the same values as its lines have, without a text to parse. Both ways name every member,
//! so that a new one cannot be forgotten.

use super::{
    Attempt, Decided, End, EnergySource, GpuUsage, MemorySource, Outcome, Place, Record, Start,
    Usage,
};
use crate::sweep::tree::key::Key;
use crate::sweep::tree::line::Spot;

/// Appends a record, without its note.
pub(super) fn pack(record: &Record, out: &mut Vec<u8>) {
    let Record { attempts, skipped, skipped_at, decisions, note: _ } = record;
    let mut out = Out(out);
    out.maybe(skipped.as_ref(), |out, reason| out.text(reason));
    out.number(*skipped_at);
    out.number(attempts.len() as u64);
    attempts.iter().for_each(|attempt| out.attempt(attempt));
    out.number(decisions.len() as u64);
    decisions.iter().for_each(|decided| out.decided(decided));
}

/// The record that was packed into these bytes; `None` if they are not exactly one.
pub(super) fn unpack(bytes: &[u8]) -> Option<Record> {
    let mut from = In(bytes);
    let skipped = from.maybe(In::text)?;
    let skipped_at = from.number()?;
    let attempts = from.list(In::attempt)?;
    let decisions = from.list(In::decided)?;
    from.0.is_empty().then(|| Record { attempts, skipped, skipped_at, decisions, note: None })
}

/// A record from these bytes, and how it is packed again; `None` if they are none.
pub fn unpacked(bytes: &[u8]) -> Option<(Record, Vec<u8>)> {
    let record = unpack(bytes)?;
    let mut again = Vec::new();
    pack(&record, &mut again);
    Some((record, again))
}

/// Appends values to bytes; [`In`] reads them back.
pub(crate) struct Out<'a>(pub(crate) &'a mut Vec<u8>);

impl Out<'_> {
    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Seven bits in each byte, the lowest first.
    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    fn signed(&mut self, number: i32) {
        self.0.extend(number.to_le_bytes());
    }

    pub(crate) fn float(&mut self, number: f64) {
        self.0.extend(number.to_le_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend(text.as_bytes());
    }

    pub(super) fn maybe<T>(&mut self, value: Option<T>, with: impl FnOnce(&mut Self, T)) {
        self.byte(u8::from(value.is_some()));
        if let Some(value) = value {
            with(self, value);
        }
    }

    pub(super) fn key(&mut self, key: Key) {
        self.0.extend(key.number().to_le_bytes());
    }

    fn attempt(&mut self, attempt: &Attempt) {
        // What was told of it stands in a wave.
        let Attempt {
            start,
            end,
            stopped,
            stopped_at,
            metrics,
            unread,
            run,
            bundle,
            is_orphan,
            told: _,
        } = attempt;
        self.start(start);
        self.maybe(end.as_ref(), Self::end);
        self.maybe(stopped.as_ref(), |out, (state, reason)| {
            out.byte(outcome(*state));
            out.text(reason);
        });
        self.maybe(*stopped_at, Self::float);
        self.number(metrics.len() as u64);
        let mut before = 0;
        for Spot { at, len } in metrics {
            // They are in the order of the file.
            self.number(at.wrapping_sub(before));
            self.number(*len);
            before = *at;
        }
        self.number(*unread);
        self.number((*run).into());
        self.maybe(bundle.as_ref(), Self::place);
        self.byte(u8::from(*is_orphan));
    }

    fn place(&mut self, place: &Place) {
        let Place { agent, slot, begun, lost, log, last } = place;
        self.text(agent);
        self.number((*slot).into());
        [begun, lost, last].into_iter().for_each(|flag| self.byte(u8::from(*flag)));
        self.maybe(*log, |out, (at, len)| {
            out.number(at);
            out.number(len);
        });
    }

    fn decided(&mut self, decided: &Decided) {
        let Decided { trial, attempt, time, seq, again, counts, grown, alone, why } = decided;
        self.number(*trial);
        self.number((*attempt).into());
        self.float(*time);
        self.number(*seq);
        [again, counts, grown, alone].into_iter().for_each(|flag| self.byte(u8::from(*flag)));
        self.text(why);
    }

    fn start(&mut self, start: &Start) {
        let Start {
            trial,
            attempt,
            time,
            slot,
            seq,
            argv,
            snapshot,
            devices,
            host,
            pid,
            started,
            job,
            ranks,
            version,
            resources,
            unlearnt_mib,
            behind,
            key,
            run,
        } = start;
        self.number(*trial);
        self.number((*attempt).into());
        self.float(*time);
        self.maybe(*slot, |out, slot| out.number(slot.into()));
        self.number(*seq);
        self.number(argv.len() as u64);
        argv.iter().for_each(|word| self.text(word));
        self.maybe(snapshot.as_ref(), |out, text| out.text(text));
        self.maybe(devices.as_ref(), |out, text| out.text(text));
        self.text(host);
        self.number((*pid).into());
        self.maybe(*started, Self::number);
        self.maybe(job.as_ref(), |out, text| out.text(text));
        self.number((*ranks).into());
        self.text(version);
        self.maybe(resources.as_deref(), |out, own| {
            out.text(&serde_json::to_string(own).unwrap_or_default());
        });
        self.number(*unlearnt_mib);
        self.byte(u8::from(*behind));
        self.maybe(*key, Self::key);
        self.number((*run).into());
    }

    fn end(&mut self, end: &End) {
        let End {
            trial,
            attempt,
            time,
            state,
            exit_code,
            signal,
            cause,
            reason,
            duration_s,
            peak_memory,
            usage,
            result,
            log,
            last,
            seq,
        } = end;
        self.number(*trial);
        self.number((*attempt).into());
        self.float(*time);
        self.byte(outcome(*state));
        self.maybe(*exit_code, Self::signed);
        self.maybe(*signal, Self::signed);
        self.maybe(*cause, |out, cause| out.text(cause.word()));
        self.maybe(reason.as_ref(), |out, text| out.text(text));
        self.float(*duration_s);
        self.number(*peak_memory);
        self.maybe(usage.as_deref(), Self::usage);
        self.maybe(result.as_ref(), |out, value| out.text(&value.to_string()));
        self.maybe(*log, |out, (at, len)| {
            out.number(at);
            out.number(len);
        });
        self.byte(u8::from(*last));
        self.maybe(*seq, Self::number);
    }

    fn usage(&mut self, usage: &Usage) {
        let Usage {
            memory_source,
            node_memory,
            rank_memory,
            cpu_user_s,
            cpu_system_s,
            processes,
            threads,
            read_bytes,
            written_bytes,
            gpus,
            energy_j,
            energy_source,
        } = usage;
        self.byte(match memory_source {
            MemorySource::Cgroup => 0,
            MemorySource::Pss => 1,
            MemorySource::Rss => 2,
            MemorySource::Rusage => 3,
            MemorySource::Process => 4,
        });
        self.maybe(*node_memory, Self::number);
        self.maybe(*rank_memory, Self::number);
        self.float(*cpu_user_s);
        self.float(*cpu_system_s);
        self.maybe(*processes, |out, n| out.number(n.into()));
        self.maybe(*threads, |out, n| out.number(n.into()));
        self.number(*read_bytes);
        self.number(*written_bytes);
        self.number(gpus.len() as u64);
        for GpuUsage { gpu, utilization, memory, energy_j } in gpus {
            self.number(*gpu as u64);
            self.maybe(*utilization, Self::float);
            self.maybe(*memory, Self::number);
            self.maybe(*energy_j, Self::float);
        }
        self.maybe(*energy_j, Self::float);
        self.maybe(*energy_source, |out, source| {
            out.byte(match source {
                EnergySource::Cray => 0,
                EnergySource::Rapl => 1,
            });
        });
    }
}

fn outcome(state: Outcome) -> u8 {
    match state {
        Outcome::Done => 0,
        Outcome::Failed => 1,
        Outcome::Timeout => 2,
        Outcome::Interrupted => 3,
    }
}

/// Reads values; `None` where the bytes are none.
pub(crate) struct In<'a>(pub(crate) &'a [u8]);

impl<'a> In<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn short(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn signed(&mut self) -> Option<i32> {
        Some(i32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub(crate) fn float(&mut self) -> Option<f64> {
        Some(f64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Bytes behind their number.
    pub(crate) fn slice(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        self.bytes(len)
    }

    pub(crate) fn str(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.slice()?).ok()
    }

    fn text(&mut self) -> Option<String> {
        self.str().map(str::to_owned)
    }

    pub(super) fn maybe<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Some(None) }
    }

    pub(crate) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok()?;
        // Each takes a byte at least.
        if count > self.0.len() {
            return None;
        }
        let mut all = Vec::with_capacity(count.min(1 << 10));
        for _ in 0..count {
            all.push(read(self)?);
        }
        Some(all)
    }

    fn outcome(&mut self) -> Option<Outcome> {
        Some(match self.byte()? {
            0 => Outcome::Done,
            1 => Outcome::Failed,
            2 => Outcome::Timeout,
            3 => Outcome::Interrupted,
            _ => return None,
        })
    }

    pub(super) fn key(&mut self) -> Option<Key> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(Key::of_number(u64::from_le_bytes(*number)))
    }

    fn attempt(&mut self) -> Option<Attempt> {
        let start = self.start()?;
        let end = self.maybe(Self::end)?;
        let stopped = self.maybe(|from| Some((from.outcome()?, from.text()?)))?;
        let stopped_at = self.maybe(Self::float)?;
        let mut before = 0_u64;
        let metrics = self.list(|from| {
            before = before.wrapping_add(from.number()?);
            Some(Spot { at: before, len: from.number()? })
        })?;
        let (unread, run) = (self.number()?, self.short()?);
        let (bundle, is_orphan) = (self.maybe(Self::place)?, self.flag()?);
        Some(Attempt {
            end,
            stopped,
            stopped_at,
            metrics,
            unread,
            is_orphan,
            ..Attempt::begun(start, run, bundle)
        })
    }

    fn place(&mut self) -> Option<Place> {
        let (agent, slot) = (self.text()?, self.short()?);
        let (begun, lost, last) = (self.flag()?, self.flag()?, self.flag()?);
        let log = self.maybe(|from| Some((from.number()?, from.number()?)))?;
        Some(Place { agent, slot, begun, lost, log, last })
    }

    fn decided(&mut self) -> Option<Decided> {
        Some(Decided {
            trial: self.number()?,
            attempt: self.short()?,
            time: self.float()?,
            seq: self.number()?,
            again: self.flag()?,
            counts: self.flag()?,
            grown: self.flag()?,
            alone: self.flag()?,
            why: self.text()?,
        })
    }

    fn start(&mut self) -> Option<Start> {
        Some(Start {
            trial: self.number()?,
            attempt: self.short()?,
            time: self.float()?,
            slot: self.maybe(Self::short)?,
            seq: self.number()?,
            argv: self.list(Self::text)?,
            snapshot: self.maybe(Self::text)?,
            devices: self.maybe(Self::text)?,
            host: self.text()?,
            pid: self.short()?,
            started: self.maybe(Self::number)?,
            job: self.maybe(Self::text)?,
            ranks: self.short()?,
            version: self.text()?,
            resources: self.maybe(|from| serde_json::from_str(from.str()?).ok())?,
            unlearnt_mib: self.number()?,
            behind: self.flag()?,
            key: self.maybe(Self::key)?,
            run: self.short()?,
        })
    }

    fn end(&mut self) -> Option<End> {
        Some(End {
            trial: self.number()?,
            attempt: self.short()?,
            time: self.float()?,
            state: self.outcome()?,
            exit_code: self.maybe(Self::signed)?,
            signal: self.maybe(Self::signed)?,
            cause: self.maybe(|from| serde_json::from_value(from.str()?.into()).ok())?,
            reason: self.maybe(Self::text)?,
            duration_s: self.float()?,
            peak_memory: self.number()?,
            usage: self.maybe(|from| from.usage().map(Box::new))?,
            result: self.maybe(|from| serde_json::from_str(from.str()?).ok())?,
            log: self.maybe(|from| Some((from.number()?, from.number()?)))?,
            last: self.flag()?,
            seq: self.maybe(Self::number)?,
        })
    }

    fn usage(&mut self) -> Option<Usage> {
        Some(Usage {
            memory_source: match self.byte()? {
                0 => MemorySource::Cgroup,
                1 => MemorySource::Pss,
                2 => MemorySource::Rss,
                3 => MemorySource::Rusage,
                4 => MemorySource::Process,
                _ => return None,
            },
            node_memory: self.maybe(Self::number)?,
            rank_memory: self.maybe(Self::number)?,
            cpu_user_s: self.float()?,
            cpu_system_s: self.float()?,
            processes: self.maybe(Self::short)?,
            threads: self.maybe(Self::short)?,
            read_bytes: self.number()?,
            written_bytes: self.number()?,
            gpus: self.list(|from| {
                Some(GpuUsage {
                    gpu: usize::try_from(from.number()?).ok()?,
                    utilization: from.maybe(Self::float)?,
                    memory: from.maybe(Self::number)?,
                    energy_j: from.maybe(Self::float)?,
                })
            })?,
            energy_j: self.maybe(Self::float)?,
            energy_source: self.maybe(|from| match from.byte()? {
                0 => Some(EnergySource::Cray),
                1 => Some(EnergySource::Rapl),
                _ => None,
            })?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sweep::tree::records::Event;

    fn packed(record: &Record) -> Vec<u8> {
        let mut bytes = Vec::new();
        pack(record, &mut bytes);
        bytes
    }

    /// An attempt with a value in every member.
    fn full() -> Attempt {
        let start = json!({
            "event": "start", "trial": 1_234_567, "attempt": 2, "time": 1.5e9, "slot": 3, "seq": 300, "argv": ["a", "", "é"],
            "snapshot": "0f", "devices": "0,1", "host": "n1", "pid": 4_000_000, "started": 1_u64 << 60, "job": "1_2", "ranks": 4,
            "version": "1", "unlearnt_mib": 200, "behind": true,
        });
        let end = json!({
            "event": "end", "trial": 1, "attempt": 2, "time": 0.1, "state": "failed", "exit_code": -1, "signal": 9,
            "cause": "out-of-memory", "reason": "r", "duration_s": 1e-300, "peak_memory": u64::MAX,
            "usage": {
                "memory_source": "pss", "node_memory": 1, "rank_memory": 2, "cpu_user_s": 0.1, "cpu_system_s": 0.2,
                "processes": 3, "threads": 4, "read_bytes": 5, "written_bytes": 6,
                "gpus": [{"gpu": 1, "utilization": 0.5, "memory": 7, "energy_j": 8.0}, {"gpu": 2}],
                "energy_j": 9.0, "energy_source": "rapl",
            },
            "result": {"b": [1, 0.1, null, "x"], "a": {"n": 18_446_744_073_709_551_615_u64}}, "log": [3, 4], "last": true, "seq": 5,
        });
        let (Ok(Event::Start(start)), Ok(Event::End(end))) =
            (serde_json::from_value(start), serde_json::from_value(end))
        else {
            unreachable!("a start and an end")
        };
        Attempt {
            end: Some(end),
            stopped: Some((Outcome::Timeout, "s".into())),
            stopped_at: Some(f64::NAN),
            metrics: vec![Spot { at: 9, len: 400 }, Spot { at: 3, len: 0 }],
            unread: 2,
            is_orphan: false,
            ..Attempt::begun(start, 7, None)
        }
    }

    #[test]
    fn a_record_is_unpacked_as_it_was_packed() {
        let place = Place {
            agent: "n1-a".into(),
            slot: 3,
            begun: true,
            lost: true,
            log: Some((1 << 40, 9)),
            last: true,
        };
        let short = Attempt { end: None, stopped: None, ..full() };
        let of_agent = Attempt { bundle: Some(place), is_orphan: true, ..full() };
        let decided = Decided {
            trial: 4,
            attempt: 1,
            time: 0.5,
            seq: 7,
            again: true,
            counts: true,
            grown: true,
            alone: true,
            why: "w".into(),
        };
        for record in [
            Record::default(),
            Record {
                attempts: vec![full(), short, of_agent],
                skipped: Some("k".into()),
                skipped_at: 300,
                decisions: vec![decided],
                ..Record::default()
            },
        ] {
            let bytes = packed(&record);
            assert_eq!(format!("{:?}", unpack(&bytes).unwrap()), format!("{record:?}"));
        }
    }

    #[test]
    fn bytes_that_are_no_record_are_none() {
        let record = Record { attempts: vec![full()], ..Record::default() };
        let bytes = packed(&record);
        for end in 0..bytes.len() {
            assert!(unpack(&bytes[..end]).is_none(), "cut at {end}");
        }
        assert!(unpack(&[&bytes[..], &[0]].concat()).is_none());
        for at in 0..bytes.len() {
            for byte in [0, 1, 2, 0x7f, 0x80, 0xff] {
                let mut other = bytes.clone();
                other[at] = byte;
                // Nothing but this: it neither panics nor takes much memory.
                unpack(&other);
            }
        }
    }
}
