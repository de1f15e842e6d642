//! Contexts that an authenticated peer abuses: what it sends through them, and what it says of those
//! that go to it.

use std::time::Duration;

use anyhow::Context as _;
use dwell_base::Rng;
use dwell_lab::corpus;
use dwell_wire::{ContextOffer, ContextReport, Control};

use super::authenticated::{BODY_BYTES, Sending, addresses, by_peer, note_drops, spec};
use super::liars::{ASKER_RATE, LIAR, OFFERED_BYTES, Receiving, ask_again, with_receiver};
use crate::context::Context;
use crate::hostile;
use crate::hostile::contexts::{CONTEXTS, HostileContexts, RING_LOG};
use crate::peer::{Came, Pace, Peer};
use crate::phases::{Limits, Switch};
use crate::row::{Bound, Check, Row};
use crate::site::{Tunnel, TunnelSpec};

const STARTS_A_SECOND: f64 = 1_000.0;
const NUMBERS_A_SECOND: f64 = 5_000.0;
const LOSSES_A_SECOND: f64 = 5_000.0;
const BOMBS_A_SECOND: f64 = 100.0;
const LIES_A_SECOND: f64 = 200.0;
/// So that the hub waits for what comes again, and does not give up at once.
const SKIP_ONE_OF: u64 = 50;
/// Less than what is offered takes in contexts, so that a queue stands and batches are made.
const LIAR_RATE: &str = "150kbit";
/// What a decoder takes at most by [`dwell_codec::ContextDecoder`]: ring, base, window, and beside it.
const DECODER_MB: f64 = 3.0 * MIB + 0.5 * MIB;
pub(super) const MIB: f64 = 1.048_576;
/// A peer's records that wait for a missing one.
const HELD_MB: f64 = 4.0 * MIB;
/// What an encoder of level 1 takes with this window: the ring, the base, zstd's window and tables.
pub(super) const ENCODER_MB: f64 = 5.0 * MIB;
/// What was sent through contexts and not confirmed.
pub(super) const KEPT_MB: f64 = 16.0 * MIB;
/// What everything else may take, as in other attacks.
pub(super) const USUAL_MB: f64 = 32.0;
/// One thread takes in what comes, and one compresses.
const CORES: f64 = 1.3;
/// A generation that lasts longer than a second makes the next one wait no longer: so of each context
/// one can begin in a second, and some more until the pauses are long.
const LASTS: Duration = Duration::from_millis(1_050);
const GENERATIONS_A_SECOND_MAX: f64 = 5.0 * CONTEXTS as f64;

fn auto() -> TunnelSpec {
    TunnelSpec { scheme: "auto", ..spec() }
}

pub(super) fn sending(per_second: f64, memory_mb: f64) -> Sending {
    let limits = Limits { memory_mb, cores: Some(CORES), ..Limits::default() };
    Sending { spec: auto(), limits, ..Sending::usual(per_second) }
}

/// What all of the peer's contexts take together in the hub, if it uses them as far as it can.
pub(super) fn decoders_mb() -> f64 {
    USUAL_MB + f64::from(CONTEXTS) * DECODER_MB + HELD_MB
}

pub(super) fn starts(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let mut hostile = HostileContexts::new(1, addresses(), BODY_BYTES);
    let sending = sending(STARTS_A_SECOND, decoders_mb());
    let (mut row, tunnel) = by_peer(context, name, &sending, move || hostile.starts())?;
    note_contexts(&mut row, &tunnel)?;
    check_touched(&mut row, &tunnel)?;
    Ok(row)
}

pub(super) fn numbers(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let mut hostile = HostileContexts::new(2, addresses(), BODY_BYTES);
    let sending = Sending { skip_one_of: SKIP_ONE_OF, ..sending(NUMBERS_A_SECOND, decoders_mb()) };
    let (mut row, tunnel) = by_peer(context, name, &sending, move || hostile.numbers())?;
    note_contexts(&mut row, &tunnel)?;
    check_touched(&mut row, &tunnel)?;
    Ok(row)
}

