//! Crockford base32, lowercase: no `i`, `l`, `o` or `u`, so nothing is misread or misheard.

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The bytes as lowercase base32, five bits a character, the last one padded with zero bits.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 8 / 5 + 1);
    let (mut held, mut bits) = (0u32, 0u32);
    for byte in bytes {
        held = (held << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(symbol(held >> bits));
        }
        held &= (1 << bits) - 1;
    }
    if bits > 0 {
        text.push(symbol(held << (5 - bits)));
    }
    text
}

/// Exactly `N` bytes from their one spelling: lowercase, no separators, padding bits zero.
pub(crate) fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != (N * 8).div_ceil(5) {
        return None;
    }
    let mut bytes = [0u8; N];
    let mut free = bytes.iter_mut();
    let (mut held, mut bits) = (0u32, 0u32);
    for character in text.bytes() {
        let value = ALPHABET.iter().position(|symbol| *symbol == character)?;
        held = (held << 5) | u32::try_from(value).ok()?;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            *free.next()? = u8::try_from((held >> bits) & 0xff).ok()?;
            held &= (1 << bits) - 1;
        }
    }
    (held == 0 && free.next().is_none()).then_some(bytes)
}

/// What a person typed, as the alphabet spells it: case, separators and the usual misreadings undone.
pub(crate) fn normalise(typed: &str) -> String {
    typed
        .chars()
        .filter(|character| !matches!(character, '-' | '_' | '.') && !character.is_whitespace())
        .map(|character| match character.to_ascii_lowercase() {
            'o' => '0',
            'i' | 'l' => '1',
            other => other,
        })
        .collect()
}

/// The text in groups of four, for reading aloud and comparing by eye.
pub(crate) fn grouped(text: &str) -> String {
    let mut grouped = String::with_capacity(text.len() * 5 / 4);
    for (place, character) in text.chars().enumerate() {
        if place > 0 && place % 4 == 0 {
            grouped.push('-');
        }
        grouped.push(character);
    }
    grouped
}

fn symbol(value: u32) -> char {
    // The mask keeps the place inside the alphabet, so the default is never reached.
    ALPHABET
        .get((value & 31) as usize)
        .map_or('0', |symbol| char::from(*symbol))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_values() {
        assert_eq!(encode(b""), "");
        assert_eq!(encode(&[0xff]), "zw");
        assert_eq!(encode(&[0; 5]), "00000000");
        assert_eq!(encode(b"hello"), "d1jprv3f");
        assert_eq!(decode::<5>("d1jprv3f"), Some(*b"hello"));
    }

    #[test]
    fn one_spelling_only() {
        assert_eq!(decode::<1>("zw"), Some([0xff]));
        assert_eq!(decode::<1>("zx"), None, "padding bits are zero");
        assert_eq!(decode::<1>("ZW"), None);
        assert_eq!(decode::<1>("z"), None);
        assert_eq!(decode::<1>("zw0"), None);
        assert_eq!(decode::<5>("d1jprv3u"), None);
        assert_eq!(decode::<5>("d1jprv\u{e9}"), None);
    }

    #[test]
    fn typed_text_is_forgiven() {
        assert_eq!(normalise(" D1-JP rv.3F"), "d1jprv3f");
        assert_eq!(normalise("oOiIlL"), "001111");
        assert_eq!(grouped("d1jprv3f0"), "d1jp-rv3f-0");
    }

    proptest! {
        #[test]
        fn there_and_back(bytes: [u8; 32]) {
            prop_assert_eq!(decode::<32>(&encode(&bytes)), Some(bytes));
        }

        #[test]
        fn any_text_is_refused_or_the_spelling(text in ".{0,14}") {
            if let Some(bytes) = decode::<8>(&text) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
