//! Records that are written and read, and those that are none.

use proptest::prelude::*;

use super::*;
use crate::carried::tests::any_label;
use crate::carried::{Label, Unit};
use crate::context::{Alone, ContextBody, Headers, Start, StartBase, context_record_len};
use crate::control::tests::any_control;

/// A record that owns its bytes.
#[derive(Clone, Debug)]
enum Owned {
    Raw(Vec<u8>),
    Compressed {
        codec: u8,
        epoch: u8,
        original_len: u16,
        data: Vec<u8>,
    },
    Control(Control),
    Block {
        codec: u8,
        flags: u8,
        original_len: u16,
        data: Vec<u8>,
    },
    Fragment {
        id: u32,
        index: u8,
        last: u8,
        data: Vec<u8>,
    },
    Resent(u32),
    Carried {
        hop_limit: u8,
        label: Label,
        unit: Box<Owned>,
    },
    ContextRaw {
        place: (u8, u8, u16),
        packet: Vec<u8>,
    },
    ContextBatch {
        place: (u8, u8, u16),
        start: Option<Start>,
        alone: Option<Alone>,
        original_len: u16,
        data: Vec<u8>,
    },
}

impl Owned {
    fn write(&self, writer: &mut BodyWriter<'_>) -> Result<(), Full> {
        match self {
            Self::Raw(packet) => writer.raw(packet),
            Self::Compressed { codec, epoch, original_len, data } => {
                writer.compressed(*codec, *epoch, *original_len, data)
            }
            Self::Control(control) => writer.control(control),
            _ => match self.borrow() {
                Record::Block(block) => writer.block(&block),
                Record::Fragment(fragment) => writer.fragment(&fragment),
                Record::Resent { sequence_low } => writer.resent(sequence_low),
                Record::Carried(carried) => writer.carried(&carried),
                Record::Context(record) => writer.context(&record),
                other => panic!("{other:?}"),
            },
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Raw(packet) => raw_record_len(packet.len()),
            Self::Compressed { data, .. } => compressed_record_len(data.len()),
            Self::Control(control) => RECORD_HEADER_LEN + control.body_len(),
            Self::Block { data, .. } => block_record_len(data.len()),
            Self::Fragment { data, .. } => fragment_record_len(data.len()),
            Self::Resent(_) => RESENT_RECORD_LEN,
            Self::Carried { label, unit, .. } => unit.len() + carried_extra_len(label),
            Self::ContextRaw { packet, .. } => RECORD_HEADER_LEN + 5 + packet.len(),
            Self::ContextBatch { start, alone, data, .. } => {
                let more =
                    if start.is_some() { 14 } else { 0 } + if alone.is_some() { 4 } else { 0 };
                RECORD_HEADER_LEN + 7 + more + data.len()
            }
        }
    }

    fn borrow(&self) -> Record<'_> {
        match self {
            Self::Raw(packet) => Record::Raw(packet),
            &Self::Compressed { codec, epoch, original_len, ref data } => {
                Record::Compressed(Compressed { codec, epoch, original_len, data })
            }
            Self::Control(control) => Record::Control(*control),
            &Self::Block { codec, flags, original_len, ref data } => {
                Record::Block(Block { codec, flags, original_len, data })
            }
            &Self::Fragment { id, index, last, ref data } => {
                Record::Fragment(Fragment { id, index, last, data })
            }
            &Self::Resent(sequence_low) => Record::Resent { sequence_low },
            &Self::Carried { hop_limit, label, ref unit } => {
                let unit = match unit.borrow() {
                    Record::Compressed(compressed) => Unit::Compressed(compressed),
                    Record::Block(block) => Unit::Block(block),
                    other => panic!("{other:?}"),
                };
                Record::Carried(Carried { hop_limit, label, unit })
            }
            Self::ContextRaw { place, packet } => in_context(*place, ContextBody::Raw(packet)),
            &Self::ContextBatch { place, start, alone, original_len, ref data } => {
                let headers = match original_len % 3 {
                    0 => Headers::Columnar,
                    1 if alone.is_none() => Headers::Predicted,
                    _ => Headers::Plain,
                };
                let body = ContextBody::Batch { start, alone, headers, original_len, data };
                in_context(place, body)
            }
        }
    }
}

