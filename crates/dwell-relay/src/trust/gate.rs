//! Admission to keyed exchanges: it keeps a flood of initiations from using up the processor, and
//! answers nothing to those who know nothing.
//!
//! As in WireGuard (Donenfeld, sections 5.3 and 5.4.7): an initiation carries a MAC under our
//! public key, so that who does not know it gets no answer at all. While many come, only those
//! are examined that carry a MAC under a *cookie*, which goes to the address that they came
//! from; so forged addresses are of no use, and real ones have each their fair share
//! ([`super::shares`]). Initiators at addresses where a peer is known to be have a share of their own, and
//! needs no cookie for it. All work and all memory is bounded, whatever comes.

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::aead::{Aad, Nonce};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::{digest, hmac};
use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_wire::keyed::{COOKIE_LEN, COOKIE_SALT_LEN, MAC_LEN};
use dwell_wire::{Cookie, Initiation};

use super::shares::{Allowance, Shares};
use super::{RandomSource, derive};

/// This many initiations a second are examined without a cookie.
const FREE_A_SECOND: u32 = 25;
/// This many more with a cookie. With the others a second's work is some 23 ms of a core's time.
const PROVED: Allowance = Allowance { total: 150, of_network: 100, of_address: 10 };
/// This many more from networks where peers are known to be, without a cookie.
const KNOWN: Allowance = Allowance { total: 50, of_network: 10, of_address: 2 };
/// This many cookies are made, and ...
const COOKIES: Allowance = Allowance { total: 1_800, of_network: 400, of_address: 100 };
/// ... this many more for addresses where peers are known to be. These addresses can be forged, too, and each
/// forged initiation takes what the peer there should get: but a cookie costs some 5 µs only, and
/// whoever got it has a share that no forger draws on.
const KNOWN_COOKIES: Allowance = Allowance { total: 4_000, of_network: 4_000, of_address: 4_000 };
/// Networks, and addresses, that are distinguished at the same time.
const SOURCES: usize = 2_048;
/// The same where peers are known to be.
const KNOWN_SOURCES: usize = 256;
/// A cookie is good for as long as its secret is the present one or the one before.
const SECRET_NS: u64 = 120 * SECOND_NS;

/// A MAC as it is sent: HMAC-SHA256, cut to 16 bytes.
pub(super) fn mac(key: &hmac::Key, data: &[u8]) -> [u8; MAC_LEN] {
    let mut out = [0; MAC_LEN];
    out.copy_from_slice(&hmac::sign(key, data).as_ref()[..MAC_LEN]);
    out
}

/// True if this is the MAC; in a time that does not depend on where it differs.
pub(super) fn is_mac(key: &hmac::Key, data: &[u8], claimed: &[u8]) -> bool {
    verify_slices_are_equal(&mac(key, data), claimed).is_ok()
}

/// The key of the MAC that shows that its sender knows this public key.
pub(super) fn mac1_key(public: &[u8; 32]) -> hmac::Key {
    let hash = digest::digest(&digest::SHA256, &[b"dwell mac1 v1", &public[..]].concat());
    hmac::Key::new(hmac::HMAC_SHA256, hash.as_ref())
}

/// The key of the MAC under a cookie.
pub(super) fn mac2_key(cookie: &[u8; MAC_LEN]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, cookie)
}

/// Opens a cookie that `responder` sent in answer to the initiation with this first MAC.
pub(super) fn open_cookie(
    responder: &[u8; 32],
    mac1: &[u8; MAC_LEN],
    cookie: &Cookie,
) -> Option<[u8; MAC_LEN]> {
    let key = derive(responder, &[&cookie.salt[..], mac1].concat(), b"dwell cookie v1");
    let mut sealed = cookie.sealed;
    let opened = key.open_in_place(one_nonce(), Aad::empty(), &mut sealed).ok()?;
    opened.try_into().ok()
}

/// A PSK key seals one cookie.
fn one_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// The admission of an initiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Its sender does not know our public key: no answer.
    InvalidMac,
    /// There are too many: no answer.
    Refused,
    /// This cookie is the answer.
    Cookie([u8; COOKIE_LEN]),
    /// The sender may be identified.
    Examine,
}

/// The outcomes of all initiations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounts {
    /// Without the MAC that shows that their sender knows our public key.
    pub invalid_mac: u64,
    /// Beyond what is allowed in a second.
    pub refused: u64,
    /// Answered by a cookie.
    pub cookies: u64,
    /// Examined: only these cost the time of a key agreement.
    pub examined: u64,
}

