//! Enums that users have made: what follows from their names alone, which is the same in every file.

use std::collections::HashMap;
use std::sync::{OnceLock, PoisonError, RwLock};

use polyshard_sql::{SqlError, TableName, TypeOid};

use super::TypeInfo;
use crate::fail::fail;
use crate::functions::quote_ident;
use crate::system::number;
use crate::translate::file_name;

/// Names of enums that a process has seen: each costs some 200 bytes for as long as it runs.
const TYPES_MAX: usize = 100_000;

type Made = HashMap<u32, &'static TypeInfo>;

fn all() -> &'static RwLock<Made> {
    static MADE: OnceLock<RwLock<Made>> = OnceLock::new();
    MADE.get_or_init(RwLock::default)
}

pub(super) fn info(oid: TypeOid) -> Option<&'static TypeInfo> {
    all().read().unwrap_or_else(PoisonError::into_inner).get(&oid.0).copied()
}

/// The number of an enum of this name: of its name, so that every shard and session has the same.
pub(crate) fn enum_type(name: &TableName) -> Result<TypeOid, SqlError> {
    let file = file_name(name);
    let (own, array) = (number(&format!("type:{file}")), number(&format!("types:{file}")));
    let mut made = all().write().unwrap_or_else(PoisonError::into_inner);
    if !made.contains_key(&own) {
        if made.len() >= TYPES_MAX {
            return Err(fail("53400", "too many types have been made: start the process again"));
        }
        let within = if name.schema == "public" { String::new() } else { quote_ident(&name.schema) + "." };
        let shown = format!("{within}{}", quote_ident(&name.name));
        let (bare, of_array) = (leak(name.name.clone()), leak(format!("_{}", name.name)));
        let (shown_array, shown) = (leak(format!("{shown}[]")), leak(shown));
        let one = super::t(own, bare, shown, 'E', false, 4, array, 0);
        let many = super::t(array, of_array, shown_array, 'A', false, -1, 0, own);
        made.insert(own, Box::leak(Box::new(one)));
        made.insert(array, Box::leak(Box::new(many)));
    }
    Ok(TypeOid(own))
}

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}
