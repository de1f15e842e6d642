//! What must hold of `dwell-codec` for any bytes.

use std::sync::{Arc, LazyLock};

use dwell_codec::{
    Base, CONTEXT_BATCH_LEN_MAX, CodecId, CodecSpec, Compressor, ContextDecoder, ContextDictionary,
    ContextEncoder, ContextSpec, DICTIONARIES_MAX, DecodeError, Decompressor, Dictionary,
    DictionaryFile, HISTORY_LEN_MAX, MODEL_RECORD_LEN_MAX, MixSpec, ModelDecoder, ModelEncoder,
    ModelSpec, PpmSpec, Source, context_bound, hash_of,
};

/// The longest packet that a payload may claim to be.
const DATA_LEN_MAX: usize = 2048;
/// Stands behind a buffer that must not be overrun; sanitizers do not watch all of the C code.
const CANARY: [u8; 32] = [0xc9; 32];

/// Sentences in the manner of a GPS receiver.
static DICTIONARY: LazyLock<Arc<Dictionary>> = LazyLock::new(|| {
    let line =
        |n: u32| format!("$GNRMC,0039{n:02}.00,A,4552.65{n},S,17030.00{n},E,0.025,,120419\r\n");
    let lines: String = (0..100).map(line).collect();
    Arc::new(Dictionary::new(1, lines.into_bytes()).expect("a dictionary of 6 kB"))
});

static CONTEXT_DICTIONARY: LazyLock<ContextDictionary> = LazyLock::new(|| {
    ContextDictionary::new(DICTIONARY.bytes().repeat(10)).expect("less than a base can have")
});

/// A byte that says which codec and dictionary, and a payload: it is decoded or refused, within
/// bounds, and each time the same.
pub fn decode(bytes: &[u8]) {
    let Some((&choice, payload)) = bytes.split_first() else { return };
    let codec = CodecId::ALL[usize::from(choice % 4)];
    let dictionary = (choice & 4 != 0).then_some(&**DICTIONARY);
    // Mostly a whole packet's room, sometimes less than the payload needs.
    let room = if choice & 8 == 0 { DATA_LEN_MAX } else { payload.len() };

    let mut decompressor = Decompressor::new();
    let first = decode_once(&mut decompressor, codec, dictionary, payload, room);
    let second = decode_once(&mut decompressor, codec, dictionary, payload, room);
    // Of two things that are wrong with a payload zstd finds another one first while its
    // dictionary is not in the cache, so the reasons may differ.
    assert_eq!(first.as_ref().ok(), second.as_ref().ok());
    if !codec.is_built_in() {
        assert_eq!(first, Err(DecodeError::NotBuiltIn(codec)));
    }
}

/// Where the hash of a dictionary's file is, and what it is of.
const HASH_AT: usize = 16;
const HASHED_FROM: usize = 32;

/// A byte that says whether to put the hash right, and a dictionary's file: it is refused, or it
/// is written and read again, and digested or refused.
pub fn dictionary(bytes: &[u8]) {
    let Some((&choice, file)) = bytes.split_first() else { return };
    let mut file = file.to_vec();
    if choice & 1 != 0 && file.len() >= HASHED_FROM {
        let hash = hash_of([&file[HASHED_FROM..]]).to_be_bytes();
        file[HASH_AT..HASHED_FROM].copy_from_slice(&hash);
    }
    if let Ok(all) = DictionaryFile::parse_all(&file) {
        assert!(all.len() <= DICTIONARIES_MAX);
        assert!(ContextDictionary::of(&all).is_some_and(|it| it.len() as usize <= file.len()));
    }
    let Ok(read) = DictionaryFile::parse(&file) else { return };
    let written = read.to_bytes().expect("what was read can be written");
    assert_eq!(DictionaryFile::parse(&written).as_ref(), Ok(&read));
    if let Ok(dictionary) = read.dictionary() {
        assert_eq!((dictionary.id(), dictionary.bytes()), (read.id, &read.bytes[..]));
    }
}

fn decode_once(
    decompressor: &mut Decompressor,
    codec: CodecId,
    dictionary: Option<&Dictionary>,
    payload: &[u8],
    room: usize,
) -> Result<Vec<u8>, DecodeError> {
    let mut data = vec![0; room];
    data.extend(CANARY);
    let result = decompressor.decompress(codec, dictionary, payload, &mut data[..room]);
    assert_eq!(data[room..], CANARY);
    let len = result?;
    assert!(len <= room);
    data.truncate(len);
    Ok(data)
}

