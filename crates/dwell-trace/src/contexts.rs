//! Contexts by group: what batches of a group refer to, for the groups that were used lately.

use std::sync::Arc;

use dwell_codec::{
    Base, CodecError, CodecId, CodecSpec, ContextDictionary, ContextEncoder, ContextSpec, Source,
};

/// The most contexts that are kept at a time, as in relays.
pub const CONTEXTS_MAX: usize = 16;
/// The binary logarithm of the bytes that a context can refer to, as in relays.
pub const WINDOW_LOG: u8 = 20;

/// The contexts of the groups that were used lately, at most [`CONTEXTS_MAX`].
#[derive(Debug)]
pub struct Contexts {
    spec: ContextSpec,
    /// What they begin from.
    dictionary: Option<Arc<ContextDictionary>>,
    /// The one used last is the last.
    encoders: Vec<(u64, ContextEncoder)>,
    /// Encoders of contexts that ended, for others.
    spare: Vec<ContextEncoder>,
    out: Vec<u8>,
    begun: u64,
}

impl Contexts {
    /// Creates an empty table of contexts with this codec; none if the codec has no contexts.
    pub fn of(codec: CodecSpec) -> Option<Self> {
        let spec = ContextSpec { level: codec.level, window_log: WINDOW_LOG };
        let this = Self {
            spec,
            dictionary: None,
            encoders: Vec::new(),
            spare: Vec::new(),
            out: Vec::new(),
            begun: 0,
        };
        (codec.id == CodecId::Zstd).then_some(this)
    }

    /// Lets contexts begin from this dictionary, as in relays that both have it.
    #[must_use]
    pub fn with_dictionary(self, dictionary: Option<Arc<ContextDictionary>>) -> Self {
        Self { dictionary, ..self }
    }

    /// Returns the length of the batch in the context of its group. A group without one gets it from
    /// the group that was not used for the longest time, if there are too many.
    ///
    /// # Errors
    /// If the batch is longer than a context takes, or the codec fails: then the context has ended.
    pub fn compress(&mut self, group: u64, batch: &[u8]) -> Result<usize, CodecError> {
        let found = self.encoders.iter().position(|(of, _)| *of == group);
        let mut encoder = match found {
            Some(at) => self.encoders.remove(at).1,
            None => self.begin()?,
        };
        self.out.clear();
        encoder.compress(batch, &mut self.out)?;
        self.encoders.push((group, encoder));
        Ok(self.out.len())
    }

    /// Makes an encoder that refers to nothing but the dictionary.
    fn begin(&mut self) -> Result<ContextEncoder, CodecError> {
        if self.encoders.len() >= CONTEXTS_MAX {
            self.spare.push(self.encoders.remove(0).1);
        }
        self.begun += 1;
        let mut encoder = match self.spare.pop() {
            Some(encoder) => encoder,
            None => ContextEncoder::new(self.spec, WINDOW_LOG)?,
        };
        match &self.dictionary {
            Some(dictionary) => {
                let len = dictionary.base(self.spec).len;
                encoder.begin(self.spec, Source::Dictionary(dictionary, len))?;
            }
            None => encoder.begin(self.spec, Base::default())?,
        }
        Ok(encoder)
    }

    /// Ends all contexts, and keeps their memory for others.
    pub fn clear(&mut self) {
        self.spare.extend(self.encoders.drain(..).map(|(_, encoder)| encoder));
    }

    /// Returns the number of contexts that have begun so far.
    pub fn begun(&self) -> u64 {
        self.begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts() -> Contexts {
        Contexts::of("zstd:1".parse().unwrap()).unwrap()
    }

    fn bytes() -> Vec<u8> {
        (0..2_000u32).map(|at| ((at * at) >> 3) as u8).collect()
    }

    #[test]
    fn of_more_groups_than_are_kept_the_one_used_longest_ago_is_forgotten() {
        let (mut contexts, bytes) = (contexts(), bytes());
        let mut of = |group| contexts.compress(group, &bytes).unwrap();
        let first = of(0);
        let again = of(0);
        assert!(again < first / 5, "{again} after {first}");
        let others = 1..CONTEXTS_MAX as u64;
        others.for_each(|group| assert_eq!(of(group), first, "it refers to another group"));
        assert!(of(0) < first / 5 && of(1) < first / 5, "there is room for all of these");
        // One more: the context of group 2 is the one to end, and the others go on.
        assert_eq!(of(99), first);
        assert!(of(0) < first / 5);
        assert_eq!(of(2), first);
        assert_eq!(contexts.begun(), CONTEXTS_MAX as u64 + 2);
    }

    #[test]
    fn contexts_that_ended_leave_nothing_behind() {
        let (mut contexts, bytes) = (contexts(), bytes());
        let first = contexts.compress(7, &bytes).unwrap();
        contexts.clear();
        assert_eq!(contexts.compress(7, &bytes).unwrap(), first);
        assert_eq!((contexts.begun(), contexts.spare.len()), (2, 0));
    }

    #[test]
    fn each_context_begins_from_the_dictionary() {
        let bytes = bytes();
        let plain = contexts().compress(7, &bytes).unwrap();
        let dictionary = ContextDictionary::new(bytes.clone()).map(Arc::new);
        let mut contexts = contexts().with_dictionary(dictionary);
        for group in 0..2 * CONTEXTS_MAX as u64 {
            let first = contexts.compress(group, &bytes).unwrap();
            assert!(first < plain / 5, "group {group}: {first} of {plain}");
        }
    }

    #[test]
    fn a_batch_that_is_too_long_is_refused() {
        let mut contexts = contexts();
        let first = contexts.compress(7, &bytes()).unwrap();
        assert!(contexts.compress(7, &vec![0; 70_000]).is_err());
        assert_eq!(contexts.compress(7, &bytes()).unwrap(), first, "it begins again");
        assert!(Contexts::of("lz4".parse().unwrap()).is_none(), "it has no contexts");
    }
}
