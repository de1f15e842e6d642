//! Compressed streams, both ends without I/O.

use std::sync::{Mutex, PoisonError};
use std::time::Instant as Clock;

use dwell_base::Instant;
use dwell_stream::{Compressors, Config, Decompressors, Limits, Strategy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::failed;

/// Makes a compressed stream of bytes; whoever drives it has the transport.
#[pyclass(module = "dwell.stream")]
pub(crate) struct Sender {
    sender: dwell_stream::Sender,
    compressors: Mutex<Compressors>,
    start: Clock,
}

/// Restores a stream.
#[pyclass(module = "dwell.stream")]
pub(crate) struct Receiver {
    receiver: dwell_stream::Receiver,
    decompressors: Mutex<Decompressors>,
}

#[pymethods]
impl Sender {
    /// Makes a sender at the beginning of its stream.
    #[new]
    #[pyo3(signature = (strategy="hull", *, codec=None))]
    fn new(strategy: &str, codec: Option<&str>) -> PyResult<Self> {
        let strategy: Strategy = strategy.parse().map_err(wrong)?;
        let mut config = Config::new(strategy);
        if let Some(codec) = codec {
            config.set_codec(codec).map_err(wrong)?;
        }
        let sender = dwell_stream::Sender::new(&config).map_err(wrong)?;
        Ok(Self { sender, compressors: Mutex::new(Compressors::new()), start: Clock::now() })
    }

    /// Takes as many bytes as there is room for, and returns their number.
    fn accept(&mut self, data: &[u8]) -> usize {
        self.sender.accept(data)
    }

    /// Announces the end.
    fn finish(&mut self) {
        self.sender.finish();
    }

    /// Returns the bytes to write next, at most so many; empty if there are none, or if `compress` has to come first.
    fn wire<'py>(&mut self, py: Python<'py>, len_max: usize) -> Bound<'py, PyBytes> {
        let now = self.now();
        let wire = self.sender.wire(now);
        PyBytes::new(py, &wire[..wire.len().min(len_max)])
    }

    /// Notes that the transport took this many of them.
    fn wrote(&mut self, len: usize) -> PyResult<()> {
        let now = self.now();
        if len > self.sender.wire(now).len() {
            return Err(PyValueError::new_err("more was written than there was"));
        }
        self.sender.wrote(now, len);
        Ok(())
    }

    /// Notes that the transport takes no more at present.
    fn blocked(&mut self) {
        let now = self.now();
        self.sender.blocked(now);
    }

    /// Notes that the transport takes bytes again.
    fn unblocked(&mut self) {
        self.sender.unblocked();
    }

    /// Compresses one block, if that is of use now; returns whether it did.
    fn compress(&mut self, py: Python<'_>) -> bool {
        let Self { sender, compressors, start } = self;
        let compressors = compressors.get_mut().unwrap_or_else(PoisonError::into_inner);
        py.detach(|| {
            let now =
                || Instant::from_ns(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
            sender.compress(compressors, now).is_some()
        })
    }

    /// True if nothing waits.
    #[getter]
    fn is_idle(&self) -> bool {
        self.sender.is_idle()
    }

    /// True if the end was written, too.
    #[getter]
    fn is_finished(&self) -> bool {
        self.sender.is_finished()
    }

    /// The bytes accepted, and those written.
    #[getter]
    fn counts(&self) -> (u64, u64) {
        let stats = self.sender.stats();
        (stats.accepted_bytes, stats.wire_bytes)
    }
}

impl Sender {
    fn now(&self) -> Instant {
        Instant::from_ns(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

#[pymethods]
impl Receiver {
    /// Makes a receiver at the beginning of its stream.
    #[new]
    fn new() -> Self {
        let receiver = dwell_stream::Receiver::new(Limits::default());
        Self { receiver, decompressors: Mutex::new(Decompressors::new()) }
    }

    /// Takes bytes from the transport, and returns their number, which is less than all if `take` has to come first.
    fn feed(&mut self, data: &[u8]) -> PyResult<usize> {
        let decompressors = self.decompressors.get_mut();
        let decompressors = decompressors.unwrap_or_else(PoisonError::into_inner);
        self.receiver.feed(data, decompressors).map_err(failed)
    }

    /// Returns restored bytes, at most so many.
    fn take<'py>(&mut self, py: Python<'py>, len_max: usize) -> Bound<'py, PyBytes> {
        let len = self.receiver.data().len().min(len_max);
        let taken = PyBytes::new(py, &self.receiver.data()[..len]);
        self.receiver.consume(len);
        taken
    }

    /// The number of restored bytes that were not taken yet.
    #[getter]
    fn available(&self) -> usize {
        self.receiver.data().len()
    }

    /// True if the stream's end has come.
    #[getter]
    fn is_finished(&self) -> bool {
        self.receiver.is_finished()
    }

    /// Checks, when the transport has ended, that the stream is complete.
    fn end(&self) -> PyResult<()> {
        self.receiver.end().map_err(failed)
    }
}

fn wrong(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Adds the classes to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Sender>()?;
    module.add_class::<Receiver>()
}