fn in_context((context, generation, number): (u8, u8, u16), body: ContextBody<'_>) -> Record<'_> {
    Record::Context(ContextRecord { context, generation, number, body })
}

fn any_start() -> impl Strategy<Value = Start> {
    any::<(u8, u8, u64, u32, bool)>().prop_map(|(codec, window_log, number, len, is_in_ring)| {
        let base = match is_in_ring {
            true => StartBase::Ring { offset: number, len },
            false => StartBase::Dictionary { name: number, len },
        };
        Start { codec: codec % 16, window_log, base }
    })
}

fn any_alone() -> impl Strategy<Value = Owned> {
    let start = prop::option::of(any_start());
    let all = (any::<(u8, u8, u16)>(), start, any::<(u32, bool)>(), any_bytes(), 1u16..5000);
    all.prop_map(|(place, start, (distance, keeps), data, saved)| {
        let is_in_ring = start.is_some_and(|it| matches!(it.base, StartBase::Ring { .. }));
        let alone = Some(Alone { distance, keeps: keeps && is_in_ring });
        let original_len = data.len() as u16 + saved;
        Owned::ContextBatch { place, start, alone, original_len, data }
    })
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    // Small ones for many records in a body, large ones for the border of the named length.
    let len = prop_oneof![8 => 1usize..200, 1 => 4080usize..4110, 1 => 1usize..9000];
    (len, any::<u8>()).prop_map(|(len, fill)| vec![fill; len])
}

fn any_unit() -> impl Strategy<Value = Owned> {
    prop_oneof![
        (0u8..16, 0u8..16, any_bytes(), 1u16..5000).prop_map(|(codec, epoch, data, saved)| {
            let original_len = data.len() as u16 + saved;
            Owned::Compressed { codec, epoch, original_len, data }
        }),
        (0u8..16, 0u8..16, any_bytes(), 1u16..5000).prop_map(|(codec, flags, data, saved)| {
            let original_len = data.len() as u16 + saved;
            Owned::Block { codec, flags, original_len, data }
        }),
    ]
}

fn any_record() -> impl Strategy<Value = Owned> {
    prop_oneof![
        any_bytes().prop_map(Owned::Raw),
        any_unit(),
        any_control().prop_map(Owned::Control),
        (1u8.., any_label(), any_unit()).prop_map(|(hop_limit, label, unit)| {
            Owned::Carried { hop_limit, label, unit: Box::new(unit) }
        }),
        (any::<u32>(), 1u8..64, any::<u8>(), any_bytes()).prop_map(|(id, last, index, data)| {
            Owned::Fragment { id, index: index % (last + 1), last, data }
        }),
        any::<u32>().prop_map(Owned::Resent),
        (any::<(u8, u8, u16)>(), any_bytes())
            .prop_map(|(place, packet)| Owned::ContextRaw { place, packet }),
        (any::<(u8, u8, u16)>(), prop::option::of(any_start()), 1u16.., any_bytes()).prop_map(
            |(place, start, original_len, data)| {
                Owned::ContextBatch { place, start, alone: None, original_len, data }
            }
        ),
        any_alone(),
    ]
}

proptest! {
    #[test]
    fn any_sequence_of_records_round_trips(
        records in prop::collection::vec(any_record(), 0..20),
        room in prop_oneof![0usize..2000, 0usize..20_000],
    ) {
        let mut buf = vec![0xee; room];
        let mut writer = BodyWriter::new(&mut buf);
        let mut written = Vec::new();
        for record in &records {
            let (before, fits) = (writer.len(), record.len() <= writer.remaining());
            prop_assert_eq!(record.write(&mut writer).is_ok(), fits);
            prop_assert_eq!(writer.len() - before, if fits { record.len() } else { 0 });
            if fits {
                written.push(record.borrow());
            }
            if let Record::Context(borrowed) = record.borrow() {
                prop_assert_eq!(context_record_len(&borrowed), record.len());
            }
        }
        let len = writer.len();
        let read: Result<Vec<_>, _> = Records::new(&buf[..len]).collect();
        prop_assert_eq!(read, Ok(written));
        prop_assert!(buf[len..].iter().all(|&byte| byte == 0xee));
    }
}

#[test]
fn a_long_record_closes_the_body() {
    for (packet_len, left) in [(4095, 10_000 - 4097), (4096, 0)] {
        let mut buf = [0; 10_000];
        let mut writer = BodyWriter::new(&mut buf);
        writer.raw(&vec![7; packet_len]).unwrap();
        assert_eq!(writer.remaining(), left);
        assert_eq!(writer.control(&Control::KeepAlive).is_ok(), left > 0);
    }
}

#[test]
fn records_that_cannot_exist_are_not_written() {
    let mut buf = [0; 100];
    let mut writer = BodyWriter::new(&mut buf);
    assert_eq!(writer.raw(&[]), Err(Full));
    assert_eq!(writer.compressed(1, 0, 5, &[0; 5]), Err(Full));
    assert_eq!(writer.compressed(1, 0, 5, &[]), Err(Full));
    let block = Block { codec: 1, flags: 0, original_len: 5, data: &[0; 5] };
    assert_eq!(writer.block(&block), Err(Full));
    let fragment = Fragment { id: 1, index: 0, last: 0, data: &[0; 5] };
    assert_eq!(writer.fragment(&fragment), Err(Full));
    let batch = |original_len, data| ContextBody::Batch {
        start: None,
        alone: None,
        headers: Headers::Plain,
        original_len,
        data,
    };
    for body in [ContextBody::Raw(&[]), batch(0, &[1]), batch(9, &[])] {
        let record = ContextRecord { context: 0, generation: 1, number: 1, body };
        assert_eq!(writer.context(&record), Err(Full));
    }
    assert!(writer.is_empty());
}

#[test]
fn padding_is_a_keep_alive_of_any_length() {
    let mut buf = vec![0xff; 9_000];
    for len in [3, 4, 100, 1_400, 4_096, 4_097, 4_098, 4_099, 8_981] {
        let mut writer = BodyWriter::new(&mut buf);
        let probe =
            Control::Probe { sender_time_ns: 1, id: 2, report_every_ms: 3, arrivals_max: 0 };
        assert_eq!(writer.control(&probe), Ok(()));
        assert_eq!(writer.padding(len), Ok(()), "{len}");
        let body_len = writer.len();
        assert_eq!(body_len, 18 + len);
        let records: Vec<_> = Records::new(&buf[..body_len]).collect();
        let expected = [probe, Control::KeepAlive].map(|it| Ok(Record::Control(it)));
        assert_eq!(records, expected, "{len}");
    }
    let mut writer = BodyWriter::new(&mut buf);
    assert_eq!((writer.padding(2), writer.padding(9_001)), (Err(Full), Err(Full)));
    assert!(writer.is_empty());
}

#[test]
fn malformed_bodies_end_with_a_named_reason() {
    let cases: [(&[u8], WireError); 15] = [
        (&[0x10], WireError::Truncated),
        (&[0x00, 0x01, 0xaa], WireError::RecordType),
        (&[0x10, 0x03, 1, 2], WireError::RecordLength),
        (&[0x10, 0x00], WireError::RecordEmpty),
        (&[0x80, 0x00], WireError::RecordEmpty),
        (&[0x20, 0x02, 0x10, 0x00], WireError::Truncated),
        (&[0x20, 0x03, 0x10, 0x00, 0x09], WireError::CompressedLength),
        (&[0x20, 0x04, 0x10, 0x00, 0x01, 0xaa], WireError::CompressedLength),
        (&[0x30, 0x02, 0x02, 0xaa], WireError::ControlLength),
        (&[0x40, 0x04, 0x20, 0x00, 0x01, 0xaa], WireError::CompressedLength),
        (&[0x50, 0x07, 0, 0, 0, 1, 3, 2, 0xaa], WireError::Fragment),
        (&[0x60, 0x03, 0, 0, 1], WireError::Truncated),
        (&[0x90, 0x04, 0, 1, 0, 1], WireError::Truncated),
        (&[0x90, 0x05, 0, 1, 0, 1, 1], WireError::Context),
        (&[0x90, 0x06, 0, 1, 0, 1, 3, 0x45], WireError::Context),
    ];
    for (bad, reason) in cases {
        let body = [&[0x10, 0x01, 0x45], bad].concat();
        let mut records = Records::new(&body);
        assert_eq!(records.next(), Some(Ok(Record::Raw(&[0x45]))));
        assert_eq!(records.next(), Some(Err(reason)), "{bad:x?}");
        assert_eq!(records.next(), None);
    }
}

#[test]
fn unknown_types_are_skipped() {
    for record_type in [7].into_iter().chain(10..16u8) {
        let body = [record_type << 4, 2, 9, 9, 0x10, 1, 0x45];
        let records: Vec<_> = Records::new(&body).collect();
        let skipped = Record::Skipped { record_type, len: 2 };
        assert_eq!(records, [Ok(skipped), Ok(Record::Raw(&[0x45]))]);
    }
    let body = [0x90, 5, 0, 1, 0, 1, 64, 0x10, 1, 0x45];
    let records: Vec<_> = Records::new(&body).collect();
    let skipped = Record::Skipped { record_type: 9, len: 5 };
    assert_eq!(records, [Ok(skipped), Ok(Record::Raw(&[0x45]))]);
}
