//! The wall clock, the monotonic clock, and that of a process without the time in which it was suspended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds for which this process was suspended, as far as its waits have shown.
static SUSPENDED_MS: AtomicU64 = AtomicU64::new(0);

/// What a wait takes too long on a busy machine. Slurm suspends jobs for longer.
const DELAY: Duration = Duration::from_secs(5);

/// Notes how long a wait has taken that should have taken `wait` at most: what is more was no time of this process. A
/// scheduler suspends a job by SIGSTOP, and does not count that time towards its walltime.
pub(crate) fn note_wait(began: Instant, wait: Duration) {
    let more = began.elapsed().saturating_sub(wait);
    if more > DELAY {
        SUSPENDED_MS.fetch_add(more.as_millis() as u64, Ordering::Relaxed);
    }
}

/// The monotonic clock, which stood still while this process was suspended.
pub(crate) fn awake() -> Instant {
    let suspended = Duration::from_millis(SUSPENDED_MS.load(Ordering::Relaxed));
    let now = Instant::now();
    now.checked_sub(suspended).unwrap_or(now)
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