pub(super) fn losses(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let mut hostile = HostileContexts::new(4, addresses(), BODY_BYTES);
    let sending = sending(LOSSES_A_SECOND, decoders_mb());
    let (mut row, tunnel) = by_peer(context, name, &sending, move || hostile.losses())?;
    note_contexts(&mut row, &tunnel)?;
    check_touched(&mut row, &tunnel)?;
    Ok(row)
}

pub(super) fn bombs(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let mut hostile = HostileContexts::new(3, addresses(), BODY_BYTES);
    let sending = sending(BOMBS_A_SECOND, decoders_mb());
    let (mut row, tunnel) = by_peer(context, name, &sending, move || hostile.bombs())?;
    note_contexts(&mut row, &tunnel)?;
    check_touched(&mut row, &tunnel)?;
    Ok(row)
}

/// Demands that the attack used contexts, or that something of it was dropped there.
fn check_touched(row: &mut Row, tunnel: &Tunnel) -> anyhow::Result<()> {
    let status = tunnel.hub.status()?;
    let peer = status.peers.iter().find(|peer| peer.name == LIAR).context("the peer is there")?;
    let rx = &peer.rx.contexts;
    let touched = rx.open + rx.dropped.values().sum::<u64>();
    row.must_reach("contexts and their records dropped", touched as f64, Bound::AtLeast(10.0));
    Ok(())
}

/// Notes what the hub received through the attacker's contexts.
pub(super) fn note_contexts(row: &mut Row, tunnel: &Tunnel) -> anyhow::Result<()> {
    let status = tunnel.hub.status()?;
    let peer = status.peers.iter().find(|peer| peer.name == LIAR).context("the peer is there")?;
    let rx = &peer.rx.contexts;
    row.checks.push(Check::new("contexts open", rx.open as f64, Bound::AtMost(CONTEXTS.into())));
    row.notes.push(format!(
        "through contexts: {} batches with {} bytes made of {}, {} generations, {} lost, {} gaps, {} \
         bytes of decoders, dropped {:?}; {} datagrams deferred, {} over budget, {} control datagrams \
         in answer",
        rx.batches,
        rx.bytes_out,
        rx.bytes_in,
        rx.generations,
        rx.lost_generations,
        rx.gaps,
        rx.memory_bytes,
        rx.dropped,
        peer.rx.deferred_datagrams,
        peer.rx.over_budget,
        peer.tx.control_datagrams,
    ));
    Ok(())
}

pub(super) fn receiving() -> Receiving {
    Receiving {
        spec: TunnelSpec { others_rate: Some(LIAR_RATE), ..auto() },
        payload: corpus::text(OFFERED_BYTES * 500, 3),
        // One for each pair of hosts.
        hosts: CONTEXTS,
        contexts: Some(ContextOffer {
            takes_alone: true,
            contexts: CONTEXTS,
            ring_log: RING_LOG,
            incarnation: 7,
            dictionary: None,
            models: None,
            takes_predicted: false,
        }),
    }
}

/// Reports on contexts that can't be true, or make the hub begin again.
pub(super) fn reports(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let memory_mb = USUAL_MB + f64::from(CONTEXTS) * ENCODER_MB + KEPT_MB;
    lied_to(context, name, receiving(), memory_mb).map(|(row, _)| row)
}

