//! `docs/wire.md` against the code: every worked example is decoded and encoded again.

use std::collections::BTreeMap;

use dwell_wire::header::{SEAL_TAG_LEN, seal_nonce};
use dwell_wire::{
    Alone, Arrivals, Block, BodyWriter, Carried, CloseReason, Compressed, ContextBody,
    ContextOffer, ContextRecord, ContextReport, Control, DataHeader, Datagram, DictionaryName,
    Fragment, HeaderPredictor, HeaderRestorer, Headers, Hello, Initiation, Label, ModelOffer,
    Numbers, Record, Records, Report, Response, Start, StartBase, Unit, WireError, keyed,
    reconstruct_number, reconstruct_sequence,
};

const DOCUMENT: &str = include_str!("../../../../docs/wire.md");

/// The lines of the fenced blocks, by the text after the fence; comments and blanks removed.
fn blocks() -> BTreeMap<&'static str, Vec<Vec<&'static str>>> {
    let mut blocks = BTreeMap::new();
    let mut lines = DOCUMENT.lines();
    while let Some(line) = lines.next() {
        let Some(title) = line.strip_prefix("```") else { continue };
        let body = lines
            .by_ref()
            .take_while(|line| *line != "```")
            .map(|line| line.split('#').next().unwrap().split_whitespace().collect::<Vec<_>>())
            .filter(|words| !words.is_empty())
            .collect();
        assert!(blocks.insert(title, body).is_none(), "two blocks \"{title}\"");
    }
    blocks
}

