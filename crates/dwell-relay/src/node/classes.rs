//! Counts of the packets of each class that the configuration names, on the path to and from one
//! peer. Without classes nothing is counted.

use dwell_policy::{Bypass, DropReason, FrameUnit};
use dwell_report::Histogram;
use dwell_report::status::{ClassTraffic, Count};

use super::shares::Share;
use crate::config::ClassConfig;

/// The accounts of one class.
#[derive(Clone)]
struct Class {
    name: String,
    arrived: Count,
    sent: Count,
    compressed: Count,
    plain_bytes: u64,
    link_bytes: f64,
    received: Count,
    dropped: [u64; DropReason::ALL.len()],
    bypassed: [u64; Bypass::ALL.len()],
    /// Made when the first packet is sent: it takes some memory.
    sojourn: Option<Box<Histogram>>,
}

/// As what a packet was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// Compressed here, alone or with others.
    Compressed,
    /// As it came: the compressor did not make it smaller.
    Tried,
    /// As it came: it was not compressed, for this reason.
    Bypassed(Bypass),
}

impl From<&FrameUnit> for Form {
    fn from(unit: &FrameUnit) -> Self {
        match unit.bypass {
            _ if unit.compressed_here => Self::Compressed,
            Some(reason) => Self::Bypassed(reason),
            None => Self::Tried,
        }
    }
}

/// The accounts of all classes, in the order of the configuration.
#[derive(Clone, Default)]
pub(crate) struct Classes {
    classes: Vec<Class>,
}

impl Classes {
    /// Takes the classes of a configuration. Accounts of those that stay are kept.
    pub(crate) fn configure(&mut self, classes: &[ClassConfig]) {
        let mut before = std::mem::take(&mut self.classes);
        self.classes.extend(classes.iter().map(|class| {
            match before.iter().position(|known| known.name == class.name) {
                Some(at) => before.swap_remove(at),
                None => Class {
                    name: class.name.clone(),
                    arrived: Count::default(),
                    sent: Count::default(),
                    compressed: Count::default(),
                    plain_bytes: 0,
                    link_bytes: 0.0,
                    received: Count::default(),
                    dropped: [0; DropReason::ALL.len()],
                    bypassed: [0; Bypass::ALL.len()],
                    sojourn: None,
                },
            }
        }));
    }

    /// True if there is nothing to count.
    pub(crate) fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    fn of(&mut self, class: Option<usize>) -> Option<&mut Class> {
        self.classes.get_mut(class?)
    }

    /// A packet came for the peer.
    pub(crate) fn arrived(&mut self, class: Option<usize>, bytes: usize) {
        if let Some(class) = self.of(class) {
            add(&mut class.arrived, bytes as u64);
        }
    }

    /// A packet was dropped.
    pub(crate) fn dropped(&mut self, class: Option<usize>, reason: DropReason) {
        if let Some(class) = self.of(class) {
            class.dropped[reason as usize] += 1;
        }
    }

    /// Counts a packet that was sent. Alone it would have taken `plain_extra_bytes` more of the link than its own.
    pub(crate) fn sent(
        &mut self,
        class: Option<usize>,
        (share, form): (&Share, Form),
        plain_extra_bytes: u32,
    ) {
        let Some(class) = self.of(class) else { return };
        let bytes = u64::from(share.original_bytes);
        add(&mut class.sent, bytes);
        class.plain_bytes += bytes + u64::from(plain_extra_bytes);
        class.link_bytes += share.link_bytes;
        match form {
            Form::Compressed => add(&mut class.compressed, bytes),
            Form::Bypassed(reason) => class.bypassed[reason as usize] += 1,
            Form::Tried => (),
        }
        class.sojourn.get_or_insert_with(|| Box::new(Histogram::new())).record(share.sojourn_ns);
    }

    /// A packet came from the peer.
    pub(crate) fn received(&mut self, class: Option<usize>, bytes: usize) {
        if let Some(class) = self.of(class) {
            add(&mut class.received, bytes as u64);
        }
    }

    /// For reports.
    pub(crate) fn status(&self) -> Vec<ClassTraffic> {
        let status = |class: &Class| ClassTraffic {
            class: class.name.clone(),
            arrived: class.arrived,
            sent: class.sent,
            compressed: class.compressed,
            plain_bytes: class.plain_bytes,
            link_bytes: class.link_bytes.round() as u64,
            received: class.received,
            dropped: DropReason::ALL
                .iter()
                .zip(class.dropped)
                .map(|(reason, count)| (reason.name().to_owned(), count))
                .collect(),
            bypassed: Bypass::ALL
                .iter()
                .zip(class.bypassed)
                .map(|(reason, count)| (reason.name().to_owned(), count))
                .collect(),
            sojourn: class.sojourn.as_ref().map(|times| times.summary()).unwrap_or_default(),
        };
        self.classes.iter().map(status).collect()
    }
}

fn add(count: &mut Count, bytes: u64) {
    count.packets += 1;
    count.bytes += bytes;
}
