//! The ratio of blocks by number and grouping of their packets.

use dwell_figures::chart::{Axis, Chart, Series};
use dwell_figures::page::{Block, Section};
use dwell_report::human;

use super::{figure, table};
use crate::analysis::{Analysis, BATCH_PACKETS, BlockSums, GROUPINGS, MS};

pub(super) fn section(analysis: &Analysis) -> Option<Section> {
    let codec = analysis.settings.block_codec?;
    let blocks = &analysis.blocks;
    if blocks.packets == 0 {
        return None;
    }
    let text = format!(
        "Blocks of m packets, compressed with {codec}; a block that does not shrink counts as \
         it is. Of {} of the {} IP packets, in stretches of {BATCH_PACKETS}: all at the beginning of \
         a capture, and ever fewer later on. The last block of a group has the packets that are \
         left, and no block has more than 64 KiB. `edge` stands for the egress, which a capture \
         doesn't know: the first 16 bits of the destination's IPv4 address, or 48 of IPv6. \
         `link` is all packets together.",
        human::count(blocks.packets),
        human::count(analysis.ip().packets),
    );
    let section = Section::new("Blocks")
        .block(Block::Prose(text))
        .block(Block::Table("Ratio".to_owned(), ratios(analysis, |sums| sums.plain)))
        .block(Block::Table(
            "Ratio, with the headers' fields side by side".to_owned(),
            ratios(analysis, |sums| sums.columnar),
        ))
        .block(Block::Table("Packets per block, and time".to_owned(), costs(analysis)));
    let mut chart = Chart::new(
        "Ratio of blocks",
        Axis::log("packets of a block, m"),
        Axis::linear("compressed / original"),
    );
    for grouping in GROUPINGS {
        let of = |of: fn(&BlockSums) -> u64| {
            MS.into_iter().filter_map(move |m| {
                let sums = blocks.of(grouping, m)?;
                Some((m as f64, of(sums) as f64 / sums.bytes.max(1) as f64))
            })
        };
        let rearranged = format!("{}, rearranged", grouping.name());
        chart = chart
            .series(Series::line(grouping.name()).with(of(|sums| sums.plain)))
            .series(Series::line(&rearranged).with(of(|sums| sums.columnar)));
    }
    Some(figure(section, chart))
}

fn ratios(analysis: &Analysis, of: impl Fn(&BlockSums) -> u64) -> dwell_report::Table {
    rows(analysis, |sums| {
        human::ratio((sums.bytes > 0).then(|| of(sums) as f64 / sums.bytes as f64))
    })
}

fn costs(analysis: &Analysis) -> dwell_report::Table {
    let packets = analysis.blocks.packets as f64;
    rows(analysis, |sums| {
        let per_block = packets / sums.blocks.max(1) as f64;
        let per_byte = |ns: u64| ns as f64 / sums.bytes.max(1) as f64;
        format!(
            "{per_block:.1}: {:.1}, {:.1} ns/byte",
            per_byte(sums.plain_ns),
            per_byte(sums.columnar_ns)
        )
    })
}

fn rows(analysis: &Analysis, cell: impl Fn(&BlockSums) -> String) -> dwell_report::Table {
    let headers: Vec<String> = MS.iter().map(|m| format!("m = {m}")).collect();
    let mut columns = vec![("grouping", false)];
    columns.extend(headers.iter().map(|header| (header.as_str(), true)));
    let mut out = table(&columns);
    for grouping in GROUPINGS {
        let cells = MS.iter().map(|&m| {
            let sums = analysis.blocks.of(grouping, m);
            sums.map_or_else(|| human::NOTHING.to_owned(), &cell)
        });
        out.row(std::iter::once(grouping.name().to_owned()).chain(cells));
    }
    out
}
