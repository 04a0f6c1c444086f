//! Long texts as people give them: as they are, `-` for stdin, `@file` for a file.

use std::{
    fs::File,
    io::{self, Read},
};

use crate::failure::Failure;

/// Bytes of a text from stdin or a file. The node's own limit on long texts is lower and refuses
/// with the exact figures; this one only keeps a mistaken file out of memory.
const TEXT_BYTES: u64 = 4 << 20;

/// Reads texts; stdin can be one of them, once.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    stdin_taken: bool,
}

impl Texts {
    /// The text that an argument stands for. One line end at the end of stdin or of a file is not
    /// part of it.
    pub(crate) fn read(&mut self, field: &str, given: &str) -> Result<String, Failure> {
        if given == "-" {
            if std::mem::replace(&mut self.stdin_taken, true) {
                return Err(Failure::usage(
                    field,
                    "two texts are to come from stdin.",
                    "Give one of them as @file.",
                ));
            }
            return bounded(field, "stdin", io::stdin().lock());
        }
        match given.strip_prefix('@') {
            Some(literal) if literal.starts_with('@') => Ok(literal.to_owned()),
            Some(path) => {
                let file =
                    File::open(path).map_err(|error| Failure::file(field, "read", path, &error))?;
                bounded(field, path, file)
            }
            None => Ok(given.to_owned()),
        }
    }

    /// The same for an argument that may be left out.
    pub(crate) fn optional(
        &mut self,
        field: &str,
        given: Option<&String>,
    ) -> Result<Option<String>, Failure> {
        given.map(|given| self.read(field, given)).transpose()
    }
}

fn bounded(field: &str, name: &str, source: impl Read) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    source
        .take(TEXT_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::file(field, "read", name, &error))?;
    if bytes.len() as u64 > TEXT_BYTES {
        return Err(Failure::usage(
            field,
            format!("{name} is longer than {TEXT_BYTES} bytes."),
            "Shorten it.",
        ));
    }
    let mut text = String::from_utf8(bytes).map_err(|_| {
        Failure::usage(
            field,
            format!("{name} is not UTF-8 text."),
            "Convert it first.",
        )
    })?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_literal_unless_marked() {
        let mut texts = Texts::default();
        assert_eq!(texts.read("body", "plain").unwrap(), "plain");
        assert_eq!(texts.read("body", "@@home").unwrap(), "@home");
        let missing = texts.read("body", "@/nonexistent/file").unwrap_err();
        assert_eq!(missing.exit_code(), 2);
        texts.stdin_taken = true;
        assert!(matches!(texts.read("body", "-"), Err(Failure::Usage(_))));
    }

    #[test]
    fn one_line_end_goes_and_the_rest_stays() {
        let read = |bytes: &[u8]| bounded("body", "stdin", bytes);
        assert_eq!(read(b"a\n\n").unwrap(), "a\n");
        assert_eq!(read(b"a\r\n").unwrap(), "a");
        assert_eq!(read(b"a").unwrap(), "a");
        assert!(read(b"\xff").is_err());
        let full = vec![b'x'; TEXT_BYTES as usize];
        assert!(read(&full[1..]).is_ok());
        assert!(read(&full).is_ok());
        assert!(read(&[full.as_slice(), b"x"].concat()).is_err());
    }
}
