//! What ties an answer to both keys, and to the offer that it answers.
//!
//! An offer has a pass, fresh for each; an answer carries the digest of the offer as it arrived, and a MAC under a secret
//! that only the holders of the two keys can know, over the answer and the pass. So whoever made the offer sees whether
//! either line was changed on its way, and whether the answer is by somebody who has seen the offer.
//!
//! Who has *seen* the offer can still put an answer of its own in the place of the true one. Against that there is a
//! code, which both ends compute of both lines and people compare.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::pbkdf2;
use dwell_base::base64;

use super::line::{Line, LineKind};
use crate::config::{PublicKey, Secret};
use crate::trust::{PAIRING_MAC_LEN, PairingKey};

/// Characters of the digest of an offer: 96 bits.
pub(super) const DIGEST_LEN: usize = 16;
/// The length of a pass in bytes.
pub const PASS_LEN: usize = 16;

/// Digits of a code: 53 bits, so that with the rounds it takes 2^69 trials of a MAC to find another answer with the
/// same code, and each offer, for its pass, needs its own.
const CODE_DIGITS: usize = 16;
const CODE_ROUNDS: NonZeroU32 = NonZeroU32::new(1 << 16).unwrap();

/// The MAC of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seal([u8; PAIRING_MAC_LEN]);

/// What an offer has and its answer only proves to know. It is worth nothing once the offer was answered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Pass([u8; PASS_LEN]);

impl Pass {
    /// Makes one of these bytes, which nobody can guess.
    pub fn new(random: [u8; PASS_LEN]) -> Self {
        Self(random)
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pass(…)")
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(self.0, f)
    }
}

impl FromStr for Pass {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        read(text).map(Self).ok_or(())
    }
}

impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(self.0, f)
    }
}

impl FromStr for Seal {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        read(text).map(Self).ok_or(())
    }
}

fn write(bytes: [u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(base64::encode(&bytes).trim_end_matches('='))
}

fn read(text: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    let len = base64::decode(text.as_bytes(), &mut bytes)?;
    (len == bytes.len() && !text.ends_with('=')).then_some(bytes)
}

fn digest_of(body: &str) -> String {
    let mut text = base64::encode(digest(&SHA256, body.as_bytes()).as_ref());
    text.truncate(DIGEST_LEN);
    text
}

impl Line {
    /// Returns the digest of all of an offer, by which its answer names it.
    pub fn offer_digest(&self) -> String {
        digest_of(&self.body())
    }

    /// Returns the digest of what an offer says of its node, and so has in common with the node's other offers.
    pub fn node_digest(&self) -> String {
        let kind = LineKind::Offer { addresses: Vec::new(), pass: Pass([0; PASS_LEN]) };
        digest_of(&Self { kind, has_psk: false, ..self.clone() }.body())
    }

    /// Returns the pass of an offer.
    pub fn pass(&self) -> Option<&Pass> {
        match &self.kind {
            LineKind::Offer { pass, .. } => Some(pass),
            LineKind::Answer { .. } => None,
        }
    }

    /// Seals an answer to the offer with this pass, by the node that has this key; anything else stays as it is. None if
    /// a key is none.
    #[must_use]
    pub fn sealed(mut self, private: &Secret, offers: &PublicKey, pass: &Pass) -> Option<Self> {
        let text = self.with_pass(pass);
        let made = Seal(PairingKey::of_answer(private, offers)?.mac(&text));
        if let LineKind::Answer { seal, .. } = &mut self.kind {
            *seal = made;
        }
        Some(self)
    }

    /// Returns true if this is an answer to an offer with this pass of the node that has this key, made by the holder of
    /// the key that it names, and as it was made.
    pub fn is_sealed_for(&self, private: &Secret, pass: &Pass) -> bool {
        let LineKind::Answer { seal, .. } = &self.kind else { return false };
        PairingKey::of_offer(private, &self.public_key)
            .is_some_and(|key| key.is_mac(&self.with_pass(pass), &seal.0))
    }

    fn with_pass(&self, pass: &Pass) -> String {
        format!("{},pass={pass}", self.body())
    }

    /// Returns the code of an answer to the offer with this pass, in groups of four digits: with another key, or
    /// anything else of either line changed, it is another one. Takes some milliseconds on purpose.
    pub fn code(&self, pass: &Pass) -> String {
        let mut out = [0; 8];
        let salt = format!("dwell pairing code v3 {pass}");
        let text = self.with_pass(pass);
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            CODE_ROUNDS,
            salt.as_bytes(),
            text.as_bytes(),
            &mut out,
        );
        let number = u64::from_be_bytes(out) % 10_u64.pow(16);
        let digits = format!("{number:0CODE_DIGITS$}");
        let groups: Vec<_> = (0..CODE_DIGITS).step_by(4).map(|at| &digits[at..at + 4]).collect();
        groups.join(" ")
    }
}

