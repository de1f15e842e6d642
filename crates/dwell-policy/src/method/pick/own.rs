//! What the codec in use leaves, to be compared with a trial of the same bytes.

use super::differs;
use super::trials::{DRIFT, TRIAL_BYTES};

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

    /// A trial of the latest bytes begins, of which and of others before them so much is left. Where that is much more or less
    /// than of the latest alone, another content has just begun, and these are of the one and the other.
    pub(super) fn compare(&mut self, ratio: Option<f64>) {
        let own = self.left / self.original;
        let is_even = ratio.is_some_and(|ratio| !differs(own / ratio, DRIFT));
        self.ratio_then = (self.bytes >= CHECK_BYTES && is_even).then_some(own);
    }
}
