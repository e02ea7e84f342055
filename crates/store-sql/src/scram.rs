//! The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), without channel binding.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Rounds of hashing for a password, as PostgreSQL's default.
const ITERATIONS: u32 = 4096;
/// Bytes of a salt, as PostgreSQL's.
pub const SALT_BYTES: usize = 16;
/// Bytes of the server's part of a nonce, as PostgreSQL's.
pub const NONCE_BYTES: usize = 18;

/// What is kept of a password: enough to check it, not enough to log in with.
#[derive(Clone)]
pub struct Verifier {
    salt: [u8; SALT_BYTES],
    stored_key: [u8; 32],
    server_key: [u8; 32],
}

impl Verifier {
    /// Of a password, with a random salt.
    pub fn new(password: &str, salt: [u8; SALT_BYTES]) -> Verifier {
        // What cannot be prepared is used as it is, by servers and clients alike.
        let prepared = stringprep::saslprep(password).unwrap_or(password.into());
        let salted = salted_password(prepared.as_bytes(), &salt);
        let stored_key = Sha256::digest(hmac(&salted, &[b"Client Key"])).into();
        Verifier { salt, stored_key, server_key: hmac(&salted, &[b"Server Key"]) }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Verifier(***)")
    }
}

/// As PostgreSQL writes it.
const TEXT_PREFIX: &str = "SCRAM-SHA-256$";

impl Verifier {
    /// As PostgreSQL writes it: `SCRAM-SHA-256$4096:salt$stored key:server key`.
    pub fn to_text(&self) -> String {
        let [salt, stored, server] =
            [self.salt.as_slice(), &self.stored_key, &self.server_key].map(|bytes| STANDARD.encode(bytes));
        format!("{TEXT_PREFIX}{ITERATIONS}:{salt}${stored}:{server}")
    }

    /// Reads it back; none if it is not of this form.
    pub fn parse(text: &str) -> Option<Verifier> {
        let (rounds, keys) = text.strip_prefix(TEXT_PREFIX)?.split_once('$')?;
        let (rounds, salt) = rounds.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        if rounds != ITERATIONS.to_string() {
            return None;
        }
        Some(Verifier {
            salt: STANDARD.decode(salt).ok()?.try_into().ok()?,
            stored_key: STANDARD.decode(stored).ok()?.try_into().ok()?,
            server_key: STANDARD.decode(server).ok()?.try_into().ok()?,
        })
    }

    /// Of somebody who does not exist: the same salt for a name every time, and no password fits.
    pub fn unknown(user: &str, secret: &Verifier) -> Verifier {
        let digest = hmac(&secret.server_key, &[b"unknown", user.as_bytes()]);
        let mut salt = [0; SALT_BYTES];
        salt.copy_from_slice(&digest[..SALT_BYTES]);
        Verifier { salt, stored_key: digest, server_key: digest }
    }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length is taken");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// PBKDF2 for one block.
fn salted_password(password: &[u8], salt: &[u8]) -> [u8; 32] {
    let mut last = hmac(password, &[salt, &1_u32.to_be_bytes()]);
    let mut all = last;
    for _ in 1..ITERATIONS {
        last = hmac(password, &[&last]);
        for (byte, next) in all.iter_mut().zip(last) {
            *byte ^= next;
        }
    }
    all
}

/// An exchange after the client's first words.
pub struct Exchange {
    verifier: Verifier,
    /// What the client said of channel binding.
    binding: String,
    client_first: String,
    nonce: String,
}

/// Words that SCRAM does not allow, or a wrong proof: the same answer to both.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused;

impl Exchange {
    /// Takes the client's first words; returns the server's.
    pub fn start(
        verifier: Verifier,
        first: &[u8],
        random: [u8; NONCE_BYTES],
    ) -> Result<(Exchange, String), Refused> {
        let first = std::str::from_utf8(first).map_err(|_| Refused)?;
        let mut parts = first.splitn(3, ',');
        let flag = parts.next().ok_or(Refused)?;
        let authorization = parts.next().ok_or(Refused)?;
        let bare = parts.next().ok_or(Refused)?;
        // `y`: the client could bind the channel, and heard rightly that the server does not offer it.
        if !matches!(flag, "n" | "y") || !(authorization.is_empty() || authorization.starts_with("a=")) {
            return Err(Refused);
        }
        let nonce = bare.split(',').find_map(|part| part.strip_prefix("r=")).ok_or(Refused)?;
        if nonce.is_empty() || bare.starts_with("m=") {
            return Err(Refused);
        }
        let nonce = format!("{nonce}{}", STANDARD.encode(random));
        let answer = format!("r={nonce},s={},i={ITERATIONS}", STANDARD.encode(verifier.salt));
        let binding = format!("{flag},{authorization},");
        Ok((Exchange { verifier, binding, client_first: bare.to_owned(), nonce }, answer))
    }

