//! What must hold of `dwell-wire` for any bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dwell_wire::checksum::{checksum, transport_checksum};
use dwell_wire::header::{self, RECORD_HEADER_LEN};
use dwell_wire::hello::HELLO_BODY_MIN;
use dwell_wire::packet::{destination, service_class};
use dwell_wire::record::{
    RESENT_RECORD_LEN, block_record_len, carried_record_len, compressed_record_len,
    fragment_record_len, raw_record_len,
};
use dwell_wire::{
    Alone, Block, BlockPackets, BodyWriter, Carried, Compressed, ContextBody, ContextOffer,
    ContextRecord, ContextReport, Control, Datagram, Fragment, Full, HeaderPredictor,
    HeaderRestorer, Headers, Hello, Initiation, Label, PacketInfo, Record, Records, Response,
    Start, StartBase, Unit, columnar, context_record_len, hop, icmp, keyed, mss, predicted,
};

/// Bytes as a datagram, as a body and as a hello: whatever is read can be written, and then
/// reads the same.
pub fn datagram(bytes: &[u8]) {
    check_records(bytes);
    check_hello(bytes);
    let kind = header::peek_kind(bytes);
    match Datagram::parse(bytes) {
        Ok(Datagram::Data { header, body }) => {
            assert_eq!([&header.encode()[..], body].concat(), bytes);
            check_records(body);
        }
        Ok(Datagram::Hello { sealed, nonce, body }) => {
            let nonce: &[u8] = if sealed { &nonce } else { &[] };
            assert_eq!([&[kind.unwrap().first_byte()], nonce, body].concat(), bytes);
            check_hello(body);
        }
        Ok(Datagram::Initiation(it)) => {
            let header = Initiation::header(it.sender);
            assert_eq!([&header[..], it.noise, it.mac1(), it.mac2()].concat(), bytes);
            assert_eq!([it.under_mac1(), it.mac1()].concat(), it.under_mac2());
            check_offer(it.noise);
        }
        Ok(Datagram::Response(it)) => {
            let header = Response::header(it.sender, it.receiver);
            assert_eq!([&header[..], it.noise, it.mac1()].concat(), bytes);
            assert_eq!([it.under_mac1(), it.mac1()].concat(), bytes);
        }
        Ok(Datagram::Cookie(cookie)) => assert_eq!(cookie.encode(), bytes),
        Err(reason) => assert!(kind == Err(reason) || kind.is_ok()),
    }
}

fn check_hello(body: &[u8]) {
    if let Ok(hello) = Hello::parse(body) {
        check_known(body, &hello.encode(), HELLO_BODY_MIN, hello.contexts);
        assert_eq!(Hello::parse(&hello.encode()), Ok(hello));
    }
}

fn check_offer(payload: &[u8]) {
    let Ok((time, offer)) = keyed::split_time(payload) else { return };
    assert_eq!([&time.to_be_bytes()[..], offer].concat(), payload);
    if let Ok(hello) = keyed::parse_offer(offer) {
        let known = keyed::encode_offer(&hello);
        check_known(offer, &known, keyed::OFFER_LEN_MIN, hello.contexts);
        assert_eq!(keyed::parse_offer(&known), Ok(hello));
    }
}

/// What was read is what the bytes begin with: all fields, or those that each version has.
fn check_known(bytes: &[u8], known: &[u8], len_min: usize, contexts: Option<ContextOffer>) {
    // Behind the fields of contexts, of 10 bytes, is one with flags, of which one is known, and then the
    // dictionary; and behind that one with forms, of which one is known, too.
    let (at_flags, at_forms) = (len_min + 10, len_min + 10 + 1 + 4 + 16);
    assert_eq!(known[at_forms] & !bytes.get(at_forms).copied().unwrap_or(0), 0);
    let known = &known[..at_forms];
    let has_dictionary = contexts.is_some_and(|offer| offer.dictionary.is_some());
    let len = if contexts.is_some() { at_flags } else { len_min };
    assert!(bytes.starts_with(&known[..len]));
    assert_eq!(known[at_flags] & !bytes.get(at_flags).copied().unwrap_or(0), 0);
    let from = if has_dictionary { at_flags + 1 } else { known.len() };
    assert!(bytes.get(from..).is_none_or(|it| it.starts_with(&known[from..])));
    let flags = if contexts.is_some() { at_flags + 1 } else { len };
    let to = if has_dictionary { at_flags + 1 } else { known.len() };
    assert!(known[flags.min(to)..to].iter().all(|&byte| byte == 0));
}

