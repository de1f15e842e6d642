//! Where captures come from: files, and whatever Python opens.

use std::fs::File;
use std::io::{self, Chain, Cursor, Read, Take};
use std::thread::Scope;

use dwell_trace::Capture;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::ahead::Ahead;

/// So much is asked of Python at once.
const PIECE_BYTES: usize = 1 << 20;

/// A capture that can be opened, more than once.
pub(super) struct Place {
    /// Its name in reports.
    pub(super) name: String,
    opened: Opened,
}

enum Opened {
    Path(String),
    /// A function that returns an object with `read`.
    Python(Py<PyAny>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Place {
    type Error = PyErr;

    /// Reads (name, path) or (name, function).
    fn extract(place: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let (name, source) = place.extract::<(String, Bound<'py, PyAny>)>()?;
        let opened = match source.extract::<String>() {
            Ok(path) => Opened::Path(path),
            Err(_) => Opened::Python(source.unbind()),
        };
        Ok(Self { name, opened })
    }
}

impl Place {
    /// Returns its path, if it is a file.
    pub(super) fn path(&self) -> Option<&str> {
        match &self.opened {
            Opened::Path(path) => Some(path),
            Opened::Python(_) => None,
        }
    }

    /// Opens it; an error is a sentence.
    pub(super) fn open(&self) -> Result<Capture<Source>, String> {
        Capture::open(self.source()?).map_err(|error| error.to_string())
    }

    /// As [`open`](Self::open), with a thread that reads ahead of what may be far away. The kernel does so for files.
    pub(super) fn open_ahead<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<Capture<Source>, String> {
        let source = match self.source()? {
            Source::Python(file) => Source::Ahead(Ahead::begin(scope, file)),
            source => source,
        };
        Capture::open(source).map_err(|error| error.to_string())
    }

    fn source(&self) -> Result<Source, String> {
        match &self.opened {
            Opened::Path(path) => File::open(path)
                .map(Source::File)
                .map_err(|error| format!("it can't be opened: {error}")),
            Opened::Python(function) => Python::attach(|py| {
                let object = function.call0(py);
                object.map_err(|error| format!("it can't be opened: {error}"))
            })
            .map(|object| Source::Python(PythonFile { object, piece: Vec::new(), at: 0 })),
        }
    }
}

/// The bytes of a capture.
pub(super) enum Source {
    File(File),
    /// The header of a file and some bytes from further on.
    Part(Box<Chain<Cursor<Vec<u8>>, Take<File>>>),
    Python(PythonFile),
    Ahead(Ahead),
}

/// An object with `read`, and the piece that it returned last.
pub(super) struct PythonFile {
    object: Py<PyAny>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(buffer),
            Self::Part(part) => part.read(buffer),
            Self::Python(file) => file.read(buffer),
            Self::Ahead(pieces) => pieces.read(buffer),
        }
    }
}

impl Read for PythonFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() {
            self.fill()?;
        }
        let count = buffer.len().min(self.piece.len() - self.at);
        buffer[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

impl PythonFile {
    fn fill(&mut self) -> io::Result<()> {
        self.piece.clear();
        self.at = 0;
        Python::attach(|py| {
            let piece = self.object.call_method1(py, "read", (PIECE_BYTES,))?;
            self.piece.extend_from_slice(piece.bind(py).cast::<PyBytes>()?.as_bytes());
            Ok(())
        })
        .map_err(|error: PyErr| io::Error::other(error.to_string()))
    }
}