/// A byte that says which codec and dictionary, one for the level, one for the room, and a
/// packet: if it is compressed it fits, and comes out again.
pub fn roundtrip(bytes: &[u8]) {
    let Some((&[choice, level, share], src)) = bytes.split_first_chunk::<3>() else { return };
    let id = CodecId::ALL[usize::from(choice % 4)];
    let with_dictionary = choice & 4 != 0 && id.takes_dictionary();
    if !id.is_built_in() {
        return;
    }
    let spec = CodecSpec { id, level: level_of(id, level) };
    let dictionary = with_dictionary.then(|| Arc::clone(&DICTIONARY));
    let mut compressor = Compressor::new(spec, dictionary).expect("an existing level");

    let room = (src.len() + 16) * usize::from(share) / 128;
    let first = compress_once(&mut compressor, src, room);
    let second = compress_once(&mut compressor, src, room);
    assert_eq!(first, second, "use has changed the compressor");

    let dictionary = with_dictionary.then_some(&**DICTIONARY);
    if let Some(payload) = first {
        let mut decompressor = Decompressor::new();
        let data = decode_once(&mut decompressor, id, dictionary, &payload, src.len());
        assert_eq!(data.as_deref(), Ok(src));
    }
}

fn level_of(id: CodecId, choice: u8) -> i32 {
    let levels: &[i32] = match id {
        CodecId::Lz4 => &[1, 8],
        // Each of zstd's strategies.
        CodecId::Zstd => &[1, -3, 2, 3, 5, 7, 9, 13, 16, 19],
        CodecId::Deflate => &[1, 2, 6, 9, 12],
        CodecId::Lzo | CodecId::Bzip2 | CodecId::Ppm | CodecId::Mix => &[1],
    };
    levels[usize::from(choice) % levels.len()]
}

fn compress_once(compressor: &mut Compressor, src: &[u8], room: usize) -> Option<Vec<u8>> {
    let mut payload = vec![0; room];
    payload.extend(CANARY);
    let len = compressor.compress(src, &mut payload[..room]).expect("a packet is not too long");
    assert_eq!(payload[room..], CANARY);
    payload.truncate(len?);
    Some(payload)
}

/// A byte that says which codec, one for how often the history is repeated, two for its length,
/// then the history and a payload that may refer to it: it is decoded or refused, within bounds,
/// each time the same, and what is decoded later by itself is not changed by it.
pub fn decode_after(bytes: &[u8]) {
    let Some((&[choice, times, low, high], rest)) = bytes.split_first_chunk::<4>() else { return };
    let codec = CodecId::ALL[usize::from(choice) % CodecId::ALL.len()];
    let len = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
    let (once, payload) = rest.split_at(len);
    let history = once.repeat(usize::from(times));
    let room = if choice & 0x40 == 0 { 2 * DATA_LEN_MAX } else { payload.len() };

    let mut decompressor = Decompressor::new();
    let first = decode_once_after(&mut decompressor, codec, &history, payload, room);
    // Which of several faults is found first depends on whether zstd takes the history to be in the
    // processor's cache; that it is refused does not.
    let second = decode_once_after(&mut decompressor, codec, &history, payload, room);
    assert_eq!(first.as_ref().ok(), second.as_ref().ok(), "use has changed the decompressor");
    // Only the end of a history counts, and the sender may know less of it than the receiver.
    let end = &history[history.len().saturating_sub(HISTORY_LEN_MAX)..];
    let of_end = decode_once_after(&mut decompressor, codec, end, payload, room);
    assert_eq!(first.as_ref().ok(), of_end.as_ref().ok(), "what is too long ago made a difference");
    let longer = [b"before all that", end].concat();
    let of_longer = decode_once_after(&mut decompressor, codec, &longer, payload, room);
    if let Ok(data) = &first {
        assert_eq!(of_longer.as_ref(), Ok(data), "knowing more made a difference");
    }
    if !codec.takes_history() {
        assert_eq!(first, Err(DecodeError::NoHistory(codec)));
    }
    let used = decode_once(&mut decompressor, codec, None, payload, room);
    let fresh = decode_once(&mut Decompressor::new(), codec, None, payload, room);
    assert_eq!(used.ok(), fresh.ok(), "the history was remembered");
}

