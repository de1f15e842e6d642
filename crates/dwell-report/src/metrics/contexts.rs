//! The metrics of contexts; there are none of a peer that has none.

use super::{Page, f, times};
use crate::status::PeerStatus;

/// Adds the metrics of contexts to and from a peer.
pub(super) fn of_contexts(page: &mut Page, peer: &PeerStatus) {
    let name = peer.name.as_str();
    if !peer.tx.contexts.is_unused() {
        of_sending(page, peer, name);
    }
    if !peer.rx.contexts.is_unused() {
        of_receiving(page, peer, name);
    }
}

fn of_sending(page: &mut Page, peer: &PeerStatus, name: &str) {
    let tx = &peer.tx.contexts;
    let out = [("peer", name), ("direction", "out")];
    page.gauge("dwell_contexts", "Contexts in use.", &out, f(tx.open));
    page.gauge("dwell_context_memory_bytes", "Memory of contexts.", &out, f(tx.memory_bytes));
    let help = "Bytes of datagrams that are kept to be sent again, because contexts refer to them.";
    page.gauge("dwell_context_kept_bytes", help, &[("peer", name)], f(tx.kept_bytes));
    let help = "Batches compressed or decoded in contexts.";
    page.counter("dwell_context_batches_total", help, &out, f(tx.batches));
    let help = "Batches of contexts that stand alone.";
    page.counter("dwell_context_alone_batches_total", help, &out, f(tx.alone_batches));
    let help = "Generations of contexts whose batches stand alone.";
    page.counter(
        "dwell_context_acknowledged_generations_total",
        help,
        &out,
        f(tx.acknowledged_generations),
    );
    let help = "1 for the way in which batches refer to others now.";
    let labels = [("peer", name), ("mode", tx.mode.as_str())];
    page.gauge("dwell_context_mode", help, &labels, 1.0);
    let help = "Packets that went uncompressed in their place among batches.";
    page.counter("dwell_context_raw_packets_total", help, &out, f(tx.raw));
    let help = "Bytes of batches of contexts, before compression.";
    page.counter("dwell_context_plain_bytes_total", help, &out, f(tx.bytes_in));
    let help = "Bytes of batches of contexts, compressed.";
    page.counter("dwell_context_compressed_bytes_total", help, &out, f(tx.bytes_out));
    let help = "Generations of contexts that began from the dictionary.";
    page.counter("dwell_context_dictionary_starts_total", help, &out, f(tx.dictionary_starts));
    let help = "Generations of contexts with a model of the codecs ppm and mix.";
    page.counter("dwell_context_model_generations_total", help, &out, f(tx.model_generations));
    let help = "Packets that were lost with a generation of a context, and sent once more.";
    let label = [("peer", name)];
    page.counter(
        "dwell_context_encoded_again_packets_total",
        help,
        &label,
        f(tx.encoded_again_packets),
    );
    for (reason, &count) in &tx.generations {
        let help = "Generations of contexts begun, by the reason.";
        let labels = [("peer", name), ("reason", reason.as_str())];
        page.counter("dwell_context_generations_total", help, &labels, count);
    }
    for (reason, &count) in &tx.without_context {
        let help = "Batches that were compressed without a context, by the reason.";
        let labels = [("peer", name), ("reason", reason.as_str())];
        page.counter("dwell_context_refused_batches_total", help, &labels, count);
    }
}

fn of_receiving(page: &mut Page, peer: &PeerStatus, name: &str) {
    let rx = &peer.rx.contexts;
    let label = [("peer", name)];
    let r#in = [("peer", name), ("direction", "in")];
    page.gauge("dwell_contexts", "Contexts in use.", &r#in, f(rx.open));
    page.gauge("dwell_context_memory_bytes", "Memory of contexts.", &r#in, f(rx.memory_bytes));
    let help = "Bytes of records that wait for one that is missing.";
    page.gauge("dwell_context_held_bytes", help, &label, f(rx.held_bytes));
    let help = "Batches compressed or decoded in contexts.";
    page.counter("dwell_context_batches_total", help, &r#in, f(rx.batches));
    let help = "Batches of contexts that stand alone.";
    page.counter("dwell_context_alone_batches_total", help, &r#in, f(rx.alone_batches));
    let help = "Generations of contexts whose batches stand alone.";
    page.counter(
        "dwell_context_acknowledged_generations_total",
        help,
        &r#in,
        f(rx.acknowledged_generations),
    );
    let help = "Packets that went uncompressed in their place among batches.";
    page.counter("dwell_context_raw_packets_total", help, &r#in, f(rx.raw));
    let help = "Bytes of batches of contexts, before compression.";
    page.counter("dwell_context_plain_bytes_total", help, &r#in, f(rx.bytes_out));
    let help = "Bytes of batches of contexts, compressed.";
    page.counter("dwell_context_compressed_bytes_total", help, &r#in, f(rx.bytes_in));
    let help = "Generations of contexts that began from the dictionary.";
    page.counter("dwell_context_dictionary_starts_total", help, &r#in, f(rx.dictionary_starts));
    let help = "Generations of contexts with a model of the codecs ppm and mix.";
    page.counter("dwell_context_model_generations_total", help, &r#in, f(rx.model_generations));
    let mut one = |name, help, count: u64| page.counter(name, help, &label, f(count));
    one("dwell_context_gaps_total", "Times that records waited for a missing one.", rx.gaps);
    let help = "Of the gaps, those in which the missing record did not come.";
    one("dwell_context_gaps_given_up_total", help, rx.gaps_given_up);
    let help = "Generations of contexts that could not go on.";
    one("dwell_context_lost_generations_total", help, rx.lost_generations);
    for (reason, &count) in &rx.dropped {
        let help = "Records of contexts that were dropped, by the reason.";
        let labels = [("peer", name), ("reason", reason.as_str())];
        page.counter("dwell_context_dropped_records_total", help, &labels, count);
    }
    let help = "From the arrival of a record that came too early to its turn.";
    times(page, ("dwell_context_wait_seconds", help), &label, &rx.waited);
}
