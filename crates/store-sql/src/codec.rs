//! Bytes of PostgreSQL's protocol 3.0 from clients, into messages. Everything is checked: clients send what they like.

use std::str::Utf8Error;

/// The longest message taken, as PostgreSQL's own: a gigabyte.
pub const MESSAGE_BYTES_MAX: usize = 0x3fff_ffff;
/// The longest message before a client has proven who it is, and of messages that carry no data.
pub const SMALL_MESSAGE_BYTES_MAX: usize = 30_000;
/// The longest start-up packet, as PostgreSQL's own.
pub const STARTUP_BYTES_MAX: usize = 10_000;
/// Parameters one Bind may have: the count is a 16-bit number.
pub const PARAMETERS_MAX: usize = u16::MAX as usize;

const CANCEL_CODE: u32 = 80_877_102;
const TLS_CODE: u32 = 80_877_103;
const GSS_CODE: u32 = 80_877_104;

/// Bytes that are no message: the connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A length that cannot be.
    #[error("a message has an impossible length")]
    Length,
    /// The message ends too early, or too late.
    #[error("a message does not have the form that its type demands")]
    Form,
    /// Not UTF-8.
    #[error("a name or statement is not UTF-8")]
    Text,
}

impl From<Utf8Error> for Malformed {
    fn from(_: Utf8Error) -> Malformed {
        Malformed::Text
    }
}

/// A message's type, and its length with type and length field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The type.
    pub kind: u8,
    /// Bytes from the type to the end.
    pub bytes: usize,
}

/// The head of the next message, once its five bytes are there. Long messages only where data is expected.
pub fn head(buffer: &[u8]) -> Result<Option<Head>, Malformed> {
    let Some((&kind, rest)) = buffer.split_first() else { return Ok(None) };
    let Some(length) = rest.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    let max = match kind {
        b'Q' | b'P' | b'B' | b'd' | b'F' => MESSAGE_BYTES_MAX,
        _ => SMALL_MESSAGE_BYTES_MAX,
    };
    if length < 4 || length > max {
        return Err(Malformed::Length);
    }
    Ok(Some(Head { kind, bytes: length + 1 }))
}

/// The first packet of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Startup {
    /// Asks for TLS.
    Tls,
    /// Asks for GSSAPI encryption.
    Gss,
    /// Asks to stop another session's statement.
    Cancel {
        /// The session's number.
        process: i32,
        /// Its secret.
        secret: i32,
    },
    /// Begins a session.
    Session {
        /// The minor version of protocol 3.
        minor: u16,
        /// `user`, `database` and settings.
        parameters: Vec<(String, String)>,
    },
    /// A protocol that is not 3.
    Unknown,
}

/// The length of a start-up packet, once its four bytes are there.
pub fn startup_length(buffer: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(length) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if !(8..=STARTUP_BYTES_MAX).contains(&length) {
        return Err(Malformed::Length);
    }
    Ok(Some(length))
}

/// Reads a start-up packet without its length.
pub fn startup(body: &[u8]) -> Result<Startup, Malformed> {
    let mut fields = Fields(body);
    match fields.u32()? {
        TLS_CODE => Ok(Startup::Tls),
        GSS_CODE => Ok(Startup::Gss),
        CANCEL_CODE => {
            let (process, secret) = (fields.i32()?, fields.i32()?);
            fields.end()?;
            Ok(Startup::Cancel { process, secret })
        }
        version if version >> 16 == 3 => {
            let mut parameters = Vec::new();
            loop {
                let name = fields.text()?;
                if name.is_empty() {
                    break;
                }
                parameters.push((name.to_owned(), fields.text()?.to_owned()));
            }
            fields.end()?;
            Ok(Startup::Session { minor: (version & 0xffff) as u16, parameters })
        }
        _ => Ok(Startup::Unknown),
    }
}

/// `P`: a statement to prepare.
#[derive(Debug, PartialEq, Eq)]
pub struct Parse<'a> {
    /// Its name; empty for the unnamed one.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
    /// Types of its first parameters, 0 for unknown.
    pub types: Vec<u32>,
}

impl<'a> Parse<'a> {
    /// Reads the body.
    pub fn read(body: &'a [u8]) -> Result<Parse<'a>, Malformed> {
        let mut fields = Fields(body);
        let (name, text) = (fields.text()?, fields.text()?);
        let count = fields.u16()?;
        let types = (0..count).map(|_| fields.u32()).collect::<Result<_, _>>()?;
        fields.end()?;
        Ok(Parse { name, text, types })
    }
}

/// `B`: a statement and its values, as a portal.
#[derive(Debug, PartialEq, Eq)]
pub struct Bind<'a> {
    /// The portal's name.
    pub portal: &'a str,
    /// The statement's name.
    pub statement: &'a str,
    /// Everything after the names, to be passed on as it is.
    pub rest: &'a [u8],
}

