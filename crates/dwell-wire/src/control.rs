//! Control messages between two nodes (`docs/wire.md` section 7).

use crate::arrivals::{Arrivals, HEADER_LEN as ARRIVALS_HEADER_LEN};
use crate::error::WireError;
use crate::reader::Reader;

/// The length of the longest control body that this version writes (a report).
pub const CONTROL_BODY_MAX: usize = 1 + REPORT_FIELDS * 8;
/// The number of fields in a report, and of those that the first version had.
const REPORT_FIELDS: usize = 14;
const REPORT_FIELDS_MIN: usize = 7;

const KEEP_ALIVE: u8 = 1;
const PROBE: u8 = 2;
const PROBE_REPLY: u8 = 3;
const REPORT: u8 = 4;
const CLOSE: u8 = 5;
const MISSING: u8 = 6;
const GONE: u8 = 7;
const CONTEXT_REPORT: u8 = 8;
const ARRIVALS: u8 = 9;

/// Flag of a context report, bit 0: the generation cannot go on.
const CONTEXT_LOST: u8 = 1;
const CONTEXT_EMPTY: u8 = 2;

/// A control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Shows only that the sender is alive.
    KeepAlive,
    /// Asks for a [`Control::ProbeReply`] at once, to measure the round trip.
    Probe {
        /// The sender's clock, in nanoseconds; meaningless to the receiver.
        sender_time_ns: u64,
        /// The sender's id of the probe.
        id: u32,
        /// The interval at which the sender wants reports while datagrams come from it, in
        /// milliseconds; zero if it has no preference, or is of a version without this field.
        report_every_ms: u16,
        /// The most arrivals that the sender wants to know with each report; zero if none, or if it is
        /// of a version without this field.
        arrivals_max: u8,
    },
    /// Answers a [`Control::Probe`].
    ProbeReply {
        /// The value of the probe.
        sender_time_ns: u64,
        /// The value of the probe.
        id: u32,
        /// The answering node's clock, in nanoseconds; only differences are meaningful.
        receiver_time_ns: u64,
    },
    /// The receiver's counters.
    Report(Report),
    /// The session is over.
    Close {
        /// The reason.
        reason: CloseReason,
    },
    /// The sender waits for these datagrams of the receiver, which may be lost.
    Missing(Numbers),
    /// These missing datagrams will not be retransmitted.
    Gone(Numbers),
    /// How far a context of the receiver has come.
    ContextReport(ContextReport),
    /// When datagrams of the receiver came, one by one.
    Arrivals(Arrivals),
    /// A subtype that this version does not know: counted and skipped. Never sent.
    Unknown {
        /// The subtype.
        subtype: u8,
    },
}

/// Sequence numbers of datagrams: up to 64 of them, none further than 63 from the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The lowest.
    pub first: u64,
    /// Bit *i*, counted from the lowest, is for the number `first` + *i*.
    pub bits: u64,
}

impl Numbers {
    /// Adds a number; false if it is too far from the first, or below it.
    pub fn add(&mut self, number: u64) -> bool {
        if self.bits == 0 {
            *self = Self { first: number, bits: 1 };
            return true;
        }
        let Some(bit) = number.checked_sub(self.first).filter(|&bit| bit < 64) else {
            return false;
        };
        self.bits |= 1 << bit;
        true
    }

    /// The numbers, ascending. Those beyond the last 64-bit number don't exist.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<> {
        let Self { first, bits } = *self;
        (0..64)
            .filter(move |bit| bits >> bit & 1 == 1)
            .filter_map(move |bit| first.checked_add(bit))
    }
}

