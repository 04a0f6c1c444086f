//! The lines of a file, none of them and not the whole too long for memory.

use std::io::{self, BufRead};

/// Reads lines.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    source: R,
    number: u64,
    read: u64,
    line_bytes: usize,
    file_bytes: u64,
}

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// From 1.
    pub(crate) number: u64,
    /// What it holds; nothing where it is longer than a line may be.
    pub(crate) bytes: Option<Vec<u8>>,
}

impl<R: BufRead> Lines<R> {
    /// Within the bounds of an import.
    pub(crate) fn new(source: R) -> Self {
        Self {
            source,
            number: 0,
            read: 0,
            line_bytes: LINE_BYTES,
            file_bytes: FILE_BYTES,
        }
    }

    /// The next line.
    ///
    /// # Errors
    ///
    /// When reading fails, and where the file is longer than a file may be.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line>> {
        let mut bytes = Vec::new();
        let mut fits = true;
        let mut begun = false;
        loop {
            let chunk = self.source.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            begun = true;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
            if fits && bytes.len() + part.len() <= self.line_bytes {
                bytes.extend_from_slice(part);
            } else {
                fits = false;
                bytes = Vec::new();
            }
            let used = end.map_or(chunk.len(), |end| end + 1);
            self.source.consume(used);
            self.read += used as u64;
            if self.read > self.file_bytes {
                return Err(io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    format!("it is longer than {} bytes; split it", self.file_bytes),
                ));
            }
            if end.is_some() {
                break;
            }
        }
        if !begun {
            return Ok(None);
        }
        self.number += 1;
        if self.number == 1 && bytes.starts_with(b"\xef\xbb\xbf") {
            bytes.drain(..3);
        }
        Ok(Some(Line {
            number: self.number,
            bytes: fits.then_some(bytes),
        }))
    }
}

/// Bytes of one line: an issue with every text at its limit, and what JSON escapes add.
pub(crate) const LINE_BYTES: usize = 4 << 20;

/// Bytes of one file: a million issues of a kilobyte.
pub(crate) const FILE_BYTES: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], line_bytes: usize, file_bytes: u64) -> io::Result<Vec<Option<String>>> {
        // A buffer smaller than a line, so that lines arrive in parts.
        let mut lines = Lines {
            line_bytes,
            file_bytes,
            ..Lines::new(io::BufReader::with_capacity(3, text))
        };
        let mut all = Vec::new();
        while let Some(line) = lines.next()? {
            assert_eq!(line.number, all.len() as u64 + 1);
            all.push(line.bytes.map(|bytes| String::from_utf8(bytes).unwrap()));
        }
        Ok(all)
    }

    #[test]
    fn lines_end_at_their_limit_and_the_rest_goes_on() {
        let some = |text: &str| Some(text.to_owned());
        let all = read(b"1234\n12345\n123456\n\nab", 5, 100).unwrap();
        assert_eq!(
            all,
            [some("1234"), some("12345"), None, some(""), some("ab")]
        );
        assert_eq!(read(b"\xef\xbb\xbfab\n", 9, 100).unwrap(), [some("ab")]);
        assert_eq!(read(b"", 9, 100).unwrap(), []);
    }

    #[test]
    fn a_file_ends_at_its_limit() {
        assert!(read(b"123\n5678\n", 9, 10).is_ok());
        assert!(read(b"123\n5678\n", 9, 9).is_ok());
        assert!(read(b"123\n5678\n", 9, 8).is_err());
    }
}
