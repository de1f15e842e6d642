//! Dictionaries for small packets, class by class, with a gain that was measured on packets that
//! were not trained on.
//!
//! Packets that are near each other in time resemble each other more than those of the next hour,
//! and a dictionary serves future packets. So the samples of a class are split in time, not at
//! random: the trainer uses the earlier part, and the test the later one.

mod recent;

use std::collections::BTreeMap;
use std::sync::Arc;

use dwell_codec::{
    CodecError, CodecSpec, Compressor, DICTIONARY_LEN_MAX, DICTIONARY_LEN_MIN, Dictionary,
    DictionaryFile, SRC_LEN_MAX, hash_of, train,
};
use dwell_policy::ClassKey;
use dwell_report::{Column, Table, human};
use dwell_wire::PacketInfo;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::recent::ContextTraining;
use self::recent::Recent;
use crate::analysis::Clock;

/// The most dictionaries of classes: with that of contexts as many as a file can have.
pub const DICTIONARIES_MAX: usize = dwell_codec::DICTIONARIES_MAX - 1;
/// The fewest samples of a class that is trained: half of the trainer's dozens would be tests.
pub const SAMPLES_MIN: usize = 50;
/// The smallest gain of a dictionary that is worth having, as a share of the bytes that the codec
/// gives alone: each dictionary has to be sent to the other end and stored.
pub const GAIN_MIN: f64 = 0.02;

/// The most bytes of samples; beyond it, every other one of the largest class is forgotten.
const SAMPLES_BYTES_MAX: usize = 64 << 20;
/// The most bytes of samples of one class.
const CLASS_BYTES_MAX: usize = 8 << 20;
/// The most classes with samples; packets of others are counted and left out.
const CLASSES_MAX: usize = 4096;

/// Settings for making dictionaries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainSettings {
    /// The codec that they are made for and tested with.
    pub codec: CodecSpec,
    /// The most bytes of a dictionary.
    pub dictionary_bytes: usize,
    /// The smallest packets that are used, ...
    pub packet_bytes_min: usize,
    /// ... and the largest: long ones gain little.
    pub packet_bytes_max: usize,
    /// The share of samples, from the first on, that is trained on.
    pub trained_share: f64,
}

impl TrainSettings {
    /// Returns the settings by which small packets gain most, for this codec.
    pub const fn new(codec: CodecSpec) -> Self {
        Self {
            codec,
            dictionary_bytes: 16 << 10,
            packet_bytes_min: 64,
            packet_bytes_max: 1000,
            trained_share: 0.7,
        }
    }
}

/// A reason why nothing can be trained.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TrainError {
    /// The dictionary's length is out of bounds.
    #[error("a dictionary must have {DICTIONARY_LEN_MIN} to {DICTIONARY_LEN_MAX} bytes, not {0}")]
    DictionaryBytes(usize),
    /// No packet has a length in this range.
    #[error("packets of {0} to {1} bytes don't exist: the first must be smaller")]
    PacketBytes(usize, usize),
    /// Nothing would be left for training or for testing.
    #[error("the share that is trained on must be between 0.1 and 0.9, not {0}")]
    Share(f64),
    /// The codec takes no dictionary, or is not there.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

/// Collects packets, and makes dictionaries of them.
pub struct Trainer {
    settings: TrainSettings,
    classes: BTreeMap<ClassKey, Samples>,
    recent: Recent,
    samples_bytes: usize,
    packets: u64,
    left_out: u64,
}

/// Packets of one class in order of time: every `stride`th.
#[derive(Default)]
struct Samples {
    kept: Vec<Box<[u8]>>,
    kept_bytes: usize,
    stride: u64,
    packets: u64,
    bytes: u64,
}

