//! The macro behind every identifier: a newtype over fixed bytes with one spelling.

macro_rules! fixed_bytes {
    ($(#[$doc:meta])* $name:ident, $len:literal, $prefix:literal, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; $len]);

        impl $name {
            /// From its bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; $len]) -> Self {
                Self(bytes)
            }

            /// Its bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; $len] {
                &self.0
            }

            /// Its bytes, by value.
            #[must_use]
            pub const fn to_bytes(self) -> [u8; $len] {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                f.write_str(&base32::encode(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                text.strip_prefix($prefix).and_then(base32::decode).map(Self).ok_or(IdError {
                    kind: $kind,
                    prefix: $prefix,
                    chars: ($len * 8usize).div_ceil(5),
                })
            }
        }

        $crate::fixed_bytes::serde_as_text_or_bytes!($name, $len);
    };
}
pub(crate) use fixed_bytes;

/// Text where people read it (JSON), plain bytes where only programs do (postcard).
macro_rules! serde_as_text_or_bytes {
    ($name:ident, $len:literal) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    self.0.serialize(serializer)
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                    text.parse().map_err(serde::de::Error::custom)
                } else {
                    <[u8; $len] as serde::Deserialize>::deserialize(deserializer).map(Self)
                }
            }
        }
    };
}
pub(crate) use serde_as_text_or_bytes;