fn hex(name: &str) -> Vec<u8> {
    let title = format!("hex {name}");
    let blocks = blocks();
    let lines = blocks.get(title.as_str()).unwrap_or_else(|| panic!("no example {name}"));
    lines.concat().iter().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// Reads the records of a body, and writes them again to the same bytes.
fn assert_records(body: &[u8], expected: &[Record<'_>]) {
    let read: Result<Vec<_>, _> = Records::new(body).collect();
    assert_eq!(read.as_deref(), Ok(expected));
    let mut buf = vec![0; body.len()];
    let mut writer = BodyWriter::new(&mut buf);
    for record in expected {
        match record {
            Record::Raw(packet) => writer.raw(packet),
            Record::Compressed(p) => writer.compressed(p.codec, p.epoch, p.original_len, p.data),
            Record::Control(control) => writer.control(control),
            Record::Block(block) => writer.block(block),
            Record::Fragment(fragment) => writer.fragment(fragment),
            Record::Resent { sequence_low } => writer.resent(*sequence_low),
            Record::Carried(carried) => writer.carried(carried),
            Record::Context(record) => writer.context(record),
            Record::Skipped { .. } => panic!("cannot be written"),
        }
        .unwrap();
    }
    assert_eq!(writer.len(), body.len());
    assert_eq!(buf, body);
}

#[test]
fn no_example_is_left_out() {
    let known = [
        "hex block",
        "hex carried-block",
        "hex carried-packet",
        "hex compressed",
        "hex context-alone",
        "hex context-alone-start",
        "hex context-batch",
        "hex context-predicted",
        "hex context-raw",
        "hex context-start",
        "hex context-start-dictionary",
        "hex control-arrivals",
        "hex control-close",
        "hex control-context-report",
        "hex control-gone",
        "hex control-keep-alive",
        "hex control-missing",
        "hex control-probe",
        "hex control-probe-reply",
        "hex control-report",
        "hex data-plain",
        "hex data-sealed-header",
        "hex data-sealed-nonce",
        "hex fragment",
        "hex hello-plain",
        "hex keyed-cookie",
        "hex keyed-initiation",
        "hex keyed-offer",
        "hex keyed-response",
        "hex malformed-length",
        "hex predicted-headers",
        "hex predicted-packets",
        "hex resent",
        "hex skipped-then-open-ended",
        // The examples of the codecs mix and ppm are tested in dwell-codec.
        "mix",
        "mix long",
        "mix longer",
        "numbers",
        "ppm",
        "ppm long",
        "ppm longer",
        "sequence",
    ];
    assert_eq!(blocks().into_keys().collect::<Vec<_>>(), known);
}

#[test]
fn section_3_sequence_numbers() {
    let lines = &blocks()["sequence"];
    assert!(lines.len() >= 6);
    for line in lines {
        let [highest, low, completed] = line[..] else { panic!("{line:?}") };
        let number = |hex| u64::from_str_radix(hex, 16).unwrap();
        let found = reconstruct_sequence(number(highest), number(low) as u32);
        assert_eq!(found, number(completed), "{line:?}");
    }
}

#[test]
fn section_3_sealed_data() {
    let header = DataHeader { sealed: true, session: 0x2a, sequence_low: 7 };
    assert_eq!(header.encode()[..], hex("data-sealed-header"));
    assert_eq!(seal_nonce(0x3_0000_0007)[..], hex("data-sealed-nonce"));
    let body = [0xcc; SEAL_TAG_LEN + 5];
    let datagram = [&hex("data-sealed-header")[..], &body].concat();
    assert_eq!(Datagram::parse(&datagram), Ok(Datagram::Data { header, body: &body }));
}

#[test]
fn section_3_plain_data() {
    let datagram = hex("data-plain");
    let Ok(Datagram::Data { header, body }) = Datagram::parse(&datagram) else {
        panic!("no data datagram")
    };
    assert_eq!(header, DataHeader { sealed: false, session: 0x2a, sequence_low: 7 });
    assert_eq!(header.encode(), datagram[..6]);
    let packet = Record::Raw(&[0x45, 0, 0, 0x54]);
    assert_records(body, &[packet, Record::Control(Control::KeepAlive)]);
}

/// Those of the hello and of the offer.
const CONTEXTS: Option<ContextOffer> = Some(ContextOffer {
    contexts: 16,
    ring_log: 20,
    incarnation: 0x5ca1_ab1e_0ddb_a115,
    takes_alone: true,
    dictionary: Some(DictionaryName {
        len: 32_768,
        hash: [0xd1, 0xc7, 0x10, 0x0a, 0xe5, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
    }),
    models: Some(ModelOffer { contexts: 4, memory_log: 24, takes_mixed: true }),
    takes_predicted: true,
});

#[test]
fn section_4_hello() {
    let datagram = hex("hello-plain");
    let Ok(Datagram::Hello { sealed: false, body, .. }) = Datagram::parse(&datagram) else {
        panic!("no plain hello")
    };
    let hello = Hello {
        salt: std::array::from_fn(|at| at as u8),
        echo: [0; 16],
        datagram_max: 1452,
        codecs: 1 << 1 | 1 << 2,
        flags: 0,
        contexts: CONTEXTS,
    };
    assert_eq!(Hello::parse(body), Ok(hello));
    assert_eq!(hello.encode()[..], *body);
}

#[test]
fn section_4_3_keyed_exchange() {
    let counting = |from: u8, len: u8| (from..from + len).collect::<Vec<u8>>();
    let datagram = hex("keyed-initiation");
    let Ok(Datagram::Initiation(it)) = Datagram::parse(&datagram) else { panic!("no initiation") };
    assert_eq!((it.sender, it.noise), (298, &counting(0, 120)[..]));
    assert_eq!((it.mac1(), it.mac2()), (&counting(0xa0, 16)[..], &[0; 16][..]));
    assert_eq!(Initiation::header(298)[..], datagram[..5]);

    let datagram = hex("keyed-response");
    let Ok(Datagram::Response(it)) = Datagram::parse(&datagram) else { panic!("no response") };
    assert_eq!((it.sender, it.receiver, it.noise), (775, 298, &counting(0, 64)[..]));
    assert_eq!(it.mac1(), counting(0xa0, 16));
    assert_eq!(Response::header(775, 298)[..], datagram[..9]);

    let datagram = hex("keyed-cookie");
    let Ok(Datagram::Cookie(it)) = Datagram::parse(&datagram) else { panic!("no cookie") };
    assert_eq!((it.receiver, &it.salt[..]), (298, &counting(0, 16)[..]));
    assert_eq!((&it.sealed[..], &it.encode()[..]), (&counting(0x20, 32)[..], &datagram[..]));

    let offer = keyed::parse_offer(&hex("keyed-offer")).expect("a good offer");
    assert_eq!((offer.datagram_max, offer.codecs, offer.flags), (1452, 6, 0));
    assert_eq!(offer.contexts, CONTEXTS);
    assert_eq!(keyed::encode_offer(&offer)[..], hex("keyed-offer"));
}

#[test]
fn section_5_records() {
    let packet = [0x45, 0, 0, 0x54];
    let body = hex("skipped-then-open-ended");
    let records: Vec<_> = Records::new(&body).collect();
    let skipped = Record::Skipped { record_type: 10, len: 3 };
    assert_eq!(records, [Ok(skipped), Ok(Record::Raw(&packet))]);

    let body = hex("malformed-length");
    let records: Vec<_> = Records::new(&body).collect();
    assert_eq!(records, [Ok(Record::Raw(&packet)), Err(WireError::RecordLength)]);
}

#[test]
fn section_6_compressed_packet() {
    let data = &[0xd1, 0xd2, 0xd3, 0xd4, 0xd5];
    let compressed = Compressed { codec: 2, epoch: 0, original_len: 1500, data };
    assert_records(&hex("compressed"), &[Record::Compressed(compressed)]);
}

#[test]
fn section_7_control() {
    let (sender_time_ns, id) = (1_000_000_000, 17);
    let report = Report {
        datagrams: 10_000,
        bytes: 14_000_000,
        records: 30_000,
        lost: 5,
        duplicates: 2,
        highest_sequence: 10_005,
        delivery_bps: 10_000_000,
        highest_at_ns: 6_000_000_000,
        missing: 8,
        waiting_bytes: 6_000,
        waiting_ns: 4_800_000,
        recent_sent: 2_000,
        recent_lost: 20,
        model_bps: 24_000_000,
    };
    let context_report = ContextReport {
        context: 3,
        generation: 2,
        is_lost: true,
        is_empty: false,
        next_number: 0x1_0000,
        ring_offset: 3_000_000,
    };
    let reply = Control::ProbeReply { sender_time_ns, id, receiver_time_ns: 5_000_000 };
    let probe = Control::Probe { sender_time_ns, id, report_every_ms: 50, arrivals_max: 40 };
    let mut arrivals = Arrivals::new(10_000, 6_000_000_000);
    for came_at_ns in [Some(6_001_200_000), None, Some(6_003_600_000)] {
        assert!(arrivals.push(came_at_ns));
    }
    let examples = [
        ("control-keep-alive", Control::KeepAlive),
        ("control-probe", probe),
        ("control-arrivals", Control::Arrivals(arrivals)),
        ("control-probe-reply", reply),
        ("control-report", Control::Report(report)),
        ("control-close", Control::Close { reason: CloseReason::Reload }),
        ("control-missing", Control::Missing(Numbers { first: 10_000, bits: 0b1001 })),
        ("control-context-report", Control::ContextReport(context_report)),
        ("control-gone", Control::Gone(Numbers { first: 10_000, bits: 0b1000 })),
    ];
    for (name, control) in examples {
        assert_records(&hex(name), &[Record::Control(control)]);
    }
}

#[test]
fn section_8_blocks_and_fragments() {
    let data = &[0xd1, 0xd2, 0xd3, 0xd4, 0xd5];
    let block = Block { codec: 2, flags: Block::flags(false, true), original_len: 5700, data };
    assert_records(&hex("block"), &[Record::Block(block)]);
    let fragment = Fragment { id: 9, index: 2, last: 2, data: &[0xd6, 0xd7] };
    assert_records(&hex("fragment"), &[Record::Fragment(fragment)]);
    let packet = Record::Raw(&[0x45, 0, 0, 0x54]);
    assert_records(&hex("resent"), &[Record::Resent { sequence_low: 10_000 }, packet]);
}

#[test]
fn section_8_5_carried() {
    let label = |address: &str, bits| Label::new(address.parse().unwrap(), bits);
    let data: &[u8] = &[0xd1, 0xd2, 0xd3, 0xd4, 0xd5];
    let compressed = Compressed { codec: 2, epoch: 0, original_len: 1500, data };
    let (hop_limit, unit) = (16, Unit::Compressed(compressed));
    let packet = Carried { hop_limit, label: label("10.2.3.4", 32), unit };
    assert_records(&hex("carried-packet"), &[Record::Carried(packet)]);
    let unit = Unit::Block(Block { codec: 2, flags: 2, original_len: 5700, data });
    let block = Carried { hop_limit: 15, label: label("fd00:2::", 36), unit };
    assert_records(&hex("carried-block"), &[Record::Carried(block)]);
}

#[test]
fn section_9_contexts() {
    let place =
        |number, body| Record::Context(ContextRecord { context: 3, generation: 2, number, body });
    let data: &[u8] = &[0xd1, 0xd2, 0xd3, 0xd4, 0xd5];
    let base = StartBase::Ring { offset: 3_000_000, len: 131_072 };
    let start = Start { codec: 2, window_log: 20, base };
    let batch = |start, headers| {
        let (alone, original_len) = (None, 2800);
        ContextBody::Batch { start, alone, headers, original_len, data }
    };
    let raw = ContextBody::Raw(&[0x45, 0, 0, 0x54]);
    assert_records(&hex("context-start"), &[place(0xffff, batch(Some(start), Headers::Plain))]);
    let dictionary = CONTEXTS.and_then(|offer| offer.dictionary).expect("it has one");
    let base = StartBase::Dictionary { name: dictionary.short(), len: dictionary.len };
    let first = batch(Some(Start { codec: 2, window_log: 15, base }), Headers::Plain);
    let first = ContextRecord { context: 3, generation: 1, number: 1, body: first };
    assert_records(&hex("context-start-dictionary"), &[Record::Context(first)]);
    assert_records(&hex("context-raw"), &[place(0, raw)]);
    assert_records(&hex("context-batch"), &[place(1, batch(None, Headers::Columnar))]);
    let predicted = place(2, batch(None, Headers::Predicted));
    assert_records(&hex("context-predicted"), &[predicted]);
    let alone = |number, start: Option<Start>, (distance, keeps)| {
        let (alone, original_len) = (Some(Alone { distance, keeps }), 2800);
        let headers = if start.is_none() { Headers::Columnar } else { Headers::Plain };
        let body = ContextBody::Batch { start, alone, headers, original_len, data };
        Record::Context(ContextRecord { context: 3, generation: 3, number, body })
    };
    let record = alone(2, Some(start), (30_000, true));
    assert_records(&hex("context-alone-start"), &[record]);
    assert_records(&hex("context-alone"), &[alone(3, None, (32_800, false))]);

    let lines = &blocks()["numbers"];
    assert!(lines.len() >= 6);
    for line in lines {
        let [expected, low, completed] = line[..] else { panic!("{line:?}") };
        let number = |hex| u64::from_str_radix(hex, 16).unwrap();
        let found = reconstruct_number(number(expected), number(low) as u16);
        assert_eq!(found, number(completed), "{line:?}");
    }
}

#[test]
fn section_9_8_predicted_headers() {
    let (batch, packets) = (hex("predicted-headers"), hex("predicted-packets"));
    let mut out = [0; 200];
    let restored = HeaderRestorer::default().restore(&batch, &mut out).unwrap();
    assert_eq!(restored.lens(), [52, 52]);
    assert_eq!(out[..restored.bytes()], packets);
    let (mut predictor, mut written) = (HeaderPredictor::default(), Vec::new());
    for packet in restored.packets(&out) {
        predictor.write(packet, &mut written);
    }
    assert_eq!(written, batch);
}
