//! The wall clock, the monotonic clock, and that of a process without the time in which it was suspended.

use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::SigSet;

/// The beats of a thread that does nothing but beat. It stands still while its process is suspended, and does not while
/// another thread waits for a disk or a core.
#[derive(Debug)]
struct Beats(Mutex<Heard>);

/// What the beats so far say. Both change under one lock: after a suspension all threads go on at once, and one that saw
/// the last beat without the time that it adds would believe that it had been awake.
#[derive(Debug)]
struct Heard {
    /// The last beat, in milliseconds; 0 before the first.
    last_ms: u64,
    /// For how long there should have been beats and were none.
    suspended_ms: u64,
}

static BEATS: Beats = Beats::new();

impl Beats {
    const PERIOD: Duration = Duration::from_millis(500);

    /// How late a beat may be on a busy machine. Slurm suspends jobs for longer.
    const DELAY: Duration = Duration::from_secs(5);

    const fn new() -> Self {
        Self(Mutex::new(Heard { last_ms: 0, suspended_ms: 0 }))
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Beats at the time that `now_ms` says.
    fn beat(&self, now_ms: impl FnOnce() -> u64) {
        self.heard().beat(now_ms());
    }

    /// For how long the process was suspended until now, in milliseconds; 0 without a beat.
    fn suspended_ms(&self, now_ms: impl FnOnce() -> u64) -> u64 {
        let mut heard = self.heard();
        // After a suspension this thread may run before the one that beats.
        if heard.last_ms > 0 {
            heard.beat(now_ms());
        }
        heard.suspended_ms
    }
}

impl Heard {
    /// Beats at `now_ms`, and adds the time since the last beat that was none of this process.
    fn beat(&mut self, now_ms: u64) {
        let late =
            now_ms.saturating_sub(self.last_ms).saturating_sub(Beats::PERIOD.as_millis() as u64);
        if self.last_ms > 0 && u128::from(late) > Beats::DELAY.as_millis() {
            self.suspended_ms += late;
        }
        self.last_ms = self.last_ms.max(now_ms);
    }
}

/// Milliseconds of the monotonic clock since the first call, which gives 1.
fn monotonic_ms() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_millis() as u64 + 1
}

/// From now on, [`awake`] stands still while this process is suspended: a scheduler does that by SIGSTOP, and does not
/// count the time towards the walltime of the job.
pub(crate) fn notice_suspensions() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        // The thread may get no core for a while.
        BEATS.beat(monotonic_ms);
        let beat = || {
            // A signal is for the threads that listen.
            let _ = SigSet::all().thread_block();
            loop {
                BEATS.beat(monotonic_ms);
                std::thread::sleep(Beats::PERIOD);
            }
        };
        // Without the thread, suspended time counts as any other.
        let _ = std::thread::Builder::new().name("clock".into()).stack_size(64 << 10).spawn(beat);
    });
}

/// The monotonic clock, which stood still while this process was suspended; see [`notice_suspensions`].
pub(crate) fn awake() -> Instant {
    // Read first: what a suspension between the two adds is then subtracted without having been added.
    let now = Instant::now();
    now.checked_sub(Duration::from_millis(BEATS.suspended_ms(monotonic_ms))).unwrap_or(now)
}

/// Seconds since 1970-01-01 UTC, rounded to milliseconds.
pub fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs_f64() * 1000.0).round() / 1000.0
}

/// A time in Unix seconds as people of this host read it: `2026-11-23 23:14:52`.
#[expect(unsafe_code, reason = "localtime_r(3) writes into a value of ours")]
pub(crate) fn local(seconds: f64) -> String {
    let time = seconds as nix::libc::time_t;
    let mut parts = std::mem::MaybeUninit::<nix::libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call, and zeros are a valid `tm`.
    let parts = unsafe {
        nix::libc::localtime_r(&raw const time, parts.as_mut_ptr());
        parts.assume_init()
    };
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}

/// A time in Unix seconds as RFC 3339, in UTC to the millisecond: `2026-11-23T22:14:52.250Z`.
pub(crate) fn utc(seconds: f64) -> String {
    let ms = (seconds * 1e3).round() as i64;
    let (days, ms) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    // Years that begin in March, in eras of 400 years.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month < 3);
    let (s, ms) = (ms / 1_000, ms % 1_000);
    let (hour, minute, s) = (s / 3_600, s / 60 % 60, s % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{s:02}.{ms:03}Z")
}

/// 64 bits that differ from run to run and host to host: time, process and address-space noise,
/// mixed by BLAKE3. For names of tokens and temporary files, not for secrets.
pub(crate) fn noise() -> u64 {
    let mut hasher = blake3::Hasher::new();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    hasher.update(&since.as_nanos().to_le_bytes());
    hasher.update(&std::process::id().to_le_bytes());
    hasher.update(super::vars::hostname().as_bytes());
    if let Ok(random) = std::fs::File::open("/dev/urandom") {
        use std::io::Read;
        let mut bytes = [0u8; 16];
        let mut limited = random.take(16);
        if limited.read_exact(&mut bytes).is_ok() {
            hasher.update(&bytes);
        }
    }
    let mut out = [0u8; 8];
    out.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(out)
}

/// A secret that cannot be guessed: 32 bytes of the kernel's random numbers, as 64 hexadecimal digits.
///
/// # Errors
/// When the kernel gives no random numbers.
pub(crate) fn secret() -> std::io::Result<String> {
    use std::io::Read;
    let mut bytes = [0u8; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Eight characters of [`noise`], lower-case letters and digits.
pub(crate) fn short_token() -> String {
    let mut n = noise();
    (0..8)
        .map(|_| {
            let c = b"abcdefghijkmnpqrstuvwxyz23456789"[(n % 32) as usize];
            n /= 32;
            char::from(c)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_of_the_calendar() {
        let all = [0.0, 951_782_399.999_6, 1_709_164_800.25, 4_102_444_799.0, -1.0].map(utc);
        let expected = [
            "1970-01-01T00:00:00.000Z",
            "2000-02-29T00:00:00.000Z",
            "2024-02-29T00:00:00.250Z",
            "2099-12-31T23:59:59.000Z",
            "1969-12-31T23:59:59.000Z",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn what_no_beat_was_heard_for_is_suspended_time_once() {
        let beats = Beats::new();
        let suspended = |at_ms: &[u64]| {
            at_ms.iter().for_each(|ms| beats.beat(|| *ms));
            beats.heard().suspended_ms
        };
        assert_eq!(suspended(&[70_000, 70_500, 71_000]), 0);
        // A busy machine.
        assert_eq!(suspended(&[76_500, 77_000]), 0);
        assert_eq!(suspended(&[97_000, 97_000, 97_500]), 19_500);
        // Another thread was told of the time before, and comes late.
        assert_eq!(suspended(&[80_000, 98_000]), 19_500);
        assert_eq!(suspended(&[108_500]), 29_500);
    }

    #[test]
    fn all_threads_that_go_on_after_a_suspension_know_of_it() {
        for _ in 0..2_000 {
            let beats = Beats::new();
            beats.beat(|| 1_000);
            let together = std::sync::Barrier::new(3);
            let goes_on = || {
                together.wait();
                beats.suspended_ms(|| 21_500)
            };
            let told = std::thread::scope(|scope| {
                let threads = [(); 3].map(|()| scope.spawn(goes_on));
                threads.map(|thread| thread.join().unwrap())
            });
            assert_eq!(told, [20_000; 3]);
        }
    }
}
