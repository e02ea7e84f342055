//! The rows of pages: one for each unit of 64 KiB and each generation in which it was written.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use polyshard_engine::{self as engine, Dialect, Expect, Row, Rows};

use super::bits::{Bits, Unit};
use crate::model::{Blob, Hole};
use crate::schema::PAGES;
use crate::store::extents::{number, stored};
use crate::store::home::Home;
use crate::store::rows::Step;

/// Which rows of a content a blob or snapshot sees.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct View<'a> {
    /// The number of the content.
    pub content: i64,
    /// The blob's or snapshot's generation: later rows are not its own.
    pub generation: i64,
    /// What it does not see of earlier generations.
    pub holes: &'a [Hole],
}

impl View<'_> {
    /// What a blob or snapshot sees.
    pub fn of(blob: &Blob) -> View<'_> {
        View { content: blob.content, generation: blob.generation, holes: &blob.props.holes }
    }

    /// Whether a row is seen, if it is the last one of its unit up to the generation.
    pub fn sees(&self, unit: u64, generation: i64) -> bool {
        let hides = |hole: &Hole| (hole.from..hole.to).contains(&unit) && generation < hole.generation;
        generation <= self.generation && !self.holes.iter().any(hides)
    }
}

/// A row as it was found.
#[derive(Debug, Clone)]
pub(in crate::store) struct FoundUnit {
    /// Its number: offset by 64 KiB.
    pub unit: u64,
    /// The generation it was written in.
    pub generation: i64,
    /// Its pages.
    pub pages: Unit,
}

/// Rows of some units, in order.
#[derive(Debug, Default)]
pub(in crate::store) struct FoundUnits {
    /// Those that are seen.
    pub units: Vec<FoundUnit>,
    /// From where there may be more.
    pub next: Option<u64>,
}

/// What a row says of a unit, without its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnitState {
    /// Its number.
    pub unit: u64,
    /// The generation it was written in.
    pub generation: i64,
    /// Pages that have bytes.
    pub valid: Bits,
    /// Pages written or cleared in that generation.
    pub written: Bits,
}

struct Texts {
    last: Arc<str>,
    last_states: Arc<str>,
    all_states: Arc<str>,
    put: Arc<str>,
    remove: Arc<str>,
    set_written: Arc<str>,
    any_below: Arc<str>,
}

impl Texts {
    fn new(dialect: Dialect) -> Texts {
        let table = dialect.own_table(PAGES);
        let text = |text: String| Arc::<str>::from(text);
        let content = "placement = $2 AND dataset = $1 AND name = $3 AND content = $4";
        let last = |columns: &str| {
            text(format!(
                "SELECT {columns} FROM {table} AS p WHERE {content} AND page >= $5 AND page < $6 \
                 AND generation = (SELECT max(generation) FROM {table} AS n WHERE n.placement = $2 \
                 AND n.dataset = $1 AND n.name = $3 AND n.content = $4 AND n.page = p.page AND n.generation <= $7) \
                 ORDER BY page LIMIT CAST($8 AS bigint)"
            ))
        };
        Texts {
            last: last("page, generation, valid, written, bytes"),
            last_states: last("page, generation, valid, written"),
            all_states: text(format!(
                "SELECT page, generation, valid, written FROM {table} WHERE {content} \
                 AND (page, generation) > ($5, $6) \
                 AND page < $7 AND generation <= $8 ORDER BY page, generation LIMIT CAST($9 AS bigint)"
            )),
            put: text(format!(
                "INSERT INTO {table} (dataset, placement, name, content, page, generation, valid, written, bytes) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
                 ON CONFLICT (placement, dataset, name, content, page, generation) \
                 DO UPDATE SET valid = excluded.valid, written = excluded.written, bytes = excluded.bytes"
            )),
            remove: text(format!("DELETE FROM {table} WHERE {content} AND page = $5 AND generation = $6")),
            set_written: text(format!(
                "UPDATE {table} SET written = $7 WHERE {content} AND page = $5 AND generation = $6"
            )),
            any_below: text(format!(
                "SELECT 1 FROM {table} WHERE {content} AND page >= $5 AND page < $6 AND generation < $7 LIMIT 1"
            )),
        }
    }
}

fn texts(dialect: Dialect) -> &'static Texts {
    static SQLITE: LazyLock<Texts> = LazyLock::new(|| Texts::new(Dialect::Sqlite));
    static POSTGRES: LazyLock<Texts> = LazyLock::new(|| Texts::new(Dialect::Postgres));
    match dialect {
        Dialect::Sqlite => &SQLITE,
        Dialect::Postgres => &POSTGRES,
    }
}

/// Reads the last row of each of some units, no more than so many.
pub(in crate::store) fn find_units(
    home: &Home,
    view: &View<'_>,
    units: &Range<u64>,
    rows_max: usize,
) -> Step {
    last(Step::new(home, |dialect| texts(dialect).last.clone()), view, units, rows_max)
}

