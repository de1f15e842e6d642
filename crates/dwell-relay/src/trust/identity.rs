//! The identity of this node towards those who know its public key.

use std::net::SocketAddr;

use dwell_base::Instant;
use dwell_wire::Initiation;
use dwell_wire::keyed::{KEY_LEN, KEYED_LEN_MAX};
use snow::HandshakeState;
use zeroize::Zeroizing;

use super::gate::{Admission, Gate, GateCounts};
use super::{RandomSource, noise};
use crate::config::Secret;

/// An initiation that was read: who sent it, and what it says.
pub(crate) struct Examined {
    pub(crate) state: HandshakeState,
    pub(crate) public: [u8; KEY_LEN],
    payload: [u8; KEYED_LEN_MAX],
    payload_len: usize,
}

impl Examined {
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload[..self.payload_len]
    }
}

/// A node's private key, and the gate before it.
pub(crate) struct Identity {
    private: Zeroizing<[u8; KEY_LEN]>,
    gate: Gate,
    random: RandomSource,
}

impl Identity {
    /// The holder of this key. `random` gives independent sources, all fit for secrets.
    pub(crate) fn new(private: &Secret, random: &mut dyn FnMut() -> RandomSource) -> Self {
        let public = noise::public_of(private.bytes()).unwrap_or_default();
        Self {
            private: Zeroizing::new(*private.bytes()),
            gate: Gate::new(public, random()),
            random: random(),
        }
    }

    pub(crate) fn counts(&self) -> GateCounts {
        self.gate.counts()
    }

    /// Decides about an initiation, before any key agreement: see [`Gate::admit`].
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        source: SocketAddr,
        is_known: bool,
        initiation: &Initiation<'_>,
    ) -> Admission {
        self.gate.admit(now, source, is_known, initiation)
    }

    /// Finds out who sent an initiation: two key agreements. Nothing is kept of it.
    pub(crate) fn examine(&mut self, initiation: &Initiation<'_>) -> Option<Examined> {
        let mut state = noise::responder(&self.private, &mut self.random).ok()?;
        let mut payload = [0; KEYED_LEN_MAX];
        let payload_len = state.read_message(initiation.noise, &mut payload).ok()?;
        let public = state.get_remote_static()?.try_into().ok()?;
        Some(Examined { state, public, payload, payload_len })
    }
}
