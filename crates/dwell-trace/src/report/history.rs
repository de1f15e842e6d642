//! The gain of history by its scope.

use dwell_figures::page::{Block, Section};
use dwell_policy::History;
use dwell_report::{Table, human};

use super::{nanoseconds, table};
use crate::analysis::{Analysis, Histories, RECORD_BYTES};
use crate::contexts::{CONTEXTS_MAX, WINDOW_LOG};

pub(super) fn section(analysis: &Analysis) -> Option<Section> {
    let codec = analysis.settings.context_codec?;
    let histories = &analysis.histories;
    if histories.packets.packets == 0 {
        return None;
    }
    let random = match histories.random.packets {
        0 => String::new(),
        packets => format!(
            " {} of them, with {} of the bytes, look random and count as they are: relays keep such \
             packets out.",
            human::count(packets),
            human::share(histories.random.bytes, histories.packets.bytes),
        ),
    };
    let text = format!(
        "Packets that may refer to earlier ones of the same scope, with {codec}: to the last {} \
         bytes of a context, of which those used lately are kept, {CONTEXTS_MAX} of each scope. All {} \
         IP packets that were captured whole count, in their order.{random} `off` refers to \
         nothing. Records are packets of a group together, up to {} bytes; those of `off` are of a \
         pair of hosts.",
        human::count(1 << WINDOW_LOG),
        human::count(histories.packets.packets),
        human::count(RECORD_BYTES as u64),
    );
    let section = Section::new("History")
        .block(Block::Prose(text))
        .block(Block::Table("Ratio, and time per byte".to_owned(), ratios(histories)));
    Some(section)
}

fn ratios(histories: &Histories) -> Table {
    let mut out = table(&[
        ("history", false),
        ("contexts begun", true),
        ("records", true),
        ("ns/byte", true),
        ("packets one by one", true),
        ("ns/byte", true),
    ]);
    for history in History::ALL {
        let Some([records, singles]) = histories.of(history) else { continue };
        let contexts = match history {
            History::Off => human::NOTHING.to_owned(),
            _ => human::count(singles.contexts),
        };
        out.row([
            history.name().to_owned(),
            contexts,
            human::ratio(histories.ratio(records)),
            nanoseconds(histories.byte_ns(records)),
            human::ratio(histories.ratio(singles)),
            nanoseconds(histories.byte_ns(singles)),
        ]);
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::analysis::tests::{analyse, capture, settings};

    #[test]
    fn each_scope_has_a_row() {
        let analysis = analyse(&[capture(300)], &settings(), 1);
        let section = super::section(&analysis).unwrap();
        let page = dwell_figures::page::Page {
            title: String::new(),
            provenance: dwell_figures::page::Provenance::default(),
            sections: vec![section],
        };
        let text = super::super::text(&page);
        for part in ["150 of them", "16 of each scope", "1,048,576 bytes", "1,400 bytes"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let row = |name: &str| {
            let mut rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            rows.rfind(|row| row.first() == Some(&name)).unwrap()
        };
        let ratio = |name: &str| row(name)[2].parse::<f64>().unwrap();
        for name in ["flow", "service", "host-pair", "peer"] {
            assert_eq!(row(name)[1], "1");
            assert!(ratio(name) < ratio("off"), "{text}");
        }
        let mut without = analysis;
        without.settings.context_codec = None;
        assert!(super::section(&without).is_none());
    }
}