/// The result of training a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassTraining {
    /// The class.
    pub class: String,
    /// Packets of the class that have a suitable size.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that the dictionary was trained on.
    pub trained_on: u64,
    /// Packets, all later than these, that it was tested on.
    pub tried_on: u64,
    /// Compressed / original of the tested packets, with the codec alone.
    pub ratio_without: f64,
    /// The same with the dictionary.
    pub ratio_with: f64,
    /// Nanoseconds to compress one of these packets, without the dictionary and with it.
    pub packet_ns: (u64, u64),
    /// Bytes of the dictionary.
    pub dictionary_bytes: usize,
    /// Its id, if it is worth having.
    pub id: Option<u8>,
}

impl ClassTraining {
    /// The share that the dictionary takes off the bytes beyond what the codec does alone.
    pub fn gain(&self) -> f64 {
        self.ratio_without - self.ratio_with
    }

    /// Returns the bytes that it would have taken off all packets of the class.
    pub fn gain_bytes(&self) -> f64 {
        self.gain() * self.bytes as f64
    }
}

/// The result of training.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    /// Each class with enough packets, those that gain most first.
    pub classes: Vec<ClassTraining>,
    /// What one of contexts would bring; none if there was too little to make it of.
    pub contexts: Option<ContextTraining>,
    /// The dictionaries that are worth having: those of classes in the same order, and that of contexts.
    pub dictionaries: Vec<DictionaryFile>,
    /// Packets seen.
    pub packets: u64,
    /// Packets that were too small, too large, cut off, or of a class too many.
    pub left_out: u64,
}

impl Trainer {
    /// Creates a trainer without packets.
    ///
    /// # Errors
    /// If the settings make no sense, or the codec takes no dictionaries.
    pub fn new(settings: TrainSettings) -> Result<Self, TrainError> {
        let TrainSettings { dictionary_bytes, packet_bytes_min, packet_bytes_max, .. } = settings;
        if !(DICTIONARY_LEN_MIN..=DICTIONARY_LEN_MAX).contains(&dictionary_bytes) {
            return Err(TrainError::DictionaryBytes(dictionary_bytes));
        }
        if packet_bytes_min > packet_bytes_max {
            return Err(TrainError::PacketBytes(packet_bytes_min, packet_bytes_max));
        }
        if !(0.1..=0.9).contains(&settings.trained_share) {
            return Err(TrainError::Share(settings.trained_share));
        }
        settings.codec.check()?;
        if !settings.codec.id.takes_dictionary() {
            return Err(CodecError::NoDictionary(settings.codec.id).into());
        }
        let classes = BTreeMap::new();
        let recent = Recent::default();
        Ok(Self { settings, classes, recent, samples_bytes: 0, packets: 0, left_out: 0 })
    }

    /// Adds the next packet, from its IP header on. Packets that were cut off are left out.
    pub fn packet(&mut self, packet: &[u8]) {
        self.packets += 1;
        let sizes = self.settings.packet_bytes_min..=self.settings.packet_bytes_max;
        let info = PacketInfo::parse(packet, 0).ok();
        if let Some((info, whole)) =
            info.and_then(|info| Some((info, packet.get(..info.total_len)?)))
        {
            self.recent.add(&info, whole);
        }
        let info = info.filter(|info| sizes.contains(&info.total_len));
        let Some(info) = info else {
            self.left_out += 1;
            return;
        };
        let source = ClassKey::new(info.protocol, info.src_port);
        let class = source.min(ClassKey::new(info.protocol, info.dst_port));
        if self.classes.len() >= CLASSES_MAX && !self.classes.contains_key(&class) {
            self.left_out += 1;
            return;
        }
        let samples = self.classes.entry(class).or_default();
        let before = samples.kept_bytes;
        samples.add(&packet[..info.total_len]);
        self.samples_bytes = self.samples_bytes + samples.kept_bytes - before;
        if self.samples_bytes > SAMPLES_BYTES_MAX {
            self.thin();
        }
    }

    /// Halves the largest class.
    fn thin(&mut self) {
        let largest = self.classes.values_mut().max_by_key(|samples| samples.kept_bytes);
        if let Some(samples) = largest {
            let before = samples.kept_bytes;
            samples.thin();
            self.samples_bytes = self.samples_bytes + samples.kept_bytes - before;
        }
    }

