//! Arguments as agents and people really send them: flat or under `payload`, sloppy in form,
//! strict in names.

use serde_json::{Map, Value};

use crate::{
    id::ObjectId,
    limits,
    refusal::{Code, Refusal},
    revision::Revision,
};

/// The arguments of one call, every name in them accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Arguments(Map<String, Value>);

impl Arguments {
    /// Takes a call's arguments, a `payload` object (or JSON text of one) merged in.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` where a name is given twice with different values or there is no object.
    pub fn flatten(value: Value) -> Result<Map<String, Value>, Refusal> {
        let mut map = object("arguments", value)?;
        if let Some(payload) = map.remove("payload")
            && !payload.is_null()
        {
            for (name, value) in object("payload", payload)? {
                match map.get(&name) {
                    Some(other) if *other != value => {
                        return Err(Refusal::argument(
                            &name,
                            format!("{name} is given twice with different values."),
                            "Give it once.",
                        ));
                    }
                    _ => {
                        map.insert(name, value);
                    }
                }
            }
        }
        Ok(map)
    }

    /// Accepts arguments whose names are all among `accepted`.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` naming the unknown one and the accepted ones.
    pub fn accept(map: Map<String, Value>, accepted: &[&str]) -> Result<Self, Refusal> {
        match map.keys().find(|name| !accepted.contains(&name.as_str())) {
            Some(name) => Err(Refusal::argument(
                name,
                "one argument is not known here (field).",
                "Send only those in accepted.",
            )
            .with("accepted", accepted)),
            None => Ok(Self(map)),
        }
    }

    /// The value given for a name, an explicit null included.
    pub fn given(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The value given for a name, null counting as absent.
    pub fn some(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A text of one line.
    ///
    /// # Errors
    ///
    /// Where it is no text, or too long.
    pub fn line(&self, name: &str, max_chars: usize) -> Result<Option<String>, Refusal> {
        self.some(name)
            .map(|value| line(name, value, max_chars))
            .transpose()
    }

    /// A short text that may have several lines: a reason.
    ///
    /// # Errors
    ///
    /// Where it is no text, or too long.
    pub fn short(&self, name: &str) -> Result<Option<String>, Refusal> {
        let Some(value) = self.some(name) else {
            return Ok(None);
        };
        let text = long(name, value)?;
        let text = text.trim();
        let chars = text.chars().count();
        if chars > limits::SHORT_CHARS {
            return Err(too_large(name, chars, limits::SHORT_CHARS, "characters"));
        }
        Ok(Some(text.to_owned()))
    }

    /// A text that may be long.
    ///
    /// # Errors
    ///
    /// Where it is no text, or too long.
    pub fn long(&self, name: &str) -> Result<Option<String>, Refusal> {
        self.some(name).map(|value| long(name, value)).transpose()
    }

    /// A yes or no, given as one, as a text, or as 0 or 1.
    ///
    /// # Errors
    ///
    /// Where it is neither.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, Refusal> {
        self.some(name).map(|value| flag(name, value)).transpose()
    }

    /// A whole number, given as `3`, `3.0` or `"3"`.
    ///
    /// # Errors
    ///
    /// Where it is none.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, Refusal> {
        self.some(name)
            .map(|value| integer(name, value))
            .transpose()
    }

    /// An object's id.
    ///
    /// # Errors
    ///
    /// `INVALID_ID` where it is mistyped.
    pub fn id(&self, name: &str) -> Result<Option<ObjectId>, Refusal> {
        self.some(name).map(|value| id(name, value)).transpose()
    }

    /// An object's id that must be there.
    ///
    /// # Errors
    ///
    /// Where it is absent or mistyped.
    pub fn required_id(&self, name: &str) -> Result<ObjectId, Refusal> {
        self.id(name)?.ok_or_else(|| missing(name))
    }

    /// A revision.
    ///
    /// # Errors
    ///
    /// Where no node ever gave such a text.
    pub fn revision(&self, name: &str) -> Result<Option<Revision>, Refusal> {
        let Some(value) = self.some(name) else {
            return Ok(None);
        };
        let text = line(name, value, limits::SHORT_CHARS)?;
        text.parse()
            .map(Some)
            .map_err(|error: crate::revision::InvalidRevision| {
                Refusal::argument(
                    name,
                    format!("{name}: {error}."),
                    "Read the object and send its revision.",
                )
            })
    }

    /// Several values, given as an array, as JSON text of one, or as a single value; nothing where
    /// the name is absent.
    ///
    /// # Errors
    ///
    /// Where there are more than `max`.
    pub fn list(&self, name: &str, max: usize) -> Result<Option<Vec<Value>>, Refusal> {
        let Some(value) = self.some(name) else {
            return Ok(None);
        };
        let items = list(value);
        if items.len() > max {
            return Err(too_large(name, items.len(), max, "entries"));
        }
        Ok(Some(items))
    }

