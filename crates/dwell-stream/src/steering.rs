//! What is compressed with what: the part in which the strategies of blocks differ.

use dwell_base::Instant;
use dwell_codec::CodecSpec;

use crate::backoff::Backoff;
use crate::compress::Compression;
use crate::config::Config;
use crate::estimates::Choice;
use crate::hull::{Block, Hull, Offer};
use crate::link::Link;
use crate::look::Look;
use crate::sending::Sending;
use crate::strategy::Strategy;
use crate::switching::Switching;

/// A result above this share of the original counts as poor for the back-off.
const POOR_RATIO: f64 = 0.97;
/// How far a single block moves the share of those that are not to be compressed.
const REFUSED_GAIN: f64 = 1.0 / 16.0;

/// The decisions of a strategy, and what they rest on.
#[derive(Debug)]
pub(crate) struct Steering {
    rule: Rule,
    /// For blocks that look uneven, and for those that look random: turns of one must not keep the
    /// others from being tried.
    backoffs: [Backoff; 2],
    /// The share of blocks, lately, that were not to be compressed at all.
    refused_share: f64,
    pub(crate) link: Link,
    /// What it takes to write to the transport.
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

    /// Whether a new block is to be compressed at all, if there is time. Asked once for each.
    pub(crate) fn admits(&mut self, look: Look) -> bool {
        let wanted = match &mut self.rule {
            Rule::Raw => false,
            Rule::Switch(switching) => switching.admits(&self.link),
            Rule::All(_) | Rule::Mix(_) | Rule::Hull(_) => true,
        };
        let admitted = wanted && self.backoffs[look as usize].admits();
        let refused = if admitted { 0.0 } else { 1.0 };
        self.refused_share += REFUSED_GAIN * (refused - self.refused_share);
        admitted
    }

    /// Whether anything depends on what blocks look like.
    pub(crate) fn wants_looks(&self) -> bool {
        !matches!(self.rule, Rule::Raw)
    }

    /// Whether an admitted block may nevertheless go as it is, now that the link could take it.
    pub(crate) fn lets_raw_go(&self, now: Instant, offer: Offer) -> bool {
        match &self.rule {
            Rule::Raw | Rule::Mix(_) => true,
            Rule::All(_) | Rule::Switch(_) => false,
            Rule::Hull(hull) => hull.lets_raw_go(now, offer, &self.link),
        }
    }

    /// Which share of the blocks is to go as it is.
    pub(crate) fn raw_share(&self) -> f64 {
        match &self.rule {
            Rule::Raw => 1.0,
            Rule::Switch(switching) if !switching.is_compressing() => 1.0,
            Rule::Switch(_) | Rule::All(_) | Rule::Mix(_) => 0.0,
            Rule::Hull(hull) => 1.0 - (1.0 - hull.raw_share()) * (1.0 - self.refused_share),
        }
    }

    /// Whether later blocks are to refer to what goes now.
    pub(crate) fn keeps_history(&self) -> bool {
        matches!(&self.rule, Rule::Hull(hull) if hull.keeps_history())
    }

    /// An admitted block went as it was.
    pub(crate) fn went_raw(&mut self, look: Look) {
        self.backoffs[look as usize].passed_by();
        if let Rule::Hull(hull) = &mut self.rule {
            hull.went_raw();
        }
    }

    /// An admitted block is open again, and will be asked for again.
    pub(crate) fn reopened(&mut self, look: Look) {
        self.backoffs[look as usize].passed_by();
    }

    /// The link is busy, and there is nothing to do meanwhile although the buffer is full.
    pub(crate) fn waits(&mut self, now: Instant) {
        if let Rule::Hull(hull) = &mut self.rule {
            hull.balance.waits(now);
        }
    }

    /// Something is compressed, or offered to the transport. `compressed` if the application has more
    /// than there is room for.
    pub(crate) fn works(&mut self, now: Instant, compressed: bool) {
        if let Rule::Hull(hull) = &mut self.rule {
            hull.balance.works(now, compressed, self.link.drained_ns(now));
        }
    }

    /// The link is full, and carries so many bytes of this stream a second, as far as is known.
    pub(crate) fn expect(&mut self, now: Instant, rate: f64) {
        self.link.expect(now, rate);
        if let Rule::Hull(hull) = &mut self.rule {
            hull.plan(&self.link, self.sending);
        }
    }

    /// The transport takes no more.
    pub(crate) fn blocked(&mut self, now: Instant) {
        self.link.blocked(now);
        if let Rule::Hull(hull) = &mut self.rule {
            hull.balance.refused();
        }
    }

    /// With what the next admitted block is to be compressed, if at all. While the link is not
    /// busy there is always an answer, as a block may be waiting for it.
    pub(crate) fn codec(
        &mut self,
        now: Instant,
        (len, look): (usize, Look),
        busy: bool,
    ) -> Option<Choice> {
        match &mut self.rule {
            Rule::Raw => None,
            Rule::All(codec) | Rule::Mix(codec) => Some(Choice::alone(*codec)),
            Rule::Switch(switching) => Some(Choice::alone(switching.codec)),
            Rule::Hull(hull) => {
                let probing = self.backoffs[look as usize].is_probing();
                hull.codec(now, (&self.link, self.sending), Block { len, probing, busy })
            }
        }
    }

    pub(crate) fn compressed(&mut self, compressing: &Compression, look: Look) {
        let used = compressing.compressed_len.unwrap_or(compressing.original_len);
        let poor = used as f64 > POOR_RATIO * compressing.original_len as f64;
        self.backoffs[look as usize].tried(poor);
        match &mut self.rule {
            // That noise is noise says nothing of what else comes.
            Rule::Hull(_) if poor && look == Look::Random => {}
            Rule::Raw | Rule::All(_) | Rule::Mix(_) => {}
            Rule::Switch(switching) => switching.compressed(compressing),
            Rule::Hull(hull) => hull.compressed(compressing),
        }
    }
}
