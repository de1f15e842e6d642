//! `[topology]`: the network of a scenario, and with it the senders.
//!
//! Four kinds: `parking-lot` (Shimamura et al., Fig. 2), `dumbbell` with edges (Yoshino et al.,
//! Fig. 2), `single-edge` (Sawabe et al., Figs 6 and 7), and `graph`, with nodes and links of
//! one's own.

mod draft;
mod dumbbell;
mod graph;
mod medium;
mod parking_lot;
mod single_edge;

use crate::plan::Plan;

use super::compress::{self, Compression};
use super::error::Errors;
use super::run::{self, Runs};
use super::scheme::{self, SchemePart};
use super::section::Section;
use super::source::Inputs;
use super::tree::Table;
use super::value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ParkingLot,
    Dumbbell,
    SingleEdge,
    Graph,
}

const KINDS: [(&str, Kind); 4] = [
    ("parking-lot", Kind::ParkingLot),
    ("dumbbell", Kind::Dumbbell),
    ("single-edge", Kind::SingleEdge),
    ("graph", Kind::Graph),
];

/// The tables that determine the simulation. All others are about showing results.
pub(super) const TABLES: [&str; 7] =
    ["run", "topology", "traffic", "link", "flow", "scheme", "compress"];

/// The parts that all topologies share.
pub(super) struct Parts {
    scheme: SchemePart,
    compressing: Compression,
    /// What ratios are multiplied by where batches may refer to those before them.
    history: f64,
}

/// Reads all that a run needs.
pub(super) fn read(
    tree: &Table,
    inputs: &mut Inputs<'_>,
    errors: &mut Errors,
) -> Option<(Plan, Runs)> {
    let runs = run::read(tree, errors);
    let scheme = scheme::read(tree, errors);
    let compressing = compress::read(tree, inputs, errors);
    let history = compress::history(tree, errors);
    if tree.get("topology").is_none() {
        let message = "[topology] is missing: it says what network there is, for instance \
                       kind = \"parking-lot\"";
        errors.add(None, None, message);
        return None;
    }
    let section = Section::of(tree, "topology", errors)?;
    let kind =
        section.need("kind", "\"parking-lot\"", errors, |found| value::one_of(found, &KINDS))?;
    let of_graphs = |errors: &mut Errors| {
        for table in ["link", "flow"].into_iter().filter(|_| kind != Kind::Graph) {
            if let Some(located) = tree.get(table) {
                let message = "links and flows of one's own belong to kind = \"graph\"";
                errors.at(located.origin, table, message);
            }
        }
    };
    of_graphs(errors);
    // With errors, placeholders stand in for unreadable parts, to find the other errors.
    let parts = Parts {
        scheme: scheme.unwrap_or_default(),
        compressing: compressing.unwrap_or(Compression::FREE),
        history,
    };
    let plan = match kind {
        Kind::ParkingLot => parking_lot::read(tree, &section, &parts, inputs, errors),
        Kind::Dumbbell => dumbbell::read(tree, &section, &parts, inputs, errors),
        Kind::SingleEdge => single_edge::read(tree, &section, &parts, errors),
        Kind::Graph => graph::read(tree, &section, &parts, inputs, errors),
    }?;
    let runs = runs?;
    let Runs { window, bin_ns, ties, .. } = runs;
    Some((Plan { window, bin_ns, ties, ..plan }, runs))
}

/// The table `[traffic]`, which must be there.
fn traffic<'t>(tree: &'t Table, errors: &mut Errors) -> Option<Section<'t>> {
    if tree.get("traffic").is_none() {
        let message = "[traffic] is missing: it says what is sent, for instance \
                       kind = \"poisson\"";
        errors.add(None, None, message);
        return None;
    }
    Section::of(tree, "traffic", errors)
}

/// Reads the limit of a queue in packets; by ns-2's rule one less than this number may wait.
fn buffer_packets(found: &super::tree::Value) -> Result<u32, String> {
    value::whole32(found, 2..=100_000_000)
}
