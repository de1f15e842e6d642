//! The hello, which opens and renews a session (`docs/wire.md` section 4).

use crate::error::WireError;
use crate::reader::Reader;

/// Bytes of a hello's body as this version writes it.
pub const HELLO_BODY_LEN: usize = HELLO_BODY_BEFORE_FORMS + 1;
/// Bytes of a hello's body as the first version wrote it.
pub const HELLO_BODY_MIN: usize = 38;
/// Bytes of a hello's body with contexts, but without their flags and a dictionary.
const HELLO_BODY_BEFORE_FLAGS: usize = HELLO_BODY_MIN + 10;
/// Bytes of a hello's body with these, but without the forms of batches.
const HELLO_BODY_BEFORE_FORMS: usize = HELLO_BODY_BEFORE_FLAGS + 1 + 4 + DICTIONARY_NAME_LEN;
/// Form of batches, bit 0: their headers can be predicted.
const FORM_PREDICTED: u8 = 1;
/// Form of batches, bit 1: the models that are offered can be of the codec mix, too.
const FORM_MIXED: u8 = 2;
/// Flag of contexts, bit 0: batches that stand alone are decoded.
const CONTEXTS_ALONE: u8 = 1;
/// The binary logarithm of a model's least memory, in bytes, and of the most that can be offered.
const MODEL_MEMORY_LOG_MIN: u8 = 20;
const MODEL_MEMORY_LOG_MAX: u8 = 26;
/// The most contexts with models that can be offered.
const MODELS_MAX: u8 = 16;
/// The smallest ring of a context, as a binary logarithm. Who offers less offers none.
pub const CONTEXT_RING_LOG_MIN: u8 = 15;
/// Bytes of a salt.
pub const SALT_LEN: usize = 16;
/// Bytes of a dictionary's name.
pub const DICTIONARY_NAME_LEN: usize = 16;
/// Flag, bit 0: the sender has installed the session of these two salts; there is no answer.
pub const HELLO_FINAL: u16 = 1;
/// Flag, bit 1: the sender forwards compressed units without decompression, and asks for them as
/// [`Carried`](crate::Carried).
pub const HELLO_CARRIES: u16 = 2;

/// The message by which one node describes itself to the other when a session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Random bytes of the sender, new for each session.
    pub salt: [u8; SALT_LEN],
    /// The latest salt of the receiver that the sender received; zeros if none was.
    pub echo: [u8; SALT_LEN],
    /// The longest datagram that the sender can receive, in bytes of UDP payload.
    pub datagram_max: u16,
    /// The codecs that the sender can decode: bit *i*, counted from the lowest, for codec
    /// id *i*.
    pub codecs: u16,
    /// [`HELLO_FINAL`] and [`HELLO_CARRIES`]; the other bits are sent as zero and ignored on
    /// receipt.
    pub flags: u16,
    /// The contexts that the sender can decode; none if it can't, or is of a version without them.
    pub contexts: Option<ContextOffer>,
}

/// The contexts that a node can decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextOffer {
    /// The number of contexts, at least one: those with lower numbers than this.
    pub contexts: u8,
    /// The binary logarithm of the largest window and of the ring, in bytes; at least
    /// [`CONTEXT_RING_LOG_MIN`].
    pub ring_log: u8,
    /// A random number, another one whenever the decoders begin without what went before.
    pub incarnation: u64,
    /// Batches that stand alone are decoded; false of a version that does not know them.
    pub takes_alone: bool,
    /// The dictionary that contexts can begin from, if the sender has one.
    pub dictionary: Option<DictionaryName>,
    /// The models; none of a version that does not know them.
    pub models: Option<ModelOffer>,
    /// Batches with predicted headers are restored; false of a version that does not know them.
    pub takes_predicted: bool,
}

/// The models of the codecs ppm and mix that a node has memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelOffer {
    /// The number of contexts that may have one, those with lower numbers than this: 1 to 16.
    pub contexts: u8,
    /// The binary logarithm of the most memory of each, in bytes: 20 to 26.
    pub memory_log: u8,
    /// They may be of the codec mix as well as ppm; false of a version that does not know it.
    pub takes_mixed: bool,
}

impl ModelOffer {
    /// Reads the upper seven bits of the flags of contexts.
    fn read(flags: u8) -> Option<Self> {
        let memory = flags >> 1 & 7;
        let contexts = (flags >> 4) + 1;
        let memory_log = MODEL_MEMORY_LOG_MIN - 1 + memory;
        (memory > 0).then_some(Self { contexts, memory_log, takes_mixed: false })
    }

    /// Returns these bits; zeros, which offer none, for what can't be offered.
    fn flags(self) -> u8 {
        let can_be = (1..=MODELS_MAX).contains(&self.contexts)
            && (MODEL_MEMORY_LOG_MIN..=MODEL_MEMORY_LOG_MAX).contains(&self.memory_log);
        if !can_be {
            return 0;
        }
        (self.contexts - 1) << 4 | (self.memory_log + 1 - MODEL_MEMORY_LOG_MIN) << 1
    }
}

