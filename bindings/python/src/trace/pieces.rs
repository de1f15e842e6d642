//! Long captures in pieces: the accounts of the whole, and what packets become, piece by piece, anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_trace::analysis::Piece;
use dwell_trace::{Analyzer, Batch, Settings};
use pyo3::prelude::*;

use super::analysis::Analysis;
use super::analyze::{Done, one};
use super::clock::Clock;
use super::packets::{PCAP_HEADER_BYTES, is_plain};
use super::settings;
use super::source::Place;
use super::survey::SidesBy;
use crate::error::{CaptureError, Error};
use crate::jobs;

/// Where a piece begins and ends in a capture, in bytes, and the number of its first batch.
type Cut = (u64, u64, u64);

/// The pieces of a capture that is being read.
pub(super) struct Plan {
    piece_bytes: u64,
    /// Where each piece begins, and with which batch.
    begins: Vec<(u64, u64)>,
    batches: u64,
    end: u64,
}

impl Plan {
    fn new(piece_bytes: u64) -> Self {
        Self { piece_bytes: piece_bytes.max(1), begins: Vec::new(), batches: 0, end: 0 }
    }

    /// Begins with the first packet's position, once more if a capture is read again.
    pub(super) fn begin(&mut self, position: u64) {
        *self = Self { begins: vec![(position, 0)], end: position, ..Self::new(self.piece_bytes) };
    }

    /// Notes that a batch ends here.
    pub(super) fn batch_ends(&mut self, position: u64, is_more: bool) {
        self.batches += 1;
        self.end = position;
        let begun = self.begins.last().map_or(0, |&(begun, _)| begun);
        if is_more && position - begun >= self.piece_bytes {
            self.begins.push((position, self.batches));
        }
    }

    fn cuts(&self) -> Vec<Cut> {
        let ends = self.begins.iter().skip(1).map(|&(begin, _)| begin).chain([self.end]);
        self.begins.iter().zip(ends).map(|(&(begin, batch), end)| (begin, end, batch)).collect()
    }
}

/// Returns true if a capture may be analysed in pieces: not if it has another format than a plain pcap, or with the bound.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 makes it")]
pub(super) fn can_be_cut(place: Place, settings: &str) -> PyResult<bool> {
    Ok(are_cut(&place, &settings::parse(settings)?))
}

fn are_cut(place: &Place, settings: &Settings) -> bool {
    settings.are_for_pieces() && place.path().is_some_and(|path| is_plain(path).is_ok())
}

/// Reads a plain pcap once, and does all but to compress its packets one by one and in blocks. Returns that, and the
/// pieces for [`analyze_piece`] to do the rest of; none if it [can't be cut](can_be_cut), or has too many pairs of ports.
#[pyfunction]
#[pyo3(signature = (place, settings, *, sides, measure_time, piece_bytes))]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 makes it")]
pub(super) fn analyze_around(
    py: Python<'_>,
    place: Place,
    settings: &str,
    sides: &Bound<'_, PyAny>,
    measure_time: bool,
    piece_bytes: u64,
) -> PyResult<Option<(Analysis, Vec<Cut>)>> {
    let settings = settings::parse(settings)?;
    let given = SidesBy::of(sides)?.given().map(Arc::new);
    if !are_cut(&place, &settings) {
        return Ok(None);
    }
    let (done, cuts) = jobs::once(py, "the analysis", |stop| {
        let mut plan = Plan::new(piece_bytes);
        let done = one(&place, &settings, given.as_ref(), measure_time, stop, Some(&mut plan))?;
        Some((done, plan.cuts()))
    })?;
    match done {
        // Whose packets had to be counted together depends on all before them.
        Done::Read(whole) if whole.pairs.folded_packets > 0 => Ok(None),
        Done::Read(whole) => Ok(Some((Analysis::new(*whole), cuts))),
        Done::Unreadable(why) => Err(CaptureError::new_err(why)),
        Done::Failed(why) => Err(Error::new_err(why)),
    }
}

/// Compresses the packets of a piece; the sums are those that `analyze_around` lacks.
#[pyfunction]
#[pyo3(signature = (place, settings, piece, *, measure_time))]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 makes it")]
pub(super) fn analyze_piece(
    py: Python<'_>,
    place: Place,
    settings: &str,
    piece: Cut,
    measure_time: bool,
) -> PyResult<Analysis> {
    let settings = settings::parse(settings)?;
    let measured = jobs::once(py, "a piece of the analysis", |stop| {
        measured(&place, &settings, piece, measure_time, stop).transpose()
    })?;
    Ok(Analysis::new(measured.map_err(CaptureError::new_err)?))
}

/// As [`analyze_piece`]; none if it is to stop.
fn measured(
    place: &Place,
    settings: &Settings,
    (begin, end, batch): Cut,
    measure_time: bool,
    stop: &AtomicBool,
) -> Result<Option<dwell_trace::Analysis>, String> {
    let failed = |why| format!("a codec failed; this is a bug: {why}");
    let mut capture = place.open_range(begin, end)?;
    let mut analyzer = Analyzer::new(settings, Clock::new(measure_time)).map_err(failed)?;
    let (mut piece, mut packets) = (Piece::new(batch), Batch::default());
    loop {
        let is_more = piece.fill(&mut capture, &mut packets);
        analyzer.measure(&packets).map_err(failed)?;
        if !is_more {
            // What is kept is never measured again, so that it must be all that was to be measured.
            let bytes = PCAP_HEADER_BYTES as u64 + end.saturating_sub(begin);
            if !Piece::is_whole(&capture, bytes) {
                return Err("it is shorter than it was, or can't be read further".to_owned());
            }
            return Ok(Some(analyzer.finish()));
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
    }
}