    /// Several one-line texts, commas within a text separating them too.
    ///
    /// # Errors
    ///
    /// As [`Self::list`], and where one is no text.
    pub fn words(&self, name: &str, max: usize) -> Result<Option<Vec<String>>, Refusal> {
        let Some(items) = self.list(name, max)? else {
            return Ok(None);
        };
        let mut words = Vec::new();
        for item in items {
            let text = line(name, &item, limits::SHORT_CHARS)?;
            words.extend(
                text.split(',')
                    .map(str::trim)
                    .filter(|word| !word.is_empty())
                    .map(str::to_owned),
            );
        }
        Ok(Some(words))
    }

    /// All of it, to hash or to pass on.
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }
}

/// What a key stands for: a hash of the arguments that decide what happens.
pub fn payload_hash(map: &Map<String, Value>) -> String {
    // The revision is a condition of the call, not what it asks for: a retry may have read a newer one.
    const ASIDE: [&str; 6] = [
        "idempotencyKey",
        "waitFor",
        "timeoutMs",
        "by",
        "payload",
        "revision",
    ];
    let deciding: Map<_, _> = map
        .iter()
        .filter(|(name, value)| !ASIDE.contains(&name.as_str()) && !value.is_null())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    // serde_json keeps object keys sorted, so equal arguments give equal text.
    let hash = blake3::hash(Value::Object(deciding).to_string().as_bytes());
    hash.to_hex().get(..24).unwrap_or_default().to_owned()
}

/// An argument that must be there.
pub fn missing(name: &str) -> Refusal {
    Refusal::argument(name, format!("{name} is missing."), "Send it.")
}

/// An argument beyond its limit.
pub fn too_large(name: &str, given: usize, max: usize, unit: &str) -> Refusal {
    Refusal::new(
        Code::TooLarge,
        format!("{name} has {given} {unit}; at most {max} are allowed."),
        "Shorten or split it.",
    )
    .with("field", name)
    .with("given", given)
    .with("max", max)
}

/// A text of one line from a value.
///
/// # Errors
///
/// Where it is no text, holds control characters, or is too long.
pub fn line(name: &str, value: &Value, max_chars: usize) -> Result<String, Refusal> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        // Clients that know one kind of number alone send 3.0 for 3.
        Value::Number(_) => match integer(name, value) {
            Ok(whole) => whole.to_string(),
            Err(_) => value.to_string(),
        },
        _ => return Err(wrong(name, value, "a text")),
    };
    let chars = text.chars().count();
    if chars > max_chars {
        return Err(too_large(name, chars, max_chars, "characters"));
    }
    if text.chars().any(char::is_control) {
        return Err(Refusal::argument(
            name,
            format!("{name} holds control characters or line breaks."),
            "Send one line of plain text.",
        ));
    }
    Ok(text)
}

/// A long text from a value, line ends made alike.
///
/// # Errors
///
/// Where it is no text or too long.
pub fn long(name: &str, value: &Value) -> Result<String, Refusal> {
    let Value::String(text) = value else {
        return Err(wrong(name, value, "a text"));
    };
    let text = if text.contains('\r') {
        text.replace("\r\n", "\n")
    } else {
        text.clone()
    };
    let chars = text.chars().count();
    if chars > limits::TEXT_CHARS {
        return Err(too_large(name, chars, limits::TEXT_CHARS, "characters"));
    }
    if text.len() > limits::TEXT_BYTES {
        return Err(too_large(name, text.len(), limits::TEXT_BYTES, "bytes"));
    }
    Ok(text)
}

/// A whole number from a value.
///
/// # Errors
///
/// Where it is none.
pub fn integer(name: &str, value: &Value) -> Result<i64, Refusal> {
    let from_float =
        |number: f64| (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64);
    let number = match value {
        Value::Number(number) => number
            .as_i64()
            .or_else(|| number.as_f64().and_then(from_float)),
        Value::String(text) => text
            .trim()
            .parse::<i64>()
            .ok()
            .or_else(|| text.trim().parse().ok().and_then(from_float)),
        _ => None,
    };
    number.ok_or_else(|| wrong(name, value, "a whole number"))
}

/// A yes or no from a value.
///
/// # Errors
///
/// Where it is neither.
pub fn flag(name: &str, value: &Value) -> Result<bool, Refusal> {
    match value {
        Value::Bool(yes) => Ok(*yes),
        Value::Number(number) if number.as_f64() == Some(0.0) => Ok(false),
        Value::Number(number) if number.as_f64() == Some(1.0) => Ok(true),
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "1" => Ok(true),
            "false" | "no" | "0" => Ok(false),
            _ => Err(wrong(name, value, "true or false")),
        },
        _ => Err(wrong(name, value, "true or false")),
    }
}

