//! A statement ready to run: SQLite's text, what its parameters are, what its columns are.

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_engine::Value;
use polyshard_sql::ast::{SetExpr, Statement as Ast};
use polyshard_sql::{Context, Kind, Param, ParamValue, SqlError, Statement, TypeOid};

use crate::across::Across;
use crate::fail::{fail, unsupported};
use crate::held::Held;
use crate::settings::Settings;
use crate::translate::Translator;
use crate::value::{array, binary, text};

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub type_oid: TypeOid,
    /// The type's modifier, -1 for none.
    pub type_mod: i32,
}

/// What the command tag says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// `SELECT n`.
    Select,
    /// `INSERT 0 n`.
    Insert,
    /// `UPDATE n`.
    Update,
    /// `DELETE n`.
    Delete,
}

/// What one of SQLite's parameters stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// One of the client's, counted from 0.
    Parameter(usize),
    /// When the transaction began.
    Transaction,
    /// When the statement began.
    Statement,
    /// A new id of a sequence.
    Id(String),
    /// New ids of a sequence, as an array.
    Ids(String, usize),
    /// The session's number.
    Process,
    /// The sessions that the user may see, as JSON.
    Activity,
}

/// The time and the ids of one execution, which the caller passes in.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// When the transaction began: microseconds since 2000-01-01 UTC. It is what `now()` says.
    pub transaction_micros: i64,
    /// When the statement began, likewise.
    pub statement_micros: i64,
    /// Ids for this execution by sequence: as many as [`Prepared::ids`] asks for.
    pub ids: BTreeMap<String, Vec<i64>>,
    /// What `pg_backend_pid()` is.
    pub process: i32,
    /// The sessions there are, if [`Prepared::wants_activity`]: JSON objects by the columns of `pg_stat_activity`.
    pub activity: Option<String>,
}

/// A statement ready to run on an SQLite shard. It belongs to the schema and the settings it was prepared with.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// SQLite's text.
    pub sql: Arc<str>,
    /// The types of the client's parameters.
    pub parameters: Vec<TypeOid>,
    /// The columns it answers with; none for a write without RETURNING.
    pub columns: Option<Vec<OutColumn>>,
    /// For the command tag.
    pub tag: Tag,
    /// Whether it asks for locks (FOR UPDATE): it must then run in a write transaction, which has the shard alone.
    pub locks: bool,
    pub(crate) sources: Vec<Source>,
    settings: Settings,
    held: Option<Arc<Held>>,
}

impl Prepared {
    /// What must be laid ready before it runs.
    pub fn held(&self) -> Option<&Held> {
        self.held.as_deref()
    }

    /// How many ids an execution needs, by sequence.
    pub fn ids(&self) -> BTreeMap<String, usize> {
        let mut needed = BTreeMap::new();
        let held = self.held.iter().flat_map(|held| held.sources());
        for source in self.sources.iter().chain(held) {
            match source {
                Source::Id(sequence) => *needed.entry(sequence.clone()).or_default() += 1,
                Source::Ids(sequence, count) => *needed.entry(sequence.clone()).or_default() += count,
                _ => {}
            }
        }
        needed
    }

    /// Whether it asks which sessions there are.
    pub fn wants_activity(&self) -> bool {
        self.sources.contains(&Source::Activity)
    }

    /// Whether it writes.
    pub fn writes(&self) -> bool {
        self.tag != Tag::Select || self.held.is_some()
    }

