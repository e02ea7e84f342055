//! A parameter's value as the client sent it, with the type that the server reported for it.

use crate::schema::TypeOid;

/// One parameter.
#[derive(Debug, Clone, Copy)]
pub struct Param<'a> {
    /// The type the server reported, or the client said; 0 or `unknown` if nobody did.
    pub type_oid: TypeOid,
    /// Its value.
    pub value: ParamValue<'a>,
}

/// A value on the wire.
#[derive(Debug, Clone, Copy)]
pub enum ParamValue<'a> {
    /// NULL.
    Null,
    /// In the type's text form.
    Text(&'a [u8]),
    /// In the type's binary form.
    Binary(&'a [u8]),
}
