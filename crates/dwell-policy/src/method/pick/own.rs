//! What the codec in use leaves, to be compared with a trial of the same bytes.

use super::trials::TRIAL_BYTES;

/// Of a codec in use, so many bytes or more, it is looked at what it leaves of the latest ones, for about as many as
/// count in a trial, and what it leaves of the same bytes in a trial.
pub(super) const CHECK_BYTES: u64 = 2 * TRIAL_BYTES;
const CHECK_WEIGHT_BYTES: f64 = 65_536.0;

/// What the codec in use has left since it is used, and nothing that another left before it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Own {
    pub(super) bytes: u64,
    /// Of the latest, before and after.
    original: f64,
    left: f64,
    /// What it left of the latest bytes when the present trial began.
    pub(super) ratio_then: Option<f64>,
    /// It was compared with a trial.
    pub(super) is_checked: bool,
}

impl Own {
    pub(super) fn compressed(&mut self, original_len: u64, left_len: u64) {
        let fade = (-(original_len as f64) / CHECK_WEIGHT_BYTES).exp();
        self.bytes = self.bytes.saturating_add(original_len);
        self.original = fade * self.original + original_len as f64;
        self.left = fade * self.left + left_len as f64;
    }

    /// A trial of the latest bytes begins.
    pub(super) fn compare(&mut self) {
        let is_known = self.bytes >= CHECK_BYTES && self.original > 0.0;
        self.ratio_then = is_known.then(|| self.left / self.original);
    }
}
