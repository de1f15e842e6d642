//! Records of each packet in ns-2, as `validate/parking.tcl` writes them.

use thiserror::Error;

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// The packet arrived.
    Received {
        /// The time at which its last bit arrived.
        at_ns: f64,
    },
    /// A full queue dropped it.
    Dropped {
        /// The time at which it arrived there.
        at_ns: f64,
    },
}

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// The time at which its source sent it.
    pub sent_ns: f64,
    /// Its fate.
    pub fate: Fate,
}

/// A reason why records can't be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordsError {
    /// A line of another form.
    #[error("line {line}: \"{text}\" is not FLOW SEQUENCE SENT_S r|d TIME_S")]
    Form {
        /// Its number, from one.
        line: usize,
        /// Its text.
        text: String,
    },
    /// Packets are missing, or duplicated.
    #[error("flow {flow}: packet {sequence} is missing or duplicated")]
    Gap {
        /// The flow.
        flow: usize,
        /// The packet that should come next.
        sequence: u64,
    },
}

/// Reads records: for each flow its packets in the order in which they were sent.
///
/// Lines are `FLOW SEQUENCE SENT_S r RECEIVED_S` or `FLOW SEQUENCE SENT_S d DROPPED_S`, in any
/// order; sequences begin with zero.
///
/// # Errors
/// If a line has another form, or the packets of a flow are not numbered without gaps.
pub fn parse(text: &str) -> Result<Vec<Vec<Record>>, RecordsError> {
    let mut flows: Vec<Vec<(u64, Record)>> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let (flow, sequence, record) = parse_line(line)
            .ok_or_else(|| RecordsError::Form { line: index + 1, text: line.to_owned() })?;
        if flows.len() <= flow {
            flows.resize_with(flow + 1, Vec::new);
        }
        flows[flow].push((sequence, record));
    }
    flows.into_iter().enumerate().map(|(flow, packets)| in_order(flow, packets)).collect()
}

/// Flows are few; a larger number is a mistake, and nothing to make room for.
const FLOW_MAX: usize = 1000;

fn parse_line(line: &str) -> Option<(usize, u64, Record)> {
    let mut words = line.split_ascii_whitespace();
    let flow = words.next()?.parse().ok().filter(|&flow| flow <= FLOW_MAX)?;
    let sequence = words.next()?.parse().ok()?;
    let sent_ns = parse_seconds(words.next()?)?;
    let received = match words.next()? {
        "r" => true,
        "d" => false,
        _ => return None,
    };
    let at_ns = parse_seconds(words.next()?)?;
    let fate = if received { Fate::Received { at_ns } } else { Fate::Dropped { at_ns } };
    words.next().is_none().then_some((flow, sequence, Record { sent_ns, fate }))
}

fn parse_seconds(word: &str) -> Option<f64> {
    let seconds: f64 = word.parse().ok()?;
    (seconds.is_finite() && seconds >= 0.0).then_some(seconds * 1e9)
}

fn in_order(flow: usize, mut packets: Vec<(u64, Record)>) -> Result<Vec<Record>, RecordsError> {
    packets.sort_by_key(|&(sequence, _)| sequence);
    if let Some(expected) = packets.iter().zip(0..).find(|((found, _), at)| found != at) {
        return Err(RecordsError::Gap { flow, sequence: expected.1 });
    }
    Ok(packets.into_iter().map(|(_, record)| record).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_sorted_by_flow_and_sequence() {
        let flows = parse("1 0 0.5 d 0.75\n0 1 2 r 2.25\n0 0 1e-9 r 1\n").unwrap();
        let received = |sent_ns, at_ns| Record { sent_ns, fate: Fate::Received { at_ns } };
        assert_eq!(flows[0], [received(1.0, 1e9), received(2e9, 2.25e9)]);
        assert_eq!(flows[1], [Record { sent_ns: 5e8, fate: Fate::Dropped { at_ns: 7.5e8 } }]);
    }

    #[test]
    fn mistakes_are_named_by_line() {
        for bad in ["", "0 0 1 r", "0 0 1 x 2", "0 0 1 r 2 3", "-1 0 1 r 2", "0 0 nan r 2"] {
            let text = format!("0 0 1 r 2\n{bad}\n");
            let error = parse(&text).unwrap_err();
            assert_eq!(error, RecordsError::Form { line: 2, text: bad.to_owned() });
        }
        assert!(parse("99999999999 0 1 r 2").is_err());
    }

    #[test]
    fn gaps_and_doubles_are_found() {
        let gap = |text| parse(text).unwrap_err();
        assert_eq!(gap("0 0 1 r 2\n0 2 1 r 2"), RecordsError::Gap { flow: 0, sequence: 1 });
        assert_eq!(gap("0 0 1 r 2\n0 0 1 r 2"), RecordsError::Gap { flow: 0, sequence: 1 });
    }
}
