//! Which keys the rows of a table can have, as far as the statement says; the parameters' values come later.

use std::collections::HashSet;

use polyshard_map::{Key, KeyRange, KeyType, Map, Scheme};

use super::array;
use super::value::{Family, Keyed, Scalar, decode};
use crate::param::Param;
use crate::schema::TypeOid;

/// A condition on one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Formula {
    /// It says nothing.
    All,
    /// No row satisfies it.
    Nothing,
    /// Equal to the value.
    Equal(Operand),
    /// Equal to one of the array's values.
    Any(Operand),
    /// On this side of the value; only of columns whose order is that of the map's keys.
    Compare(Comparison, Operand),
    /// All of these.
    And(Vec<Formula>),
    /// One of these.
    Or(Vec<Formula>),
}

/// `<`, `<=`, `>`, `>=` with the column on the left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What a column is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operand {
    Constant(Scalar),
    Parameter(Parameter),
}

/// A parameter, and what the statement does to it before the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// From 1.
    pub number: u32,
    /// Casts, in order.
    pub casts: Vec<TypeOid>,
    /// The family of the column that it is compared with.
    pub family: Family,
}

/// The column that decides where a row is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyColumn {
    pub key_type: KeyType,
    pub family: Family,
}

/// Keys that rows can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Set {
    All,
    Points(Vec<Key>),
    /// Of encoded keys; only for maps whose placement is the encoded key.
    Ranges(Vec<KeyRange>),
}

impl Formula {
    /// Both; what says nothing is left out.
    pub(crate) fn and(self, other: Formula) -> Formula {
        match (self, other) {
            (Formula::All, other) | (other, Formula::All) => other,
            (Formula::Nothing, _) | (_, Formula::Nothing) => Formula::Nothing,
            (Formula::And(mut all), other) => {
                if !all.contains(&other) {
                    all.push(other);
                }
                Formula::And(all)
            }
            (one, other) if one == other => one,
            (one, other) => Formula::And(vec![one, other]),
        }
    }

    /// Either.
    pub(crate) fn or(self, other: Formula) -> Formula {
        match (self, other) {
            (Formula::All, _) | (_, Formula::All) => Formula::All,
            (Formula::Nothing, other) | (other, Formula::Nothing) => other,
            (Formula::Or(mut all), other) => {
                all.push(other);
                Formula::Or(all)
            }
            (one, other) => Formula::Or(vec![one, other]),
        }
    }

    /// Equal to one of the values.
    pub(crate) fn one_of(operands: Vec<Operand>) -> Formula {
        let mut points: Vec<Formula> = operands.into_iter().map(Formula::Equal).collect();
        match (points.pop(), points.is_empty()) {
            (None, _) => Formula::Nothing,
            (Some(only), true) => only,
            (Some(last), false) => {
                points.push(last);
                Formula::Or(points)
            }
        }
    }

    /// Whether it is the same for all parameters.
    pub(crate) fn is_constant(&self) -> bool {
        match self {
            Formula::All | Formula::Nothing => true,
            Formula::Equal(operand) | Formula::Any(operand) | Formula::Compare(_, operand) => {
                matches!(operand, Operand::Constant(_))
            }
            Formula::And(all) | Formula::Or(all) => all.iter().all(Formula::is_constant),
        }
    }

    /// The keys, now that the parameters are known.
    pub(crate) fn keys(&self, column: &KeyColumn, params: &[Param<'_>], map: &Map) -> Set {
        match self {
            Formula::All => Set::All,
            Formula::Nothing => Set::nothing(),
            Formula::Equal(operand) => match operand.key(column, params) {
                Keyed::Key(key) => Set::Points(vec![key]),
                Keyed::Above | Keyed::Below | Keyed::Null => Set::nothing(),
                Keyed::Unknown => Set::All,
            },
            Formula::Any(operand) => operand.elements(column, params).unwrap_or(Set::All),
            Formula::Compare(comparison, operand) => {
                if !matches!(map.definition().scheme(), Scheme::List | Scheme::Range) {
                    return Set::All;
                }
                comparison.keys(operand.key(column, params), map)
            }
            Formula::And(all) => {
                all.iter().fold(Set::All, |set, formula| set.and(formula.keys(column, params, map), map))
            }
            Formula::Or(all) => {
                let mut points = Vec::new();
                let mut others = Set::nothing();
                for formula in all {
                    match formula.keys(column, params, map) {
                        Set::All => return Set::All,
                        Set::Points(more) => points.extend(more),
                        ranges => others = others.or(ranges, map),
                    }
                }
                others.or(Set::Points(unique(points)), map)
            }
        }
    }
}

impl Comparison {
    /// The comparison with its sides exchanged.
    pub(crate) fn reversed(self) -> Comparison {
        match self {
            Comparison::Less => Comparison::Greater,
            Comparison::LessOrEqual => Comparison::GreaterOrEqual,
            Comparison::Greater => Comparison::Less,
            Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        }
    }