    /// The values of SQLite's parameters.
    pub fn bind(&self, params: &[Param<'_>], moment: &Moment) -> Result<Vec<Value>, SqlError> {
        if self.held.is_some() {
            return Err(crate::held::not_here());
        }
        self.bind_all(&self.sources, params, moment, &mut BTreeMap::new())
    }

    /// The values of the parameters of one of its statements; `used` counts the ids that others of them have.
    pub(crate) fn bind_all(
        &self,
        sources: &[Source],
        params: &[Param<'_>],
        moment: &Moment,
        used: &mut BTreeMap<String, usize>,
    ) -> Result<Vec<Value>, SqlError> {
        if params.len() != self.parameters.len() {
            return Err(fail(
                "08P01",
                format!(
                    "bind message supplies {} parameters, but prepared statement requires {}",
                    params.len(),
                    self.parameters.len()
                ),
            ));
        }
        let mut values = Vec::with_capacity(sources.len());
        for source in sources {
            values.push(match source {
                Source::Parameter(place) => {
                    let type_oid = self.parameters[*place];
                    match params[*place].value {
                        ParamValue::Null => Value::Null,
                        ParamValue::Text(bytes) => {
                            let text = std::str::from_utf8(bytes)
                                .map_err(|_| fail("22021", "invalid byte sequence for encoding \"UTF8\""))?;
                            text::input(type_oid, -1, text, &self.settings)?
                        }
                        ParamValue::Binary(bytes) => binary::receive(type_oid, bytes, &self.settings)?,
                    }
                }
                Source::Transaction => Value::Int(moment.transaction_micros),
                Source::Statement => Value::Int(moment.statement_micros),
                Source::Process => Value::Int(moment.process.into()),
                Source::Activity => Value::from(moment.activity.as_deref().unwrap_or("[]")),
                Source::Id(sequence) => Value::Int(taken(moment, used, sequence, 1)?[0]),
                Source::Ids(sequence, count) => {
                    let ids = taken(moment, used, sequence, *count)?;
                    array::pack(&ids.iter().map(|id| Value::Int(*id)).collect::<Vec<_>>())
                }
            });
        }
        Ok(values)
    }
}

/// The next ids of a sequence.
fn taken<'m>(
    moment: &'m Moment,
    used: &mut BTreeMap<String, usize>,
    sequence: &str,
    count: usize,
) -> Result<&'m [i64], SqlError> {
    let place = used.entry(sequence.to_owned()).or_default();
    let ids = moment.ids.get(sequence).and_then(|ids| ids.get(*place..*place + count));
    *place += count;
    ids.ok_or_else(|| fail("XX000", format!("too few ids were given for {sequence}")))
}

/// Prepares a SELECT, INSERT, UPDATE or DELETE for one SQLite shard. `types` are those that the client has given
/// for its parameters; the others are found from where they stand.
pub fn prepare(
    statement: &Statement,
    context: &Context<'_>,
    types: &[Option<TypeOid>],
    settings: &Settings,
) -> Result<Prepared, SqlError> {
    prepare_on(statement, context, types, settings, None)
}

/// Prepares a SELECT across shards: to be run where the shards' files are attached under their names, the first
/// of which is `main`; see [`polyshard_engine::Database::scan_attached`].
pub fn prepare_across(
    statement: &Statement,
    context: &Context<'_>,
    types: &[Option<TypeOid>],
    settings: &Settings,
    across: &Across,
) -> Result<Prepared, SqlError> {
    let prepared = prepare_on(statement, context, types, settings, Some(across))?;
    if prepared.writes() || prepared.locks {
        return Err(unsupported("a write over several shards"));
    }
    Ok(prepared)
}

/// Why a statement that only PostgreSQL's own words describe is refused.
fn nameless(statement: &Statement) -> SqlError {
    if let Kind::Truncate(names) | Kind::Lock(names) = statement.kind()
        && let Some(name) = names.first()
    {
        return crate::translate::no_relation(name.schema.as_deref(), &name.name);
    }
    let word = statement.text().split_whitespace().next().unwrap_or_default();
    unsupported(format!("{} on SQLite shards", word.to_uppercase()))
}

fn prepare_on(
    statement: &Statement,
    context: &Context<'_>,
    types: &[Option<TypeOid>],
    settings: &Settings,
    across: Option<&Across>,
) -> Result<Prepared, SqlError> {
    let ast = match (statement.ast(), statement.failure()) {
        (Some(ast), _) => ast,
        (None, Some(failure)) => return Err(failure.clone()),
        (None, None) => return Err(nameless(statement)),
    };
    let mut parameters: Vec<Option<TypeOid>> =
        types.iter().map(|known| known.filter(|known| known.0 != 0 && *known != TypeOid::UNKNOWN)).collect();
    let count = parameters.len().max(statement.parameters() as usize);
    parameters.resize(count, None);
    let mut translator = Translator::new(context, settings, parameters);
    translator.across = across.cloned();
    match statement.left_out() {
        None | Some("ONLY") => {}
        Some("OVERRIDING") if !statement.text().to_ascii_lowercase().contains("overriding user") => {
            translator.overriding = true;
        }
        Some(left_out) => return Err(unsupported(format!("{left_out} on SQLite shards"))),
    }
    let mut locks = false;
    let (sql, columns, tag) = match ast {
        Ast::Query(query) if is_write(&query.body) => translator.write_with(query)?,
        Ast::Query(query) => {
            locks = !query.locks.is_empty();
            translator.is_top = true;
            let made = translator.query(query, None)?;
            (made.sql, Some(made.columns), Tag::Select)
        }
        Ast::Insert(insert) => {
            let (sql, columns) = translator.insert(insert)?;
            (sql, columns, Tag::Insert)
        }
        Ast::Update(update) => {
            let (sql, columns) = translator.update(update)?;
            (sql, columns, Tag::Update)
        }
        Ast::Delete(delete) => {
            let (sql, columns) = translator.delete(delete)?;
            (sql, columns, Tag::Delete)
        }
        other => return Err(unsupported(format!("the statement {}", first_words(&other.to_string())))),
    };
    let ctes = translator.system_ctes();
    let finished = |sql: String, sources: Vec<Source>| {
        let sql = match (ctes.is_empty(), sql.strip_prefix("WITH RECURSIVE ")) {
            (true, _) => sql,
            (false, Some(rest)) => format!("WITH RECURSIVE {}, {rest}", ctes.join(", ")),
            (false, None) => format!("WITH RECURSIVE {} {sql}", ctes.join(", ")),
        };
        numbered(&sql, sources)
    };
    let parameters = translator.parameter_types()?;
    let held = translator.held.take().map(|held| {
        let sources = translator.sources.clone();
        Arc::new(held.finished(|sql| finished(sql, sources.clone())))
    });
    let (sql, sources) = finished(sql, translator.sources);
    let settings = settings.clone();
    Ok(Prepared { sql: sql.into(), parameters, columns, tag, locks, sources, settings, held })
}

