//! An analysis: sums that add up, and what follows from them.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, StringArray, UInt64Array};
use arrow_schema::{ArrowError, DataType, Field};
use dwell_figures::page::Provenance;
use dwell_trace::document::OfAnalysis;
use dwell_trace::summary::{Class, Ratio};
use dwell_trace::verdict::judge_traffic;
use dwell_trace::{Lists, Summary, report};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arrow::Table;
use crate::error::{Error, failed};

/// The sums over some captures.
#[pyclass(frozen, module = "dwell._dwell")]
pub(crate) struct Analysis(dwell_trace::Analysis);

impl Analysis {
    pub(super) fn new(analysis: dwell_trace::Analysis) -> Self {
        Self(analysis)
    }
}

#[pymethods]
impl Analysis {
    /// Reads what `json` or the program wrote.
    #[staticmethod]
    fn from_json(py: Python<'_>, json: &[u8]) -> PyResult<Self> {
        py.detach(|| {
            let analysis: dwell_trace::Analysis = serde_json::from_slice(json).map_err(failed)?;
            if analysis.schema != dwell_trace::analysis::SCHEMA {
                let (theirs, ours) = (&analysis.schema, dwell_trace::analysis::SCHEMA);
                return Err(Error::new_err(format!(
                    "the analysis has the format {theirs}, and this is {ours}"
                )));
            }
            analysis.check().map_err(failed)?;
            Ok(Self(analysis))
        })
    }

    /// Adds analyses up, in this order of their captures.
    #[staticmethod]
    fn merge(py: Python<'_>, parts: Vec<Bound<'_, Self>>) -> PyResult<Self> {
        let parts: Vec<_> = parts.iter().map(|part| part.get().0.clone()).collect();
        py.detach(|| {
            let mut parts = parts.into_iter();
            let mut whole =
                parts.next().ok_or_else(|| Error::new_err("there is nothing to merge"))?;
            parts.try_for_each(|part| whole.merge(part)).map_err(failed)?;
            Ok(Self(whole))
        })
    }

    /// The line of JSON that the program prints.
    fn json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let json = py.detach(|| -> io::Result<Vec<u8>> {
            let summary = Summary::of(&self.0);
            let mut out = serde_json::to_vec(&OfAnalysis::new(&self.0, &summary))?;
            out.write_all(b"\n")?;
            Ok(out)
        });
        Ok(PyBytes::new(py, &json.map_err(failed)?))
    }

    /// The verdict on the traffic, in JSON.
    fn verdict_json(&self) -> PyResult<String> {
        serde_json::to_string(&judge_traffic(&self.0)).map_err(failed)
    }

    /// The report as text, with this many classes.
    fn text(&self, top: usize) -> String {
        report::text(&self.page(top))
    }

    /// The report as a page.
    fn html(&self, top: usize) -> String {
        self.page(top).to_html()
    }

    /// The classes that a relay should leave alone, as it reads them.
    fn exceptions(&self) -> PyResult<String> {
        let lists = Lists::of(&self.0, &Summary::of(&self.0))
            .ok_or_else(|| Error::new_err("without codecs there are no exceptions"))?;
        lists.to_toml().map_err(failed)
    }

    /// A row for each class and codec: packets, bytes, and what the codec makes of them.
    fn classes(&self) -> PyResult<Table> {
        classes(&Summary::of(&self.0)).map_err(failed)
    }

    /// A row for each capture.
    fn files(&self) -> PyResult<Table> {
        let files = &self.0.files;
        let counts = |of: fn(&dwell_trace::analysis::FileRecord) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(files.iter().map(of)))
        };
        let text = |of: fn(&dwell_trace::analysis::FileRecord) -> Option<&str>| -> ArrayRef {
            Arc::new(files.iter().map(of).collect::<StringArray>())
        };
        let names = |name: &str| Field::new(name, DataType::Utf8, true);
        let number = |name: &str| Field::new(name, DataType::UInt64, false);
        Table::of_columns(
            vec![
                (names("name"), text(|file| Some(&file.name))),
                (names("format"), text(|file| Some(&file.format))),
                (number("frames"), counts(|file| file.frames.packets)),
                (number("captured_bytes"), counts(|file| file.captured_bytes)),
                (number("ip_packets"), counts(|file| file.ip.packets)),
                (number("ip_bytes"), counts(|file| file.ip.bytes)),
                (number("cut_packets"), counts(|file| file.cut_packets)),
                (names("fingerprint"), text(|file| Some(&file.fingerprint))),
                (names("trouble"), text(|file| file.trouble.as_deref())),
            ],
            &[("dwell.schema", "dwell-captures/1")],
        )
        .map_err(failed)
    }

    /// The number of IP packets.
    #[getter]
    fn packets(&self) -> u64 {
        self.0.ip().packets
    }

    /// Their bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.ip().bytes
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Analysis {
    fn page(&self, top: usize) -> dwell_figures::page::Page {
        let provenance = Provenance {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: "dwell.trace.analyze".to_owned(),
            ..Provenance::default()
        };
        report::page(&self.0, &Summary::of(&self.0), top, provenance)
    }
}

/// Returns a row for each class and codec.
fn classes(summary: &Summary) -> Result<Table, ArrowError> {
    let rows = || {
        let of =
            |class| summary.codecs.iter().enumerate().map(move |(at, codec)| (class, at, codec));
        summary.classes.iter().flat_map(of)
    };
    let counts = |of: fn(&Class, &Ratio) -> u64| -> ArrayRef {
        let counts = rows().map(|(class, at, _)| of(class, &class.codecs[at]));
        Arc::new(UInt64Array::from_iter_values(counts))
    };
    let names = rows().map(|(class, ..)| class.class.to_string());
    let codecs = rows().map(|(_, _, codec)| codec.codec.to_string());
    let exceptions = rows().map(|(class, at, _)| Some(class.exception[at]));
    let ratios = rows().map(|(class, at, _)| class.codecs[at].ratio());
    let field = |name: &str, kind: DataType| Field::new(name, kind, false);
    let columns: Vec<(Field, ArrayRef)> = vec![
        (field("class", DataType::Utf8), Arc::new(StringArray::from_iter_values(names))),
        (field("codec", DataType::Utf8), Arc::new(StringArray::from_iter_values(codecs))),
        (field("packets", DataType::UInt64), counts(|class, _| class.packets)),
        (field("bytes", DataType::UInt64), counts(|class, _| class.bytes)),
        (field("measured_packets", DataType::UInt64), counts(|_, ratio| ratio.packets)),
        (field("measured_bytes", DataType::UInt64), counts(|_, ratio| ratio.bytes)),
        (field("compressed_bytes", DataType::UInt64), counts(|_, it| it.sums.compressed_bytes)),
        (field("sent_bytes", DataType::UInt64), counts(|_, ratio| ratio.sums.sent_bytes)),
        (Field::new("ratio", DataType::Float64, true), Arc::new(ratios.collect::<Float64Array>())),
        (field("exception", DataType::Boolean), Arc::new(exceptions.collect::<BooleanArray>())),
    ];
    Table::of_columns(columns, &[("dwell.schema", "dwell-classes/1")])
}
