//! What goes to stdout and stderr: one JSON object for programs, text for people.

pub(crate) mod clean;
pub(crate) mod page;
pub(crate) mod refusal;
pub(crate) mod show;
pub(crate) mod table;

use std::io::{self, IsTerminal as _, Write};

use serde_json::Value;
use stead_doc::refusal::{Code, Refusal};

use crate::failure::Failure;

/// Both ways out, and how to dress what goes there.
pub(crate) struct Out {
    json: bool,
    /// How stdout is dressed.
    pub(crate) style: Style,
    errors: Style,
    stdout: Box<dyn Write>,
    stderr: Box<dyn Write>,
}

/// How text is dressed. Colour never says anything that the words do not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Style {
    /// Whether to use colour.
    pub(crate) colour: bool,
    /// Whether a person reads along, and long lines are to be cut.
    pub(crate) terminal: bool,
}

impl Style {
    fn of(terminal: bool) -> Self {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self {
            colour: terminal && !no_colour && !dumb,
            terminal,
        }
    }

    /// Bold, where there is colour.
    pub(crate) fn bold(self, text: &str) -> String {
        self.dressed("1", text)
    }

    /// Faint, where there is colour.
    pub(crate) fn faint(self, text: &str) -> String {
        self.dressed("2", text)
    }

    /// Red, where there is colour.
    pub(crate) fn red(self, text: &str) -> String {
        self.dressed("31", text)
    }

    fn dressed(self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

impl Out {
    /// The process's own.
    pub(crate) fn standard(json: bool) -> Self {
        Self {
            json,
            style: Style::of(io::stdout().is_terminal()),
            errors: Style::of(io::stderr().is_terminal()),
            stdout: Box::new(io::BufWriter::new(io::stdout())),
            stderr: Box::new(io::stderr()),
        }
    }

    /// Whether a program reads the answer.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether a person watches stderr.
    pub(crate) fn is_watched(&self) -> bool {
        self.errors.terminal && !self.json
    }

    /// The answer: as it is for a program, rendered for people.
    pub(crate) fn answer(
        &mut self,
        data: &Value,
        rendered: impl FnOnce(&Value, Style) -> String,
    ) -> Result<(), Failure> {
        if self.json {
            return self.json_line("true", "data", data);
        }
        let text = rendered(data, self.style);
        self.text(&text)
    }

    /// Text on stdout, its last line ended.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        let end = if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        self.bytes(text.as_bytes())?;
        self.bytes(end.as_bytes())?;
        self.stdout.flush().map_err(Failure::Output)
    }

    /// Bytes on stdout as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stdout.write_all(bytes).map_err(Failure::Output)
    }

    /// A remark beside the answer, for people alone.
    pub(crate) fn note(&mut self, text: &str) {
        if !self.json {
            self.stderr_line(text);
        }
    }

    /// Says why there is no answer; the exit code.
    pub(crate) fn failure(&mut self, failure: &Failure) -> u8 {
        match failure {
            Failure::Refused(refusal) | Failure::Usage(refusal) => {
                if self.json {
                    if let Err(unwritten) = self.json_line("false", "error", &refusal.to_json()) {
                        return unwritten.exit_code();
                    }
                } else {
                    let text = refusal::render(refusal, self.errors);
                    self.stderr_line(&text);
                }
            }
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Failure::Output(error) => {
                self.stderr_line(&format!("cannot write the answer: {error}"))
            }
        }
        failure.exit_code()
    }

    /// What the argument parser has to say: help and version on stdout, mistakes as any failure.
    pub(crate) fn clap(&mut self, error: &clap::Error) -> Result<u8, Failure> {
        if !error.use_stderr() {
            error.print().map_err(Failure::Output)?;
            return Ok(0);
        }
        if self.json {
            return Err(Failure::Usage(usage_refusal(error)));
        }
        // It repeats what was typed, which somebody else may have written.
        let text = error.render().to_string();
        let harmless = clean::lines(&text);
        if harmless != text {
            self.stderr_line(&harmless);
            return Ok(2);
        }
        // Nobody is left to tell when stderr is closed.
        drop(error.print());
        Ok(2)
    }

