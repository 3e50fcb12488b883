//! The secret that makes a reader.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes of a token that is made: nobody guesses 256 bits.
const BYTES: usize = 32;
/// Characters that a token out of a file has at least.
const CHARACTERS_MIN: usize = 32;
const CHARACTERS_MAX: usize = 256;

/// Letters, digits, `-` and `_`. It shows itself by [`Token::text`] alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("the kernel gives no random numbers for a token")]
    Random(#[source] io::Error),
    #[error("cannot read the token in {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write a new token to {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "{} must be a file of yours that nobody else can read: chmod 600", .path.display()
    )]
    Readable { path: PathBuf },
    #[error(
        "the token in {} is not one line of {CHARACTERS_MIN} to {CHARACTERS_MAX} letters, digits, - and _; \
         remove the file to have a new one", .path.display()
    )]
    Malformed { path: PathBuf },
}

impl Token {
    /// A new one.
    pub fn random() -> Result<Token, TokenError> {
        let mut bytes = [0; BYTES];
        let filled = getrandom(&mut bytes, GetRandomFlags::empty())
            .map_err(|errno| TokenError::Random(errno.into()))?;
        // The kernel fills up to 256 bytes whole.
        debug_assert_eq!(filled, BYTES);
        Ok(Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The token in a file, so that addresses stay valid when the server starts again. A missing
    /// file is made.
    pub fn of_file(path: &Path) -> Result<Token, TokenError> {
        let read = |source| TokenError::Read { path: path.to_owned(), source };
        match fs::metadata(path) {
            Ok(metadata) => {
                let own = rustix::process::geteuid().as_raw();
                let is_ours = metadata.uid() == own || metadata.uid() == 0;
                if !metadata.is_file() || !is_ours || metadata.mode() & 0o077 != 0 {
                    return Err(TokenError::Readable { path: path.to_owned() });
                }
                let text = fs::read_to_string(path).map_err(read)?;
                Token::of_text(text.trim_end_matches('\n'))
                    .ok_or_else(|| TokenError::Malformed { path: path.to_owned() })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let token = Token::random()?;
                let write = |source| TokenError::Write { path: path.to_owned(), source };
                let mut options = OpenOptions::new();
                let mut file =
                    options.write(true).create_new(true).mode(0o600).open(path).map_err(write)?;
                writeln!(file, "{}", token.0).map_err(write)?;
                Ok(token)
            }
            Err(error) => Err(read(error)),
        }
    }

    /// A text that can be one.
    pub fn of_text(text: &str) -> Option<Token> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let fits = (CHARACTERS_MIN..=CHARACTERS_MAX).contains(&text.len());
        (fits && text.bytes().all(is_plain)).then(|| Token(text.to_owned()))
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    /// Takes as long for a nearly right one as for any other of its length.
    pub fn is(&self, said: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differs = own.iter().zip(said).fold(0, |differs, (a, b)| differs | (a ^ b));
        own.len() == said.len() && std::hint::black_box(differs) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn tokens_are_long_and_differ() {
        let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
        assert_eq!(one.text().len(), 64);
        assert_ne!(one, other);
        assert!(one.is(one.text().as_bytes()));
        assert!(!one.is(other.text().as_bytes()));
        assert!(!one.is(&one.text().as_bytes()[..63]));
        assert!(!one.is(b""));
        assert_eq!(format!("{one:?}"), "Token");
    }

    #[test]
    fn a_file_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let made = Token::of_file(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Token::of_file(&path).unwrap(), made);

        fs::write(&path, "short\n").unwrap();
        assert!(matches!(Token::of_file(&path), Err(TokenError::Malformed { .. })));
        fs::write(&path, format!("{}\n", "<".repeat(64))).unwrap();
        assert!(matches!(Token::of_file(&path), Err(TokenError::Malformed { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Token::of_file(&path), Err(TokenError::Readable { .. })));
        let nowhere = dir.path().join("missing/token");
        assert!(matches!(Token::of_file(&nowhere), Err(TokenError::Write { .. })));
        assert!(matches!(Token::of_file(dir.path()), Err(TokenError::Readable { .. })));
    }
}
