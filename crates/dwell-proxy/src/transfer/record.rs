//! What the stream of a transfer consists of: entries, and the bytes of files. No I/O.
//!
//! Kind (1 byte), length of the body (4, big endian), body; docs/proxy.md lists them. The bytes of a file
//! are given out as they come; all else is short, and is held until it is whole.

use thiserror::Error;

use super::entry::{EntryPath, MODE_MASK, Meta, PATH_BYTES_MAX};

/// The longest body of anything but data.
const BODY_BYTES_MAX: usize = 2 * PATH_BYTES_MAX + 64;
/// The longest body of data.
const DATA_BYTES_MAX: usize = 1 << 24;
const HEADER_BYTES: usize = 5;
/// A length that is not known.
const UNKNOWN: u64 = u64::MAX;

/// A file that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileEntry {
    pub(super) path: EntryPath,
    /// None of a pipe.
    pub(super) meta: Option<Meta>,
    /// The length that it has, or had; none of a pipe.
    pub(super) bytes: Option<u64>,
    /// Hard links that follow refer to it by this number; zero if there are none.
    pub(super) link_id: u64,
    /// It was asked for before.
    pub(super) was_asked: bool,
}

/// A question: what is there of this file already?
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) path: EntryPath,
    pub(super) bytes: Option<u64>,
    pub(super) meta: Option<Meta>,
    /// The same length and time suffice for it to be the same.
    pub(super) is_quick: bool,
}

/// A record, but for data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// One of the names at the top. They come first.
    Root(EntryPath),
    /// A directory, before what is in it.
    Directory(EntryPath, Meta),
    /// A file; data and copies follow, and an end.
    File(FileEntry),
    /// A symbolic link, and its target.
    Symlink(EntryPath, Meta, Vec<u8>),
    /// Another name of a file that came before.
    HardLink(EntryPath, u64),
    /// The next bytes of the file are those that the receiver has said to have there.
    Copy(u64),
    /// The next bytes of the file are so many from this offset of what has its name there, of which the receiver has said
    /// the chunks.
    CopyFrom { offset: u64, bytes: u64 },
    /// The end of a file: its length, and BLAKE3 of it.
    End(u64, [u8; 32]),
    /// What is there?
    Ask(Ask),
    /// The next bytes of the file are so many that were so far back in all files that have come.
    Repeat { distance: u32, bytes: u32 },
    /// What was asked for does not come, or not as a file.
    Skip,
}

