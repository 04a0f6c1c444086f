//! Tokens: what a credential's holder presents. Shown once, stored only as a hash.

use crate::base32;
use crate::id::digest;
use std::fmt;

/// A token, in the clear. Show it once and let go of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// `stead_` and 32 characters for these 160 bits. The prefix lets secret scanners find a leaked one.
    #[must_use]
    pub fn from_entropy(entropy: &[u8; 20]) -> Self {
        Self(format!("stead_{}", base32::encode(entropy)))
    }

    /// The token itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What the roster stores of it.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        token_hash(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// What the roster stores of a token. No salt and no slow hash: a token has 160 random bits and is not guessed.
#[must_use]
pub fn token_hash(token: &str) -> [u8; 32] {
    digest(b"stead token1", &[token.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form() {
        let token = Token::from_entropy(&[0xff; 20]);
        assert_eq!(token.as_str(), format!("stead_{}", "z".repeat(32)));
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert_eq!(token.hash(), token_hash(token.as_str()));
        assert_ne!(
            token.hash(),
            *blake3::hash(token.as_str().as_bytes()).as_bytes()
        );
    }
}
