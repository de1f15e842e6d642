//! Other codecs for a stream that goes on.

use super::Hull;
use crate::method::codecs::Prior;

impl<C: Copy + PartialEq> Hull<C> {
    /// Goes on with these codecs ([`Steering::change`](crate::method::Steering::change)). How link and processor share the work is
    /// found again, as it depends on what the codecs take.
    pub(in crate::method) fn change(&mut self, priors: &[Prior<C>]) {
        let mut changed = Self::new(priors);
        changed.estimates.know(&self.estimates);
        if self.saves_bytes {
            changed.save_bytes();
        }
        (changed.short, changed.restoring) = (self.short, self.restoring);
        *self = changed;
    }
}