fn check_records(body: &[u8]) {
    let mut records = Records::new(body);
    let mut used = 0;
    for record in records.by_ref() {
        let Ok(record) = record else { break };
        let len = match record {
            Record::Raw(packet) => raw_record_len(packet.len()),
            Record::Compressed(compressed) => compressed_record_len(compressed.data.len()),
            // It may have had more fields than are known, or fewer.
            Record::Control(control) => {
                used += RECORD_HEADER_LEN + control.body_len_min();
                assert!(used <= body.len());
                check_rewrite(record, RECORD_HEADER_LEN + control.body_len());
                continue;
            }
            Record::Block(block) => block_record_len(block.data.len()),
            Record::Fragment(fragment) => fragment_record_len(fragment.data.len()),
            Record::Carried(carried) => carried_record_len(&carried),
            Record::Context(record) => context_record_len(&record),
            // It may have more bytes than are known.
            Record::Resent { .. } => RESENT_RECORD_LEN,
            Record::Skipped { len, .. } => RECORD_HEADER_LEN + len,
        };
        used += len;
        assert!(used <= body.len());
        check_rewrite(record, len);
    }
    assert!(records.next().is_none(), "a record after the end");
}

/// A record that takes `len` bytes fits into just as many.
fn check_rewrite(record: Record<'_>, len: usize) {
    let mut buf = vec![0; len];
    let mut writer = BodyWriter::new(&mut buf);
    match write(&mut writer, record) {
        Some(written) => assert_eq!(written, Ok(())),
        None => return,
    }
    assert_eq!(writer.len(), len);
    assert!(Records::new(&buf).eq([Ok(record)]));
}

/// Appends a record, if it is of a kind that can be written.
fn write(writer: &mut BodyWriter<'_>, record: Record<'_>) -> Option<Result<(), Full>> {
    match record {
        Record::Raw(packet) => Some(writer.raw(packet)),
        Record::Compressed(p) => Some(writer.compressed(p.codec, p.epoch, p.original_len, p.data)),
        Record::Control(control) => Some(writer.control(&control)),
        Record::Block(block) => Some(writer.block(&block)),
        Record::Fragment(fragment) => Some(writer.fragment(&fragment)),
        Record::Resent { sequence_low } => Some(writer.resent(sequence_low)),
        Record::Carried(carried) => Some(writer.carried(&carried)),
        Record::Context(record) => Some(writer.context(&record)),
        Record::Skipped { .. } => None,
    }
}

/// Two bytes of a maximum segment size, two of an MTU, and a packet: it is read, clamped and
/// answered.
pub fn packet(bytes: &[u8]) {
    let Some((&[a, b, c, d], packet)) = bytes.split_first_chunk::<4>() else { return };
    let (mss_max, mtu) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let info = PacketInfo::parse(packet, u64::from(mtu));
    if let Ok(info) = info {
        assert!(usize::from(info.header_len) <= info.total_len && info.total_len <= packet.len());
        assert_eq!(destination(packet), Some(info.dst));
        assert_eq!(service_class(&info) >> 16, u32::from(info.protocol));
        assert_eq!(PacketInfo::parse(&packet[..info.total_len], u64::from(mtu)), Ok(info));
    }
    check_forward(packet);
    check_clamp(packet, mss_max, info.ok());
    check_too_big(packet, mtu, info.ok());
}

/// Forwarding changes one byte and IPv4's checksum, and leaves the sum over the header what it was.
fn check_forward(before: &[u8]) {
    let mut after = before.to_vec();
    if !hop::forward(&mut after) {
        assert_eq!(before, after);
        return;
    }
    let (at, checksum_at) = if before[0] >> 4 == 4 { (8, 10..12) } else { (7, 0..0) };
    assert_eq!(after[at], before[at] - 1);
    for (index, (old, new)) in before.iter().zip(&after).enumerate() {
        assert!(old == new || index == at || checksum_at.contains(&index));
    }
    if at == 8 {
        assert_eq!(checksum(&before[..20]) % 0xffff, checksum(&after[..20]) % 0xffff);
    }
}

fn check_clamp(before: &[u8], mss_max: u16, info: Option<PacketInfo>) {
    let mut after = before.to_vec();
    if !mss::clamp_mss(&mut after, mss_max, mss_max) {
        assert_eq!(before, after);
        return;
    }
    let info = info.expect("only packets are clamped");
    assert_eq!(info.protocol, 6);
    assert_eq!(PacketInfo::parse(&after, 0).map(|i| i.tcp_syn), Ok(true));
    assert!(
        !mss::clamp_mss(&mut after.clone(), mss_max, mss_max),
        "the second time nothing is left"
    );
    // The sum over the packet is what it was, be the checksum right or wrong: TCP begins at an
    // even offset. (0 and 0xffff are the same number in ones' complement.)
    let sum = |packet: &[u8]| checksum(&packet[..info.total_len]) % 0xffff;
    assert_eq!(sum(before), sum(&after));
}