/// What comes out of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// A record.
    Record(Record),
    /// The next bytes of the file.
    Data(&'a [u8]),
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum RecordError {
    #[error("an entry of the unknown kind {0} came")]
    Kind(u8),
    #[error("an entry of {0} bytes came, more than any has")]
    Length(usize),
    #[error("a malformed entry came")]
    Malformed,
    #[error("an entry came whose path leads elsewhere")]
    Path,
}

const DATA: u8 = 5;

/// Appends the header of so much data, which are to follow.
pub(super) fn put_data(out: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(bytes.len() <= DATA_BYTES_MAX);
    out.push(DATA);
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}

impl Record {
    /// Appends its bytes.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend([self.kind(), 0, 0, 0, 0]);
        match self {
            Self::Root(path) => out.extend(path.bytes()),
            Self::Directory(path, meta) => {
                put_meta(out, Some(*meta));
                out.extend(path.bytes());
            }
            Self::File(file) => {
                out.push(u8::from(file.was_asked));
                out.extend(file.bytes.unwrap_or(UNKNOWN).to_be_bytes());
                out.extend(file.link_id.to_be_bytes());
                put_meta(out, file.meta);
                out.extend(file.path.bytes());
            }
            Self::Symlink(path, meta, target) => {
                put_meta(out, Some(*meta));
                out.extend((path.bytes().len() as u16).to_be_bytes());
                out.extend(path.bytes());
                out.extend(target);
            }
            Self::HardLink(path, id) => {
                out.extend(id.to_be_bytes());
                out.extend(path.bytes());
            }
            Self::Copy(bytes) => out.extend(bytes.to_be_bytes()),
            Self::CopyFrom { offset, bytes } => {
                out.extend(offset.to_be_bytes());
                out.extend(bytes.to_be_bytes());
            }
            Self::End(bytes, blake3) => {
                out.extend(bytes.to_be_bytes());
                out.extend(blake3);
            }
            Self::Ask(ask) => {
                out.push(u8::from(ask.is_quick));
                out.extend(ask.bytes.unwrap_or(UNKNOWN).to_be_bytes());
                put_meta(out, ask.meta);
                out.extend(ask.path.bytes());
            }
            Self::Repeat { distance, bytes } => {
                out.extend(distance.to_be_bytes());
                out.extend(bytes.to_be_bytes());
            }
            Self::Skip => {}
        }
        let len = (out.len() - at - HEADER_BYTES) as u32;
        out[at + 1..at + HEADER_BYTES].copy_from_slice(&len.to_be_bytes());
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Directory(..) => 1,
            Self::File(_) => 2,
            Self::Symlink(..) => 3,
            Self::HardLink(..) => 4,
            Self::Copy(_) => 6,
            Self::End(..) => 7,
            Self::Ask(_) => 8,
            Self::Skip => 9,
            Self::Root(_) => 10,
            Self::Repeat { .. } => 11,
            Self::CopyFrom { .. } => 12,
        }
    }

    fn read(kind: u8, body: &[u8]) -> Result<Self, RecordError> {
        let mut body = Fields(body);
        Ok(match kind {
            1 => {
                let meta = body.meta()?.ok_or(RecordError::Malformed)?;
                Self::Directory(body.rest_path()?, meta)
            }
            2 => Self::File(FileEntry {
                was_asked: body.flag()?,
                bytes: Some(body.number()?).filter(|&bytes| bytes != UNKNOWN),
                link_id: body.number()?,
                meta: body.meta()?,
                path: body.rest_path()?,
            }),
            3 => {
                let meta = body.meta()?.ok_or(RecordError::Malformed)?;
                let len = usize::from(u16::from_be_bytes(body.array()?));
                let path = read_path(body.take(len)?)?;
                let target = body.0.to_vec();
                let fits = !target.is_empty() && target.len() <= PATH_BYTES_MAX;
                if !fits || target.contains(&0) {
                    return Err(RecordError::Malformed);
                }
                Self::Symlink(path, meta, target)
            }
            4 => {
                let id = body.number()?;
                Self::HardLink(body.rest_path()?, id)
            }
            6 => Self::Copy(body.last_number()?),
            7 => {
                let bytes = body.number()?;
                Self::End(bytes, body.0.try_into().map_err(|_| RecordError::Malformed)?)
            }
            8 => Self::Ask(Ask {
                is_quick: body.flag()?,
                bytes: Some(body.number()?).filter(|&bytes| bytes != UNKNOWN),
                meta: body.meta()?,
                path: body.rest_path()?,
            }),
            9 if body.0.is_empty() => Self::Skip,
            10 => Self::Root(body.rest_path()?),
            11 => {
                let distance = u32::from_be_bytes(body.array()?);
                let bytes = body.0.try_into().map_err(|_| RecordError::Malformed)?;
                Self::Repeat { distance, bytes: u32::from_be_bytes(bytes) }
            }
            12 => Self::CopyFrom { offset: body.number()?, bytes: body.last_number()? },
            _ => return Err(RecordError::Malformed),
        })
    }
}

fn put_meta(out: &mut Vec<u8>, meta: Option<Meta>) {
    let Some(meta) = meta else { return out.push(0) };
    out.push(1);
    out.extend((meta.mode as u16).to_be_bytes());
    out.extend(meta.mtime_s.to_be_bytes());
    out.extend(meta.mtime_ns.to_be_bytes());
}

fn read_path(bytes: &[u8]) -> Result<EntryPath, RecordError> {
    EntryPath::new(bytes).ok_or(RecordError::Path)
}

/// A body that is read from its beginning.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], RecordError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(RecordError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(RecordError::Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn number(&mut self) -> Result<u64, RecordError> {
        self.array().map(u64::from_be_bytes)
    }

    fn last_number(&mut self) -> Result<u64, RecordError> {
        let number = self.number()?;
        if self.0.is_empty() { Ok(number) } else { Err(RecordError::Malformed) }
    }

    fn flag(&mut self) -> Result<bool, RecordError> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(RecordError::Malformed),
        }
    }

    fn meta(&mut self) -> Result<Option<Meta>, RecordError> {
        if !self.flag()? {
            return Ok(None);
        }
        let mode = u32::from(u16::from_be_bytes(self.array()?));
        let mtime_s = i64::from_be_bytes(self.array()?);
        let mtime_ns = u32::from_be_bytes(self.array()?);
        if mode & !MODE_MASK != 0 || mtime_ns >= 1_000_000_000 {
            return Err(RecordError::Malformed);
        }
        Ok(Some(Meta { mode, mtime_s, mtime_ns }))
    }

    fn rest_path(&mut self) -> Result<EntryPath, RecordError> {
        read_path(std::mem::take(&mut self.0))
    }
}