/// What [`find_units`] has found.
pub(in crate::store) fn read_units(
    rows: &Rows,
    view: &View<'_>,
    rows_max: usize,
) -> Result<FoundUnits, engine::Error> {
    let mut found = FoundUnits { next: next(rows, rows_max)?, ..FoundUnits::default() };
    for row in rows {
        let (unit, generation) = (number(row, 0)?, row.int(1)?);
        if view.sees(unit, generation) {
            let pages = Unit::from_stored(row.blob(2)?, row.blob(3)?, row.blob(4)?.to_vec());
            let pages = pages
                .ok_or_else(|| engine::Error::invalid(format!("the pages of unit {unit} are damaged")))?;
            found.units.push(FoundUnit { unit, generation, pages });
        }
    }
    Ok(found)
}

/// The same without the bytes.
pub(super) fn find_states(home: &Home, view: &View<'_>, units: &Range<u64>, rows_max: usize) -> Step {
    last(Step::new(home, |dialect| texts(dialect).last_states.clone()), view, units, rows_max)
}

/// What [`find_states`] has found, and from where there may be more.
pub(super) fn read_states(
    rows: &Rows,
    view: &View<'_>,
    rows_max: usize,
) -> Result<(Vec<UnitState>, Option<u64>), engine::Error> {
    let mut states = Vec::with_capacity(rows.len());
    for row in rows {
        let state = state_of(row)?;
        if view.sees(state.unit, state.generation) {
            states.push(state);
        }
    }
    Ok((states, next(rows, rows_max)?))
}

/// Reads what the rows of some units say, each unit's in the order of their generations, after one of them.
pub(super) fn find_history(
    home: &Home,
    view: &View<'_>,
    after: (u64, i64),
    before: u64,
    rows_max: usize,
) -> Step {
    Step::new(home, |dialect| texts(dialect).all_states.clone())
        .bind(view.content)
        .bind(stored(after.0))
        .bind(after.1)
        .bind(stored(before))
        .bind(view.generation)
        .bind(stored(rows_max as u64))
}

fn last(step: Step, view: &View<'_>, units: &Range<u64>, rows_max: usize) -> Step {
    step.bind(view.content)
        .bind(stored(units.start))
        .bind(stored(units.end))
        .bind(view.generation)
        .bind(stored(rows_max as u64))
}

fn next(rows: &Rows, rows_max: usize) -> Result<Option<u64>, engine::Error> {
    let last = rows.iter().last().filter(|_| rows.len() == rows_max);
    last.map(|row| Ok(number(row, 0)? + 1)).transpose()
}

/// What [`find_history`] has found.
pub(super) fn read_history(rows: &Rows) -> Result<Vec<UnitState>, engine::Error> {
    rows.iter().map(state_of).collect()
}

fn state_of(row: &Row) -> Result<UnitState, engine::Error> {
    let unit = number(row, 0)?;
    let bits = |column: usize| {
        let bits = Bits::from_bytes(row.blob(column)?);
        bits.ok_or_else(|| engine::Error::invalid(format!("the pages of unit {unit} are damaged")))
    };
    Ok(UnitState { unit, generation: row.int(1)?, valid: bits(2)?, written: bits(3)? })
}

fn of_row(step: Step, content: i64, (unit, generation): (u64, i64)) -> Step {
    step.bind(content).bind(stored(unit)).bind(generation)
}

/// Removes the row of a unit and generation.
pub(super) fn remove(home: &Home, content: i64, place: (u64, i64)) -> Step {
    of_row(Step::new(home, |dialect| texts(dialect).remove.clone()), content, place)
}

/// Says which pages were written or cleared in the generation of a row.
pub(super) fn set_written(home: &Home, content: i64, place: (u64, i64), written: Bits) -> Step {
    let step = Step::new(home, |dialect| texts(dialect).set_written.clone());
    of_row(step, content, place).bind(&written.to_bytes()[..])
}

/// Reads whether a hole hides a row.
pub(super) fn is_any_below(home: &Home, content: i64, hole: &Hole) -> Step {
    Step::new(home, |dialect| texts(dialect).any_below.clone())
        .bind(content)
        .bind(stored(hole.from))
        .bind(stored(hole.to))
        .bind(hole.generation)
}

/// Writes the row of a unit in a generation.
pub(in crate::store) fn put(home: &Home, content: i64, generation: i64, unit: u64, pages: &Unit) -> Step {
    Step::new(home, |dialect| texts(dialect).put.clone())
        .bind(content)
        .bind(stored(unit))
        .bind(generation)
        .bind(&pages.valid.to_bytes()[..])
        .bind(&pages.written.to_bytes()[..])
        .bind(pages.bytes.as_slice())
        .expect(Expect::Rows(1))
}
