//! The decisions that differ between the rules of streams: which blocks are compressed, and how.

use dwell_base::Instant;

use crate::backoff::{BackOffConfig, ProbingBackOff};
use crate::estimate::smoothed;
use crate::rate::{LinkRate, LinkReport};

use super::codecs::{Choice, Measured, Prior};
use super::hull::{Block, Hull, Offer, SHORT_LEN, TriedAside};
use super::learned::Learned;
use super::switching::Switching;
use super::write_cost::WriteCost;

/// The ratio above which a result counts as poor for the back-off.
const POOR_RATIO: f64 = 0.97;
/// Blocks are larger than the units of TCPComp, and a try of one costs more.
const BACK_OFF: BackOffConfig = BackOffConfig { poor_run: 4, skip_first: 4, skip_max: 64 };
/// The weight of a single block in the share of those that are not to be compressed.
const REFUSED_GAIN: f64 = 1.0 / 16.0;

/// A block that could be compressed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// The length in bytes.
    pub len: usize,
    /// The length of what it could refer to, in bytes.
    pub history_len: usize,
    /// True if its bytes are about equally frequent.
    pub looks_random: bool,
    /// True if the link is busy.
    pub busy: bool,
    /// True if the application has more than there is room for.
    pub more: bool,
}

/// The rule by which the blocks of a stream are compressed. `C` is the world's name for a codec and
/// its level.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule<C> {
    /// Nothing is compressed.
    Raw,
    /// Every block is compressed with one codec, whether the link waits or not.
    All(C),
    /// All or nothing, whichever carries more, with probes of the other (Pu and Singaravelu,
    /// section 3).
    Switch(C),
    /// What waits is compressed with one codec, and what the link could take goes uncompressed
    /// (section 4).
    Mix(C),
    /// Several codecs, and none, in the shares that carry most: the linear programme of
    /// [`Bound`](super::Bound) over what was measured.
    Hull(Vec<Prior<C>>),
}

/// The decisions of a rule, and their state: one for each stream.
#[derive(Debug)]
pub struct Steering<C> {
    rule: State<C>,
    /// The back-off for uneven blocks, and the one for random blocks: turns of one must not keep
    /// the others from being tried.
    back_offs: [ProbingBackOff; 2],
    /// The share of blocks, lately, that were not to be compressed at all.
    refused_share: f64,
    /// The estimate of the link's rate. The driver reports to it what the transport takes;
    /// refusals are reported to [`Steering::blocked`].
    pub link: LinkRate,
    /// The cost of writing to the transport, which the driver measures.
    pub writing: WriteCost,
}

#[derive(Debug)]
enum State<C> {
    Raw,
    All(C),
    Switch(C, Switching),
    Mix(C),
    Hull(Box<Hull<C>>),
}

impl<C: Copy + PartialEq> Steering<C> {
    /// Makes the decisions for a transport that holds this many bytes before it refuses.
    pub fn new(rule: Rule<C>, transport_holds: u32) -> Self {
        let rule = match rule {
            Rule::Raw => State::Raw,
            Rule::All(codec) => State::All(codec),
            Rule::Switch(codec) => State::Switch(codec, Switching::new()),
            Rule::Mix(codec) => State::Mix(codec),
            Rule::Hull(priors) => State::Hull(Box::new(Hull::new(&priors))),
        };
        Self {
            rule,
            back_offs: [ProbingBackOff::new(BACK_OFF); 2],
            refused_share: 0.0,
            link: LinkRate::new(transport_holds),
            writing: WriteCost::new(),
        }
    }

    /// Saves bytes and not time, as on a link that is paid for, if the rule is [`Rule::Hull`]: everything that can be
    /// compressed is, on an idle link, too, with what leaves less although it takes up to four times as long.
    pub fn save_bytes(&mut self) {
        if let State::Hull(hull) = &mut self.rule {
            hull.save_bytes();
        }
    }

