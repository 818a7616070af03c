//! Constant inputs: the promises that engines get about their contents, and the check that a run keeps them.
//!
//! An engine packs weights once for each token that names their contents, whichever session they are of. The model's
//! bytes are there when nodes are claimed and compiled, and tokens are made of them; but a run may get others, since
//! `SessionOptions.add_initializer` replaces initializers without the provider seeing it. So no plan is executed before
//! the run's constants have been looked at: what is promised then are the tokens of those. One that is where the model's
//! bytes were when it was compiled is the model's: a tensor of the application is older than the session and lives as
//! long, so that it is nowhere where the model's bytes have been.

use std::collections::HashMap;
use std::fmt;

use hipdnn_schemas::KnobValue;

/// The knob by which an engine is told which tensors never change.
const KNOB: &str = "hipdnn_rs.constants";

/// Content token: two contents of one token would be a collision of BLAKE3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(blake3::Hash);

impl Token {
    /// The token of these bytes and their number.
    pub fn of(bytes: &[u8]) -> Token {
        let mut hasher = blake3::Hasher::new();
        hasher.update(bytes).update(&(bytes.len() as u64).to_le_bytes());
        Token(hasher.finalize())
    }
}

/// 64 lower-case hexadecimal digits, the most that engines take.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_hex())
    }
}

/// Bytes and the token that was made of them.
pub type Contents<'a> = Vec<(Token, &'a [u8])>;

/// The tokens of the tensors of a graph, by uid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Promise(Vec<(i64, Token)>);

impl Promise {
    /// Adds a tensor that has the contents of that token in every execution.
    pub fn add(&mut self, uid: i64, token: Token) {
        self.0.push((uid, token));
    }

    /// True if some tensor has the contents of that token.
    pub fn has(&self, token: Token) -> bool {
        self.0.iter().any(|(_, other)| *other == token)
    }

    /// The knob with the promise for an engine; `None` if nothing is promised.
    pub fn knob(&self) -> Option<(String, KnobValue)> {
        let tokens: Vec<_> = self.0.iter().map(|(uid, token)| format!("{uid}={token}")).collect();
        (!tokens.is_empty()).then(|| (KNOB.to_string(), KnobValue::String(tokens.join(","))))
    }
}

/// Knowledge of the contents of a partition's constants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// From the model, of whose weights bytes of these tokens were at these addresses: no run has been seen.
    Model(HashMap<usize, Token>),
    /// From a run that had them at these addresses. They are a session's initializers, which neither move nor change
    /// while it lives, so that the same addresses are the same bytes.
    At(Box<[usize]>),
    /// They have moved, against what is said above: nothing is promised any more, and every run is looked at.
    Moving,
}

impl Known {
    /// True if constants at these addresses are those that are known.
    pub fn fits(&self, addresses: &[usize]) -> bool {
        matches!(self, Known::At(known) if **known == *addresses)
    }

    /// The addresses of a run that was looked at, unless they have moved since.
    pub fn addresses(&self) -> Option<&[usize]> {
        match self {
            Known::At(addresses) => Some(addresses),
            Known::Model(_) | Known::Moving => None,
        }
    }

    /// Knowledge of a model that is being compiled.
    pub fn of_model(contents: &[(Token, &[u8])]) -> Known {
        Known::Model(contents.iter().map(|(token, bytes)| (bytes.as_ptr().addr(), *token)).collect())
    }

    /// True if a constant that a run has at this address has the bytes that the model has under this token.
    pub fn is_of_model(&self, address: usize, token: Token) -> bool {
        matches!(self, Known::Model(known) if known.get(&address) == Some(&token))
    }

    /// Knowledge after a run that did not fit, and true if its bytes may be promised.
    pub fn after(&self, addresses: &[usize]) -> (Known, bool) {
        match self {
            Known::Model(_) => (Known::At(addresses.into()), true),
            Known::At(_) | Known::Moving => (Known::Moving, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_equal_where_bytes_are() {
        let contents: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"a", b"b", &[0; 8]];
        for one in contents {
            for other in contents {
                assert_eq!(Token::of(one) == Token::of(other), one == other, "{one:?}, {other:?}");
            }
            let text = Token::of(one).to_string();
            assert_eq!(text.len(), 64);
            assert!(text.bytes().all(|byte| byte.is_ascii_hexdigit()), "{text}");
        }
    }

    /// The tokens before were XXH3's, for which two contents of one token can be computed.
    #[test]
    fn tokens_are_blake3_of_the_bytes_and_their_number() {
        let want = blake3::hash(b"weights\x07\0\0\0\0\0\0\0").to_string();
        assert_eq!(Token::of(b"weights").to_string(), want);
    }

    #[test]
    fn a_promise_is_a_knob() {
        let mut promise = Promise::default();
        assert_eq!(promise.knob(), None);
        let (one, other) = (Token::of(b"one"), Token::of(b"other"));
        promise.add(2, one);
        promise.add(3, other);
        let text = format!("2={one},3={other}");
        assert_eq!(promise.knob(), Some((KNOB.to_string(), KnobValue::String(text))));
        assert_eq!([one, other, Token::of(b"none")].map(|token| promise.has(token)), [true, true, false]);
    }

    #[test]
    fn what_is_known_of_constants() {
        let bytes = *b"one";
        let (token, address) = (Token::of(&bytes), bytes.as_ptr().addr());
        let model = Known::of_model(&[(token, &bytes)]);
        assert!(!model.fits(&[]) && !model.fits(&[address]));
        assert!(model.is_of_model(address, token));
        assert!(!model.is_of_model(address + 1, token) && !model.is_of_model(address, Token::of(b"two")));
        let (at, promised) = model.after(&[1, 2]);
        assert!(promised && at.fits(&[1, 2]));
        for addresses in [&[1][..], &[2, 1], &[1, 3], &[1, 2, 3]] {
            assert!(!at.fits(addresses), "{addresses:?}");
        }
        assert!(!at.is_of_model(address, token));
        // Back at the first address may be something else.
        let (moving, promised) = at.after(&[1, 3]);
        assert!(!promised && !moving.fits(&[1, 3]) && !moving.fits(&[1, 2]));
        assert_eq!(moving.after(&[1, 2]), (Known::Moving, false));
    }
}
