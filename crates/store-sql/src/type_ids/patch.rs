//! Ids changed in place in messages and in values in binary form: they have the same length everywhere.

use std::sync::Arc;

use polyshard_sql::TypeOid;

use super::{Made, RECORD, RECORD_ARRAY, ShardIds, Way};

/// Numbers from here on are the user's: PostgreSQL's own are below (`FirstNormalObjectId`).
const USER_ID_MIN: u32 = 16_384;
/// Deepest nesting of values that is looked into. PostgreSQL's own limit on nested types is its stack.
const DEPTH_MAX: usize = 64;
/// Bytes of a column after its name: table, place, type, length, modifier and form.
const AFTER_NAME_BYTES: usize = 18;

pub(crate) fn is_user_id(id: u32) -> bool {
    id >= USER_ID_MIN
}

/// Whether values of such types may have ids in them that differ from shard to shard, or are of such types.
pub(crate) fn has_user_id(types: impl IntoIterator<Item = u32>) -> bool {
    types.into_iter().any(|id| is_user_id(id) || is_record(id))
}

/// Whether a statement has parameters or columns of such types; the columns are a whole RowDescription.
pub(crate) fn are_own(parameters: &[TypeOid], row_message: &[u8]) -> bool {
    let columns = row_message.get(5..).and_then(ColumnIds::read).unwrap_or_default();
    has_user_id(parameters.iter().map(|type_oid| type_oid.0).chain(columns.types))
}

pub(crate) fn is_record(id: u32) -> bool {
    matches!(id, RECORD | RECORD_ARRAY)
}

/// The ids in a RowDescription's body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ColumnIds {
    /// Where each column's ids begin, after its name.
    places: Vec<usize>,
    /// Each column's type.
    pub types: Vec<u32>,
    /// Tables of the user's, with the column's place.
    pub tables: Vec<(u32, i16)>,
}

impl ColumnIds {
    /// Reads them; nothing if the body is none.
    pub fn read(body: &[u8]) -> Option<ColumnIds> {
        let (count, _) = body.split_first_chunk::<2>()?;
        let mut found = ColumnIds::default();
        let mut at = 2;
        for _ in 0..u16::from_be_bytes(*count) {
            at += body.get(at..)?.iter().position(|byte| *byte == 0)? + 1;
            let after = body.get(at..at + AFTER_NAME_BYTES)?;
            let table = be_u32(after, 0)?;
            if is_user_id(table) {
                found.tables.push((table, i16::from_be_bytes([after[4], after[5]])));
            }
            found.places.push(at);
            found.types.push(be_u32(after, 6)?);
            at += AFTER_NAME_BYTES;
        }
        Some(found)
    }

    /// The types whose ids must be known: a record has such only in binary form.
    pub fn wanted(&self, body: &[u8]) -> Vec<u32> {
        let is_binary = |place: &usize| body.get(place + AFTER_NAME_BYTES - 1) == Some(&1);
        let types = self.places.iter().zip(&self.types);
        types.filter(|(place, id)| !is_record(**id) || is_binary(place)).map(|(_, id)| *id).collect()
    }

    /// Whether all of it is the same on every shard.
    pub fn are_plain(&self) -> bool {
        self.tables.is_empty() && !has_user_id(self.types.iter().copied())
    }

    /// Puts the clients' ids in place of the shard's. What is to be done with the rows that follow.
    pub fn patch(&self, body: &mut [u8], ids: &Arc<ShardIds>) -> Option<Arc<RowPatch>> {
        let mut binary = Vec::new();
        for (place, type_id) in self.places.iter().zip(&self.types) {
            let Some(after) = body.get_mut(*place..*place + AFTER_NAME_BYTES) else { continue };
            binary.push(after[17] == 1);
            if is_user_id(*type_id) {
                put_u32(after, 6, ids.other(Way::Out, *type_id));
            }
            let table = be_u32(after, 0).unwrap_or(0);
            if is_user_id(table) {
                let known = ids.table(table);
                let column = i16::from_be_bytes([after[4], after[5]]);
                let there = known.and_then(|known| Some((known.other, *known.columns.get(&column)?)));
                let (table, column) = there.unwrap_or((0, 0));
                put_u32(after, 0, table);
                after[4..6].copy_from_slice(&column.to_be_bytes());
            }
        }
        RowPatch::new(&self.types, |at| binary.get(at).copied().unwrap_or(false), ids)
    }
}

/// What is to be done with rows of a shard that have ids in them.
pub(crate) struct RowPatch {
    /// The columns in binary form whose values have ids, with the shard's own id of their types.
    columns: Box<[(usize, u32)]>,
    ids: Arc<ShardIds>,
}

impl RowPatch {
    /// For columns of these types, by the shard's own ids; nothing if there is nothing to do.
    pub fn new(types: &[u32], binary: impl Fn(usize) -> bool, ids: &Arc<ShardIds>) -> Option<Arc<RowPatch>> {
        let concerned = types.iter().copied().enumerate();
        let concerned = concerned.filter(|(at, id)| binary(*at) && has_inner_ids(ids, Way::Out, *id, 0));
        let columns: Box<[_]> = concerned.collect();
        (!columns.is_empty()).then(|| Arc::new(RowPatch { columns, ids: ids.clone() }))
    }

