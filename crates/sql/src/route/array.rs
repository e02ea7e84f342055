//! The elements of an array parameter or literal, in text and binary form.

use super::value::{Family, Scalar, decode_binary};
use crate::param::{Param, ParamValue};
use crate::schema::TypeOid;

/// Array types of the families that keys have, with their elements' types.
const ARRAYS: [(u32, TypeOid); 10] = [
    (1001, TypeOid::BYTEA),
    (1005, TypeOid::INT2),
    (1007, TypeOid::INT4),
    (1009, TypeOid::TEXT),
    (1015, TypeOid::VARCHAR),
    (1016, TypeOid::INT8),
    (1115, TypeOid::TIMESTAMP),
    (1182, TypeOid::DATE),
    (1185, TypeOid::TIMESTAMPTZ),
    (2951, TypeOid::UUID),
];

/// The type of an array's elements.
pub(crate) fn element_type(array: TypeOid) -> Option<TypeOid> {
    ARRAYS.iter().find(|(known, _)| *known == array.0).map(|(_, element)| *element)
}

/// The array type of an element type.
pub(crate) fn array_type(element: TypeOid) -> Option<TypeOid> {
    ARRAYS.iter().find(|(_, known)| *known == element).map(|(array, _)| TypeOid(*array))
}

/// The elements, none for NULL, for a column of the family; nothing if they cannot be told.
pub(crate) fn elements(param: &Param<'_>, casts: &[TypeOid], family: Family) -> Option<Vec<Option<Scalar>>> {
    let bytes = match param.value {
        ParamValue::Null => return Some(Vec::new()),
        ParamValue::Text(bytes) => {
            let text = std::str::from_utf8(bytes).ok()?;
            let element = match (param.type_oid, casts) {
                (TypeOid::UNKNOWN | TypeOid(0), []) => None,
                (TypeOid::UNKNOWN | TypeOid::TEXT | TypeOid(0), [first, ..]) => Some(element_type(*first)?),
                (known, _) => Some(element_type(known)?),
            };
            let read_as = element.map_or(Some(family), Family::of)?;
            return cast_all(literal(text, read_as)?, casts, family);
        }
        ParamValue::Binary(bytes) => bytes,
    };
    let element = element_type(param.type_oid)?;
    cast_all(binary(bytes, element)?, casts, family)
}

/// Each element, none for NULL, as the casts leave it.
pub(super) fn cast_all(
    elements: Vec<Option<Scalar>>,
    casts: &[TypeOid],
    family: Family,
) -> Option<Vec<Option<Scalar>>> {
    let cast_one = |element: Option<Scalar>| match element {
        None => Some(None),
        Some(scalar) => cast(scalar, casts, family).map(Some),
    };
    elements.into_iter().map(cast_one).collect()
}

fn cast(mut scalar: Scalar, casts: &[TypeOid], family: Family) -> Option<Scalar> {
    for to in casts {
        scalar = scalar.cast(element_type(*to)?)?;
    }
    (scalar.family() == family).then_some(scalar)
}

/// Reads `{1,2,NULL}`; arrays of several dimensions and bounds are left to the engine.
pub(crate) fn literal(text: &str, family: Family) -> Option<Vec<Option<Scalar>>> {
    let body = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut found = Vec::new();
    let mut rest = body.trim();
    if rest.is_empty() {
        return Some(found);
    }
    loop {
        let (element, after) = element(rest)?;
        found.push(match element {
            None => None,
            Some(element) => Some(Scalar::read(family, &element)?),
        });
        let after = after.trim_start();
        if after.is_empty() {
            return Some(found);
        }
        rest = after.strip_prefix(',')?.trim_start();
    }
}

/// The first element, none for NULL, and what follows it.
fn element(text: &str) -> Option<(Option<String>, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => return Some((Some(value), &quoted[at + 1..])),
                '\\' => value.push(characters.next()?.1),
                _ => value.push(character),
            }
        }
        return None;
    }
    let end = text.find(',').unwrap_or(text.len());
    let plain = text[..end].trim();
    if plain.is_empty() || plain.contains(['{', '}', '"', '\\']) {
        return None;
    }
    let value = (!plain.eq_ignore_ascii_case("null")).then(|| plain.to_owned());
    Some((value, &text[end..]))
}

/// Dimensions, flags, element type, then length and lower bound of each dimension, then the elements.
fn binary(bytes: &[u8], element: TypeOid) -> Option<Vec<Option<Scalar>>> {
    let mut rest = bytes;
    let dimensions = take_i32(&mut rest)?;
    let _has_nulls = take_i32(&mut rest)?;
    if u32::try_from(take_i32(&mut rest)?).ok()? != element.0 {
        return None;
    }
    let mut count = usize::from(dimensions > 0);
    for _ in 0..usize::try_from(dimensions).ok().filter(|n| *n <= DIMENSIONS_MAX)? {
        count = count.checked_mul(usize::try_from(take_i32(&mut rest)?).ok()?)?;
        take_i32(&mut rest)?;
    }
    // An element takes 4 bytes at least, so no count can ask for more than there is.
    let mut found = Vec::with_capacity(count.min(rest.len() / 4));
    for _ in 0..count {
        match take_i32(&mut rest)? {
            -1 => found.push(None),
            length => {
                let (value, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                rest = after;
                found.push(Some(decode_binary(element, value)?));
            }
        }
    }
    rest.is_empty().then_some(found)
}

/// PostgreSQL's own limit.
const DIMENSIONS_MAX: usize = 6;

fn take_i32(rest: &mut &[u8]) -> Option<i32> {
    let (first, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(i32::from_be_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_an_array_literal() {
        let ints = |text| literal(text, Family::Int);
        assert_eq!(
            ints("{1, 2,NULL,-3}"),
            Some(vec![Some(Scalar::Int(1)), Some(Scalar::Int(2)), None, Some(Scalar::Int(-3))])
        );
        assert_eq!(ints("{}"), Some(vec![]));
        assert_eq!(ints("{{1},{2}}"), None);
        assert_eq!(ints("[0:1]={1,2}"), None);
        assert_eq!(ints("{1,}"), None);
        let texts = literal(r#"{a b,"c,\"d\\",null,"null"}"#, Family::Text);
        let expected = [Some("a b"), Some("c,\"d\\"), None, Some("null")];
        let expected = expected.map(|text| text.map(|text| Scalar::Text(text.to_owned())));
        assert_eq!(texts, Some(expected.to_vec()));
    }

    #[test]
    fn elements_of_a_binary_array() {
        let mut bytes = Vec::new();
        for word in [1_i32, 1, 23, 3, 1] {
            bytes.extend(word.to_be_bytes());
        }
        for word in [4_i32, 7, -1, 4, 9] {
            bytes.extend(word.to_be_bytes());
        }
        assert_eq!(
            binary(&bytes, TypeOid::INT4),
            Some(vec![Some(Scalar::Int(7)), None, Some(Scalar::Int(9))])
        );
        assert_eq!(binary(&bytes, TypeOid::INT8), None);
        assert_eq!(binary(&bytes[..bytes.len() - 1], TypeOid::INT4), None);
        assert_eq!(binary(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 23], TypeOid::INT4), Some(vec![]));
    }
}