/// Returns true if somebody typed this code, with or without what stands between its digits.
pub fn is_code(code: &str, typed: &str) -> bool {
    let is_between = |c: &char| c.is_whitespace() || *c == '-';
    let plain = |text: &str| text.chars().filter(|c| !is_between(c)).collect::<String>();
    plain(code) == plain(typed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::public_key;

    const PASS: Pass = Pass([9; PASS_LEN]);

    fn offered(address: &str, pass: Pass) -> LineKind {
        LineKind::Offer { addresses: vec![address.parse().unwrap()], pass }
    }

    fn offer() -> Line {
        Line {
            kind: offered("10.77.0.2/24", PASS),
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
        line.sealed(&private, &offer.public_key, offer.pass().unwrap()).unwrap()
    }

    #[test]
    fn what_was_changed_in_an_answer_is_seen() {
        let own = Secret::new([1; 32]);
        let answer = answer(2, &offer());
        let read: Line = answer.to_string().parse().unwrap();
        assert_eq!(read, answer);
        assert!(read.is_sealed_for(&own, &PASS));
        assert!(!read.is_sealed_for(&Secret::new([3; 32]), &PASS));
        // Whoever changes it makes the check sum again.
        let text = answer.to_string();
        let body = text.rsplit_once(",sum=").unwrap().0;
        for (from, to) in [("10.2.0.0/24", "10.0.0.0/8"), ("site-b", "site-c"), (":7733", ":7734")]
        {
            let changed: Line = Line::summed(&body.replace(from, to)).parse().unwrap();
            assert!(!changed.is_sealed_for(&own, &PASS), "{to}");
        }
        assert!(!offer().is_sealed_for(&own, &PASS), "offers have no seal");
    }

    #[test]
    fn who_has_not_seen_the_offer_cannot_answer_it() {
        let own = Secret::new([1; 32]);
        // Everything else is known of the node from another offer.
        let guessed = Line { kind: offered("10.77.0.2/24", Pass([8; PASS_LEN])), ..offer() };
        assert!(!answer(2, &guessed).is_sealed_for(&own, &PASS));
    }

    #[test]
    fn what_was_changed_in_an_offer_is_seen_by_its_digest() {
        let (digest, of_node) = (offer().offer_digest(), offer().node_digest());
        for changed in [
            Line { name: "site-x".to_owned(), ..offer() },
            Line { endpoints: vec!["203.0.113.11:7733".parse().unwrap()], ..offer() },
            Line { prefixes: vec!["10.0.0.0/8".parse().unwrap()], ..offer() },
        ] {
            assert_ne!(changed.offer_digest(), digest, "{changed}");
            assert_ne!(changed.node_digest(), of_node, "{changed}");
        }
        for kind in [offered("10.77.0.3/24", PASS), offered("10.77.0.2/24", Pass([8; PASS_LEN]))] {
            let changed = Line { kind, ..offer() };
            assert_ne!(changed.offer_digest(), digest, "{changed}");
            assert_eq!(changed.node_digest(), of_node, "it is of the same node");
        }
    }

    #[test]
    fn a_code_is_of_both_lines() {
        let code = answer(2, &offer()).code(&PASS);
        assert_eq!(code, answer(2, &offer()).code(&PASS));
        assert_eq!(code.split(' ').map(str::len).collect::<Vec<_>>(), [4; 4], "{code}");
        let elsewhere = Line { endpoints: Vec::new(), ..offer() };
        for other in [answer(3, &offer()), answer(2, &elsewhere)] {
            assert_ne!(other.code(&PASS), code, "{other}");
        }
        assert!(is_code(&code, &code.replace(' ', "-")) && is_code(&code, &code.replace(' ', "")));
        assert!(!is_code(&code, &code[..code.len() - 1]) && !is_code(&code, ""));
    }
}