    fn json_line(&mut self, ok: &str, name: &str, value: &Value) -> Result<(), Failure> {
        let value = clean::json(&value.to_string());
        self.text(&format!("{{\"ok\":{ok},\"{name}\":{value}}}"))
    }

    fn stderr_line(&mut self, text: &str) {
        // Nobody is left to tell when stderr is closed.
        drop(writeln!(self.stderr, "{}", text.trim_end_matches('\n')));
    }
}

/// The mistake in the command line, without the usage that is printed for people.
fn usage_refusal(error: &clap::Error) -> Refusal {
    let text = error.render().to_string();
    let message = text
        .split("\n\n")
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ");
    let message: Vec<&str> = message.split_whitespace().collect();
    let mut refusal = Refusal::new(
        Code::InvalidArgument,
        format!("{}.", clean::line(&message.join(" ")).trim_end_matches('.')),
        "See the command's own --help.",
    );
    let named = error.get(clap::error::ContextKind::InvalidArg);
    if let Some(clap::error::ContextValue::String(field)) = named {
        refusal = refusal.with("field", clean::line(field));
    }
    refusal
}

#[cfg(test)]
pub(crate) mod testing {
    use std::{cell::RefCell, rc::Rc};

    use super::*;

    /// What was written, shared with the writer.
    #[derive(Debug, Clone, Default)]
    pub(crate) struct Written(Rc<RefCell<Vec<u8>>>);

    impl Written {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.borrow().clone()).unwrap()
        }
    }

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// An output that keeps what it is given: itself, stdout, stderr.
    pub(crate) fn captured(json: bool) -> (Out, Written, Written) {
        let (stdout, stderr) = (Written::default(), Written::default());
        let out = Out {
            json,
            style: Style::default(),
            errors: Style::default(),
            stdout: Box::new(stdout.clone()),
            stderr: Box::new(stderr.clone()),
        };
        (out, stdout, stderr)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::{testing::captured, *};

    #[test]
    fn json_is_one_object_and_nothing_else() {
        let (mut out, stdout, stderr) = captured(true);
        out.note("aside");
        out.answer(&json!({"b": 1}), |_, _| unreachable!()).unwrap();
        assert_eq!(stdout.text(), "{\"ok\":true,\"data\":{\"b\":1}}\n");
        assert_eq!(stderr.text(), "");

        let (mut out, stdout, stderr) = captured(true);
        let failure = Failure::Refused(Refusal::new(Code::UnknownId, "m", "h"));
        assert_eq!(out.failure(&failure), 1);
        let answer: Value = serde_json::from_str(&stdout.text()).unwrap();
        assert_eq!(
            answer,
            json!({"ok": false, "error": {"code": "UNKNOWN_ID", "message": "m", "hint": "h"}})
        );
        assert_eq!(stderr.text(), "");
    }

    #[test]
    fn usage_errors_are_json_too() {
        let (mut out, stdout, _) = captured(true);
        let error =
            crate::args::Cli::try_parse_from(["stead", "list", "--nope\u{202e}"]).unwrap_err();
        let failure = out.clap(&error).unwrap_err();
        assert_eq!(out.failure(&failure), 2);
        let text = stdout.text();
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["error"]["code"], "INVALID_ARGUMENT");
        assert!(
            answer["error"]["message"]
                .as_str()
                .unwrap()
                .contains("unexpected argument")
        );
        assert!(!text.contains('\u{202e}'));
    }

    #[test]
    fn people_read_text_and_their_errors_on_stderr() {
        let (mut out, stdout, stderr) = captured(false);
        out.answer(&json!(1), |_, _| "one".into()).unwrap();
        out.failure(&Failure::usage("x", "it is wrong.", "Mend it."));
        assert_eq!(stdout.text(), "one\n");
        assert_eq!(stderr.text(), "INVALID_ARGUMENT: it is wrong. Mend it.\n");
    }

    #[test]
    fn a_reader_that_left_is_no_failure() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (mut out, _, stderr) = captured(false);
        out.stdout = Box::new(Closed);
        let failure = out.text("x").unwrap_err();
        assert_eq!(out.failure(&failure), 0);
        assert_eq!(stderr.text(), "");
    }
}