    /// Returns what blocks have shown of codecs, if the rule is [`Rule::Hull`] and any have.
    pub fn learned(&self) -> Option<Learned<C>> {
        match &self.rule {
            State::Hull(hull) => hull.learned(),
            _ => None,
        }
    }

    /// Begins with what another stream has learned, if it has the same codecs.
    pub fn learn(&mut self, learned: &Learned<C>) {
        if let State::Hull(hull) = &mut self.rule {
            hull.learn(learned);
        }
    }

    /// Goes on with other codecs, or the same ones that may refer to something else, if the rule is [`Rule::Hull`]: what is known
    /// of the link, and of codecs whose blocks stand alone, stays.
    pub fn change(&mut self, priors: &[Prior<C>]) {
        if let State::Hull(hull) = &mut self.rule {
            hull.change(priors);
            hull.plan(&self.link, self.writing);
        }
    }

    /// Returns true if a new block is to be compressed at all, if there is time. Call it once for
    /// each. `looks_random` if its bytes are about equally frequent.
    pub fn admits(&mut self, looks_random: bool) -> bool {
        let wanted = match &mut self.rule {
            State::Raw => false,
            State::Switch(_, switching) => switching.admits(&self.link),
            State::All(_) | State::Mix(_) | State::Hull(_) => true,
        };
        let admitted = wanted && self.back_offs[usize::from(looks_random)].admits();
        let refused = if admitted { 0.0 } else { 1.0 };
        self.refused_share = smoothed(self.refused_share, refused, REFUSED_GAIN);
        admitted
    }

    /// Returns true if any decision depends on the content of blocks.
    pub fn depends_on_content(&self) -> bool {
        !matches!(self.rule, State::Raw)
    }

    /// Returns true if an admitted block may be sent uncompressed nevertheless, now that the link
    /// could take it.
    pub fn lets_raw_go(&mut self, now: Instant, offer: Offer) -> bool {
        match &mut self.rule {
            State::Raw | State::Mix(_) => true,
            State::All(_) | State::Switch(..) => false,
            State::Hull(hull) => {
                let lets = hull.lets_raw_go(now, offer, &self.link);
                if lets && !offer.more {
                    hull.goes_alone(&self.link);
                }
                lets
            }
        }
    }

    /// Returns the share of blocks that are to be sent uncompressed.
    pub fn raw_share(&self) -> f64 {
        match &self.rule {
            State::Raw => 1.0,
            State::Switch(_, switching) if !switching.is_compressing() => 1.0,
            State::Switch(..) | State::All(_) | State::Mix(_) => 0.0,
            State::Hull(hull) => 1.0 - (1.0 - hull.raw_share()) * (1.0 - self.refused_share),
        }
    }

    /// Returns true if later blocks are to refer to the blocks that are sent now.
    pub fn keeps_history(&self) -> bool {
        matches!(&self.rule, State::Hull(hull) if hull.keeps_history())
    }

    /// Notes that an admitted block was sent uncompressed.
    pub fn went_raw(&mut self, looks_random: bool) {
        self.back_offs[usize::from(looks_random)].passed_by();
        if let State::Hull(hull) = &mut self.rule {
            hull.went_raw();
        }
    }

    /// Notes that an admitted block is open again, and will be asked for again.
    pub fn reopened(&mut self, looks_random: bool) {
        self.back_offs[usize::from(looks_random)].passed_by();
    }

    /// Notes that the link is busy, and there is nothing to do meanwhile although the buffer is
    /// full.
    pub fn waits(&mut self, now: Instant) {
        if let State::Hull(hull) = &mut self.rule {
            hull.balance.waits(now);
        }
    }

    /// Notes that something is compressed, or offered to the transport. `write_blocked` if the
    /// application has more than there is room for.
    pub fn works(&mut self, now: Instant, write_blocked: bool) {
        if let State::Hull(hull) = &mut self.rule {
            let is_most = hull.leaves_least();
            hull.balance.works(now, write_blocked, (self.link.drained_ns(now), is_most));
        }
    }