fn decode_once_after(
    decompressor: &mut Decompressor,
    codec: CodecId,
    history: &[u8],
    payload: &[u8],
    room: usize,
) -> Result<Vec<u8>, DecodeError> {
    let mut data = vec![0; room];
    data.extend(CANARY);
    let result = decompressor.decompress_after(codec, history, payload, &mut data[..room]);
    assert_eq!(data[room..], CANARY);
    let len = result?;
    assert!(len <= room);
    data.truncate(len);
    Ok(data)
}

/// A byte for the codec, one for the level, one for the length of the pieces, one for how much
/// of the past is kept, and data: they are cut into pieces, each is compressed after what is
/// kept of those before it, fits, and comes out again.
pub fn roundtrip_after(bytes: &[u8]) {
    let Some((&[choice, level, piece, kept], data)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let id = if choice & 1 == 0 { CodecId::Lz4 } else { CodecId::Zstd };
    let spec = CodecSpec { id, level: level_of(id, level) };
    let mut compressor = Compressor::with_history(spec).expect("an existing level");
    let mut decompressor = Decompressor::new();
    // The receiver has kept everything, the sender the last bytes only.
    let kept = 64 * usize::from(kept);
    let mut sent = 0;
    for piece in data.chunks(32 * (1 + usize::from(piece))).take(64) {
        let past = &data[..sent];
        let known = &past[past.len().saturating_sub(kept)..];
        let mut payload = vec![0; piece.len() + 16];
        let room = payload.len();
        payload.extend(CANARY);
        let len = compressor
            .compress_after(known, piece, &mut payload[..room])
            .expect("a piece is not too long");
        assert_eq!(payload[room..], CANARY);
        if let Some(len) = len {
            for history in [known, past] {
                let decoded =
                    decode_once_after(&mut decompressor, id, history, &payload[..len], piece.len());
                assert_eq!(decoded.as_deref(), Ok(piece));
            }
        }
        sent += piece.len();
    }
}

/// A byte for the level, one for the window and one for the ring, then a script of what befalls a
/// context: batches arrive, are damaged, swapped or lost, and generations begin, from a base or from
/// nothing. What arrives as it was sent is restored; nothing else harms anything. With the highest bit of the
/// third byte batches stand alone.
pub fn context(bytes: &[u8]) {
    let Some((&[level, window, ring], mut script)) = bytes.split_first_chunk::<3>() else { return };
    if ring >= 128 {
        return alone(bytes);
    }
    let ring_log = 15 + ring % 3;
    let mut ends = ContextEnds::new(context_spec(level, window, ring_log), ring_log);
    // Each batch costs a frame's memory at worst, so that long scripts would only be slow.
    for _ in 0..64 {
        let Some((&[op, x, y], rest)) = script.split_first_chunk::<3>() else { return };
        let len = usize::from(op >> 3).min(rest.len());
        let (unit, rest) = rest.split_at(len);
        script = rest;
        match op % 8 {
            0..=2 => ends.batch(unit, x, |payload| payload),
            3 => ends.batch(unit, x, |mut payload| {
                let at = usize::from(y) % payload.len();
                payload[at] ^= 1 | x;
                payload
            }),
            4 => ends.batch(unit, x, |_| unit.to_vec()),
            5 => ends.swap(unit, x),
            6 => {
                let spec = context_spec(x, y, ring_log);
                ends.begin(spec, u64::from(y) * u64::from(x));
            }
            _ if len % 2 == 1 => ends.begin_from(context_spec(x, y, ring_log), x),
            _ => ends.begin(context_spec(x, y, ring_log), u64::MAX),
        }
    }
}

/// The same of batches that stand alone: they arrive in any order, damaged, twice or not at all, of
/// generations that keep the ring or cut it, with places and bases that anybody claims. What was sent is
/// restored as long as its generation is known, and nothing else harms anything.
fn alone(bytes: &[u8]) {
    let Some((&[level, window, ring], mut script)) = bytes.split_first_chunk::<3>() else { return };
    let ring_log = 15 + ring % 3;
    let mut ends = AloneEnds::new(context_spec(level, window, ring_log), ring_log);
    for _ in 0..64 {
        let Some((&[op, x, y], rest)) = script.split_first_chunk::<3>() else { return };
        let len = usize::from(op >> 3).min(rest.len());
        let (unit, rest) = rest.split_at(len);
        script = rest;
        match op % 8 {
            0..=2 => ends.send(unit, x),
            3 | 4 => ends.arrive(usize::from(x)),
            5 => ends.claim(unit, (x, y)),
            6 => ends.advance(context_spec(x, y, ring_log), true),
            _ => ends.advance(context_spec(x, y, ring_log), false),
        }
        assert!(ends.decoder.memory_bytes() < 3 << 20);
    }
}

/// A batch on its way, as it was and compressed, with its generation.
type AloneBatch = (u8, (ContextSpec, Base, bool), u32, Vec<u8>, Vec<u8>);

/// Both ends of a context whose batches stand alone.
struct AloneEnds {
    encoder: ContextEncoder,
    decoder: ContextDecoder,
    /// The sender's generation, and the latest that the receiver knows.
    name: u8,
    begun: (ContextSpec, Base, bool),
    known: u8,
    /// Nothing came that was not sent.
    is_sound: bool,
    on_the_way: Vec<AloneBatch>,
}

impl AloneEnds {
    fn new(spec: ContextSpec, ring_log: u8) -> Self {
        let mut encoder = ContextEncoder::new(spec, ring_log).expect("a good spec");
        encoder.begin_alone(spec, Base::default(), false).expect("a cold start");
        let decoder = ContextDecoder::new(ring_log);
        let begun = (spec, Base::default(), false);
        let on_the_way = Vec::new();
        Self { encoder, decoder, name: 1, begun, known: 0, is_sound: true, on_the_way }
    }

    fn send(&mut self, unit: &[u8], times: u8) {
        let mut batch = unit.repeat(usize::from(times % 64).pow(2));
        batch.truncate(CONTEXT_BATCH_LEN_MAX);
        let mut data = Vec::new();
        let distance = (self.encoder.offset() - self.begun.1.offset) as u32;
        if self.encoder.compress_alone(&batch, &mut data).expect("not too long") {
            assert!(data.len() < batch.len());
            self.on_the_way.push((self.name, self.begun, distance, batch, data));
        }
    }

    /// One of those on their way arrives; it may do so again.
    fn arrive(&mut self, which: usize) {
        let Some(at) = which.checked_rem(self.on_the_way.len()) else { return };
        let (name, (spec, base, keeps), distance, batch, data) = self.on_the_way[at].clone();
        if name.wrapping_sub(self.known).cast_signed() > 0 {
            let begun = self.decoder.begin_alone(name, (spec.window_log, base), keeps);
            assert!(begun.is_ok() || !self.is_sound, "{begun:?}");
            self.known = name;
        }
        let is_known = self.decoder.has_alone(name);
        let mut out = vec![0; batch.len()];
        out.extend(CANARY);
        let decoded = self.decoder.decode_alone(name, distance, &data, &mut out[..batch.len()]);
        assert_eq!(out[batch.len()..], CANARY);
        if self.is_sound {
            assert_eq!(decoded.is_ok(), is_known);
            assert!(!is_known || out[..batch.len()] == batch);
        }
    }

    /// Somebody claims something that was never sent.
    fn claim(&mut self, unit: &[u8], (x, y): (u8, u8)) {
        self.is_sound = false;
        let base = Base { offset: u64::from(x) << (y % 60), len: u32::from(y) << (x % 20) };
        let _ = self.decoder.begin_alone(x, (y % 20, base), y % 2 == 0);
        let mut out = vec![0; usize::from(x) * usize::from(y) + 1];
        let _ = self.decoder.decode_alone(x, u32::from(y) << (x % 32), unit, &mut out);
    }

    /// The next generation, from what the decoder has; the ring is kept only if it knows the present one.
    fn advance(&mut self, spec: ContextSpec, keeps: bool) {
        let is_known = self.known == self.name;
        let (before, base, _) = self.begun;
        if self.name == 100 || keeps && !(is_known && before == spec) {
            return;
        }
        let offset = if is_known { self.decoder.offset() } else { base.offset };
        let longest = self.encoder.base_at(offset).unwrap_or_default();
        let base = Base { len: longest.len.min(spec.alone_base_len_max()), ..longest };
        self.encoder.begin_alone(spec, base, keeps).expect("the base is of this encoder");
        self.name += 1;
        self.begun = (spec, base, keeps);
        if !keeps {
            // What is on its way may begin no generation that was cut off.
            self.on_the_way.clear();
        }
    }
}

fn context_spec(level: u8, window: u8, ring_log: u8) -> ContextSpec {
    let window_log = 15 + window % (ring_log - 14);
    ContextSpec { level: level_of(CodecId::Zstd, level), window_log }
}

/// Both ends of a context.
struct ContextEnds {
    encoder: ContextEncoder,
    decoder: ContextDecoder,
    /// Up to here the decoder has what the encoder had.
    confirmed: u64,
    /// All of the generation has arrived as it was sent.
    is_whole: bool,
    /// The decoder may have taken more into its ring than the encoder has.
    is_longer: bool,
}

impl ContextEnds {
    fn new(spec: ContextSpec, ring_log: u8) -> Self {
        let encoder = ContextEncoder::new(spec, ring_log).expect("a good spec");
        let mut decoder = ContextDecoder::new(ring_log);
        decoder.begin(spec.window_log, Base::default()).expect("a cold start is always possible");
        Self { encoder, decoder, confirmed: 0, is_whole: true, is_longer: false }
    }

    fn compress(&mut self, unit: &[u8], times: u8) -> (Vec<u8>, Vec<u8>) {
        let mut batch = unit.repeat(usize::from(times % 64).pow(2));
        batch.truncate(CONTEXT_BATCH_LEN_MAX);
        let mut payload = Vec::new();
        self.encoder.compress(&batch, &mut payload).expect("not too long");
        assert!(payload.len() <= context_bound(batch.len()));
        (batch, payload)
    }

    /// A batch that arrives as `change` leaves it.
    fn batch(&mut self, unit: &[u8], times: u8, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
        let (batch, payload) = self.compress(unit, times);
        if !batch.is_empty() {
            let arrived = change(payload.clone());
            self.arrive(&batch, &arrived, arrived == payload);
        }
    }

    /// Two batches in the wrong order.
    fn swap(&mut self, unit: &[u8], times: u8) {
        let (first, second) = (self.compress(unit, times), self.compress(unit, times / 2));
        for (batch, payload) in [second, first] {
            if !batch.is_empty() {
                self.arrive(&batch, &payload, false);
            }
        }
    }

    fn arrive(&mut self, batch: &[u8], payload: &[u8], is_in_order: bool) {
        let mut data = vec![0; batch.len()];
        data.extend(CANARY);
        let before = self.decoder.offset();
        let result = self.decoder.decode(payload, &mut data[..batch.len()]);
        assert_eq!(data[batch.len()..], CANARY);
        self.is_whole &= is_in_order;
        if self.is_whole {
            assert_eq!((result, &data[..batch.len()]), (Ok(()), batch));
            self.confirmed = self.encoder.offset();
        }
        let len = if result.is_ok() { batch.len() as u64 } else { 0 };
        assert_eq!(self.decoder.offset(), before + len);
        self.is_longer |= result.is_ok() && !self.is_whole;
        assert!(self.decoder.memory_bytes() < 2 << 20);
    }

    /// A generation from the last bytes of a dictionary, which both ends have.
    fn begin_from(&mut self, spec: ContextSpec, part: u8) {
        let most = CONTEXT_DICTIONARY.base(spec).len;
        let len = (most * u32::from(part) / 255).max(1);
        self.encoder
            .begin(spec, Source::Dictionary(&CONTEXT_DICTIONARY, len))
            .expect("it has so much");
        let begun =
            self.decoder.begin(spec.window_log, Source::Dictionary(&CONTEXT_DICTIONARY, len));
        begun.expect("it is always possible");
        assert_eq!((self.encoder.offset(), self.decoder.offset()), (len.into(), len.into()));
        self.confirmed = len.into();
        (self.is_whole, self.is_longer) = (true, false);
    }

    /// A generation from `back` bytes before what is confirmed, or from nothing.
    fn begin(&mut self, spec: ContextSpec, back: u64) {
        let offset = self.confirmed.saturating_sub(back);
        let longest = self.encoder.base_at(offset).filter(|_| back < u64::MAX);
        let len = longest.map_or(0, |base| base.len.min(1 << spec.window_log));
        let mut base = longest.map_or(Base::default(), |base| Base { len, ..base });
        if let Err(reason) = self.decoder.begin(spec.window_log, base) {
            assert!(self.is_longer, "{reason}");
            base = Base::default();
            self.decoder.begin(spec.window_log, base).expect("a cold start is always possible");
        }
        self.encoder.begin(spec, base).expect("the base is of this encoder");
        assert_eq!((self.encoder.offset(), self.decoder.offset()), (base.offset, base.offset));
        self.confirmed = base.offset;
        self.is_whole = true;
        self.is_longer &= base != Base::default();
    }
}

/// A byte for the order and one for the memory, then a script of [`records`].
pub fn ppm(bytes: &[u8]) {
    let Some((&[order, memory], script)) = bytes.split_first_chunk::<2>() else { return };
    let of = |order: u8, memory: u8| PpmSpec { order: 2 + order % 11, memory_log: 20 + memory % 2 };
    let spec = of(order, memory);
    records(spec.into(), script, (64, 0), |y| (y % 2 != 0).then(|| of(y >> 1, y >> 5).into()));
}

/// A byte for the memory of a model that mixes contexts, then a script of [`records`].
pub fn mix(bytes: &[u8]) {
    let Some((&memory, script)) = bytes.split_first() else { return };
    let of = |memory: u8| MixSpec { memory_log: 20 + memory % 2 }.into();
    records(of(memory), script, (32, 1), |y| Some(of(y)));
}

/// Records of a model, so many at most, that arrive as they were sent, damaged or not at all, resets, other orders and memories, and
/// bytes that both ends learn. What arrives in order is restored, and nothing else harms anything. A record is some bytes, repeated so
/// often at least.
fn records(
    spec: ModelSpec,
    mut script: &[u8],
    (most, repeated_min): (usize, usize),
    other: impl Fn(u8) -> Option<ModelSpec>,
) {
    let mut encoder = ModelEncoder::new(spec).expect("a good spec");
    let mut decoder = ModelDecoder::new(spec).expect("a good spec");
    let mut is_same = true;
    for _ in 0..most {
        let Some((&[op, x, y], rest)) = script.split_first_chunk::<3>() else { return };
        let (unit, rest) = rest.split_at(usize::from(op >> 3).min(rest.len()));
        script = rest;
        let mut record = unit.repeat(repeated_min + (usize::from(x) % most).pow(2));
        record.truncate(MODEL_RECORD_LEN_MAX);
        if op % 8 == 6 {
            match other(y) {
                None => {
                    encoder.reset();
                    decoder.reset();
                }
                // One of them has fresh memory, and the other what it had.
                Some(spec) => {
                    encoder = ModelEncoder::new(spec).expect("a good spec");
                    decoder.renew(spec).expect("a good spec");
                }
            }
            is_same = true;
        }
        if op % 8 == 7 {
            encoder.prime(&record);
            decoder.prime(&record);
        }
        if record.is_empty() {
            continue;
        }
        let mut payload = Vec::new();
        encoder.compress(&record, &mut payload).expect("not too long");
        assert!((1..=record.len()).contains(&payload.len()));
        let sent = payload.clone();
        match op % 8 {
            3 => {
                let at = usize::from(y) % payload.len();
                payload[at] ^= 1 | x;
            }
            4 => payload = unit.to_vec(),
            5 => {
                // It does not arrive.
                is_same = false;
                continue;
            }
            _ => {}
        }
        is_same &= payload == sent;
        let was_lost = decoder.is_lost();
        let mut data = vec![0; record.len()];
        data.extend(CANARY);
        let result = decoder.decode(&payload, &mut data[..record.len()]);
        assert_eq!(data[record.len()..], CANARY);
        assert_eq!(result.is_err(), decoder.is_lost());
        assert!(!was_lost || result == Err(DecodeError::NoGeneration));
        if is_same {
            assert_eq!((result, &data[..record.len()]), (Ok(()), &record[..]));
        }
    }
}
