//! How many retries fit into a policy's time.

use crate::own::Resolved;

/// Retries beyond this are not told apart: no policy means to make so many.
const MANY: u64 = 10_000;

/// Shortest wait before retry `n` (from 1), in milliseconds.
pub(super) fn shortest(limits: &Resolved, n: u64) -> u64 {
    // Doubling 64 times passes every cap.
    let shift = u32::try_from(n.saturating_sub(1)).unwrap_or(u32::MAX).min(64);
    let planned = u128::from(limits.base_ms).checked_shl(shift).unwrap_or(u128::MAX);
    let capped = u64::try_from(planned.min(u128::from(limits.cap_ms))).unwrap_or(limits.cap_ms);
    scale(capped, limits.jitter.low)
}

/// How many retries can begin before the time is over, if attempts take no time and waits are the shortest.
pub(super) fn retries_within(limits: &Resolved) -> u64 {
    let wanted = limits.attempts.saturating_sub(1);
    let mut waited = 0_u64;
    for n in 1..=wanted.min(MANY) {
        waited = waited.saturating_add(shortest(limits, n));
        if waited >= limits.total_ms {
            return n - 1;
        }
    }
    wanted
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a float cast saturates, and waits need no precision beyond 2^53 ms"
)]
fn scale(millis: u64, factor: f64) -> u64 {
    (millis as f64 * factor).round() as u64
}