    fn keys(self, keyed: Keyed, map: &Map) -> Set {
        let below = matches!(self, Comparison::Less | Comparison::LessOrEqual);
        let key = match keyed {
            Keyed::Key(key) => key,
            Keyed::Null => return Set::nothing(),
            Keyed::Unknown => return Set::All,
            Keyed::Above => return if below { Set::All } else { Set::nothing() },
            Keyed::Below => return if below { Set::nothing() } else { Set::All },
        };
        let Ok(bytes) = map.placement(&key) else { return Set::All };
        let lowest = polyshard_map::KeyBytes::default();
        let range = match self {
            Comparison::Less => KeyRange::new(lowest, Some(bytes)),
            Comparison::LessOrEqual => KeyRange::new(lowest, Some(bytes.successor())),
            Comparison::Greater => KeyRange::new(bytes.successor(), None),
            Comparison::GreaterOrEqual => KeyRange::new(bytes, None),
        };
        // An empty range: nothing is below the least key.
        Set::Ranges(range.into_iter().collect())
    }
}

impl Operand {
    pub(crate) fn key(&self, column: &KeyColumn, params: &[Param<'_>]) -> Keyed {
        match self {
            Operand::Constant(scalar) => scalar.to_key(&column.key_type),
            Operand::Parameter(parameter) => match parameter.scalar(params) {
                Some(Some(scalar)) => scalar.to_key(&column.key_type),
                Some(None) => Keyed::Null,
                None => Keyed::Unknown,
            },
        }
    }

    /// The keys among an array's elements.
    fn elements(&self, column: &KeyColumn, params: &[Param<'_>]) -> Option<Set> {
        let Operand::Parameter(parameter) = self else { return None };
        let param = param_of(parameter.number, params)?;
        let mut points = Vec::new();
        // `= ANY(NULL)` is true for no row, and so is a comparison with an element that is NULL.
        for element in array::elements(param, &parameter.casts, parameter.family)?.into_iter().flatten() {
            match element.to_key(&column.key_type) {
                Keyed::Key(key) => points.push(key),
                Keyed::Above | Keyed::Below | Keyed::Null => {}
                Keyed::Unknown => return None,
            }
        }
        Some(Set::Points(unique(points)))
    }
}

/// So many keys are compared one by one; more are put into a table.
const FEW: usize = 16;

/// Each key once, in the order in which it came first.
pub(crate) fn unique(mut keys: Vec<Key>) -> Vec<Key> {
    if keys.len() <= FEW {
        let mut place = 1;
        while place < keys.len() {
            if keys[..place].contains(&keys[place]) {
                keys.remove(place);
            } else {
                place += 1;
            }
        }
        return keys;
    }
    let mut seen = HashSet::with_capacity(keys.len());
    keys.retain(|key| seen.insert(key.clone()));
    keys
}

fn param_of<'p, 'a>(number: u32, params: &'p [Param<'a>]) -> Option<&'p Param<'a>> {
    params.get(usize::try_from(number).ok()?.checked_sub(1)?)
}

impl Parameter {
    /// Its elements, none for NULL, where it is an array; nothing if they cannot be told.
    pub(super) fn elements(&self, params: &[Param<'_>]) -> Option<Vec<Option<Operand>>> {
        let elements = array::elements(param_of(self.number, params)?, &self.casts, self.family)?;
        Some(elements.into_iter().map(|element| element.map(Operand::Constant)).collect())
    }

    /// Its value after the casts, of the column's family; none if it cannot be told, `Some(None)` for NULL.
    fn scalar(&self, params: &[Param<'_>]) -> Option<Option<Scalar>> {
        let param = param_of(self.number, params)?;
        let Some(mut scalar) = decode(param).ok()? else { return Some(None) };
        for cast in &self.casts {
            scalar = scalar.cast(*cast)?;
        }
        // Nobody said a type: then it is the column's.
        if matches!(param.type_oid, TypeOid::UNKNOWN | TypeOid(0))
            && self.casts.is_empty()
            && let Scalar::Text(text) = &scalar
        {
            scalar = Scalar::read(self.family, text)?;
        }
        (scalar.family() == self.family).then_some(Some(scalar))
    }
}

impl Set {
    pub(crate) fn nothing() -> Set {
        Set::Points(Vec::new())
    }

    pub(crate) fn is_nothing(&self) -> bool {
        match self {
            Set::All => false,
            Set::Points(points) => points.is_empty(),
            Set::Ranges(ranges) => ranges.is_empty(),
        }
    }

    fn and(self, other: Set, map: &Map) -> Set {
        match (self, other) {
            (Set::All, other) | (other, Set::All) => other,
            (Set::Points(mut one), Set::Points(other)) if one.len().min(other.len()) <= FEW => {
                one.retain(|key| other.contains(key));
                Set::Points(one)
            }
            (Set::Points(mut one), Set::Points(other)) => {
                let other: HashSet<Key> = other.into_iter().collect();
                one.retain(|key| other.contains(key));
                Set::Points(one)
            }
            (Set::Points(mut points), Set::Ranges(ranges))
            | (Set::Ranges(ranges), Set::Points(mut points)) => {
                points.retain(|key| match map.placement(key) {
                    Ok(bytes) => ranges.iter().any(|range| range.contains(bytes.as_slice())),
                    Err(_) => true,
                });
                Set::Points(points)
            }
            (Set::Ranges(one), Set::Ranges(other)) => {
                Set::Ranges(one.iter().flat_map(|a| other.iter().filter_map(|b| a.intersect(b))).collect())
            }
        }
    }

    fn or(self, other: Set, map: &Map) -> Set {
        match (self, other) {
            (Set::All, _) | (_, Set::All) => Set::All,
            (Set::Points(mut one), Set::Points(other)) => {
                if one.is_empty() {
                    return Set::Points(other);
                }
                one.extend(other);
                Set::Points(unique(one))
            }
            (Set::Points(points), Set::Ranges(mut ranges))
            | (Set::Ranges(mut ranges), Set::Points(points)) => {
                for key in points {
                    match map.placement(&key) {
                        Ok(bytes) => ranges.push(KeyRange::point(bytes)),
                        Err(_) => return Set::All,
                    }
                }
                Set::Ranges(ranges)
            }
            (Set::Ranges(mut one), Set::Ranges(other)) => {
                one.extend(other);
                Set::Ranges(one)
            }
        }
    }
}
