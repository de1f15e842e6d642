//! The decisions that differ between the strategies of blocks: which blocks are compressed, and
//! how.

use dwell_base::Instant;
use dwell_codec::CodecSpec;

use crate::backoff::Backoff;
use crate::compress::Compression;
use crate::config::Config;
use crate::estimates::Choice;
use crate::hull::{Block, Hull, Offer};
use crate::link::Link;
use crate::sending::Sending;
use crate::strategy::Strategy;
use crate::switching::Switching;
use dwell_codec::content::ContentClass;

/// The ratio above which a result counts as poor for the back-off.
const POOR_RATIO: f64 = 0.97;
/// The weight of a single block in the share of those that are not to be compressed.
const REFUSED_GAIN: f64 = 1.0 / 16.0;

/// The decisions of a strategy, and their state.
#[derive(Debug)]
pub(crate) struct Steering {
    rule: Rule,
    /// The back-off for uneven blocks, and the one for random blocks: turns of one must not keep
    /// the others from being tried.
    backoffs: [Backoff; 2],
    /// The share of blocks, lately, that were not to be compressed at all.
    refused_share: f64,
    pub(crate) link: Link,
    /// The cost of writing to the transport.
    pub(crate) sending: Sending,
}

#[derive(Debug)]
enum Rule {
    Raw,
    All(CodecSpec),
    Switch(Switching),
    Mix(CodecSpec),
    Hull(Box<Hull>),
}

impl Steering {
    pub(crate) fn new(config: &Config) -> Self {
        let rule = match config.strategy {
            Strategy::All => Rule::All(config.codec),
            Strategy::Switch => Rule::Switch(Switching::new(config.codec)),
            Strategy::Mix | Strategy::MixInOrder | Strategy::MixOutOfOrder => {
                Rule::Mix(config.codec)
            }
            Strategy::Hull => Rule::Hull(Box::new(Hull::new(config))),
            _ => Rule::Raw,
        };
        Self {
            rule,
            backoffs: [Backoff::new(); 2],
            refused_share: 0.0,
            link: Link::new(config.not_sent_len()),
            sending: Sending::new(),
        }
    }

    /// Returns true if a new block is to be compressed at all, if there is time. Call it once for
    /// each.
    pub(crate) fn admits(&mut self, class: ContentClass) -> bool {
        let wanted = match &mut self.rule {
            Rule::Raw => false,
            Rule::Switch(switching) => switching.admits(&self.link),
            Rule::All(_) | Rule::Mix(_) | Rule::Hull(_) => true,
        };
        let admitted = wanted && self.backoffs[class as usize].admits();
        let refused = if admitted { 0.0 } else { 1.0 };
        self.refused_share += REFUSED_GAIN * (refused - self.refused_share);
        admitted
    }

    /// Returns true if any decision depends on the content class of blocks.
    pub(crate) fn wants_classes(&self) -> bool {
        !matches!(self.rule, Rule::Raw)
    }

    /// Returns true if an admitted block may be sent uncompressed nevertheless, now that the link
    /// could take it.
    pub(crate) fn lets_raw_go(&self, now: Instant, offer: Offer) -> bool {
        match &self.rule {
            Rule::Raw | Rule::Mix(_) => true,
            Rule::All(_) | Rule::Switch(_) => false,
            Rule::Hull(hull) => hull.lets_raw_go(now, offer, &self.link),
        }
    }

    /// Returns the share of blocks that are to be sent uncompressed.
    pub(crate) fn raw_share(&self) -> f64 {
        match &self.rule {
            Rule::Raw => 1.0,
            Rule::Switch(switching) if !switching.is_compressing() => 1.0,
            Rule::Switch(_) | Rule::All(_) | Rule::Mix(_) => 0.0,
            Rule::Hull(hull) => 1.0 - (1.0 - hull.raw_share()) * (1.0 - self.refused_share),
        }
    }

    /// Returns true if later blocks are to refer to the blocks that are sent now.
    pub(crate) fn keeps_history(&self) -> bool {
        matches!(&self.rule, Rule::Hull(hull) if hull.keeps_history())
    }

    /// Notes that an admitted block was sent uncompressed.
    pub(crate) fn went_raw(&mut self, class: ContentClass) {
        self.backoffs[class as usize].passed_by();
        if let Rule::Hull(hull) = &mut self.rule {
            hull.went_raw();
        }
    }

    /// Notes that an admitted block is open again, and will be asked for again.
    pub(crate) fn reopened(&mut self, class: ContentClass) {
        self.backoffs[class as usize].passed_by();
    }

    /// Notes that the link is busy, and there is nothing to do meanwhile although the buffer is
    /// full.
    pub(crate) fn waits(&mut self, now: Instant) {
        if let Rule::Hull(hull) = &mut self.rule {
            hull.balance.waits(now);
        }
    }

    /// Notes that something is compressed, or offered to the transport. `write_blocked` if the
    /// application has more than there is room for.
    pub(crate) fn works(&mut self, now: Instant, write_blocked: bool) {
        if let Rule::Hull(hull) = &mut self.rule {
            hull.balance.works(now, write_blocked, self.link.drained_ns(now));
        }
    }

    /// The link is full, and carries so many bytes of this stream a second, as far as is known.
    pub(crate) fn expect(&mut self, now: Instant, rate: f64) {
        self.link.expect(now, rate);
        if let Rule::Hull(hull) = &mut self.rule {
            hull.plan(&self.link, self.sending);
        }
    }

    /// Notes that the transport takes no more.
    pub(crate) fn blocked(&mut self, now: Instant) {
        self.link.blocked(now);
        if let Rule::Hull(hull) = &mut self.rule {
            hull.balance.refused();
        }
    }

    /// Returns the codec for the next admitted block, if it is to be compressed. While the link is
    /// not busy there is always an answer, as a block may be waiting for it.
    pub(crate) fn codec(
        &mut self,
        now: Instant,
        (len, class): (usize, ContentClass),
        busy: bool,
    ) -> Option<Choice> {
        match &mut self.rule {
            Rule::Raw => None,
            Rule::All(codec) | Rule::Mix(codec) => Some(Choice::alone(*codec)),
            Rule::Switch(switching) => Some(Choice::alone(switching.codec)),
            Rule::Hull(hull) => {
                let probing = self.backoffs[class as usize].is_probing();
                hull.codec(now, (&self.link, self.sending), Block { len, probing, busy })
            }
        }
    }

    pub(crate) fn compressed(&mut self, compression: &Compression, class: ContentClass) {
        let used = compression.compressed_len.unwrap_or(compression.original_len);
        let poor = used as f64 > POOR_RATIO * compression.original_len as f64;
        self.backoffs[class as usize].tried(poor);
        match &mut self.rule {
            // A poor result for a random block says nothing about other blocks.
            Rule::Hull(_) if poor && class == ContentClass::Random => {}
            Rule::Raw | Rule::All(_) | Rule::Mix(_) => {}
            Rule::Switch(switching) => switching.compressed(compression),
            Rule::Hull(hull) => hull.compressed(compression),
        }
    }
}
