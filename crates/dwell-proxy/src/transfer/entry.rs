//! The entries of a tree: their paths, which lead nowhere but down, and what is kept of a file besides its
//! bytes. No I/O.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;

/// The longest path, in bytes; the kernel has the same limit.
pub(super) const PATH_BYTES_MAX: usize = 4095;
/// The longest name.
const NAME_BYTES_MAX: usize = 255;

/// The path of an entry below the place where a transfer goes: names, joined by slashes. No name is empty,
/// `.` or `..`, so that it never leads up or to the root, whoever has sent it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct EntryPath(Vec<u8>);

impl EntryPath {
    /// None if it is no such path.
    pub(super) fn new(bytes: &[u8]) -> Option<Self> {
        let is_name = |name: &[u8]| {
            let leads_elsewhere = name.is_empty() || name == b"." || name == b"..";
            !leads_elsewhere && name.len() <= NAME_BYTES_MAX && !name.contains(&0)
        };
        let fits = bytes.len() <= PATH_BYTES_MAX && bytes.split(|&byte| byte == b'/').all(is_name);
        fits.then(|| Self(bytes.to_vec()))
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The names of its directories, from the top.
    pub(super) fn parents(&self) -> impl Iterator<Item = &OsStr> {
        let names = self.parent().split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        names.map(OsStr::from_bytes)
    }

    /// The path of its directory; empty at the top.
    pub(super) fn parent(&self) -> &[u8] {
        let end = self.0.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        &self.0[..end]
    }

    /// The path below its first directory; none at the top.
    pub(super) fn without_first(&self) -> Option<Self> {
        let end = self.0.iter().position(|&byte| byte == b'/')?;
        Some(Self(self.0[end + 1..].to_vec()))
    }

    /// Its own name.
    pub(super) fn name(&self) -> &OsStr {
        let begin = self.0.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        OsStr::from_bytes(&self.0[begin..])
    }

    /// True if it is `directory`, or something in it.
    pub(super) fn is_in(&self, directory: &[u8]) -> bool {
        let rest = self.0.strip_prefix(directory);
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || directory.is_empty())
    }

    /// True if a symbolic link here, with this target, may lead out of the tree whose root is the first name.
    ///
    /// What goes up goes up from a real directory, as links are never written through; so as many steps as it is
    /// deep are harmless. After a name, which may be another link, a step up could lead anywhere.
    pub(super) fn leads_outside(&self, target: &[u8]) -> bool {
        if target.first() == Some(&b'/') {
            return true;
        }
        let mut depth = self.parents().count();
        let mut went_down = false;
        for name in target.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." if went_down || depth <= 1 => return true,
                b".." => depth -= 1,
                _ => went_down = true,
            }
        }
        // What stands beside the root is not part of it.
        self.parents().next().is_none()
    }
}

impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The permissions and the time of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    /// The permissions of owner, group and others: nine bits.
    pub(super) mode: u32,
    /// The time of its last change, in seconds since 1970.
    pub(super) mtime_s: i64,
    /// The nanoseconds of that.
    pub(super) mtime_ns: u32,
}

/// The permissions that are kept: what would give others' rights to whoever runs a file is not.
pub(super) const MODE_MASK: u32 = 0o777;

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> EntryPath {
        EntryPath::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn paths_lead_down_only() {
        let long = format!("a/{}", "x".repeat(256));
        for text in ["", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a\0b", &long]
        {
            assert!(EntryPath::new(text.as_bytes()).is_none(), "{text}");
        }
        assert!(EntryPath::new("a/".repeat(2048).as_bytes()).is_none());
        let deep = path("a/b c/...");
        assert_eq!(deep.parents().collect::<Vec<_>>(), ["a", "b c"]);
        assert_eq!((deep.parent(), deep.name()), (&b"a/b c"[..], OsStr::new("...")));
        assert_eq!((path("a").parent(), path("a").name()), (&b""[..], OsStr::new("a")));
        assert_eq!(deep.without_first(), Some(path("b c/...")));
        assert_eq!(path("a").without_first(), None);
        assert!(EntryPath::new(b"\xff\xfe").is_some());
    }

    #[test]
    fn what_is_in_a_directory() {
        assert!(path("a/b").is_in(b"a") && path("a").is_in(b"a") && path("a").is_in(b""));
        assert!(!path("ab").is_in(b"a") && !path("a").is_in(b"a/b"));
    }

    #[test]
    fn links_that_lead_outside_are_found() {
        for target in ["b", "./b", "../c", "..", "x/y/z", "..a", "../c/."] {
            assert!(!path("root/a/link").leads_outside(target.as_bytes()), "{target}");
        }
        for target in ["/", "/etc/passwd", "../..", "../../x", "b/..", "../c/../d", "b/../../../x"]
        {
            assert!(path("root/a/link").leads_outside(target.as_bytes()), "{target}");
        }
        assert!(path("root/link").leads_outside(b".."));
        assert!(path("link").leads_outside(b"x"));
    }
}