/// The datagrams that a receiver has received in a session, from its beginning. Counters are
/// cumulative, so that a lost report does no harm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Data datagrams accepted.
    pub datagrams: u64,
    /// Their bytes: whole datagrams, without the UDP and IP headers around them.
    pub bytes: u64,
    /// Records read from them, skipped ones included.
    pub records: u64,
    /// Datagrams considered lost: numbers that have not come within some seconds.
    pub lost: u64,
    /// Datagrams refused as duplicates or replays.
    pub duplicates: u64,
    /// The highest sequence number accepted, zero if none was.
    pub highest_sequence: u64,
    /// The rate at which datagrams arrived since the last report, in bits per second.
    pub delivery_bps: u64,
    /// The time at which the datagram with the highest number came, by the receiver's clock, in
    /// nanoseconds; only differences are meaningful. Zero, like the fields after this one, if the
    /// receiver is of a version without these fields.
    pub highest_at_ns: u64,
    /// Numbers below the highest that have not come, but may yet.
    pub missing: u64,
    /// The bytes that wait at the receiver for its link to the sender, as they count on that link.
    pub waiting_bytes: u64,
    /// The time that a packet that arrives there now would wait, in nanoseconds.
    pub waiting_ns: u64,
    /// The datagrams that were sent in the last seconds, by their numbers.
    pub recent_sent: u64,
    /// Those of them that did not come when they were first sent.
    pub recent_lost: u64,
    /// The rate of packets at which the receiver has the processor time to decode what models have compressed for it, in
    /// bits per second. Zero if it does not say, or is of a version without this field.
    pub model_bps: u64,
}

/// How far the sender of the report has come with what it receives through a context. A lost report
/// does no harm: each says all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextReport {
    /// The number of the context.
    pub context: u8,
    /// The low 8 bits of the number of the generation that the report is about; zero if none has
    /// begun.
    pub generation: u8,
    /// True if this generation cannot go on: the sender of the context must begin a new one.
    pub is_lost: bool,
    /// True if the ring holds nothing, so that no generation can begin from it, whatever has gone through the
    /// context before.
    pub is_empty: bool,
    /// The next number that is expected: what comes before it was delivered or given up.
    pub next_number: u64,
    /// The number of bytes that have gone through the context up to now.
    pub ring_offset: u64,
}

/// The reason why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The node stops (1).
    ShuttingDown,
    /// The node loads a new configuration and will send a new hello (2).
    Reload,
    /// Another code than those above; the session is over all the same.
    Other(u8),
}

impl From<u8> for CloseReason {
    fn from(code: u8) -> Self {
        match code {
            1 => Self::ShuttingDown,
            2 => Self::Reload,
            other => Self::Other(other),
        }
    }
}

impl From<CloseReason> for u8 {
    fn from(reason: CloseReason) -> Self {
        match reason {
            CloseReason::ShuttingDown => 1,
            CloseReason::Reload => 2,
            CloseReason::Other(code) => code,
        }
    }
}

impl Control {
    /// Returns the length of the body of a control record: subtype and fields.
    pub const fn body_len(&self) -> usize {
        match self {
            Self::KeepAlive | Self::Unknown { .. } => 1,
            Self::Probe { .. } => 1 + 8 + 4 + 2 + 1,
            Self::Arrivals(arrivals) => ARRIVALS_HEADER_LEN + 2 * arrivals.len as usize,
            Self::ProbeReply { .. } => 1 + 8 + 4 + 8,
            Self::Report(_) => CONTROL_BODY_MAX,
            Self::Close { .. } => 2,
            Self::Missing(_) | Self::Gone(_) => 1 + 8 + 8,
            Self::ContextReport(_) => 1 + 1 + 1 + 1 + 8 + 8,
        }
    }

    /// Returns the least length of such a body: earlier versions left out the later fields.
    pub const fn body_len_min(&self) -> usize {
        match self {
            Self::Probe { .. } => 1 + 8 + 4,
            Self::Report(_) => 1 + REPORT_FIELDS_MIN * 8,
            _ => self.body_len(),
        }
    }