    /// Changes a row's ids: a DataRow's body. What is no row is left as it is.
    pub fn apply(&self, body: &mut [u8]) {
        let mut at = 2;
        let mut column = 0;
        for (wanted, type_id) in &self.columns {
            loop {
                let Some(length) = be_u32(body, at) else { return };
                at += 4;
                // NULL has a length of -1.
                let length = usize::try_from(length.cast_signed()).unwrap_or(0);
                let Some(value) = body.get_mut(at..at + length) else { return };
                at += length;
                column += 1;
                if column == wanted + 1 {
                    patch_value(value, *type_id, &self.ids, Way::Out);
                    break;
                }
            }
        }
    }
}

/// Changes the ids in the values of what follows the names in a Bind, whose types are as clients know them.
pub(crate) fn patch_bind(rest: &mut [u8], types: &[u32], ids: &ShardIds) {
    let count = |rest: &[u8], at: usize| {
        rest.get(at..at + 2).map(|count| usize::from(u16::from_be_bytes([count[0], count[1]])))
    };
    let Some(formats) = count(rest, 0) else { return };
    let is_binary = |rest: &[u8], index: usize| match formats {
        0 => false,
        1 => count(rest, 2) == Some(1),
        _ => count(rest, 2 + 2 * index) == Some(1),
    };
    let mut at = 2 + 2 * formats + 2;
    for (index, type_id) in types.iter().enumerate() {
        let Some(length) = be_u32(rest, at) else { return };
        at += 4;
        let length = usize::try_from(length.cast_signed()).unwrap_or(0);
        let binary = is_binary(rest, index);
        let Some(value) = rest.get_mut(at..at + length) else { return };
        at += length;
        if binary {
            patch_value(value, *type_id, ids, Way::In);
        }
    }
}

/// Whether values of a type in binary form have ids in them.
fn has_inner_ids(ids: &ShardIds, way: Way, type_id: u32, depth: usize) -> bool {
    match ids.made(way, type_id) {
        Made::Plain => false,
        Made::Array | Made::Composite => true,
        Made::Domain(base) => depth < DEPTH_MAX && has_inner_ids(ids, way, base, depth + 1),
    }
}

/// Changes the ids in a value of a type in binary form. What is no such value is left as far as it is not: whoever
/// reads it will say so.
pub(crate) fn patch_value(value: &mut [u8], type_id: u32, ids: &ShardIds, way: Way) {
    // Nothing more to do where it is no value.
    let _ = inside(value, type_id, ids, way, 0);
}

fn inside(value: &mut [u8], type_id: u32, ids: &ShardIds, way: Way, depth: usize) -> Option<()> {
    if depth > DEPTH_MAX {
        return None;
    }
    match ids.made(way, type_id) {
        Made::Plain => Some(()),
        Made::Domain(base) => inside(value, base, ids, way, depth + 1),
        Made::Array => {
            // Dimensions, whether there are NULLs, the elements' type; then each dimension's length and first index.
            let dimensions = usize::try_from(be_u32(value, 0)?).ok()?;
            let element = be_u32(value, 8)?;
            put_u32(value, 8, ids.other(way, element));
            if !has_inner_ids(ids, way, element, 0) {
                return Some(());
            }
            let mut at = dimensions.checked_mul(8)?.checked_add(12)?;
            while at < value.len() {
                at = each(value, at, element, ids, way, depth)?;
            }
            Some(())
        }
        Made::Composite => {
            // How many fields; then each one's type, length and value.
            let fields = be_u32(value, 0)?;
            let mut at = 4;
            for _ in 0..fields {
                let field = be_u32(value, at)?;
                put_u32(value, at, ids.other(way, field));
                at = each(value, at + 4, field, ids, way, depth)?;
            }
            Some(())
        }
    }
}

/// Changes one value after its length; where it ends.
fn each(value: &mut [u8], at: usize, type_id: u32, ids: &ShardIds, way: Way, depth: usize) -> Option<usize> {
    let length = usize::try_from(be_u32(value, at)?.cast_signed()).unwrap_or(0);
    let start = at + 4;
    let end = start.checked_add(length)?;
    inside(value.get_mut(start..end)?, type_id, ids, way, depth + 1)?;
    Some(end)
}

fn be_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_be_bytes)
}