    /// Makes dictionaries and tests them. `clock` measures the time of compressing with them.
    ///
    /// # Errors
    /// If the codec fails in a way that it should not.
    pub fn finish(self, clock: &mut dyn Clock) -> Result<Trained, TrainError> {
        let mut all = Vec::new();
        for (class, samples) in &self.classes {
            if samples.kept.len() >= SAMPLES_MIN {
                all.extend(train_class(&self.settings, *class, samples, clock)?);
            }
        }
        all.sort_by(|(a, _), (b, _)| b.gain_bytes().total_cmp(&a.gain_bytes()));
        let (mut classes, mut dictionaries) = (Vec::new(), Vec::new());
        let recent = self.recent.train(self.settings.codec, self.settings.trained_share)?;
        for (mut class, mut file) in all {
            if dictionaries.len() < DICTIONARIES_MAX && class.gain() >= GAIN_MIN {
                file.id = dictionaries.len() as u8 + 1;
                class.id = Some(file.id);
                dictionaries.push(file);
            }
            classes.push(class);
        }
        let contexts = recent.map(|(training, file)| {
            dictionaries.extend(training.is_worth.then_some(file));
            training
        });
        Ok(Trained {
            classes,
            contexts,
            dictionaries,
            packets: self.packets,
            left_out: self.left_out,
        })
    }
}

impl Samples {
    fn add(&mut self, packet: &[u8]) {
        self.stride = self.stride.max(1);
        if self.packets.is_multiple_of(self.stride) {
            self.kept.push(packet.into());
            self.kept_bytes += packet.len();
        }
        self.packets += 1;
        self.bytes += packet.len() as u64;
        if self.kept_bytes > CLASS_BYTES_MAX {
            self.thin();
        }
    }

    /// Forgets every other sample, so that the rest still covers all of the time.
    fn thin(&mut self) {
        let mut n = 0;
        self.kept.retain(|_| {
            n += 1;
            n % 2 == 1
        });
        self.kept_bytes = self.kept.iter().map(|sample| sample.len()).sum();
        self.stride = self.stride.saturating_mul(2);
    }
}

fn train_class(
    settings: &TrainSettings,
    class: ClassKey,
    samples: &Samples,
    clock: &mut dyn Clock,
) -> Result<Option<(ClassTraining, DictionaryFile)>, TrainError> {
    let split = (samples.kept.len() as f64 * settings.trained_share) as usize;
    let (earlier, later) = samples.kept.split_at(split);
    let slices = || earlier.iter().map(|sample| &sample[..]);
    let Some(bytes) = train(slices(), settings.dictionary_bytes) else { return Ok(None) };
    let file = DictionaryFile {
        id: 1,
        class: class.to_string(),
        codec: settings.codec,
        source: hash_of(slices()),
        samples: earlier.len() as u64,
        bytes,
    };
    let Ok(dictionary) = file.dictionary() else { return Ok(None) };
    let mut try_with = |dictionary| {
        let compressor = Compressor::new(settings.codec, dictionary)?;
        try_on(later, compressor, clock)
    };
    let without = try_with(None)?;
    let with = try_with(Some(Arc::new(dictionary) as Arc<Dictionary>))?;
    let training = ClassTraining {
        class: file.class.clone(),
        packets: samples.packets,
        bytes: samples.bytes,
        trained_on: earlier.len() as u64,
        tried_on: later.len() as u64,
        ratio_without: without.0,
        ratio_with: with.0,
        packet_ns: (without.1, with.1),
        dictionary_bytes: file.bytes.len(),
        id: None,
    };
    Ok(Some((training, file)))
}

