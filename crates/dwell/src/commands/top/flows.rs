//! The flows to a peer, as `dwell top` lists them: their order, and which of them.

use std::cmp::Reverse;

use dwell_report::status::FlowStatus;

/// The order of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FlowSort {
    /// The busiest first.
    #[default]
    Rate,
    /// Those that sent most first.
    Bytes,
    /// By where they come from.
    Source,
    /// By where they go to.
    Destination,
}

impl FlowSort {
    const ALL: [Self; 4] = [Self::Rate, Self::Bytes, Self::Source, Self::Destination];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Bytes => "bytes",
            Self::Source => "from",
            Self::Destination => "to",
        }
    }

    pub(super) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// A flow in words, which a filter is compared with.
pub(super) fn ends(flow: &FlowStatus) -> String {
    format!("{} {} > {}", flow.protocol_name(), flow.source, flow.destination)
}

/// The flows to this peer whose words contain the filter, in this order.
pub(super) fn listed<'f>(
    flows: &'f [FlowStatus],
    peer: &str,
    filter: &str,
    sort: FlowSort,
) -> Vec<&'f FlowStatus> {
    let is_wanted = |flow: &&FlowStatus| flow.peer == peer && ends(flow).contains(filter);
    let mut listed: Vec<_> = flows.iter().filter(is_wanted).collect();
    // Sorting is stable: equal ones stay as the node lists them.
    match sort {
        FlowSort::Rate => listed.sort_by_key(|flow| Reverse(flow.bps)),
        FlowSort::Bytes => listed.sort_by_key(|flow| Reverse(flow.bytes)),
        FlowSort::Source => listed.sort_by(|a, b| a.source.cmp(&b.source)),
        FlowSort::Destination => listed.sort_by(|a, b| a.destination.cmp(&b.destination)),
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_sorted_and_filtered() {
        let flow = |peer: &str, source: &str, port: u16, bps, bytes| FlowStatus {
            peer: peer.to_owned(),
            protocol: 6,
            source: source.to_owned(),
            destination: format!("10.2.0.9:{port}"),
            bps,
            bytes,
            ..FlowStatus::default()
        };
        let flows = [
            flow("hub", "10.1.0.7:1", 443, 10, 900),
            flow("hub", "10.1.0.5:1", 80, 30, 100),
            flow("depot", "10.1.0.6:1", 443, 20, 500),
        ];
        let sources = |filter: &str, sort| -> Vec<&str> {
            listed(&flows, "hub", filter, sort).iter().map(|flow| &*flow.source).collect()
        };
        assert_eq!(sources("", FlowSort::Rate), ["10.1.0.5:1", "10.1.0.7:1"]);
        assert_eq!(sources("", FlowSort::Bytes), ["10.1.0.7:1", "10.1.0.5:1"]);
        assert_eq!(sources("", FlowSort::Source), ["10.1.0.5:1", "10.1.0.7:1"]);
        assert_eq!(sources("", FlowSort::Destination), ["10.1.0.7:1", "10.1.0.5:1"]);
        assert_eq!(sources(":443", FlowSort::Rate), ["10.1.0.7:1"]);
        assert_eq!(sources("udp", FlowSort::Rate), [""; 0]);
        let all = FlowSort::ALL.iter().fold(FlowSort::default(), |sort, _| sort.next());
        assert_eq!(all, FlowSort::default());
    }
}
