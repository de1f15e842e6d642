//! The codecs and their numbers on the wire.

/// A compression method. The discriminants are the ids on the wire and never change.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CodecId {
    /// LZ4 block format: fastest, and the one to use while the CPU is the bottleneck.
    Lz4 = 1,
    /// Zstandard: best ratio on short packets, most of all with a dictionary.
    Zstd = 2,
    /// Raw DEFLATE: for comparison with what other tools do; no dictionary.
    Deflate = 3,
    /// LZO1X: for comparison with published results; only in builds with the feature `lzo`.
    Lzo = 4,
    /// bzip2: the same; only in builds with the feature `bzip2`.
    Bzip2 = 5,
    /// Prediction by partial matching: for thin links and small packets, in contexts only.
    Ppm = 6,
    /// Mixing of contexts: for the thinnest links and records that are much alike, in contexts only.
    Mix = 7,
}

impl CodecId {
    /// All codecs of single payloads, in this build or not: those that a [`Compressor`](crate::Compressor)
    /// may have.
    pub const ALL: [Self; 5] = [Self::Lz4, Self::Zstd, Self::Deflate, Self::Lzo, Self::Bzip2];

    /// Returns the codec of single payloads with this id on the wire, in this build or not.
    pub fn from_wire(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&codec| codec as u8 == id)
    }

    /// Returns the name that users write and read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Deflate => "deflate",
            Self::Lzo => "lzo",
            Self::Bzip2 => "bzip2",
            Self::Ppm => "ppm",
            Self::Mix => "mix",
        }
    }

    /// Returns true if this build can compress and decompress single payloads with it.
    pub const fn is_built_in(self) -> bool {
        match self {
            Self::Lz4 | Self::Zstd | Self::Deflate => true,
            Self::Lzo => cfg!(feature = "lzo"),
            Self::Bzip2 => cfg!(feature = "bzip2"),
            Self::Ppm | Self::Mix => false,
        }
    }

    /// Returns true if it can use a [`Dictionary`](crate::Dictionary).
    pub const fn takes_dictionary(self) -> bool {
        matches!(self, Self::Lz4 | Self::Zstd)
    }

    /// Returns true if it can refer to earlier data
    /// ([`Compressor::compress_after`](crate::Compressor::compress_after)).
    pub const fn takes_history(self) -> bool {
        matches!(self, Self::Lz4 | Self::Zstd)
    }
}

impl std::fmt::Display for CodecId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the codecs that this build can decode: bit `n` is set if it knows the codec with the id
/// `n`.
pub fn supported_bitmap() -> u16 {
    CodecId::ALL
        .into_iter()
        .filter(|codec| codec.is_built_in())
        .fold(0, |bitmap, codec| bitmap | 1 << codec as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_the_wire() {
        for codec in CodecId::ALL {
            assert_eq!(CodecId::from_wire(codec as u8), Some(codec));
        }
        assert_eq!(CodecId::from_wire(0), None);
        assert_eq!(CodecId::from_wire(6), None, "contexts only");
        assert_eq!(CodecId::from_wire(7), None, "contexts only");
        assert_eq!(CodecId::from_wire(8), None);
    }

    #[test]
    fn the_bitmap_names_what_is_built_in() {
        let lzo = if cfg!(feature = "lzo") { 1 << 4 } else { 0 };
        let bzip2 = if cfg!(feature = "bzip2") { 1 << 5 } else { 0 };
        assert_eq!(supported_bitmap(), 0b1110 | lzo | bzip2);
    }
}
