//! Compressed parts of an ELF file. How much they unfold to shows only when they are unfolded: what they claim may be
//! less.

use std::fs::File;
use std::io::{self, BufReader, Read, copy, sink};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use flate2::bufread::ZlibDecoder;
use object::elf::{CompressionType, ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD};
use xz2::bufread::XzDecoder;
use xz2::stream::Stream;

/// Bytes of memory that xz may take: its largest preset takes 65 MiB.
const XZ_MEMORY_BYTES: u64 = 128 << 20;

/// How a part is compressed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Format {
    Zlib,
    Zstd,
    Xz,
}

impl Format {
    /// As the header of a compressed section says; None for what nobody here unfolds.
    pub(super) fn of_section(kind: CompressionType) -> Option<Self> {
        match kind {
            ELFCOMPRESS_ZLIB => Some(Self::Zlib),
            ELFCOMPRESS_ZSTD => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// A compressed part of a file.
#[derive(Clone, Debug)]
pub(super) struct Compressed {
    pub(super) format: Format,
    pub(super) place: Range<u64>,
}

impl Compressed {
    /// How many bytes it unfolds to; one more than `limit` when it is more than that. An error when it is damaged.
    pub(super) fn unfolded_bytes(&self, file: &File, limit: u64) -> io::Result<u64> {
        let part = BufReader::new(Part {
            file,
            place: self.place.clone(),
        });
        let unfolded: &mut dyn Read = match self.format {
            Format::Zlib => &mut ZlibDecoder::new(part),
            Format::Zstd => &mut zstd::Decoder::with_buffer(part)?,
            Format::Xz => &mut XzDecoder::new_stream(part, Stream::new_stream_decoder(XZ_MEMORY_BYTES, 0)?),
        };
        copy(&mut unfolded.take(limit.saturating_add(1)), &mut sink())
    }
}

/// Reads a part of a file, wherever the file's own position is.
struct Part<'f> {
    file: &'f File,
    place: Range<u64>,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.place.end.saturating_sub(self.place.start);
        let wanted = buffer.len().min(left.try_into().unwrap_or(usize::MAX));
        let bytes = self.file.read_at(&mut buffer[..wanted], self.place.start)?;
        self.place.start += bytes as u64;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::write::ZlibEncoder;
    use xz2::write::XzEncoder;

    use super::*;

    fn packed(format: Format, bytes: &[u8]) -> Vec<u8> {
        match format {
            Format::Zlib => {
                let mut encoder = ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Format::Zstd => zstd::encode_all(bytes, 1).unwrap(),
            Format::Xz => {
                let mut encoder = XzEncoder::new(Vec::new(), 0);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
        }
    }

    /// What lies before and behind is not read, what is cut is an error, and a limit ends the unfolding.
    #[test]
    fn parts_unfold_as_far_as_they_may() {
        for format in [Format::Zlib, Format::Zstd, Format::Xz] {
            let part = packed(format, &[7; 100_000]);
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&[b"before", &part[..], b"behind"].concat()).unwrap();
            let end = 6 + part.len() as u64;
            let compressed = |end| Compressed { format, place: 6..end };
            let unfolded = |end, limit| compressed(end).unfolded_bytes(&file, limit);
            assert_eq!(unfolded(end, u64::MAX).unwrap(), 100_000, "{format:?}");
            assert_eq!(unfolded(end, 99_999).unwrap(), 100_000);
            assert_eq!(unfolded(end, 10).unwrap(), 11);
            assert!(unfolded(end - 10, u64::MAX).is_err());
        }
    }
}