/// Reads records from a stream that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// The beginning of a record that is not whole.
    held: Vec<u8>,
    /// Bytes of data that are still to come.
    data_left: usize,
}

impl Records {
    /// Takes the next item from the beginning of `bytes`, and moves that on. None if more is needed; all is
    /// taken then.
    ///
    /// # Errors
    /// [`RecordError`]; nothing more can be read then.
    pub(super) fn next<'a>(
        &mut self,
        bytes: &mut &'a [u8],
    ) -> Result<Option<Item<'a>>, RecordError> {
        loop {
            if self.data_left > 0 {
                let (data, rest) = bytes.split_at(self.data_left.min(bytes.len()));
                *bytes = rest;
                self.data_left -= data.len();
                return Ok((!data.is_empty()).then_some(Item::Data(data)));
            }
            if !self.fill(bytes, HEADER_BYTES) {
                return Ok(None);
            }
            let kind = self.held[0];
            let len = [self.held[1], self.held[2], self.held[3], self.held[4]];
            let len = usize::try_from(u32::from_be_bytes(len)).unwrap_or(usize::MAX);
            let (is_known, max) = match kind {
                DATA => (true, DATA_BYTES_MAX),
                kind => ((1..=12).contains(&kind), BODY_BYTES_MAX),
            };
            if !is_known {
                return Err(RecordError::Kind(kind));
            }
            if len > max {
                return Err(RecordError::Length(len));
            }
            if kind == DATA {
                self.held.clear();
                self.data_left = len;
                continue;
            }
            if !self.fill(bytes, HEADER_BYTES + len) {
                return Ok(None);
            }
            let record = Record::read(kind, &self.held[HEADER_BYTES..])?;
            self.held.clear();
            return Ok(Some(Item::Record(record)));
        }
    }

    /// True if nothing has begun that is not whole.
    pub(super) const fn is_between(&self) -> bool {
        self.held.is_empty() && self.data_left == 0
    }

    /// Holds `len` bytes, if there are as many.
    fn fill(&mut self, bytes: &mut &[u8], len: usize) -> bool {
        let missing = len.saturating_sub(self.held.len()).min(bytes.len());
        let (taken, rest) = bytes.split_at(missing);
        self.held.extend_from_slice(taken);
        *bytes = rest;
        self.held.len() >= len
    }
}