/// The gate of a node.
pub(super) struct Gate {
    public: [u8; 32],
    mac1_key: hmac::Key,
    random: RandomSource,
    /// The present secret and the one before: cookies are MACs of addresses under them.
    secrets: [hmac::Key; 2],
    secret_until: Instant,
    second: u64,
    /// Of those that came without a cookie, or with one while none was asked for.
    examined: u32,
    /// This second or the last one had more than go without a cookie.
    busy: [bool; 2],
    proved: Shares,
    known: Shares,
    cookies: Shares,
    known_cookies: Shares,
    counts: GateCounts,
}

impl Gate {
    pub(super) fn new(public: [u8; 32], mut random: RandomSource) -> Self {
        let secrets = [secret(&mut random), secret(&mut random)];
        let mut shares = |allowance, places| Shares::new(allowance, places, &mut random);
        let (proved, cookies) = (shares(PROVED, SOURCES), shares(COOKIES, SOURCES));
        let known = shares(KNOWN, KNOWN_SOURCES);
        let known_cookies = shares(KNOWN_COOKIES, KNOWN_SOURCES);
        Self {
            public,
            mac1_key: mac1_key(&public),
            random,
            secrets,
            secret_until: Instant::ZERO,
            second: 0,
            examined: 0,
            busy: [false; 2],
            proved,
            known,
            cookies,
            known_cookies,
            counts: GateCounts::default(),
        }
    }

    pub(super) fn counts(&self) -> GateCounts {
        self.counts
    }

    /// Decides about an initiation, before any key agreement. `is_known` is true if a peer is known
    /// to be at this address and port.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        source: SocketAddr,
        is_known: bool,
        initiation: &Initiation<'_>,
    ) -> Admission {
        if !is_mac(&self.mac1_key, initiation.under_mac1(), initiation.mac1()) {
            self.counts.invalid_mac += 1;
            return Admission::InvalidMac;
        }
        self.begin_second(now);
        if self.examined >= FREE_A_SECOND {
            self.busy[0] = true;
        }
        if self.busy == [false; 2] {
            self.examined += 1;
            return self.examine();
        }
        // Addresses can be forged: what is left for who shows a cookie is not touched by that.
        if is_known && self.known.grant(now, source.ip()) {
            return self.examine();
        }
        if !self.has_cookie(source, initiation) {
            let shares = if is_known { &mut self.known_cookies } else { &mut self.cookies };
            return if shares.grant(now, source.ip()) {
                self.give_cookie(source, initiation)
            } else {
                self.refuse()
            };
        }
        if self.proved.grant(now, source.ip()) { self.examine() } else { self.refuse() }
    }

    fn examine(&mut self) -> Admission {
        self.counts.examined += 1;
        Admission::Examine
    }

    fn refuse(&mut self) -> Admission {
        self.counts.refused += 1;
        Admission::Refused
    }

    fn begin_second(&mut self, now: Instant) {
        let second = now.as_ns() / SECOND_NS;
        if second != self.second {
            self.busy = [false, self.busy[0] && second == self.second + 1];
            (self.second, self.examined) = (second, 0);
        }
        if now >= self.secret_until {
            self.secrets.swap(0, 1);
            self.secrets[0] = secret(&mut self.random);
            self.secret_until = now + SECRET_NS;
        }
    }

    fn has_cookie(&self, source: SocketAddr, initiation: &Initiation<'_>) -> bool {
        if initiation.mac2() == [0; MAC_LEN] {
            return false; // it does not claim to have one
        }
        self.secrets.iter().any(|secret| {
            let cookie = cookie_of(secret, source);
            is_mac(&mac2_key(&cookie), initiation.under_mac2(), initiation.mac2())
        })
    }

    fn give_cookie(&mut self, source: SocketAddr, initiation: &Initiation<'_>) -> Admission {
        self.counts.cookies += 1;
        let mut salt = [0; COOKIE_SALT_LEN];
        (self.random)(&mut salt);
        let key =
            derive(&self.public, &[&salt[..], initiation.mac1()].concat(), b"dwell cookie v1");
        let mut text = cookie_of(&self.secrets[0], source);
        let tag = key
            .seal_in_place_separate_tag(one_nonce(), Aad::empty(), &mut text)
            .expect("a cookie is shorter than the limit of AES-GCM");
        let mut sealed = [0; 32];
        sealed[..MAC_LEN].copy_from_slice(&text);
        sealed[MAC_LEN..].copy_from_slice(tag.as_ref());
        Admission::Cookie(Cookie { receiver: initiation.sender, salt, sealed }.encode())
    }
}

fn secret(random: &mut RandomSource) -> hmac::Key {
    let mut bytes = zeroize::Zeroizing::new([0; 32]);
    random(&mut *bytes);
    hmac::Key::new(hmac::HMAC_SHA256, &*bytes)
}

fn cookie_of(secret: &hmac::Key, source: SocketAddr) -> [u8; MAC_LEN] {
    let mut bytes = [0; 18];
    let ip = match source.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&source.port().to_be_bytes());
    mac(secret, &bytes)
}
