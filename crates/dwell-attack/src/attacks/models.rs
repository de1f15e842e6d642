//! Models that an authenticated peer abuses, of the codecs ppm and mix: what it has the hub learn, and what it offers to take.

use anyhow::Context as _;
use dwell_wire::{ContextOffer, ModelOffer};

use super::authenticated::{BODY_BYTES, Sending, addresses, by_peer};
use super::contexts::{
    ENCODER_MB, KEPT_MB, MIB, USUAL_MB, decoders_mb, lied_to, note_contexts, receiving, sending,
};
use super::liars::{LIAR, Receiving};
use crate::context::Context;
use crate::hostile::contexts::CONTEXTS;
use crate::hostile::models::{HostileModels, Kind, MEMORY_LOG, MEMORY_LOG_MAX, MODELS};
use crate::row::{Bound, Row};
use crate::site::{Tunnel, TunnelSpec};

const BODIES_A_SECOND: f64 = 200.0;
/// Datagrams with some 25 beginnings each.
const ALTERNATING_A_SECOND: f64 = 1_000.0;
/// The models that a relay has by default, in each direction.
const MODELS_MB: f64 = MODELS as f64 * ((1_u64 << MEMORY_LOG) as f64) / 1e6;
/// The models' history, and what else stands beside their memory.
const BESIDE_MB: f64 = 4.0 * MIB;
/// What encoders of the levels that are picked take beyond those of level 1, each.
const STRONGER_MB: f64 = 16.0 * MIB;

/// Models of ppm that learn noise, from the longest bases, and long batches.
pub(super) fn noise(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    noise_of(context, name, Kind::Ppm)
}

/// The same with models that mix.
pub(super) fn mixed_noise(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    noise_of(context, name, Kind::Mix)
}

/// Generations that cost most to learn and to decode for what they take of the link.
fn noise_of(context: &mut Context, name: &'static str, kind: Kind) -> anyhow::Result<Row> {
    let mut hostile = HostileModels::new(kind, 1, addresses(), BODY_BYTES);
    let sending = sending(BODIES_A_SECOND, decoders_mb() + MODELS_MB + BESIDE_MB);
    let sending = Sending { is_allowed: true, ..sending };
    with_models(context, name, &sending, move || hostile.body())
}

/// Models of both kinds, one after another, each in other memory; some in more than the hub takes.
pub(super) fn alternating(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let mut hostile = HostileModels::new(Kind::Mix, 1, addresses(), BODY_BYTES);
    let sending = sending(ALTERNATING_A_SECOND, decoders_mb() + MODELS_MB + BESIDE_MB);
    with_models(context, name, &sending, move || hostile.alternate())
}

fn with_models(
    context: &mut Context,
    name: &'static str,
    sending: &Sending,
    body: impl FnMut() -> Vec<u8> + Send + 'static,
) -> anyhow::Result<Row> {
    let (mut row, tunnel) = by_peer(context, name, sending, body)?;
    note_contexts(&mut row, &tunnel)?;
    let begun = generations(&tunnel)?.1;
    row.must_reach("generations with models", begun as f64, Bound::AtLeast(100.0));
    Ok(row)
}

/// Offers that no relay should take at their word, and generations that end at once.
pub(super) fn offers(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    offers_to(context, name, Kind::Ppm)
}

/// The same to a hub that mixes.
pub(super) fn mixed_offers(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    offers_to(context, name, Kind::Mix)
}

fn offers_to(context: &mut Context, name: &'static str, kind: Kind) -> anyhow::Result<Row> {
    let receiving = receiving();
    let (codec, takes_mixed) = match kind {
        Kind::Ppm => ("ppm", false),
        Kind::Mix => ("mix", true),
    };
    let models = Some(ModelOffer { contexts: CONTEXTS, memory_log: MEMORY_LOG_MAX, takes_mixed });
    let contexts = receiving.contexts.map(|offer| ContextOffer { models, ..offer });
    // Models are picked for links as thin as this, or had if they are configured: these are the most.
    let spec = TunnelSpec { codec, ..receiving.spec };
    let memory_mb = USUAL_MB + f64::from(CONTEXTS) * (ENCODER_MB + STRONGER_MB) + KEPT_MB;
    let receiving = Receiving { spec, contexts, ..receiving };
    let (mut row, tunnel) = lied_to(context, name, receiving, memory_mb + MODELS_MB + BESIDE_MB)?;
    let (begun, _) = generations(&tunnel)?;
    row.must_reach("generations with models", begun as f64, Bound::AtLeast(10.0));
    Ok(row)
}

/// The generations with models, to the attacker and from it.
fn generations(tunnel: &Tunnel) -> anyhow::Result<(u64, u64)> {
    let status = tunnel.hub.status()?;
    let peer = status.peers.iter().find(|peer| peer.name == LIAR).context("the peer is there")?;
    Ok((peer.tx.contexts.model_generations, peer.rx.contexts.model_generations))
}