    /// Writes the body into the first [`body_len`](Self::body_len) bytes of `out`; returns this
    /// length. An [`Control::Unknown`] has nothing but its subtype.
    pub fn encode(&self, out: &mut [u8; CONTROL_BODY_MAX]) -> usize {
        let mut len = 0;
        let mut put = |field: &[u8]| {
            out[len..len + field.len()].copy_from_slice(field);
            len += field.len();
        };
        match *self {
            Self::KeepAlive => put(&[KEEP_ALIVE]),
            Self::Probe { sender_time_ns, id, report_every_ms, arrivals_max } => {
                put(&[PROBE]);
                put(&sender_time_ns.to_be_bytes());
                put(&id.to_be_bytes());
                put(&report_every_ms.to_be_bytes());
                put(&[arrivals_max]);
            }
            Self::Arrivals(arrivals) => {
                put(&[ARRIVALS]);
                put(&arrivals.first.to_be_bytes());
                put(&arrivals.first_at_ns.to_be_bytes());
                put(&[arrivals.len]);
                arrivals.written().iter().for_each(|gap| put(&gap.to_be_bytes()));
            }
            Self::ProbeReply { sender_time_ns, id, receiver_time_ns } => {
                put(&[PROBE_REPLY]);
                put(&sender_time_ns.to_be_bytes());
                put(&id.to_be_bytes());
                put(&receiver_time_ns.to_be_bytes());
            }
            Self::Report(report) => {
                put(&[REPORT]);
                report.fields().iter().for_each(|field| put(&field.to_be_bytes()));
            }
            Self::Close { reason } => put(&[CLOSE, reason.into()]),
            Self::Missing(numbers) | Self::Gone(numbers) => {
                put(&[if matches!(self, Self::Missing(_)) { MISSING } else { GONE }]);
                put(&numbers.first.to_be_bytes());
                put(&numbers.bits.to_be_bytes());
            }
            Self::ContextReport(report) => {
                let lost = if report.is_lost { CONTEXT_LOST } else { 0 };
                let flags = lost | if report.is_empty { CONTEXT_EMPTY } else { 0 };
                put(&[CONTEXT_REPORT, report.context, report.generation, flags]);
                put(&report.next_number.to_be_bytes());
                put(&report.ring_offset.to_be_bytes());
            }
            Self::Unknown { subtype } => put(&[subtype]),
        }
        len
    }

    /// Reads the body of a control record. Bytes after the known fields are ignored, and fields
    /// that earlier versions did not have are zero if they are not there.
    ///
    /// # Errors
    /// [`WireError::ControlLength`] if there is no subtype, or a field of a known subtype is
    /// missing.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        Self::read(Reader(body)).ok_or(WireError::ControlLength)
    }

    fn read(mut rest: Reader<'_>) -> Option<Self> {
        Some(match rest.u8()? {
            KEEP_ALIVE => Self::KeepAlive,
            PROBE => Self::Probe {
                sender_time_ns: rest.u64()?,
                id: rest.u32()?,
                report_every_ms: rest.u16().unwrap_or(0),
                arrivals_max: rest.u8().unwrap_or(0),
            },
            PROBE_REPLY => Self::ProbeReply {
                sender_time_ns: rest.u64()?,
                id: rest.u32()?,
                receiver_time_ns: rest.u64()?,
            },
            REPORT => Self::Report(Report::read(&mut rest)?),
            CLOSE => Self::Close { reason: rest.u8()?.into() },
            MISSING => Self::Missing(Numbers { first: rest.u64()?, bits: rest.u64()? }),
            GONE => Self::Gone(Numbers { first: rest.u64()?, bits: rest.u64()? }),
            CONTEXT_REPORT => {
                let (context, generation, flags) = (rest.u8()?, rest.u8()?, rest.u8()?);
                Self::ContextReport(ContextReport {
                    context,
                    generation,
                    is_lost: flags & CONTEXT_LOST != 0,
                    is_empty: flags & CONTEXT_EMPTY != 0,
                    next_number: rest.u64()?,
                    ring_offset: rest.u64()?,
                })
            }
            ARRIVALS => Self::Arrivals(Arrivals::read(&mut rest)?),
            subtype => Self::Unknown { subtype },
        })
    }
}

impl Report {
    /// Returns the fields in the order of the wire.
    const fn fields(&self) -> [u64; REPORT_FIELDS] {
        [
            self.datagrams,
            self.bytes,
            self.records,
            self.lost,
            self.duplicates,
            self.highest_sequence,
            self.delivery_bps,
            self.highest_at_ns,
            self.missing,
            self.waiting_bytes,
            self.waiting_ns,
            self.recent_sent,
            self.recent_lost,
            self.model_bps,
        ]
    }

    fn read(rest: &mut Reader<'_>) -> Option<Self> {
        let mut fields = [0; REPORT_FIELDS];
        for (at, field) in fields.iter_mut().enumerate() {
            *field = match rest.u64() {
                Some(field) => field,
                None if at >= REPORT_FIELDS_MIN => break,
                None => return None,
            };
        }
        Some(Self::from_fields(fields))
    }

