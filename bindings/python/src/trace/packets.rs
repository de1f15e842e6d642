//! The packets of a capture, as batches of Arrow columns.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::sync::Mutex;
use std::sync::{Arc, PoisonError};

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Float32Array, Int32Array, PrimitiveArray, RecordBatch,
    RecordBatchReader, StringArray, TimestampNanosecondArray, UInt8Array, UInt16Array, UInt32Array,
    UInt64Array,
};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use dwell_codec::{Compressor, SRC_LEN_MAX};
use dwell_policy::ClassKey;
use dwell_trace::capture::Format;
use dwell_trace::{Capture, Datagram};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::settings::codec;
use super::source::{Place, Source};
use crate::arrow::Table;
use crate::error::{CaptureError, failed};

mod words;

use words::Words;

/// The length of a pcap's header.
pub(super) const PCAP_HEADER_BYTES: usize = 24;
/// The most rows of a batch.
const ROWS_MAX: usize = 1 << 22;

/// The packets of a capture: an iterator of tables, and a stream of Arrow's.
#[pyclass(frozen, module = "dwell._dwell")]
pub(super) struct Packets {
    schema: SchemaRef,
    reader: Mutex<Option<Reader>>,
    trouble: Arc<Mutex<Option<String>>>,
}

#[pymethods]
impl Packets {
    /// Opens a capture, or the bytes from one position to another of a plain pcap, as `packet_cuts` found
    /// them. Each codec adds a column with the ratio of each packet.
    #[new]
    #[pyo3(signature = (place, *, rows, codecs, range=None))]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 makes them")]
    fn new(
        place: Place,
        rows: usize,
        codecs: Vec<String>,
        range: Option<(u64, u64)>,
    ) -> PyResult<Self> {
        if !(1..=ROWS_MAX).contains(&rows) {
            return Err(PyValueError::new_err(format!("rows must be from 1 to {ROWS_MAX}")));
        }
        let specs = codecs.iter().map(|name| codec(name)).collect::<PyResult<Vec<_>>>()?;
        let capture = match range {
            None => place.open(),
            Some((start, end)) => place.open_range(start, end),
        };
        let capture =
            capture.map_err(|why| CaptureError::new_err(format!("{}: {why}", place.name)))?;
        let compressors = specs.iter().map(|&spec| Compressor::new(spec, None));
        let schema = schema(codecs.iter().map(|name| format!("ratio.{name}")));
        let trouble = Arc::default();
        let reader = Reader {
            capture,
            rows,
            schema: Arc::clone(&schema),
            compressors: compressors.collect::<Result<_, _>>().map_err(failed)?,
            out: vec![0; 2 * SRC_LEN_MAX],
            trouble: Arc::clone(&trouble),
            is_at_end: false,
        };
        Ok(Self { schema, reader: Mutex::new(Some(reader)), trouble })
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Table>> {
        let next = py.detach(|| {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            reader.as_mut().and_then(Iterator::next)
        });
        let batch = next.transpose().map_err(failed)?;
        Ok(batch.map(|batch| Table::new(Arc::clone(&self.schema), vec![batch])))
    }

    /// Returns a capsule with the schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.schema.as_ref()).map_err(failed)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// Returns a capsule with the rest of the batches, read as they are asked for.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        // Another thread that reads holds the lock for a whole batch, and may want the interpreter meanwhile.
        let reader =
            py.detach(|| self.reader.lock().unwrap_or_else(PoisonError::into_inner).take());
        let reader = reader.ok_or_else(|| failed("these packets were handed over already"))?;
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// The damage that ended the capture, and its place; known when there are no more packets.
    #[getter]
    fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns positions in a plain pcap, in ascending order from its first packet to its end, between which there
/// are whole packets and about the same number of bytes.
#[pyfunction]
pub(super) fn packet_cuts(py: Python<'_>, path: &str, pieces: usize) -> PyResult<Vec<u64>> {
    let report = |why: String| CaptureError::new_err(format!("{path}: {why}"));
    py.detach(|| cuts(path, pieces.max(1))).map_err(report)
}

fn cuts(path: &str, pieces: usize) -> Result<Vec<u64>, String> {
    let file = File::open(path).map_err(|error| format!("it can't be opened: {error}"))?;
    let bytes = file.metadata().map_err(|error| error.to_string())?.len();
    is_plain(path)?;
    let mut capture = Capture::open(file).map_err(|error| error.to_string())?;
    let step = (bytes / pieces as u64).max(1);
    let mut cuts = vec![capture.position()];
    let mut wanted = step;
    while capture.next_packet().is_some() {
        let position = capture.position();
        if position >= wanted && position < bytes && cuts.len() < pieces {
            cuts.push(position);
            wanted = position + step;
        }
    }
    // What is behind a damage belongs to the last piece, which reports it.
    cuts.push(bytes.max(capture.position()));
    Ok(cuts)
}

/// Fails if a file can't be cut: pcapng has interfaces that are described once, and what is compressed no
/// positions.
pub(super) fn is_plain(path: &str) -> Result<(), String> {
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.map_err(|error| format!("it can't be read: {error}"))?;
    let known = [0xa1b2_c3d4_u32, 0xa1b2_3c4d, 0xa1b2_cd34];
    let is_pcap = [u32::from_be_bytes(magic), u32::from_le_bytes(magic)];
    match is_pcap.iter().any(|magic| known.contains(magic)) {
        true => Ok(()),
        false => Err("only a plain pcap can be cut between packets, and this is none".to_owned()),
    }
}

impl Place {
    /// Opens some bytes of a plain pcap behind its header.
    pub(super) fn open_range(&self, start: u64, end: u64) -> Result<Capture<Source>, String> {
        let Some(path) = self.path() else {
            return Err("only files can be read in part".to_owned());
        };
        is_plain(path)?;
        let part = || -> io::Result<Source> {
            let mut file = File::open(path)?;
            let mut header = vec![0; PCAP_HEADER_BYTES];
            file.read_exact(&mut header)?;
            file.seek(SeekFrom::Start(start.max(PCAP_HEADER_BYTES as u64)))?;
            Ok(Source::Part(Box::new(
                Cursor::new(header).chain(file.take(end.saturating_sub(start))),
            )))
        };
        let source = part().map_err(|error| format!("it can't be read: {error}"))?;
        let capture = Capture::open(source).map_err(|error| error.to_string())?;
        debug_assert_eq!(capture.format(), Format::Pcap);
        Ok(capture)
    }
}

fn schema(ratios: impl Iterator<Item = String>) -> SchemaRef {
    let words = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    let mut fields = vec![
        Field::new("time", time, true),
        Field::new("source", words(), false),
        Field::new("destination", words(), false),
        Field::new("protocol", DataType::UInt8, false),
        Field::new("source_port", DataType::UInt16, false),
        Field::new("destination_port", DataType::UInt16, false),
        Field::new("bytes", DataType::UInt32, false),
        Field::new("captured_bytes", DataType::UInt32, false),
        Field::new("class", words(), false),
        Field::new("flow", DataType::UInt64, false),
    ];
    fields.extend(ratios.map(|name| Field::new(name, DataType::Float32, true)));
    let metadata = [("dwell.schema".to_owned(), "dwell-packets/1".to_owned())];
    Arc::new(Schema::new_with_metadata(fields, std::collections::HashMap::from(metadata)))
}

/// Reads batches.
struct Reader {
    capture: Capture<Source>,
    rows: usize,
    schema: SchemaRef,
    compressors: Vec<Compressor>,
    out: Vec<u8>,
    trouble: Arc<Mutex<Option<String>>>,
    is_at_end: bool,
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_at_end {
            return None;
        }
        let mut columns = Columns::new(self.rows, self.compressors.len());
        while columns.len() < self.rows {
            let Some(packet) = self.capture.next_packet() else {
                self.is_at_end = true;
                let trouble = self.capture.trouble().map(ToString::to_string);
                *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
                break;
            };
            let Ok(datagram) = Datagram::find(&packet, 0) else { continue };
            columns.push(packet.timestamp_ns, &datagram);
            for (at, compressor) in self.compressors.iter_mut().enumerate() {
                match ratio(compressor, &datagram, &mut self.out) {
                    Ok(ratio) => columns.ratios[at].push(ratio),
                    Err(error) => return Some(Err(ArrowError::ComputeError(error.to_string()))),
                }
            }
        }
        match columns.len() {
            0 => None,
            _ => Some(columns.finish(Arc::clone(&self.schema))),
        }
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Returns compressed / original; at most 1, as a packet that does not shrink goes as it is. None if it was
/// not captured whole.
fn ratio(
    compressor: &mut Compressor,
    datagram: &Datagram<'_>,
    out: &mut [u8],
) -> Result<Option<f32>, dwell_codec::CodecError> {
    let bytes = datagram.bytes;
    if bytes.is_empty() || bytes.len() > SRC_LEN_MAX || !datagram.is_whole() {
        return Ok(None);
    }
    let compressed = compressor.compress(bytes, out)?.unwrap_or(bytes.len()).min(bytes.len());
    Ok(Some(compressed as f32 / bytes.len() as f32))
}

/// The columns of a batch that is being filled.
struct Columns {
    times: Vec<i64>,
    are_timed: Vec<bool>,
    is_any_untimed: bool,
    sources: Words<std::net::IpAddr>,
    destinations: Words<std::net::IpAddr>,
    protocols: Vec<u8>,
    source_ports: Vec<u16>,
    destination_ports: Vec<u16>,
    bytes: Vec<u32>,
    captured_bytes: Vec<u32>,
    classes: Words<ClassKey>,
    flows: Vec<u64>,
    ratios: Vec<Vec<Option<f32>>>,
}

impl Columns {
    fn new(rows: usize, ratios: usize) -> Self {
        Self {
            times: Vec::with_capacity(rows),
            are_timed: Vec::with_capacity(rows),
            is_any_untimed: false,
            sources: Words::new(rows),
            destinations: Words::new(rows),
            protocols: Vec::with_capacity(rows),
            source_ports: Vec::with_capacity(rows),
            destination_ports: Vec::with_capacity(rows),
            bytes: Vec::with_capacity(rows),
            captured_bytes: Vec::with_capacity(rows),
            classes: Words::new(rows),
            flows: Vec::with_capacity(rows),
            ratios: (0..ratios).map(|_| Vec::with_capacity(rows)).collect(),
        }
    }

    fn len(&self) -> usize {
        self.times.len()
    }

    #[inline]
    fn push(&mut self, at_ns: Option<u64>, datagram: &Datagram<'_>) {
        let info = &datagram.info;
        let at_ns = at_ns.and_then(|at_ns| i64::try_from(at_ns).ok());
        self.times.push(at_ns.unwrap_or_default());
        self.are_timed.push(at_ns.is_some());
        self.is_any_untimed |= at_ns.is_none();
        self.sources.push(info.src);
        self.destinations.push(info.dst);
        self.protocols.push(info.protocol);
        self.source_ports.push(info.src_port);
        self.destination_ports.push(info.dst_port);
        self.bytes.push(info.total_len as u32);
        self.captured_bytes.push(datagram.bytes.len() as u32);
        self.classes.push(ClassKey::new(info.protocol, info.src_port.min(info.dst_port)));
        self.flows.push(info.flow_hash);
    }

    fn finish(self, schema: SchemaRef) -> Result<RecordBatch, ArrowError> {
        let nulls = self.is_any_untimed.then(|| NullBuffer::from(self.are_timed));
        let times = TimestampNanosecondArray::new(ScalarBuffer::from(self.times), nulls);
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(times.with_timezone("UTC")),
            words(self.sources)?,
            words(self.destinations)?,
            Arc::new(UInt8Array::from(self.protocols)),
            Arc::new(UInt16Array::from(self.source_ports)),
            Arc::new(UInt16Array::from(self.destination_ports)),
            Arc::new(UInt32Array::from(self.bytes)),
            Arc::new(UInt32Array::from(self.captured_bytes)),
            words(self.classes)?,
            Arc::new(UInt64Array::from(self.flows)),
        ];
        let ratios = self.ratios.into_iter();
        columns.extend(ratios.map(|ratios| Arc::new(Float32Array::from(ratios)) as ArrayRef));
        RecordBatch::try_new(schema, columns)
    }
}

fn words<K: Copy + Eq + std::hash::Hash + ToString>(
    words: Words<K>,
) -> Result<ArrayRef, ArrowError> {
    let (places, values) = words.finish();
    let places: PrimitiveArray<Int32Type> = Int32Array::from(places);
    let values = StringArray::from_iter_values(values.iter().map(ToString::to_string));
    Ok(Arc::new(DictionaryArray::try_new(places, Arc::new(values))?))
}
