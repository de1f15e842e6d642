//! Which offers of a node are open: made, not yet answered, and not too old.
//!
//! ```text
//! OFFER'S-DIGEST NODE'S-DIGEST PASS UNTIL
//! ```
//!
//! A line of text each, in a file beside the configuration that only its owner reads.

use std::fmt;

use thiserror::Error;

use super::line::{Line, LineKind, is_digest};
use super::seal::Pass;

/// The most offers of a node that are open at a time.
pub const OPEN_MAX: usize = 10_000;

/// An offer that waits for its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// The digest of the offer, by [`Line::offer_digest`].
    pub offer: String,
    /// The digest of what it says of the node, by [`Line::node_digest`].
    pub node: String,
    /// The offer's pass.
    pub pass: Pass,
    /// When it is no longer valid, in seconds since 1970.
    pub until_s: u64,
}

impl Invitation {
    /// Returns what is to be remembered of an offer; none of an answer.
    pub fn of(offer: &Line, until_s: u64) -> Option<Self> {
        let LineKind::Offer { pass, .. } = &offer.kind else { return None };
        Some(Self { offer: offer.offer_digest(), node: offer.node_digest(), pass: *pass, until_s })
    }

    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let mut digest = || words.next().filter(|text| is_digest(text)).map(str::to_owned);
        let (offer, node) = (digest()?, digest()?);
        let (pass, until_s) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        words.next().is_none().then_some(Self { offer, node, pass, until_s })
    }
}

/// The open offers of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invitations(Vec<Invitation>);

/// Why there can't be more open offers, or why they can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvitationError {
    /// This line of the file is none.
    #[error(
        "line {0} of it is no open offer: remove the file, and make new lines with `dwell invite`"
    )]
    Malformed(usize),
    /// There are as many as there may be.
    #[error(
        "{OPEN_MAX} lines of this node wait for their answers, which is the most: they end after some days, \
         or at once if you remove the file"
    )]
    Full,
}

impl Invitations {
    /// Reads what [`fmt::Display`] has written, without what is too old.
    ///
    /// # Errors
    /// If it is something else.
    pub fn read(text: &str, now_s: u64) -> Result<Self, InvitationError> {
        let mut open = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.starts_with('#') {
                continue;
            }
            let invitation = Invitation::read(line);
            let invitation = invitation.ok_or(InvitationError::Malformed(number + 1))?;
            if invitation.until_s > now_s && open.len() < OPEN_MAX {
                open.push(invitation);
            }
        }
        Ok(Self(open))
    }

    /// Adds an offer.
    ///
    /// # Errors
    /// If there are too many.
    pub fn add(&mut self, invitation: Invitation) -> Result<(), InvitationError> {
        if self.0.len() >= OPEN_MAX {
            return Err(InvitationError::Full);
        }
        self.0.push(invitation);
        Ok(())
    }

    /// Returns the open offer with this digest.
    pub fn get(&self, offer: &str) -> Option<&Invitation> {
        self.0.iter().find(|invitation| invitation.offer == offer)
    }

    /// Ends the offer with this digest: it takes no other answer.
    pub fn end(&mut self, offer: &str) {
        self.0.retain(|invitation| invitation.offer != offer);
    }
}

impl fmt::Display for Invitations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Lines of `dwell init` and `dwell invite` that wait for their answers.")?;
        for Invitation { offer, node, pass, until_s } in &self.0 {
            writeln!(f, "{offer} {node} {pass} {until_s}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn invitation(seed: u8, until_s: u64) -> Invitation {
        let digest = |from: u8| char::from(b'a' + (from + seed) % 26).to_string().repeat(16);
        Invitation { offer: digest(0), node: digest(1), pass: Pass::new([seed; 16]), until_s }
    }

    #[test]
    fn an_offer_is_open_until_it_is_answered_or_too_old() {
        let mut open = Invitations::default();
        for (seed, until_s) in [(0, 100), (2, 200), (4, 300)] {
            open.add(invitation(seed, until_s)).unwrap();
        }
        let text = open.to_string();
        assert_eq!(Invitations::read(&text, 99), Ok(open));
        let mut later = Invitations::read(&text, 100).unwrap();
        assert_eq!(later.get(&invitation(0, 0).offer), None, "it is too old");
        let second = invitation(2, 200);
        assert_eq!(later.get(&second.offer), Some(&second));
        later.end(&second.offer);
        assert_eq!(later.get(&second.offer), None, "it was answered");
        assert!(later.get(&invitation(4, 0).offer).is_some());
    }

    #[test]
    fn there_are_not_too_many() {
        let mut open = Invitations::default();
        for _ in 0..OPEN_MAX {
            open.add(invitation(1, 5)).unwrap();
        }
        assert_eq!(open.add(invitation(2, 5)), Err(InvitationError::Full));
        let more = open.to_string() + &open.to_string();
        assert_eq!(Invitations::read(&more, 0), Ok(open));
    }

    proptest! {
        #[test]
        fn anything_else_is_refused(text in "[a-zA-Z0-9+/ \n]{0,80}") {
            let lines = text.lines().count();
            match Invitations::read(&text, 0) {
                Ok(open) => prop_assert!(open.0.len() <= lines),
                Err(error) => prop_assert!(matches!(error, InvitationError::Malformed(at) if at <= lines)),
            }
        }
    }
}