    /// Takes the client's last words; returns the server's, if the proof is right.
    pub fn finish(self, server_first: &str, last: &[u8]) -> Result<String, Refused> {
        let last = std::str::from_utf8(last).map_err(|_| Refused)?;
        let (without_proof, proof) = last.rsplit_once(",p=").ok_or(Refused)?;
        let binding = without_proof.split(',').find_map(|part| part.strip_prefix("c=")).ok_or(Refused)?;
        let nonce = without_proof.split(',').find_map(|part| part.strip_prefix("r=")).ok_or(Refused)?;
        if STANDARD.decode(binding).ok().as_deref() != Some(self.binding.as_bytes()) || nonce != self.nonce {
            return Err(Refused);
        }
        let proof: [u8; 32] =
            STANDARD.decode(proof).ok().and_then(|proof| proof.try_into().ok()).ok_or(Refused)?;
        let words =
            [self.client_first.as_bytes(), b",", server_first.as_bytes(), b",", without_proof.as_bytes()];
        let signature = hmac(&self.verifier.stored_key, &words);
        let mut client_key = proof;
        for (byte, sign) in client_key.iter_mut().zip(signature) {
            *byte ^= sign;
        }
        let stored: [u8; 32] = Sha256::digest(client_key).into();
        if !bool::from(stored.ct_eq(&self.verifier.stored_key)) {
            return Err(Refused);
        }
        Ok(format!("v={}", STANDARD.encode(hmac(&self.verifier.server_key, &words))))
    }
}

/// Shortest password: anything shorter is found by trying.
const PASSWORD_CHARS_MIN: usize = 8;
/// Longest password: hashing it takes time for each character.
const PASSWORD_CHARS_MAX: usize = 1_000;

/// What is kept of a new password, as text; a verifier that the client has made is taken as it is. Refused in words.
pub fn kept_password(password: &str, random: &dyn Fn(&mut [u8])) -> Result<String, String> {
    if let Some(verifier) = Verifier::parse(password) {
        return Ok(verifier.to_text());
    }
    let length = password.chars().count();
    if !(PASSWORD_CHARS_MIN..=PASSWORD_CHARS_MAX).contains(&length) {
        return Err(format!(
            "the password has {length} characters; {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} are needed"
        ));
    }
    let mut salt = [0; SALT_BYTES];
    random(&mut salt);
    Ok(Verifier::new(password, salt).to_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, with its salt and nonces.
    #[test]
    fn the_example_of_the_rfc() {
        let salt: [u8; 16] = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap().try_into().unwrap();
        let verifier = Verifier::new("pencil", salt);
        let exchange = Exchange {
            verifier,
            binding: "n,,".to_owned(),
            client_first: "n=user,r=rOprNGfwEbeRWgbNEkqO".to_owned(),
            nonce: "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".to_owned(),
        };
        let server_first =
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let last = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                     p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let answer = exchange.finish(server_first, last).unwrap();
        assert_eq!(answer, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn a_verifier_is_read_back_and_shown_to_nobody() {
        let text = kept_password("a long password", &|bytes| bytes.fill(7)).unwrap();
        assert!(text.starts_with("SCRAM-SHA-256$4096:"), "{text}");
        let verifier = Verifier::parse(&text).unwrap();
        assert_eq!(verifier.to_text(), text);
        assert_eq!(format!("{verifier:?}"), "Verifier(***)");
        // As `psql`'s \\password sends it.
        assert_eq!(kept_password(&text, &|_| panic!("not needed")).unwrap(), text);
        assert!(kept_password("short", &|_| ()).is_err());
        for wrong in ["", "SCRAM-SHA-256$1:YQ==$YQ==:YQ==", "md5abc"] {
            assert!(Verifier::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_proof_and_channel_binding_are_refused() {
        let verifier = Verifier::new("pencil", [7; SALT_BYTES]);
        let start = |first: &[u8]| Exchange::start(verifier.clone(), first, [1; NONCE_BYTES]);
        assert!(start(b"p=tls-server-end-point,,n=,r=abc").is_err());
        assert!(start(b"n,,n=,r=").is_err());
        let (exchange, answer) = start(b"n,,n=,r=abc").unwrap();
        let nonce = answer.split(',').next().unwrap().to_owned();
        let last = format!("c=biws,{nonce},p={}", STANDARD.encode([0; 32]));
        assert_eq!(exchange.finish(&answer, last.as_bytes()), Err(Refused));
    }
}