/// A dictionary, as nodes name it to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DictionaryName {
    /// Its bytes, at least one.
    pub len: u32,
    /// The hash of these bytes.
    pub hash: [u8; DICTIONARY_NAME_LEN],
}

impl DictionaryName {
    fn read(rest: &mut Reader<'_>) -> Option<Self> {
        Some(Self { len: rest.u32()?, hash: rest.array()? })
    }

    /// Returns the part of the hash by which the first batch of a generation names the dictionary.
    pub fn short(&self) -> u64 {
        let [first @ .., _, _, _, _, _, _, _, _] = self.hash;
        u64::from_be_bytes(first)
    }
}

impl ContextOffer {
    fn read(rest: &mut Reader<'_>) -> Option<Self> {
        let (contexts, ring_log, incarnation) = (rest.u8()?, rest.u8()?, rest.u64()?);
        // An earlier version did not have these.
        let flags = rest.u8();
        let named = flags.and_then(|_| DictionaryName::read(rest));
        let forms = named.and_then(|_| rest.u8());
        let dictionary = named.filter(|name| name.len > 0);
        let takes_predicted = forms.is_some_and(|forms| forms & FORM_PREDICTED != 0);
        let takes_alone = flags.is_some_and(|flags| flags & CONTEXTS_ALONE != 0);
        let takes_mixed = forms.is_some_and(|forms| forms & FORM_MIXED != 0);
        let models = flags.and_then(ModelOffer::read).map(|it| ModelOffer { takes_mixed, ..it });
        let offer = Self {
            contexts,
            ring_log,
            incarnation,
            takes_alone,
            dictionary,
            models,
            takes_predicted,
        };
        offer.is_usable().then_some(offer)
    }

    const fn is_usable(&self) -> bool {
        self.contexts > 0 && self.ring_log >= CONTEXT_RING_LOG_MIN
    }
}

impl Hello {
    /// Returns the bytes of the body.
    pub fn encode(&self) -> [u8; HELLO_BODY_LEN] {
        let mut out = [0; HELLO_BODY_LEN];
        out[..16].copy_from_slice(&self.salt);
        out[16..32].copy_from_slice(&self.echo);
        out[32..34].copy_from_slice(&self.datagram_max.to_be_bytes());
        out[34..36].copy_from_slice(&self.codecs.to_be_bytes());
        out[36..38].copy_from_slice(&self.flags.to_be_bytes());
        if let Some(offer) = self.contexts.filter(ContextOffer::is_usable) {
            out[38..40].copy_from_slice(&[offer.contexts, offer.ring_log]);
            out[40..48].copy_from_slice(&offer.incarnation.to_be_bytes());
            let models = offer.models.map_or(0, ModelOffer::flags);
            out[48] = models | if offer.takes_alone { CONTEXTS_ALONE } else { 0 };
            if let Some(name) = offer.dictionary.filter(|name| name.len > 0) {
                out[49..53].copy_from_slice(&name.len.to_be_bytes());
                out[53..69].copy_from_slice(&name.hash);
            }
            let takes_mixed = models != 0 && offer.models.is_some_and(|it| it.takes_mixed);
            out[69] = if offer.takes_predicted { FORM_PREDICTED } else { 0 }
                | if takes_mixed { FORM_MIXED } else { 0 };
        }
        out
    }