fn check_too_big(original: &[u8], mtu: u16, info: Option<PacketInfo>) {
    let mut out = [0; icmp::ICMP_V6_LEN_MAX];
    for source in [IpAddr::from([10, 0, 0, 1]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1])] {
        let Some(len) = icmp::packet_too_big(original, mtu, source, &mut out) else { continue };
        let info = info.expect("only packets are answered");
        let answer = PacketInfo::parse(&out[..len], 0).expect("the answer is a packet");
        assert_eq!((answer.total_len, answer.src, answer.dst), (len, source, info.src));
        let error = &out[usize::from(answer.header_len)..len];
        let sum = match source {
            IpAddr::V4(_) => checksum(error),
            IpAddr::V6(_) => transport_checksum(answer.src, answer.dst, 58, error),
        };
        assert_eq!(sum, 0);
        assert!(original[..info.total_len].starts_with(&error[8..]));
        let mut again = [0; icmp::ICMP_V6_LEN_MAX];
        assert_eq!(icmp::packet_too_big(&out[..len], mtu, source, &mut again), None);
    }
}

/// Bytes as the restored content of a block: its packets lie within it, one after another.
pub fn block(bytes: &[u8]) {
    let mut used = 0;
    for packet in BlockPackets::new(bytes).map_while(Result::ok) {
        assert_eq!(packet, &bytes[used..used + packet.len()]);
        assert_eq!(PacketInfo::parse(packet, 1).map(|info| info.total_len), Ok(packet.len()));
        used += packet.len();
    }
    let left = BlockPackets::new(&bytes[used..]).next();
    assert!(left.is_none_or(|packet| packet.is_err()));
}

/// Bytes as a script of records to write: what went in comes out, and no more.
pub fn roundtrip(bytes: &[u8]) {
    let Some((&[a, b], mut script)) = bytes.split_first_chunk::<2>() else { return };
    let mut buf = vec![0; usize::from(u16::from_be_bytes([a, b]))];
    let mut writer = BodyWriter::new(&mut buf);
    let filler: Vec<u8> = (0..6000usize).map(|at| at as u8).collect();
    let mut written = Vec::new();
    while let Some((&[op, x, y, z], rest)) = script.split_first_chunk::<4>() {
        script = rest;
        let record = scripted(op, [x, y, z], &filler);
        let (len, remaining) = (writer.len(), writer.remaining());
        match write(&mut writer, record).expect("nothing that is skipped is scripted") {
            Ok(()) => {
                assert!(writer.len() > len && writer.len() - len <= remaining);
                written.push(record);
            }
            Err(Full) => assert_eq!((writer.len(), writer.remaining()), (len, remaining)),
        }
    }
    let len = writer.len();
    let read: Result<Vec<_>, _> = Records::new(&buf[..len]).collect();
    assert_eq!(read, Ok(written));
}

/// One record of the script.
fn scripted(op: u8, [x, y, z]: [u8; 3], filler: &[u8]) -> Record<'_> {
    let len = usize::from(u16::from_be_bytes([x, y])) % filler.len();
    let time = u64::from_be_bytes([x, y, z, op, x, y, z, op]);
    match op % 8 {
        0..=2 => Record::Raw(&filler[..len]),
        3..=5 => {
            let original_len = (len as u16).wrapping_add(u16::from(z)).wrapping_sub(16);
            let data = &filler[..len];
            Record::Compressed(Compressed { codec: op >> 4, epoch: z & 15, original_len, data })
        }
        6 if z.is_multiple_of(2) => {
            let report_every_ms = u16::from(op);
            Record::Control(Control::Probe {
                sender_time_ns: time,
                id: u32::from(z),
                report_every_ms,
                arrivals_max: y,
            })
        }
        6 if z % 4 == 1 => Record::Fragment(Fragment {
            id: u32::from(y),
            index: op >> 3,
            last: z >> 2,
            data: &filler[..len],
        }),
        6 => {
            let original_len = (len as u16).wrapping_add(u16::from(z)).wrapping_sub(16);
            let (codec, flags) = (op >> 4, z & 15);
            Record::Block(Block { codec, flags, original_len, data: &filler[..len] })
        }
        7 if z % 4 == 1 => {
            let (hop_limit, bits) = (x, z);
            let address = match x % 2 {
                0 => IpAddr::from(Ipv4Addr::from_bits(time as u32)),
                _ => IpAddr::from(Ipv6Addr::from_bits(u128::from(time) << 64)),
            };
            let original_len = (len as u16).wrapping_add(u16::from(y)).wrapping_sub(16);
            let data = &filler[..len];
            let unit = if op < 128 {
                Unit::Compressed(Compressed { codec: op >> 4, epoch: y & 15, original_len, data })
            } else {
                Unit::Block(Block { codec: op >> 4, flags: y & 15, original_len, data })
            };
            Record::Carried(Carried { hop_limit, label: Label::new(address, bits), unit })
        }
        7 if z.is_multiple_of(2) => Record::Resent { sequence_low: time as u32 },
        7 if z % 8 == 3 => Record::Control(Control::ContextReport(ContextReport {
            context: x,
            generation: y,
            is_lost: z >= 128,
            is_empty: z & 64 != 0,
            next_number: time,
            ring_offset: !time,
        })),
        7 if z % 8 == 7 => {
            let data = &filler[..len];
            let base = match y & 1 {
                0 => StartBase::Ring { offset: time, len: !0 },
                _ => StartBase::Dictionary { name: time, len: !0 },
            };
            let start = Start { codec: op >> 4, window_log: z, base };
            let body = if op >= 128 {
                ContextBody::Raw(data)
            } else {
                let (start, is_columnar) = ((op & 64 != 0).then_some(start), op & 32 != 0);
                let keeps = op & 8 != 0 && start.is_some();
                let alone = (op & 16 != 0).then_some(Alone { distance: time as u32, keeps });
                let headers = match is_columnar {
                    true => Headers::Columnar,
                    false if alone.is_none() && op & 4 != 0 => Headers::Predicted,
                    false => Headers::Plain,
                };
                ContextBody::Batch { start, alone, headers, original_len: u16::from(x), data }
            };
            Record::Context(ContextRecord { context: x, generation: y, number: z.into(), body })
        }
        _ => Record::Control(Control::Close { reason: x.into() }),
    }
}