/// The hub sends through contexts to a peer that lies about them; its memory may grow by so much.
pub(super) fn lied_to(
    context: &mut Context,
    name: &'static str,
    receiving: Receiving,
    memory_mb: f64,
) -> anyhow::Result<(Row, Tunnel)> {
    let mut pace = Pace::new(LIES_A_SECOND);
    let mut rng = Rng::from_seed(5);
    let act = move |peer: &mut Peer, switch: &Switch| {
        for _ in 0..pace.due(16) {
            let is_on = switch.is_on();
            let of = |(&context, came): (&u8, &Came)| {
                let report = truth(context, came);
                Control::ContextReport(if is_on { lie(&mut rng, came, report) } else { report })
            };
            let said: Vec<Control> = peer.contexts.iter().map(of).collect();
            let len = peer.send(&hostile::controls(&said));
            if is_on && !said.is_empty() {
                switch.done(u64::from(len > 0), len as u64);
            }
        }
    };
    let (measured, came, tunnel) = with_receiver(context, receiving, act, |_, _| ())?;
    let mut row = measured.row(name, "relay", "datagrams");
    let limits = Limits { memory_mb, cores: Some(CORES), ..Limits::default() };
    row.checks = measured.usual_checks(context, limits);
    row.checks.push(measured.rate_check(context, LIES_A_SECOND));
    let status = tunnel.hub.status()?;
    let peer = status.peers.iter().find(|peer| peer.name == LIAR).context("the peer is there")?;
    let tx = &peer.tx.contexts;
    let [lies, lies_a_second] = [measured.total()[0], measured.rate()[0]];
    let begun = tx.generations.values().sum::<u64>() as f64;
    let a_second = begun / (lies / lies_a_second.max(1.0)).max(1.0);
    let most = Bound::AtMost(GENERATIONS_A_SECOND_MAX);
    row.checks.push(Check::new("generations a second", a_second, most));
    row.must_reach("generations lost", tx.generations["lost"] as f64, Bound::AtLeast(10.0));
    row.must_reach("reports refused", tx.false_reports as f64, Bound::AtLeast(10.0));
    row.notes.push(format!(
        "to the liar {:.0} kbit/s honest, {:.0} lying; {} batches, {} of {} bytes; generations {:?}, {} \
         of them cold; without a context {:?}; {} bytes of encoders",
        came.bps(false) / 1e3,
        came.bps(true) / 1e3,
        tx.batches,
        tx.bytes_out,
        tx.bytes_in,
        tx.generations,
        tx.cold_starts,
        tx.without_context,
        tx.memory_bytes,
    ));
    note_drops(&mut row, &tunnel);
    Ok((row, tunnel))
}

fn truth(context: u8, came: &Came) -> ContextReport {
    ContextReport {
        context,
        generation: came.generation,
        is_lost: false,
        is_empty: false,
        next_number: came.next,
        ring_offset: came.offset,
    }
}

/// Each context has its own lie.
fn lie(rng: &mut Rng, came: &Came, truth: ContextReport) -> ContextReport {
    let any = rng.next_u64();
    match truth.context % 7 {
        // What was never sent has come.
        0 => {
            let beyond = [1, 1 << 15, 1 << 20, u64::MAX - came.next][(any % 4) as usize];
            ContextReport { next_number: came.next.saturating_add(beyond), ..truth }
        }
        // No generation can go on, ...
        1 => ContextReport { is_lost: true, ..truth },
        // ... or each does just for so long that the next need not wait, and has all of the ring
        // before it.
        2 => ContextReport { is_lost: came.began_at.elapsed() > LASTS, ..truth },
        // Not even what each begins from was there.
        3 => ContextReport { is_lost: true, ring_offset: 0, is_empty: any >= 1 << 63, ..truth },
        4 => {
            let offset = came.offset;
            let offsets = [u64::MAX, 1 << 63, offset + 1, offset / 2, 2 * offset, 0, any];
            ContextReport {
                ring_offset: offsets[(any % 7) as usize],
                is_lost: came.began_at.elapsed() > LASTS,
                ..truth
            }
        }
        // Generations that there are not.
        5 => ContextReport { generation: any as u8, is_lost: true, ..truth },
        _ => ContextReport {
            generation: any as u8,
            is_lost: rng.chance(0.5),
            is_empty: rng.chance(0.5),
            next_number: rng.next_u64() >> rng.below(64),
            ring_offset: rng.next_u64() >> rng.below(64),
            ..truth
        },
    }
}

/// Requests for all that goes through contexts.
pub(super) fn requests(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let spec = TunnelSpec { others_rate: Some(ASKER_RATE), ..auto() };
    // Less would fit without a queue, and so without contexts.
    let payload = corpus::incompressible(OFFERED_BYTES, 1);
    let payload = [payload, corpus::text(OFFERED_BYTES * 2, 3)].concat();
    let row = ask_again(context, name, Receiving { spec, payload, ..receiving() })?;
    Ok(row)
}