/// Reads a stream of records in pieces of this length: all records, written again, and all data. None if it is
/// refused, or ends amid a record. For fuzzing.
#[doc(hidden)]
pub fn read_again(bytes: &[u8], piece: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let (mut records, mut again, mut data) = (Records::default(), Vec::new(), Vec::new());
    for mut piece in bytes.chunks(piece.max(1)) {
        while let Some(item) = records.next(&mut piece).ok()? {
            match item {
                Item::Record(record) => record.put(&mut again),
                Item::Data(bytes) => data.extend_from_slice(bytes),
            }
        }
    }
    records.is_between().then_some((again, data))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path() -> impl Strategy<Value = EntryPath> {
        "[a-z]{1,9}(/[a-zä.]{1,5}x){0,4}".prop_map(|text| EntryPath::new(text.as_bytes()).unwrap())
    }

    fn meta() -> impl Strategy<Value = Meta> {
        (0..=MODE_MASK, any::<i64>(), 0..1_000_000_000u32)
            .prop_map(|(mode, mtime_s, mtime_ns)| Meta { mode, mtime_s, mtime_ns })
    }

    fn record() -> impl Strategy<Value = Record> {
        let metas = || prop::option::of(meta());
        let file = (path(), metas(), prop::option::of(0..UNKNOWN), any::<u64>(), any::<bool>());
        let ask = (path(), metas(), prop::option::of(0..UNKNOWN), any::<bool>());
        prop_oneof![
            path().prop_map(Record::Root),
            (path(), meta()).prop_map(|(path, meta)| Record::Directory(path, meta)),
            file.prop_map(|(path, meta, bytes, link_id, was_asked)| {
                Record::File(FileEntry { path, meta, bytes, link_id, was_asked })
            }),
            (path(), meta(), "[a-z/.]{1,20}").prop_map(|(path, meta, target)| {
                Record::Symlink(path, meta, target.into_bytes())
            }),
            (path(), any::<u64>()).prop_map(|(path, id)| Record::HardLink(path, id)),
            any::<u64>().prop_map(Record::Copy),
            (any::<u64>(), any::<u64>())
                .prop_map(|(offset, bytes)| Record::CopyFrom { offset, bytes }),
            (any::<u64>(), any::<[u8; 32]>()).prop_map(|(bytes, hash)| Record::End(bytes, hash)),
            ask.prop_map(|(path, meta, bytes, is_quick)| {
                Record::Ask(Ask { path, bytes, meta, is_quick })
            }),
            (any::<u32>(), any::<u32>())
                .prop_map(|(distance, bytes)| Record::Repeat { distance, bytes }),
            Just(Record::Skip),
        ]
    }

    /// All records of a stream in pieces of this length, and all data.
    fn read(bytes: &[u8], piece: usize) -> Result<(Vec<Record>, Vec<u8>, bool), RecordError> {
        let (mut records, mut found, mut data) = (Records::default(), Vec::new(), Vec::new());
        for mut piece in bytes.chunks(piece) {
            while let Some(item) = records.next(&mut piece)? {
                match item {
                    Item::Record(record) => found.push(record),
                    Item::Data(bytes) => data.extend_from_slice(bytes),
                }
            }
            assert!(piece.is_empty());
        }
        Ok((found, data, records.is_between()))
    }

    #[test]
    fn hostile_paths_are_refused() {
        for path in ["../x", "/etc/passwd", "a/../../x", "", "a//b", ".", "a/.\0"] {
            let mut bytes = vec![10, 0, 0, 0, path.len() as u8];
            bytes.extend(path.as_bytes());
            assert_eq!(read(&bytes, 99), Err(RecordError::Path), "{path:?}");
        }
    }

    #[test]
    fn lengths_are_not_believed() {
        assert_eq!(read(&[2, 0xff, 0, 0, 0], 9), Err(RecordError::Length(0xff00_0000)));
        assert_eq!(read(&[5, 0xff, 0, 0, 0], 9), Err(RecordError::Length(0xff00_0000)));
        assert_eq!(read(&[0, 0, 0, 0, 0], 9), Err(RecordError::Kind(0)));
        assert_eq!(read(&[9, 0, 0, 0, 1, 1], 9), Err(RecordError::Malformed));
        assert_eq!(read(&[9, 0, 0], 9).unwrap(), (vec![], vec![], false));
    }

    /// Whoever sends a set-user-id bit does not get one made.
    #[test]
    fn only_plain_permissions_are_taken() {
        let meta = Meta { mode: 0o755, mtime_s: 0, mtime_ns: 0 };
        let mut bytes = Vec::new();
        Record::Directory(EntryPath::new(b"a").unwrap(), meta).put(&mut bytes);
        assert_eq!(bytes[6..8], [1, 0o355]);
        bytes[6] = 8;
        assert_eq!(read(&bytes, 99), Err(RecordError::Malformed));
    }

    proptest! {
        #[test]
        fn records_come_back(
            records in prop::collection::vec(record(), 0..9),
            data in prop::collection::vec(any::<u8>(), 0..300),
            piece in 1usize..99,
        ) {
            let mut bytes = Vec::new();
            for record in &records {
                record.put(&mut bytes);
                put_data(&mut bytes, &data);
            }
            let all = data.repeat(records.len());
            prop_assert_eq!(read(&bytes, piece), Ok((records, all, true)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            kind in 0u8..14, len in 0u8..60, bytes in prop::collection::vec(any::<u8>(), 0..99),
        ) {
            let bytes = [&[kind, 0, 0, 0, len], &bytes[..]].concat();
            if let Ok((_, data, _)) = read(&bytes, 7) {
                prop_assert!(data.len() <= bytes.len());
            }
        }
    }
}