    /// Takes the link to be full, and to carry so many bytes of this stream a second, until
    /// something is measured.
    pub fn expect(&mut self, now: Instant, rate: f64) {
        self.link.expect(now, rate);
        if let State::Hull(hull) = &mut self.rule {
            hull.plan(&self.link, self.writing);
        }
    }

    /// The same, and until `bytes` were written no more is believed of it, whatever is measured.
    pub fn presume(&mut self, now: Instant, rate: f64, bytes: u64) {
        self.link.presume(now, rate, bytes);
        if matches!(&self.rule, State::Hull(hull) if hull.saves_bytes) {
            self.link.believes_windows();
        }
        self.expect(now, rate);
    }

    /// Notes that the transport takes no more.
    pub fn blocked(&mut self, now: Instant) {
        self.link.blocked(now);
        if let State::Hull(hull) = &mut self.rule {
            hull.balance.refused();
        }
    }

    /// Returns the codec for an admitted block, if it is to be compressed. While the link is not busy
    /// there is an answer, as a block may be waiting for it, unless nothing but raw bytes is possible yet.
    pub fn codec(&mut self, now: Instant, asked: Asked) -> Option<Choice<C>> {
        match &mut self.rule {
            State::Raw => None,
            State::All(codec) | State::Mix(codec) => Some(Choice::alone(*codec)),
            State::Switch(codec, _) => Some(Choice::alone(*codec)),
            State::Hull(hull) => {
                let Asked { len, history_len, looks_random, busy, more } = asked;
                let probing = self.back_offs[usize::from(looks_random)].is_probing();
                let block = Block { len, history_len, looks_random, more, probing, busy };
                hull.codec(now, (&self.link, self.writing), block)
            }
        }
    }

    /// Returns the time that compressing a block of this length takes with a codec that goes on with a running context, in nanoseconds,
    /// with all that goes on beside; none if the rule is not [`Rule::Hull`].
    pub fn work_ns(&self, choice: Choice<C>, len: usize) -> Option<f64> {
        match &self.rule {
            State::Hull(hull) => hull.work_of(choice, len),
            _ => None,
        }
    }

    /// Notes that as many blocks more as this are compressed as the latest one.
    pub fn goes_on(&mut self, choice: Choice<C>, blocks: usize) {
        if let State::Hull(hull) = &mut self.rule {
            hull.goes_on(choice, blocks);
        }
    }

    /// Returns a codec to be tried beside, on a block that another one compresses for the stream, and that one; once, when it is time for
    /// that. The result is for [`Steering::tried_aside`].
    pub fn take_trial(&mut self) -> Option<(C, C)> {
        match &mut self.rule {
            State::Hull(hull) => hull.take_trial(),
            _ => None,
        }
    }

    /// Notes what a codec would have left.
    pub fn tried_aside(&mut self, tried: &TriedAside<C>) {
        if let State::Hull(hull) = &mut self.rule {
            hull.tried_aside(tried);
        }
    }

    /// Notes what the transport says of its link.
    pub fn reported(&mut self, now: Instant, report: &LinkReport) {
        let was_known = self.link.rate().is_some();
        self.link.reported(now, report);
        if let State::Hull(hull) = &mut self.rule {
            hull.reported(now, report);
            if !was_known {
                hull.plan(&self.link, self.writing);
            }
        }
    }

    /// Notes that a block was compressed.
    pub fn compressed(&mut self, result: &Measured<C>, looks_random: bool) {
        let poor = result.used_len as f64 > POOR_RATIO * result.original_len as f64;
        let back_off = &mut self.back_offs[usize::from(looks_random)];
        if result.original_len >= SHORT_LEN || !poor {
            back_off.record(poor);
        } else {
            back_off.passed_by();
        }
        match &mut self.rule {
            // A poor result for a random block says nothing about other blocks.
            State::Hull(_) if poor && looks_random => {}
            State::Raw | State::All(_) | State::Mix(_) => {}
            State::Switch(_, switching) => {
                switching.compressed(result.original_len, result.took_ns);
            }
            State::Hull(hull) => hull.compressed(result),
        }
    }
}