    /// Reads a decrypted body (without the tag of a sealed one). Bytes after the known fields are
    /// ignored, so that later versions of dwell can add fields; an earlier one did not have all.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if a field is missing.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let mut rest = Reader(body);
        let mut read = || {
            Some(Self {
                salt: rest.array()?,
                echo: rest.array()?,
                datagram_max: rest.u16()?,
                codecs: rest.u16()?,
                flags: rest.u16()?,
                contexts: ContextOffer::read(&mut rest),
            })
        };
        read().ok_or(WireError::Truncated)
    }

    /// Returns true if the sender can decode the codec of this id.
    pub const fn decodes(&self, codec: u8) -> bool {
        codec < 16 && self.codecs >> codec & 1 == 1
    }

    /// Returns true if the sender forwards compressed units without decompression.
    pub const fn carries(&self) -> bool {
        self.flags & HELLO_CARRIES != 0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// No contexts, or some.
    pub(crate) fn any_contexts() -> impl Strategy<Value = Option<ContextOffer>> {
        let name = (1u32.., any::<[u8; 16]>()).prop_map(|(len, hash)| DictionaryName { len, hash });
        let numbers = (1u8.., CONTEXT_RING_LOG_MIN.., any::<u64>());
        let models =
            (1u8..=16, 20u8..=26, any::<bool>()).prop_map(|(contexts, memory_log, takes_mixed)| {
                ModelOffer { contexts, memory_log, takes_mixed }
            });
        let models = prop::option::of(models);
        let offer = (numbers, any::<(bool, bool)>(), prop::option::of(name), models).prop_map(
            |(
                (contexts, ring_log, incarnation),
                (takes_alone, takes_predicted),
                dictionary,
                models,
            )| ContextOffer {
                contexts,
                ring_log,
                incarnation,
                takes_alone,
                dictionary,
                models,
                takes_predicted,
            },
        );
        prop::option::of(offer)
    }

    proptest! {
        #[test]
        fn round_trips_and_grows(
            (salt, echo) in any::<([u8; 16], [u8; 16])>(),
            (datagram_max, codecs, flags) in any::<(u16, u16, u16)>(),
            contexts in any_contexts(),
            more in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let hello = Hello { salt, echo, datagram_max, codecs, flags, contexts };
            let body = [&hello.encode()[..], &more].concat();
            prop_assert_eq!(Hello::parse(&body), Ok(hello));
            // An earlier version's, or with a part of a field that it did not know.
            let earlier = Hello { contexts: None, ..hello };
            for short in HELLO_BODY_MIN..HELLO_BODY_BEFORE_FLAGS {
                prop_assert_eq!(Hello::parse(&body[..short]), Ok(earlier));
            }
            // That of a version that knows neither dictionaries nor batches that stand alone.
            let running =
                |it| ContextOffer { takes_alone: false, dictionary: None, models: None, takes_predicted: false, ..it };
            let without = Hello { contexts: contexts.map(running), ..hello };
            prop_assert_eq!(Hello::parse(&body[..HELLO_BODY_BEFORE_FLAGS]), Ok(without));
            let forms = |offer: ContextOffer| {
                let models = offer.models.map(|it| ModelOffer { takes_mixed: false, ..it });
                ContextOffer { takes_predicted: false, models, ..offer }
            };
            let contexts = contexts.map(forms);
            let without = Hello { contexts, ..hello };
            prop_assert_eq!(Hello::parse(&body[..HELLO_BODY_BEFORE_FORMS]), Ok(without));
            let contexts = contexts.map(|offer| ContextOffer { dictionary: None, ..offer });
            let without = Hello { contexts, ..hello };
            for short in HELLO_BODY_BEFORE_FLAGS + 1..HELLO_BODY_BEFORE_FORMS {
                prop_assert_eq!(Hello::parse(&body[..short]), Ok(without));
            }
            let short = &body[..HELLO_BODY_MIN - 1];
            prop_assert_eq!(Hello::parse(short), Err(WireError::Truncated));
        }
    }

    /// Reads a hello with these bytes for the number of contexts and the ring.
    fn read_contexts(bytes: [u8; 2]) -> Option<ContextOffer> {
        let mut body = [0; HELLO_BODY_LEN];
        body[38..40].copy_from_slice(&bytes);
        body[47] = 7;
        Hello::parse(&body).ok()?.contexts
    }

    #[test]
    fn contexts_that_cannot_be_used_are_none() {
        let good = ContextOffer {
            contexts: 1,
            ring_log: 15,
            incarnation: 7,
            takes_alone: false,
            dictionary: None,
            models: None,
            takes_predicted: false,
        };
        let base = Hello::parse(&[0; HELLO_BODY_LEN]).unwrap();
        assert_eq!(base.contexts, None);
        assert_eq!(read_contexts([1, 15]), Some(good));
        for bad in [[0, 15], [1, 14], [1, 0]] {
            assert_eq!(read_contexts(bad), None);
            let [contexts, ring_log] = bad;
            let hello =
                Hello { contexts: Some(ContextOffer { contexts, ring_log, ..good }), ..base };
            assert_eq!(hello.encode(), base.encode());
        }
    }

    #[test]
    fn models_that_cannot_be_are_not_offered() {
        let flags =
            |contexts, memory_log| ModelOffer { contexts, memory_log, takes_mixed: false }.flags();
        assert_eq!([flags(1, 20), flags(4, 24), flags(16, 26)], [0x02, 0x3a, 0xfe]);
        assert_eq!([flags(0, 24), flags(17, 24), flags(1, 19), flags(1, 27)], [0; 4]);
        assert_eq!([ModelOffer::read(0), ModelOffer::read(0xf1)], [None; 2]);
    }

    #[test]
    fn the_bitmap_counts_from_the_lowest_bit() {
        let body = [0; HELLO_BODY_LEN];
        let hello = Hello { codecs: 0b1_0110, ..Hello::parse(&body).unwrap() };
        let decoded: Vec<u8> = (0..=255).filter(|&id| hello.decodes(id)).collect();
        assert_eq!(decoded, [1, 2, 4]);
    }
}