/// An object's id from a value.
///
/// # Errors
///
/// `INVALID_ID` where it is mistyped.
pub fn id(name: &str, value: &Value) -> Result<ObjectId, Refusal> {
    let text = value.as_str().ok_or_else(|| wrong(name, value, "an id"))?;
    text.parse().map_err(|error: crate::id::InvalidId| {
        Refusal::new(
            Code::InvalidId,
            format!("{name} is not an id: {error}."),
            "It is mistyped; copy it from a result.",
        )
        .with("field", name)
        .with("given", text)
    })
}

/// The values of an array, of JSON text of one, or the value alone.
pub fn list(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items.clone(),
        Value::String(text) if text.trim_start().starts_with('[') => {
            match serde_json::from_str(text) {
                Ok(Value::Array(items)) => items,
                _ => vec![value.clone()],
            }
        }
        other => vec![other.clone()],
    }
}

/// An object, or JSON text of one.
///
/// # Errors
///
/// Where it is none.
pub fn object(name: &str, value: Value) -> Result<Map<String, Value>, Refusal> {
    match value {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        Value::String(ref text) => match serde_json::from_str(text) {
            Ok(Value::Object(map)) => Ok(map),
            _ => Err(wrong(name, &value, "an object")),
        },
        other => Err(wrong(name, &other, "an object")),
    }
}

/// A value of the wrong form.
pub fn wrong(name: &str, given: &Value, expected: &str) -> Refusal {
    let kind = match given {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    Refusal::argument(
        name,
        format!("{name} should be {expected}, not {kind} of this form."),
        "Send it so.",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn args(value: Value) -> Arguments {
        Arguments(Arguments::flatten(value).unwrap())
    }

    #[test]
    fn sloppy_arguments_are_accepted() {
        let args = args(
            json!({"a": "3", "b": 3.0, "c": "[\"x\",\"y\"]", "d": null, "e": "yes", "f": "p, q"}),
        );
        assert_eq!(args.integer("a").unwrap(), Some(3));
        assert_eq!(args.integer("b").unwrap(), Some(3));
        assert_eq!(args.words("c", 9).unwrap().unwrap(), ["x", "y"]);
        assert_eq!(args.integer("d").unwrap(), None);
        assert_eq!(args.flag("e").unwrap(), Some(true));
        assert_eq!(args.words("f", 9).unwrap().unwrap(), ["p", "q"]);
        assert!(args.integer("c").is_err());
    }

    #[test]
    fn a_payload_is_merged_and_a_contradiction_refused() {
        let flat = json!({"action": "move", "id": "x", "status": "done"});
        let nested = json!({"action": "move", "payload": {"id": "x", "status": "done"}});
        let text = json!({"action": "move", "payload": "{\"id\":\"x\",\"status\":\"done\"}"});
        let both = json!({"action": "move", "id": "x", "payload": {"id": "x", "status": "done"}});
        let expected = Arguments::flatten(flat).unwrap();
        for given in [nested, text, both] {
            assert_eq!(Arguments::flatten(given).unwrap(), expected);
        }
        let twice = json!({"id": "x", "payload": {"id": "y"}});
        assert_eq!(
            Arguments::flatten(twice).unwrap_err().code,
            Code::InvalidArgument
        );
    }

    #[test]
    fn unknown_names_are_refused_with_the_accepted_ones() {
        let map = Arguments::flatten(json!({"titel": "x"})).unwrap();
        let refusal = Arguments::accept(map, &["title"]).unwrap_err();
        assert_eq!(refusal.details["field"], "titel");
        assert_eq!(refusal.details["accepted"], json!(["title"]));
    }

    #[test]
    fn texts_end_at_their_limits() {
        let line_of = |n: usize| line("t", &json!("x".repeat(n)), 10);
        assert!(line_of(9).is_ok());
        assert!(line_of(10).is_ok());
        assert_eq!(line_of(11).unwrap_err().code, Code::TooLarge);
        let long_of = |n: usize| long("t", &json!("x".repeat(n)));
        assert!(long_of(limits::TEXT_CHARS - 1).is_ok());
        assert!(long_of(limits::TEXT_CHARS).is_ok());
        assert_eq!(
            long_of(limits::TEXT_CHARS + 1).unwrap_err().code,
            Code::TooLarge
        );
        // 160,000 characters of five bytes would fit by characters alone.
        let bytes_of = |n: usize| long("t", &json!("\u{10000}".repeat(n / 4)));
        assert!(bytes_of(limits::TEXT_BYTES).is_ok());
        assert_eq!(
            bytes_of(limits::TEXT_BYTES + 4).unwrap_err().code,
            Code::TooLarge
        );
        assert!(line("t", &json!("a\nb"), 10).is_err());
    }

    #[test]
    fn a_payload_hash_is_of_what_decides() {
        let of = |value: Value| payload_hash(&Arguments::flatten(value).unwrap());
        assert_eq!(
            of(json!({"a": 1, "by": "x"})),
            of(json!({"a": 1, "idempotencyKey": "k", "b": null}))
        );
        assert_ne!(of(json!({"a": 1})), of(json!({"a": 2})));
    }
}