/// Compresses packets one by one; packets that don't shrink count as they are. Returns the ratio,
/// and nanoseconds for a packet.
fn try_on(
    packets: &[Box<[u8]>],
    mut compressor: Compressor,
    clock: &mut dyn Clock,
) -> Result<(f64, u64), TrainError> {
    let mut out = vec![0; SRC_LEN_MAX];
    let (mut before, mut after) = (0, 0);
    let start_ns = clock.now_ns();
    for packet in packets {
        let len = compressor.compress(packet, &mut out[..packet.len()])?;
        before += packet.len();
        after += len.unwrap_or(packet.len());
    }
    let took_ns = clock.now_ns().saturating_sub(start_ns);
    let ratio = if before == 0 { 1.0 } else { after as f64 / before as f64 };
    Ok((ratio, took_ns / (packets.len() as u64).max(1)))
}

impl Trained {
    /// Returns the classes as a table.
    pub fn to_table(&self) -> Table {
        let mut table = Table::new([
            Column::left("class"),
            Column::right("packets"),
            Column::right("bytes"),
            Column::right("trained on"),
            Column::right("tried on"),
            Column::right("ratio without"),
            Column::right("with"),
            Column::right("ns without"),
            Column::right("with"),
            Column::right("dictionary"),
        ]);
        for class in &self.classes {
            let dictionary = match class.id {
                Some(id) => format!("{id}: {} B", human::count(class.dictionary_bytes as u64)),
                None => "not worth it".to_owned(),
            };
            table.row([
                class.class.clone(),
                human::count(class.packets),
                human::bytes(class.bytes),
                human::count(class.trained_on),
                human::count(class.tried_on),
                human::ratio(Some(class.ratio_without)),
                human::ratio(Some(class.ratio_with)),
                human::count(class.packet_ns.0),
                human::count(class.packet_ns.1),
                dictionary,
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::Rng;

    use super::*;
    use crate::replay::samples::udp_v4;

    struct Stopped;

    impl Clock for Stopped {
        fn now_ns(&mut self) -> u64 {
            0
        }
    }

    fn spec(text: &str) -> CodecSpec {
        text.parse().unwrap()
    }

    fn message(n: u64) -> Vec<u8> {
        let (device, value) = (n * 7 % 50, n * 13 % 97);
        format!(
            "{{\"device\":\"pump-{device}\",\"pressure\":{value},\"unit\":\"kPa\",\"ok\":true}}"
        )
        .into_bytes()
    }

    fn trained(codec: &str, seed: u64) -> Trained {
        let mut trainer = Trainer::new(TrainSettings::new(spec(codec))).unwrap();
        let mut rng = Rng::from_seed(seed);
        for n in 0..2000 {
            let mut noise = [0; 200];
            rng.fill(&mut noise);
            trainer.packet(&udp_v4(5683, 40_000, &message(n)));
            trainer.packet(&udp_v4(5004, 40_000, &noise));
            trainer.packet(&udp_v4(80, 40_000, &[7; 1300]));
        }
        trainer.packet(&udp_v4(9, 40_000, &message(1)));
        trainer.packet(&udp_v4(5683, 40_000, &message(1))[..60]);
        trainer.finish(&mut Stopped).unwrap()
    }

    #[test]
    fn messages_gain_and_noise_does_not() {
        for codec in ["zstd:1", "lz4"] {
            let trained = trained(codec, 1);
            assert_eq!((trained.packets, trained.left_out), (6002, 2001));
            assert_eq!(trained.classes.len(), 2, "one of them has a single packet");
            let [messages, noise] = &trained.classes[..] else { panic!() };
            assert_eq!((messages.class.as_str(), messages.id), ("udp/5683", Some(1)));
            assert!(messages.gain() > 0.3, "{codec}: {messages:?}");
            assert_eq!((messages.trained_on, messages.tried_on), (1400, 600));
            // The header of 28 bytes is the same; the rest is noise.
            assert_eq!(noise.class, "udp/5004");
            assert!(noise.gain() < 0.15, "{noise:?}");
            assert_eq!(trained.dictionaries[0].class, "udp/5683");
            assert!(trained.to_table().to_text().contains("udp/5683"));
            assert_eq!(trained.contexts.is_some(), codec != "lz4", "it has no contexts");
        }
    }

    /// Long messages, of which each pump sends its own again and again: a context that has just begun knows
    /// none of them.
    #[test]
    fn contexts_begin_better_from_what_was_there_before() {
        let mut rng = Rng::from_seed(3);
        let pumps: Vec<Vec<u8>> =
            (0..100).map(|_| (0..200).map(|_| b'a' + rng.below(26) as u8).collect()).collect();
        let mut trainer = Trainer::new(TrainSettings::new(spec("zstd:1"))).unwrap();
        for pump in (0..4).flat_map(|_| &pumps) {
            trainer.packet(&udp_v4(5683, 40_000, pump));
        }
        let trained = trainer.finish(&mut Stopped).unwrap();
        let contexts = trained.contexts.unwrap();
        // Of the last 120 packets the first 100 are new to a context that begins from nothing.
        assert_eq!((contexts.tried_on, contexts.is_worth), (120, true));
        assert!(contexts.ratio_with * 2.0 < contexts.ratio_without, "{contexts:?}");
        let file = trained.dictionaries.last().unwrap();
        assert_eq!(file.class, dwell_codec::CONTEXT_DICTIONARY_CLASS);
        // It alone is what contexts begin from, whatever else there is.
        let only = dwell_codec::ContextDictionary::of(std::slice::from_ref(file));
        assert_eq!(dwell_codec::ContextDictionary::of(&trained.dictionaries), only);
    }

    #[test]
    fn the_same_packets_give_the_same_dictionaries() {
        assert_eq!(trained("zstd:1", 1), trained("zstd:1", 1));
        let other = trained("zstd:1", 2);
        assert_eq!(trained("zstd:1", 1).dictionaries[0], other.dictionaries[0]);
    }

    /// A class whose messages change after the first 70 %: a split at random would promise a gain
    /// that the future does not keep.
    #[test]
    fn the_gain_is_that_of_later_packets() {
        let mut trainer = Trainer::new(TrainSettings::new(spec("zstd:1"))).unwrap();
        let mut rng = Rng::from_seed(1);
        let mut words = |n: usize| -> Vec<u8> { (0..n).map(|_| rng.next_u64() as u8).collect() };
        let (before, after) = (words(150), words(150));
        for n in 0..1000 {
            let body = if n < 700 { &before } else { &after };
            trainer.packet(&udp_v4(5683, 40_000, body));
        }
        let trained = trainer.finish(&mut Stopped).unwrap();
        assert!(trained.classes[0].gain() < 0.2, "{:?}", trained.classes[0]);
    }

    #[test]
    fn memory_is_bounded_and_all_of_the_time_is_covered() {
        let mut samples = Samples::default();
        for n in 0..40_000u32 {
            let mut packet = vec![0; 1000];
            packet[..4].copy_from_slice(&n.to_be_bytes());
            samples.add(&packet);
            assert!(samples.kept_bytes <= CLASS_BYTES_MAX);
        }
        let number = |sample: &[u8]| u32::from_be_bytes(*sample.first_chunk().unwrap());
        let numbers: Vec<u32> = samples.kept.iter().map(|sample| number(sample)).collect();
        let distance = samples.stride as u32;
        assert!(numbers.windows(2).all(|pair| pair[1] - pair[0] == distance), "{distance}");
        assert!(numbers[0] == 0 && *numbers.last().unwrap() > 39_900);
        assert_eq!((samples.packets, samples.bytes), (40_000, 40_000_000));
    }

    #[test]
    fn impossible_settings_are_reported() {
        let refused = |settings| Trainer::new(settings).err().unwrap().to_string();
        let good = TrainSettings::new(spec("zstd:1"));
        assert!(refused(TrainSettings { dictionary_bytes: 7, ..good }).contains("not 7"));
        assert!(refused(TrainSettings { packet_bytes_min: 2000, ..good }).contains("2000"));
        assert!(refused(TrainSettings { trained_share: 1.0, ..good }).contains("not 1"));
        let deflate = TrainSettings { codec: spec("deflate:6"), ..good };
        assert!(refused(deflate).contains("dictionar"));
    }
}