    const fn from_fields(fields: [u64; REPORT_FIELDS]) -> Self {
        let [
            datagrams,
            bytes,
            records,
            lost,
            duplicates,
            highest_sequence,
            delivery_bps,
            highest_at_ns,
            missing,
            waiting_bytes,
            waiting_ns,
            recent_sent,
            recent_lost,
            model_bps,
        ] = fields;
        Self {
            datagrams,
            bytes,
            records,
            lost,
            duplicates,
            highest_sequence,
            delivery_bps,
            highest_at_ns,
            missing,
            waiting_bytes,
            waiting_ns,
            recent_sent,
            recent_lost,
            model_bps,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use crate::arrivals::tests::any_arrivals;

    use super::*;

    /// Any control message that can be distinguished from every other one on the wire.
    pub(crate) fn any_control() -> impl Strategy<Value = Control> {
        let report = any::<[u64; REPORT_FIELDS]>()
            .prop_map(|fields| Control::Report(Report::from_fields(fields)));
        prop_oneof![
            Just(Control::KeepAlive),
            any::<(u64, u32, u16, u8)>().prop_map(
                |(sender_time_ns, id, report_every_ms, arrivals_max)| Control::Probe {
                    sender_time_ns,
                    id,
                    report_every_ms,
                    arrivals_max
                }
            ),
            any_arrivals().prop_map(Control::Arrivals),
            any::<(u64, u32, u64)>().prop_map(|(sender_time_ns, id, receiver_time_ns)| {
                Control::ProbeReply { sender_time_ns, id, receiver_time_ns }
            }),
            report,
            any::<u8>().prop_map(|code| Control::Close { reason: code.into() }),
            any::<(u64, u64)>().prop_map(|(first, bits)| Control::Missing(Numbers { first, bits })),
            any::<(u64, u64)>().prop_map(|(first, bits)| Control::Gone(Numbers { first, bits })),
            any::<(u8, u8, [bool; 2], u64, u64)>().prop_map(
                |(context, generation, [is_lost, is_empty], next_number, ring_offset)| {
                    Control::ContextReport(ContextReport {
                        context,
                        generation,
                        is_lost,
                        is_empty,
                        next_number,
                        ring_offset,
                    })
                }
            ),
            (10u8..).prop_map(|subtype| Control::Unknown { subtype }),
        ]
    }

    impl Control {
        /// Sets the fields of later versions to zero.
        fn without_later_fields(self) -> Self {
            match self {
                Self::Probe { sender_time_ns, id, .. } => {
                    Self::Probe { sender_time_ns, id, report_every_ms: 0, arrivals_max: 0 }
                }
                Self::Report(report) => {
                    let mut fields = report.fields();
                    fields[REPORT_FIELDS_MIN..].fill(0);
                    Self::Report(Report::from_fields(fields))
                }
                other => other,
            }
        }
    }

    #[test]
    fn numbers_are_added_while_they_are_near() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.iter().count(), 0);
        for (number, fits) in [(100, true), (101, true), (163, true), (164, false), (99, false)] {
            assert_eq!(numbers.add(number), fits);
        }
        assert_eq!(numbers.iter().collect::<Vec<_>>(), [100, 101, 163]);
        let last = Numbers { first: u64::MAX - 1, bits: u64::MAX };
        assert_eq!(last.iter().collect::<Vec<_>>(), [u64::MAX - 1, u64::MAX]);
    }

    proptest! {
        #[test]
        fn round_trips_and_grows(
            control in any_control(),
            more in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut buf = [0; CONTROL_BODY_MAX];
            let len = control.encode(&mut buf);
            prop_assert_eq!(len, control.body_len());
            let body = [&buf[..len], &more].concat();
            prop_assert_eq!(Control::parse(&body), Ok(control));
            let needed = control.body_len_min();
            for short in 1..needed {
                prop_assert_eq!(Control::parse(&body[..short]), Err(WireError::ControlLength));
            }
            // A body of an earlier version, or with a part of a field that it did not know.
            for short in needed..len {
                let found = Control::parse(&body[..short]).map(|found| found.without_later_fields());
                prop_assert_eq!(found, Ok(control.without_later_fields()));
            }
        }
    }
}