/// WITH may stand before a write, too.
fn is_write(body: &SetExpr) -> bool {
    matches!(body, SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_))
}

/// Numbers SQLite's parameters anew: what was translated and then not needed leaves none behind.
fn numbered(sql: &str, sources: Vec<Source>) -> (String, Vec<Source>) {
    let mut out = String::with_capacity(sql.len());
    let mut used: Vec<usize> = Vec::new();
    let mut rest = sql;
    // Texts and names are quoted as we quote them: a quote within is doubled.
    while let Some(at) = rest.find(['\'', '"', '$']) {
        out.push_str(&rest[..at]);
        let mark = rest.as_bytes()[at];
        let after = &rest[at + 1..];
        if mark == b'$' {
            let end = after.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(after.len());
            let number: usize = after[..end].parse().unwrap_or(0);
            let place = used.iter().position(|known| *known == number).unwrap_or_else(|| {
                used.push(number);
                used.len() - 1
            });
            out.push_str(&format!("${}", place + 1));
            rest = &after[end..];
        } else {
            let end = after.find(char::from(mark)).map_or(after.len(), |end| end + 1);
            out.push_str(&rest[at..at + 1 + end]);
            rest = &after[end..];
        }
    }
    out.push_str(rest);
    let kept = used.iter().filter_map(|number| sources.get(number.wrapping_sub(1)).cloned()).collect();
    (out, kept)
}

fn first_words(text: &str) -> String {
    text.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

/// A parameter as PostgreSQL's literal with its type, for a statement that is kept and run again without it.
pub fn parameter_literal(param: &Param<'_>, settings: &Settings) -> Result<String, SqlError> {
    let untyped = param.type_oid.0 == 0 || param.type_oid == TypeOid::UNKNOWN;
    let type_oid = if untyped { TypeOid::TEXT } else { param.type_oid };
    let value = match param.value {
        ParamValue::Null => Value::Null,
        ParamValue::Text(bytes) => {
            let text = std::str::from_utf8(bytes)
                .map_err(|_| fail("22021", "invalid byte sequence for encoding \"UTF8\""))?;
            text::input(type_oid, -1, text, settings)?
        }
        ParamValue::Binary(bytes) => binary::receive(type_oid, bytes, settings)?,
    };
    // Bytes are written in hexadecimal, whatever the session shows.
    let settings = Settings { bytea_escape: false, ..settings.clone() };
    let shown = match text::output(type_oid, &value, &settings)? {
        None => "NULL".to_owned(),
        Some(text) => format!("'{}'", text.replace('\'', "''")),
    };
    Ok(if untyped { shown } else { format!("{shown}::{}", crate::types::unlimited(type_oid)) })
}

/// How a value is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As text.
    Text,
    /// In the type's binary form.
    Binary,
}

/// Writes a value of a result for the client; NULL has no form, and is an error here.
pub fn encode(
    type_oid: TypeOid,
    value: &Value,
    format: Format,
    settings: &Settings,
    out: &mut Vec<u8>,
) -> Result<(), SqlError> {
    match format {
        Format::Binary => binary::send(type_oid, value, settings, out),
        Format::Text => match text::output(type_oid, value, settings)? {
            Some(text) => {
                out.extend(text.as_bytes());
                Ok(())
            }
            None => Err(fail("XX000", "NULL has no text")),
        },
    }
}