fn put_u32(bytes: &mut [u8], at: usize, id: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&id.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use super::super::{TableIds, TypeId};
    use super::*;

    /// On the shard: an enum 20000, its array 20001, a composite 20002 of it, a domain 20003 over that; clients know
    /// them a thousand higher. A table 20010 is 30010 there, with its columns the other way round.
    fn ids() -> Arc<ShardIds> {
        let types = [
            (20_000, Made::Plain),
            (20_001, Made::Array),
            (20_002, Made::Composite),
            (20_003, Made::Domain(20_002)),
        ];
        let outward = types.map(|(id, made)| (id, TypeId { other: id + 1000, made }));
        let inward = types.map(|(id, made)| {
            let made = if let Made::Domain(base) = made { Made::Domain(base + 1000) } else { made };
            (id + 1000, TypeId { other: id, made })
        });
        let columns = HashMap::from([(1, 2), (2, 1)]);
        let table = Arc::new(TableIds { other: 30_010, columns, position: 0 });
        Arc::new(ShardIds {
            incarnations: Default::default(),
            position: Some(7),
            outward: outward.into(),
            inward: inward.into(),
            missing: Mutex::default(),
            tables: Mutex::new(HashMap::from([(20_010, table)])),
        })
    }

    fn value(parts: &[&[u8]]) -> Vec<u8> {
        parts.iter().flat_map(|part| [&(part.len() as u32).to_be_bytes()[..], part].concat()).collect()
    }

    fn array(element: u32, values: &[u8]) -> Vec<u8> {
        let head = [1, 0, element, 1, 1].map(u32::to_be_bytes).concat();
        [&head[..], values].concat()
    }

    fn composite(fields: &[(u32, &[u8])]) -> Vec<u8> {
        let mut all = (fields.len() as u32).to_be_bytes().to_vec();
        for (id, field) in fields {
            all.extend(id.to_be_bytes());
            all.extend(value(&[field]));
        }
        all
    }

    #[test]
    fn ids_inside_values_are_changed_both_ways() {
        let ids = ids();
        let made = |base: u32| {
            let inner = composite(&[(base, b"calm"), (23, &[0, 0, 0, 7])]);
            array(base + 3, &value(&[&inner]))
        };
        let mut sent = composite(&[(25, b"x"), (20_001, &made(20_000))]);
        let told = composite(&[(25, b"x"), (21_001, &made(21_000))]);
        let before = sent.clone();
        patch_value(&mut sent, RECORD, &ids, Way::Out);
        assert_eq!(sent, told);
        patch_value(&mut sent, RECORD, &ids, Way::In);
        assert_eq!(sent, before);
    }

    #[test]
    fn what_is_no_value_is_left_to_whoever_reads_it() {
        let ids = ids();
        let whole = array(20_003, &value(&[&composite(&[(20_000, b"calm")])]));
        for length in 0..whole.len() {
            let mut part = whole[..length].to_vec();
            patch_value(&mut part, 20_001, &ids, Way::Out);
            assert_eq!(part.len(), length);
        }
        let mut endless = [0xff; 40];
        patch_value(&mut endless, 20_001, &ids, Way::Out);
        patch_value(&mut endless, 20_002, &ids, Way::Out);
        patch_bind(&mut endless, &[21_001, 21_002], &ids);
        assert_eq!(ColumnIds::read(&endless), None);
    }

    #[test]
    fn rows_and_parameters_are_changed_where_they_are_binary() {
        let ids = ids();
        let told = |type_id: u32, form: u8| {
            let mut column = b"mood\0".to_vec();
            column.extend([0, 0, 0x4e, 0x2a, 0, 1]);
            column.extend(type_id.to_be_bytes());
            column.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, form]);
            column
        };
        let mut body = [&[0, 2][..], &told(20_001, 1), &told(20_000, 0)].concat();
        let found = ColumnIds::read(&body).unwrap();
        assert_eq!((found.types.as_slice(), found.tables.len()), (&[20_001, 20_000][..], 2));
        let patch = found.patch(&mut body, &ids).unwrap();
        let after = ColumnIds::read(&body).unwrap();
        assert_eq!(after.types, [21_001, 21_000]);
        assert_eq!(after.tables, [(30_010, 2), (30_010, 2)]);
        let mut row = [&[0, 2][..], &value(&[&array(20_000, &value(&[b"calm"])), b"calm"])].concat();
        patch.apply(&mut row);
        let told = [&[0, 2][..], &value(&[&array(21_000, &value(&[b"calm"])), b"calm"])].concat();
        assert_eq!(row, told);
        let bound = |element: u32| {
            let values = value(&[b"text", &array(element, &value(&[b"calm"]))]);
            [&[0, 2, 0, 0, 0, 1, 0, 2][..], &values, &[0, 0]].concat()
        };
        let mut rest = bound(21_000);
        patch_bind(&mut rest, &[25, 21_001], &ids);
        assert_eq!(rest, bound(20_000));
    }

    /// What home has under that number is another type: the client must not take one for the other.
    #[test]
    fn a_type_that_only_the_shard_has_is_not_taken_for_another() {
        let ids = ids();
        assert_eq!(ids.other(Way::Out, 21_000), super::super::UNKNOWN);
        assert_eq!(ids.other(Way::Out, 29_999), 29_999);
        assert_eq!((ids.other(Way::Out, 25), ids.other(Way::In, 25)), (25, 25));
    }
}
