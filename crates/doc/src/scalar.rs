//! The values that a field can hold.

use automerge::ScalarValue;

/// One value of the dialect: what Automerge calls a scalar, without counters and without value
/// types that this version does not know.
#[derive(Debug, Clone)]
pub enum Scalar {
    /// Nothing, said explicitly.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number from foreign software that writes unsigned ones.
    Uint(u64),
    /// A number with a fraction; compared by its bits.
    F64(f64),
    /// Milliseconds since 1970.
    Timestamp(i64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Text.
    Str(String),
}

impl Scalar {
    /// The text of a text value.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Bytes that the value takes in memory and, about, in a change.
    pub fn len(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) => 1,
            Self::Int(_) | Self::Uint(_) | Self::F64(_) | Self::Timestamp(_) => 8,
            Self::Bytes(bytes) => bytes.len(),
            Self::Str(text) => text.len(),
        }
    }

    /// Whether the value takes no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value as JSON, for answers and exports. Bytes are shown in hexadecimal.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(yes) => (*yes).into(),
            Self::Int(number) | Self::Timestamp(number) => (*number).into(),
            Self::Uint(number) => (*number).into(),
            Self::F64(number) => (*number).into(),
            Self::Bytes(bytes) => bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
                .into(),
            Self::Str(text) => text.as_str().into(),
        }
    }

    /// As Automerge has it.
    pub fn to_automerge(&self) -> ScalarValue {
        match self {
            Self::Null => ScalarValue::Null,
            Self::Bool(yes) => ScalarValue::Boolean(*yes),
            Self::Int(number) => ScalarValue::Int(*number),
            Self::Uint(number) => ScalarValue::Uint(*number),
            Self::F64(number) => ScalarValue::F64(*number),
            Self::Timestamp(millis) => ScalarValue::Timestamp(*millis),
            Self::Bytes(bytes) => ScalarValue::Bytes(bytes.clone()),
            Self::Str(text) => ScalarValue::Str(text.as_str().into()),
        }
    }

    /// From Automerge's value; nothing for counters and unknown types, which are outside the
    /// dialect.
    pub fn from_automerge(value: &ScalarValue) -> Option<Self> {
        Some(match value {
            ScalarValue::Null => Self::Null,
            ScalarValue::Boolean(yes) => Self::Bool(*yes),
            ScalarValue::Int(number) => Self::Int(*number),
            ScalarValue::Uint(number) => Self::Uint(*number),
            ScalarValue::F64(number) => Self::F64(*number),
            ScalarValue::Timestamp(millis) => Self::Timestamp(*millis),
            ScalarValue::Bytes(bytes) => Self::Bytes(bytes.clone()),
            ScalarValue::Str(text) => Self::Str(text.to_string()),
            ScalarValue::Counter(_) | ScalarValue::Unknown { .. } => return None,
        })
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) | (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::Uint(a), Self::Uint(b)) => a == b,
            (Self::F64(a), Self::F64(b)) => a.to_bits() == b.to_bits(),
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Str(a), Self::Str(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Scalar {}

impl From<&str> for Scalar {
    fn from(text: &str) -> Self {
        Self::Str(text.to_owned())
    }
}

impl From<String> for Scalar {
    fn from(text: String) -> Self {
        Self::Str(text)
    }
}

impl From<bool> for Scalar {
    fn from(yes: bool) -> Self {
        Self::Bool(yes)
    }
}

impl From<i64> for Scalar {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}