/// What is in the rest of a [`Bind`].
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Values<'a> {
    /// Each value with whether it is in binary form; `None` is NULL.
    pub values: Vec<(bool, Option<&'a [u8]>)>,
    /// The forms asked for results: none, one for all, or one each; true is binary.
    pub results: Vec<bool>,
}

impl<'a> Bind<'a> {
    /// Reads the names.
    pub fn read(body: &'a [u8]) -> Result<Bind<'a>, Malformed> {
        let mut fields = Fields(body);
        Ok(Bind { portal: fields.text()?, statement: fields.text()?, rest: fields.0 })
    }

    /// Reads the values.
    pub fn values(&self) -> Result<Values<'a>, Malformed> {
        let mut fields = Fields(self.rest);
        let formats = fields.formats()?;
        let count = fields.u16()? as usize;
        if formats.len() > 1 && formats.len() != count {
            return Err(Malformed::Form);
        }
        let mut values = Vec::with_capacity(count.min(fields.0.len() / 4 + 1));
        for index in 0..count {
            let binary = match formats.as_slice() {
                [] => false,
                [one] => *one,
                many => many[index],
            };
            let length = fields.i32()?;
            let value = match usize::try_from(length) {
                Ok(length) => Some(fields.bytes(length)?),
                Err(_) if length == -1 => None,
                Err(_) => return Err(Malformed::Length),
            };
            values.push((binary, value));
        }
        let results = fields.formats()?;
        fields.end()?;
        Ok(Values { values, results })
    }
}

/// `D` and `C`: a statement (`S`) or portal (`P`) by name.
#[derive(Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// `S` or `P`.
    pub what: u8,
    /// Its name.
    pub name: &'a str,
}

impl<'a> Named<'a> {
    /// Reads the body.
    pub fn read(body: &'a [u8]) -> Result<Named<'a>, Malformed> {
        let mut fields = Fields(body);
        let what = fields.bytes(1)?[0];
        let name = fields.text()?;
        fields.end()?;
        if !matches!(what, b'S' | b'P') {
            return Err(Malformed::Form);
        }
        Ok(Named { what, name })
    }
}

/// `E`: run a portal.
#[derive(Debug, PartialEq, Eq)]
pub struct Execute<'a> {
    /// The portal's name.
    pub portal: &'a str,
    /// Rows wanted at most; 0 for all.
    pub rows_max: i32,
}

impl<'a> Execute<'a> {
    /// Reads the body.
    pub fn read(body: &'a [u8]) -> Result<Execute<'a>, Malformed> {
        let mut fields = Fields(body);
        let execute = Execute { portal: fields.text()?, rows_max: fields.i32()? };
        fields.end()?;
        Ok(execute)
    }
}

/// `Q`, and `f`: one text.
pub fn text(body: &[u8]) -> Result<&str, Malformed> {
    let mut fields = Fields(body);
    let text = fields.text()?;
    fields.end()?;
    Ok(text)
}

/// `p` as the first message of SASL: the mechanism, and the client's first words.
pub fn sasl_initial(body: &[u8]) -> Result<(&str, &[u8]), Malformed> {
    let mut fields = Fields(body);
    let mechanism = fields.text()?;
    let length = fields.i32()?;
    let data = match usize::try_from(length) {
        Ok(length) => fields.bytes(length)?,
        Err(_) => &[],
    };
    fields.end()?;
    Ok((mechanism, data))
}

/// Reads fields one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Malformed::Form)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        let bytes = self.bytes(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn i32(&mut self) -> Result<i32, Malformed> {
        self.u32().map(u32::cast_signed)
    }

    /// Up to a zero byte.
    fn text(&mut self) -> Result<&'a str, Malformed> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed::Form)?;
        let text = std::str::from_utf8(&self.0[..end])?;
        self.0 = &self.0[end + 1..];
        Ok(text)
    }

    fn formats(&mut self) -> Result<Vec<bool>, Malformed> {
        let count = self.u16()?;
        let format = |code| match code {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Form),
        };
        (0..count).map(|_| self.u16().and_then(format)).collect()
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Form) }
    }
}
