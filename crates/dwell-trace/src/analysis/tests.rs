use dwell_policy::History;
use proptest::prelude::*;

use super::*;
use crate::capture::Capture;
use crate::capture::tests::{owned, pcap, udp};

/// A clock that goes on by a nanosecond whenever it is read.
pub(super) struct Ticks(pub(super) u64);

impl Clock for Ticks {
    fn now_ns(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// A clock that stands still, so that times are no difference.
struct Still;

impl Clock for Still {
    fn now_ns(&mut self) -> u64 {
        0
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        over: Over::Packet,
        codecs: vec!["lz4".parse().unwrap(), "zstd:1".parse().unwrap()],
        block_codec: Some("lz4".parse().unwrap()),
        context_codec: Some("zstd:1".parse().unwrap()),
        rates: vec![Rate::from_mbps(1)],
        is_without_bound: false,
    }
}

/// The analysis of some captures, with the batches spread over `analyzers`.
pub(crate) fn analyse(captures: &[Vec<u8>], settings: &Settings, analyzers: usize) -> Analysis {
    let mut accounts = Accounts::new(settings);
    let mut analyzers: Vec<_> =
        (0..analyzers).map(|_| Analyzer::new(settings, Ticks(0)).unwrap()).collect();
    let mut history = HistoryAnalyzer::new(settings, Ticks(0)).unwrap();
    let mut batch = Batch::default();
    let mut turn = 0;
    for (at, bytes) in captures.iter().enumerate() {
        let mut capture = Capture::open(&bytes[..]).unwrap();
        accounts.begin(&format!("{at}"), capture.format());
        loop {
            let more = accounts.fill(&mut capture, &mut batch);
            history.batch(&mut batch).unwrap();
            let count = analyzers.len();
            analyzers[turn % count].batch(&batch).unwrap();
            turn += 1;
            if !more {
                break;
            }
        }
        accounts.end_with(None);
    }
    let mut whole = accounts.finish();
    whole.merge(history.finish().unwrap()).unwrap();
    analyzers.into_iter().for_each(|analyzer| whole.merge(analyzer.finish()).unwrap());
    whole
}

fn text(n: u64) -> Vec<u8> {
    format!("{{\"device\": \"pump-{}\", \"pressure\": {}, \"unit\": \"bar\"}}", n % 3, n * 7 % 50)
        .repeat(3)
        .into_bytes()
}

/// Incompressible bytes.
fn noise(n: u64, len: usize) -> Vec<u8> {
    let mut state = n | 1;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Text to port 1883, noise to port 443.
pub(crate) fn capture(packets: u64) -> Vec<u8> {
    let packet = |n: u64| match n % 2 {
        0 => udp(40_000, 1883, &text(n)),
        _ => udp(40_001 + (n % 4) as u16, 443, &noise(n, 300)),
    };
    let packets: Vec<_> = (0..packets).map(|n| owned(n * 1_000_000, &packet(n))).collect();
    pcap(&packets)
}

#[test]
fn classes_that_expand_are_reported_from_those_that_shrink() {
    let analysis = analyse(&[capture(500)], &settings(), 1);
    assert_eq!((analysis.ip().packets, analysis.protocols[&(4, 17)].packets), (500, 500));
    assert_eq!(analysis.flows.flows, 3);
    let sums = |port: u16| {
        let mut sums = PartSums::default();
        let has = |pair: Pair| pair.classes().any(|class| class.port() == port);
        let of_port = analysis.pairs.iter().filter(|(pair, _)| has(*pair));
        of_port.for_each(|(_, other)| sums.add(other));
        sums
    };
    let (text, noise) = (sums(1883), sums(443));
    assert_eq!((text.measured_packets, noise.measured_packets), (250, 250));
    assert_eq!(noise.bytes, 250 * 328);
    for codec in 0..2 {
        let (text, noise) = (text.codecs[codec], noise.codecs[codec]);
        assert!(text.compressed < text.sent * 2 && text.expanded == 0 && text.ns > 0);
        assert_eq!(noise.expanded, 250);
        assert!(noise.compressed > noise.sent);
    }
    assert!(text.codecs[0].compressed * 2 < text.measured_bytes);
    assert!(analysis.directions.sums[0].composition.closed_share() > 0.4);
}

#[test]
fn longer_blocks_and_rearranged_ones_are_smaller() {
    let analysis = analyse(&[capture(500)], &settings(), 1);
    let sums = |m| *analysis.blocks.of(Grouping::Flow, m).unwrap();
    assert_eq!((sums(1).blocks, sums(100).blocks), (500, 7));
    assert_eq!(sums(1).bytes, sums(100).bytes);
    assert!(sums(10).plain < sums(1).plain && sums(100).plain < sums(10).plain);
    assert!(sums(100).columnar < sums(100).plain);
}

/// A wider scope has more to refer to, a longer record too, and both more than nothing at all.
#[test]
fn history_gains_by_its_scope() {
    let analysis = analyse(&[capture(500)], &settings(), 1);
    let histories = &analysis.histories;
    assert_eq!((histories.packets.packets, histories.random.packets), (500, 250));
    assert_eq!(histories.random.bytes, 250 * 328);
    let text_bytes = (histories.packets.bytes - histories.random.bytes) as f64;
    let of = |scope| histories.of(scope).unwrap().map(|sums| sums.compressed as f64 / text_bytes);
    let [off, alone] = of(History::Off);
    for scope in [History::Flow, History::Service, History::HostPair, History::Peer] {
        let [records, singles] = of(scope);
        assert!(records < off && singles < alone / 2.0, "{scope:?}: {records} {singles}");
        assert!(records < singles, "{scope:?}: {records} {singles}");
        let [records, singles] = histories.of(scope).unwrap();
        assert_eq!((records.contexts, singles.contexts, singles.batches), (1, 1, 250));
        assert!(records.batches < 100 && records.ns > 0);
        let (random, all) = (histories.random.bytes, histories.packets.bytes);
        let ratio = (records.compressed + random) as f64 / all as f64;
        assert_eq!(histories.ratio(records), Some(ratio));
    }
}

/// Four thousand packets of two hundred flows: only what shares a context is found again.
#[test]
fn each_scope_has_contexts_of_its_own_and_few_of_them() {
    let packets: Vec<_> = (0..4_000u64)
        .map(|n| owned(n * 1_000, &udp(10_000 + (n % 200) as u16, 9, &text(n))))
        .collect();
    let histories = analyse(&[pcap(&packets)], &settings(), 1).histories;
    let begun = |scope| histories.of(scope).unwrap()[1].contexts;
    // Each flow comes when two hundred others have been there.
    assert_eq!(begun(History::Flow), 4_000);
    assert_eq!([History::Service, History::HostPair, History::Peer].map(begun), [1; 3]);
    let compressed = |scope| histories.of(scope).unwrap()[1].compressed;
    assert!(compressed(History::Peer) * 3 < compressed(History::Flow));
    assert!(compressed(History::Flow) >= compressed(History::Off), "nothing to refer to");
}

/// The analysis of a capture whose packets are compressed as they are read, or else piece by piece afterwards: each piece is
/// a batch.
fn analyse_one(bytes: &[u8], settings: &Settings, in_pieces: bool) -> Analysis {
    let analyzer = || Analyzer::new(settings, Still).unwrap();
    let (mut accounts, mut first) = (Accounts::new(settings), analyzer());
    let mut history = HistoryAnalyzer::new(settings, Still).unwrap();
    let (mut reader, mut batch) = (Capture::open(bytes).unwrap(), Batch::default());
    accounts.begin("0", reader.format());
    let mut cuts = vec![reader.position() as usize];
    loop {
        let is_more = accounts.fill(&mut reader, &mut batch);
        history.batch(&mut batch).unwrap();
        cuts.push(reader.position() as usize);
        match in_pieces {
            true => first.look(&batch),
            false => first.batch(&batch).unwrap(),
        }
        if !is_more {
            break;
        }
    }
    let mut whole = accounts.finish();
    for part in [history.finish().unwrap(), first.finish()] {
        whole.merge(part).unwrap();
    }
    for (number, cut) in cuts.windows(2).enumerate().filter(|_| in_pieces) {
        let piece = [&bytes[..24], &bytes[cut[0]..cut[1]]].concat();
        let (mut reader, mut analyzer) = (Capture::open(&piece[..]).unwrap(), analyzer());
        let mut piece = Piece::new(number as u64);
        while piece.fill(&mut reader, &mut batch) {
            analyzer.measure(&batch).unwrap();
        }
        analyzer.measure(&batch).unwrap();
        let len = (24 + cut[1] - cut[0]) as u64;
        assert!(Piece::is_whole(&reader, len) && !Piece::is_whole(&reader, len + 1));
        whole.merge(analyzer.finish()).unwrap();
    }
    whole
}

/// Whoever keeps the accounts compresses nothing, and whoever compresses a piece knows nothing else.
#[test]
fn pieces_add_up_to_the_whole() {
    let with_bound = settings();
    let settings = Settings { is_without_bound: true, ..settings() };
    assert!(settings.are_for_pieces() && !with_bound.are_for_pieces());
    // It ends in the midst of a packet.
    let bytes = capture(9_500);
    let bytes = &bytes[..bytes.len() - 7];
    let whole = analyse_one(bytes, &settings, false);
    assert!(whole.files[0].trouble.is_some() && whole.blocks.packets > 9_000);
    assert_eq!(analyse_one(bytes, &settings, true), whole);
}

#[test]
fn history_needs_a_codec_with_contexts() {
    let settings = Settings { context_codec: Some("lz4".parse().unwrap()), ..settings() };
    assert!(HistoryAnalyzer::new(&settings, Ticks(0)).is_err());
}

/// What repeats itself far back can go, so that the bound must know of it; and of another capture
/// nothing is remembered.
#[test]
fn the_bound_knows_what_came_long_before() {
    let packet = |n: u64| udp(40_000, 9, &noise(2 * (n % 2_000) + 1, 400));
    let packets: Vec<_> = (0..6_000).map(|n| owned(n * 1_000, &packet(n))).collect();
    let saving = |captures: &[Vec<u8>]| {
        analyse(captures, &settings(), 1).directions.sums[0].saving_max().unwrap()
    };
    let whole = saving(&[pcap(&packets)]);
    assert!(whole > 0.6, "{whole}: two thirds came before");
    let parts: Vec<_> = packets.chunks(2_000).map(pcap).collect();
    let apart = saving(&parts);
    assert!(apart < 0.2, "{apart}: each has it once");
}

#[test]
fn without_the_bound_all_else_is_the_same() {
    let captures = [capture(200)];
    let with = without_times(analyse(&captures, &settings(), 1));
    let without = Settings { is_without_bound: true, ..settings() };
    let mut without = without_times(analyse(&captures, &without, 1));
    assert!(with.directions.sums[0].saving_max().is_some());
    assert_eq!(without.directions.sums[0].saving_max(), None);
    let said = crate::verdict::judge_traffic(&without).headline;
    assert!(said.contains("was not asked for"), "{said}");
    without.settings.is_without_bound = false;
    for (ours, theirs) in without.directions.sums.iter_mut().zip(&with.directions.sums) {
        (ours.link_bytes, ours.least_bytes) = (theirs.link_bytes, theirs.least_bytes);
    }
    assert_eq!(without, with);
}

#[test]
fn what_was_cut_is_counted_and_not_measured() {
    let mut packet = owned(0, &udp(1, 2, &[7; 100]));
    packet.data.truncate(60);
    let analysis = analyse(&[pcap(&[packet, owned(1, &udp(1, 2, &[7; 100]))])], &settings(), 1);
    let file = &analysis.files[0];
    assert_eq!((file.frames.packets, file.cut_frames, file.cut_packets), (2, 1, 1));
    assert_eq!((file.frames.bytes, file.captured_bytes), (256, 188));
    let (_, sums) = analysis.pairs.iter().next().unwrap();
    assert_eq!((sums.packets, sums.bytes, sums.measured_packets), (2, 256, 1));
}

#[test]
fn who_reads_frames_without_ip_gets_a_word_in() {
    let frames: Vec<_> = (0..70_000).map(|n| owned(n, &[0x99])).collect();
    let file = pcap(&frames);
    let mut capture = Capture::open(&file[..]).unwrap();
    let mut accounts = Accounts::new(&settings());
    accounts.begin("arp", capture.format());
    let mut batch = Batch::default();
    assert!(accounts.fill(&mut capture, &mut batch) && batch.is_empty());
    assert!(!accounts.fill(&mut capture, &mut batch));
    assert_eq!(accounts.finish().frames().packets, 70_000);
}

#[test]
fn only_payloads_if_that_is_asked_for() {
    let settings = Settings { over: Over::Payload, ..settings() };
    let packets = [owned(0, &udp(1, 2, &[7; 100])), owned(1, &udp(1, 2, &[]))];
    let analysis = analyse(&[pcap(&packets)], &settings, 1);
    let (_, sums) = analysis.pairs.iter().next().unwrap();
    assert_eq!((sums.packets, sums.measured_packets, sums.measured_bytes), (2, 1, 100));
}

#[test]
fn other_settings_do_not_add_up() {
    let mut one = Analysis::new(settings());
    let other = Analysis::new(Settings { over: Over::Payload, ..settings() });
    assert_eq!(one.merge(other), Err(MergeError::Settings));
    let old = Analysis { schema: "dwell-trace/0".to_owned(), ..Analysis::new(settings()) };
    assert_eq!(one.merge(old), Err(MergeError::Schema));
}

fn a_pair() -> Pair {
    let info = dwell_wire::PacketInfo::parse(&udp(1, 2, &[7]), 0).unwrap();
    Pair::of(&info)
}

#[test]
fn a_damaged_file_is_an_error() {
    let whole = analyse(&[capture(50)], &settings(), 1);
    assert_eq!(whole.check(), Ok(()));
    assert_eq!(Analysis::new(settings()).check(), Ok(()));
    let damaged: [fn(&mut Analysis); 6] = [
        |analysis| analysis.sizes.truncate(3),
        |analysis| analysis.sizes[0].codecs.resize(9, CodecSums::default()),
        |analysis| analysis.entropy.bytes = vec![u64::MAX; 16],
        |analysis| analysis.entropy.histogram.clear(),
        |analysis| analysis.files[0].timeline.bytes.clear(),
        |analysis| analysis.pairs.entry(a_pair()).bytes = u64::MAX,
    ];
    for damage in damaged {
        let mut analysis = whole.clone();
        damage(&mut analysis);
        assert!(matches!(analysis.check(), Err(MergeError::Damaged(_))));
    }
}

fn any_capture() -> impl Strategy<Value = Vec<u8>> {
    let packet =
        (0u16..4, 0u16..4, prop::collection::vec(0u8..4, 0..80), 0u64..1000, any::<bool>());
    prop::collection::vec(packet, 0..40).prop_map(|packets| {
        let packets: Vec<_> = packets
            .into_iter()
            .map(|(source, destination, payload, time, is_ip)| {
                let data = if is_ip { udp(source, destination, &payload) } else { payload };
                owned(time * 1_000_000, &data)
            })
            .collect();
        pcap(&packets)
    })
}

/// Times are measured, and so never twice the same.
fn without_times(mut analysis: Analysis) -> Analysis {
    let mut pairs = Pairs::default();
    for (pair, sums) in analysis.pairs.iter() {
        let mut sums = sums.clone();
        sums.codecs.iter_mut().for_each(|sums| sums.ns = 0);
        pairs.entry(pair).add(&sums);
    }
    pairs.folded_packets = analysis.pairs.folded_packets;
    analysis.pairs = pairs;
    let codecs = analysis.sizes.iter_mut().flat_map(|size| &mut size.codecs);
    codecs.for_each(|sums| sums.ns = 0);
    for sums in analysis.blocks.sums.iter_mut().flatten() {
        (sums.plain_ns, sums.columnar_ns) = (0, 0);
    }
    let histories = &mut analysis.histories;
    let sums = histories.records.iter_mut().chain(&mut histories.singles);
    sums.for_each(|sums| sums.ns = 0);
    analysis.files.sort_by(|a, b| a.name.cmp(&b.name));
    analysis
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn parts_add_up_to_the_whole(captures in prop::collection::vec(any_capture(), 1..5), analyzers in 1usize..4) {
        let settings = settings();
        let whole = without_times(analyse(&captures, &settings, analyzers));
        let parts = captures.iter().enumerate().map(|(at, capture)| {
            let mut part = analyse(std::slice::from_ref(capture), &settings, 1);
            part.files[0].name = at.to_string();
            // Through a file and back.
            serde_json::from_str::<Analysis>(&serde_json::to_string(&part).unwrap()).unwrap()
        });
        for is_backwards in [false, true] {
            let mut merged = Analysis::new(settings.clone());
            let mut parts: Vec<_> = parts.clone().collect();
            if is_backwards {
                parts.reverse();
            }
            parts.into_iter().for_each(|part| merged.merge(part).unwrap());
            prop_assert_eq!(&without_times(merged), &whole);
        }
    }

    #[test]
    fn damaged_captures_are_analysed_as_far_as_they_go(
        mut bytes in any_capture(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        if Capture::open(&bytes[..]).is_ok() {
            let analysis = analyse(&[bytes], &settings(), 1);
            prop_assert!(analysis.ip().packets <= analysis.frames().packets);
        }
    }
}

/// A capture may become shorter, between two packets or within one, after it was cut.
#[test]
fn a_piece_that_is_not_all_there_is_not_taken_for_one_that_is() {
    let bytes = capture(100);
    for missing in [1, 700, 2_000] {
        let (mut reader, mut batch) =
            (Capture::open(&bytes[..bytes.len() - missing]).unwrap(), Batch::default());
        let mut piece = Piece::new(0);
        while piece.fill(&mut reader, &mut batch) {}
        assert!(!Piece::is_whole(&reader, bytes.len() as u64), "{missing}");
    }
}
