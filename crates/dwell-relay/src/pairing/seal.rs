//! What ties an answer to both keys, and to the offer that it answers.
//!
//! An answer carries the digest of the offer as it arrived, and a MAC under a secret that only the holders of the two
//! keys can know. So whoever made the offer sees whether either line was changed on its way: with the right two keys,
//! everything in both lines is as it was written.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use dwell_base::base64;

use super::line::{Line, LineKind};
use crate::config::{PublicKey, Secret};
use crate::trust::{PAIRING_MAC_LEN, PairingKey};

/// Characters of the digest of an offer: 96 bits.
pub(super) const DIGEST_LEN: usize = 16;

/// The MAC of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seal([u8; PAIRING_MAC_LEN]);

impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(base64::encode(&self.0).trim_end_matches('='))
    }
}

impl FromStr for Seal {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut seal = Self::default();
        match base64::decode(text.as_bytes(), &mut seal.0) {
            Some(PAIRING_MAC_LEN) if !text.ends_with('=') => Ok(seal),
            _ => Err(()),
        }
    }
}

impl Line {
    /// Returns the digest of what an offer says of its node. The addresses that it suggests are not part of it: they
    /// differ from line to line, and who takes one says so.
    pub fn offer_digest(&self) -> String {
        let plain = Self {
            kind: LineKind::Offer { addresses: Vec::new() },
            has_psk: false,
            ..self.clone()
        };
        let hash = digest(&SHA256, plain.body().as_bytes());
        let mut text = base64::encode(hash.as_ref());
        text.truncate(DIGEST_LEN);
        text
    }

    /// Seals an answer to the node that has this key; anything else stays as it is. None if a key is none.
    #[must_use]
    pub fn sealed(mut self, private: &Secret, offers: &PublicKey) -> Option<Self> {
        let made = Seal(PairingKey::of_answer(private, offers)?.mac(&self.body()));
        if let LineKind::Answer { seal, .. } = &mut self.kind {
            *seal = made;
        }
        Some(self)
    }

    /// Returns true if this is an answer to the node that has this key, made by the holder of the key that it names, and
    /// as it was made.
    pub fn is_sealed_for(&self, private: &Secret) -> bool {
        let LineKind::Answer { seal, .. } = &self.kind else { return false };
        PairingKey::of_offer(private, &self.public_key)
            .is_some_and(|key| key.is_mac(&self.body(), &seal.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::public_key;

    fn offer() -> Line {
        Line {
            kind: LineKind::Offer { addresses: vec!["10.77.0.2/24".parse().unwrap()] },
            name: "site-a".to_owned(),
            public_key: public_key(&Secret::new([1; 32])).unwrap(),
            endpoints: vec!["203.0.113.10:7733".parse().unwrap()],
            prefixes: vec!["10.1.0.0/24".parse().unwrap()],
            has_psk: false,
        }
    }

    fn answer(private: u8, offer: &Line) -> Line {
        let private = Secret::new([private; 32]);
        let kind = LineKind::Answer {
            tag: Line::tag_of(&offer.public_key),
            offer: offer.offer_digest(),
            seal: Seal::default(),
        };
        let prefixes = vec!["10.2.0.0/24".parse().unwrap()];
        let public_key = public_key(&private).unwrap();
        let line = Line { kind, name: "site-b".to_owned(), public_key, prefixes, ..offer.clone() };
        line.sealed(&private, &offer.public_key).unwrap()
    }

    #[test]
    fn what_was_changed_in_an_answer_is_seen() {
        let own = Secret::new([1; 32]);
        let answer = answer(2, &offer());
        let read: Line = answer.to_string().parse().unwrap();
        assert_eq!(read, answer);
        assert!(read.is_sealed_for(&own) && !read.is_sealed_for(&Secret::new([3; 32])));
        // Whoever changes it makes the check sum again.
        let text = answer.to_string();
        let body = text.rsplit_once(",sum=").unwrap().0;
        for (from, to) in [("10.2.0.0/24", "10.0.0.0/8"), ("site-b", "site-c"), (":7733", ":7734")]
        {
            let changed: Line = Line::summed(&body.replace(from, to)).parse().unwrap();
            assert!(!changed.is_sealed_for(&own), "{to}");
        }
        assert!(!offer().is_sealed_for(&own), "offers have no seal");
    }

    #[test]
    fn what_was_changed_in_an_offer_is_seen_by_its_digest() {
        let digest = offer().offer_digest();
        let other_address = LineKind::Offer { addresses: vec!["10.77.0.3/24".parse().unwrap()] };
        assert_eq!(Line { kind: other_address, ..offer() }.offer_digest(), digest);
        for changed in [
            Line { name: "site-x".to_owned(), ..offer() },
            Line { endpoints: vec!["203.0.113.11:7733".parse().unwrap()], ..offer() },
            Line { prefixes: vec!["10.0.0.0/8".parse().unwrap()], ..offer() },
        ] {
            assert_ne!(changed.offer_digest(), digest, "{changed}");
        }
    }
}