/// Bytes as a rearranged block, which is restored or refused; and as packets (a byte with the
/// length before each), which must come out as they went in.
pub fn columnar(bytes: &[u8]) {
    let mut out = vec![0; 4096];
    if let Ok(restored) = columnar::restore(bytes, &mut out) {
        assert!(restored.bytes() <= out.len());
        let packets: Vec<&[u8]> = restored.packets(&out).collect();
        check_columnar(&packets);
    }
    let (mut rest, mut packets) = (bytes, Vec::new());
    while let Some((&len, behind)) = rest.split_first() {
        let (packet, behind) = behind.split_at(usize::from(len).min(behind.len()));
        packets.push(packet);
        rest = behind;
    }
    packets.truncate(columnar::PACKETS_MAX);
    if !packets.is_empty() {
        check_columnar(&packets);
    }
}

/// Bytes as batches with predicted headers (two bytes with the length before each), which are restored or refused by one
/// end; and as packets (a byte with the length before each), in batches of three, which must come out as they went
/// in.
pub fn predicted(bytes: &[u8]) {
    let (mut restorer, mut out) = (HeaderRestorer::default(), vec![0; 4096]);
    let (mut predictor, mut mirror) = (HeaderPredictor::default(), HeaderRestorer::default());
    let mut rest = bytes;
    while let Some((len, behind)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*len)).min(behind.len());
        let (batch, behind) = behind.split_at(len);
        if let Ok(restored) = restorer.restore(batch, &mut out) {
            assert!(restored.bytes() <= out.len());
            let packets: Vec<&[u8]> = restored.packets(&out).collect();
            check_predicted(&packets, &mut predictor, &mut mirror);
        }
        rest = behind;
    }
    let (mut rest, mut packets) = (bytes, Vec::new());
    while let Some((&len, behind)) = rest.split_first() {
        let (packet, behind) = behind.split_at(usize::from(len).min(behind.len()));
        packets.push(packet);
        rest = behind;
    }
    for batch in packets.chunks(3) {
        check_predicted(batch, &mut predictor, &mut mirror);
    }
}

fn check_predicted(
    packets: &[&[u8]],
    predictor: &mut HeaderPredictor,
    restorer: &mut HeaderRestorer,
) {
    let (whole, mut batch) = (packets.concat(), Vec::new());
    packets.iter().for_each(|packet| predictor.write(packet, &mut batch));
    assert!(batch.len() <= whole.len() + packets.len() * predicted::GROWN_BYTES_MAX);
    let mut out = vec![0; whole.len()];
    let restored = restorer.restore(&batch, &mut out).expect("it was made here");
    assert_eq!(out, whole);
    assert!(restored.packets(&out).eq(packets.iter().copied()));
}

fn check_columnar(packets: &[&[u8]]) {
    let whole = packets.concat();
    let mut block = vec![0; whole.len() + columnar::grown_bytes_max(packets.len())];
    let len = columnar::columnar(packets, &mut block).expect("there is room for any block");
    let mut out = vec![0; whole.len()];
    let restored = columnar::restore(&block[..len], &mut out).expect("it was made here");
    assert_eq!(out, whole);
    assert!(restored.packets(&out).eq(packets.iter().copied()));
}
