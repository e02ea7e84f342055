//! SELECT over several shards: what each shard computes, and what is computed over the shards' answers.
//!
//! Every query has the *plain plan*: fetch the rows of each table, and run the query itself over them, with
//! temporary names. The faster plans are rewrites of it, each with its proof. The combine step runs on the shards' own
//! engine, so arithmetic, collations, NULLs and types are its own.

mod aggregate;
mod exclude;
mod fast;
mod from;
mod functions;
mod merge;
mod names;
mod plain;
mod prepare;
mod quick;
mod refuse;
mod scope;
mod shape;
mod tree;
mod types;

pub use merge::{Merge, SortedBy};
pub use quick::{Fold, GivenColumn, Quick};
pub(crate) use shape::is_shard_function;
pub use tree::{folded, quoted};

use crate::ast::Statement as Tree;
use polyshard_map::ShardId;

use self::plain::Usage;
use self::scope::{Place, Scope};
use self::shape::Analyzer;
use crate::error::SqlError;
use crate::route::Context;
use crate::statement::Statement;

/// How the fragments become the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The rows of all shards one after the other; there is one fragment and no combine statement.
    Concat,
    /// The fragments' rows go into temporary tables, and the combine statement runs over them.
    Combine,
}

/// Where a fragment runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// On every shard that the statement concerns.
    EveryShard,
    /// On this one: a local table.
    Shard(ShardId),
}

/// What is fetched from shards into one temporary table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// The table's name in `pg_temp`.
    pub temp: String,
    /// The SELECT. Run it by [`Fragment::sql_on`].
    pub sql: String,
    /// Where.
    pub from: Source,
    /// Columns that the temporary table must have as its primary key, so that PostgreSQL knows what depends on
    /// what in GROUP BY; mostly empty.
    pub primary_key: Vec<String>,
    /// The most rows that one shard has for it, if the query says so.
    rows_max: Option<u64>,
    /// What stands where the shard's name belongs; nothing that the user wrote has it.
    shard_mark: String,
}

impl Fragment {
    /// The SELECT for one shard.
    pub fn sql_on(&self, shard: &ShardId) -> String {
        let name = format!("'{}'::text", shard.to_string().replace('\'', "''"));
        self.sql.replace(&self.shard_mark, &name)
    }
}

/// How a SELECT over several shards is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What the shards compute.
    pub fragments: Vec<Fragment>,
    /// What is computed over it, on one session of the same engine; empty for [`Mode::Concat`].
    pub combine: String,
    /// How the fragments become the answer.
    pub mode: Mode,
    /// How few rows are combined without temporary tables, if they can be.
    pub quick: Option<Quick>,
    /// How rows are put together in their order without temporary tables, if whoever does it can compare their keys.
    pub merge: Option<Merge>,
}

impl Plan {
    /// The same answer by way of a temporary table, for one that is taken in parts; its columns have these names, of
    /// which there is at least one.
    pub fn gathered(mut self, columns: &[String]) -> Plan {
        if self.mode == Mode::Combine {
            return self;
        }
        let names: Vec<String> = fast::column_names("c", columns.len()).collect();
        for fragment in &mut self.fragments {
            fragment.sql = format!("SELECT * FROM ({}) AS ps ({})", fragment.sql, names.join(", "));
            let list: Vec<String> = names
                .iter()
                .zip(columns)
                .map(|(name, shown)| format!("{}.{name} AS {}", fragment.temp, tree::quoted(shown)))
                .collect();
            self.combine = format!("SELECT {} FROM pg_temp.{}", list.join(", "), fragment.temp);
        }
        self.mode = Mode::Combine;
        self
    }

    /// The plan as lines for EXPLAIN, if the rows are put together in their order.
    pub fn explain_merge(&self, merge: &Merge, shards: &[ShardId]) -> Vec<String> {
        let all = shards.iter().map(ShardId::to_string).collect::<Vec<_>>().join(", ");
        vec![format!("On each of {} shards ({all}): {}", shards.len(), merge.rows.sql), merge.explain()]
    }

    /// The plan as lines for EXPLAIN.
    pub fn explain(&self, shards: &[ShardId]) -> Vec<String> {
        let all = shards.iter().map(ShardId::to_string).collect::<Vec<_>>().join(", ");
        let mut lines = Vec::new();
        for fragment in &self.fragments {
            let from = match &fragment.from {
                Source::EveryShard => format!("each of {} shards ({all})", shards.len()),
                Source::Shard(shard) => format!("shard {shard}"),
            };
            let into = match self.mode {
                Mode::Concat => String::new(),
                Mode::Combine => format!(" into {}", fragment.temp),
            };
            lines.push(format!("On {from}{into}: {}", fragment.sql));
        }
        if self.mode == Mode::Combine {
            lines.push(format!("Combine: {}", self.combine));
        }
        lines
    }
}

/// What a plan is made from, beside the statement.
pub(crate) struct Request<'r> {
    context: &'r Context<'r>,
    literals: &'r [String],
    now: Option<&'r str>,
    /// What `polyshard.shard` is called in fragments.
    shard_function: String,
}

/// A function name that is in no text of the user's.
fn shard_function(statement: &Statement, literals: &[String]) -> String {
    let mut name = "shard_0".to_owned();
    let mut number = 0_u64;
    while statement.text().contains(&name) || literals.iter().any(|literal| literal.contains(&name)) {
        number += 1;
        name = format!("shard_{number}");
    }
    name
}

/// Plans a SELECT over several shards.
///
/// `literals` has each parameter as a typed SQL literal, such as `'42'::bigint`. `now` is the transaction's time as a
/// timestamptz in text; given, now() and its like may be pushed down as that constant.
pub fn plan(
    statement: &Statement,
    context: &Context<'_>,
    literals: &[String],
    now: Option<&str>,
) -> Result<Plan, SqlError> {
    on_a_deep_stack(|| plan_here(statement, context, literals, now))
}

/// Stack for walking a statement: the parser allows chains of two thousand operators, which the tree's own visitors
/// walk by recursion. It is only reserved; pages are used as the walk needs them.
const STACK_BYTES: usize = 256 << 20;

/// Runs something that may recurse deeply. Beside the milliseconds that a query across shards takes, a thread costs
/// nothing.
fn on_a_deep_stack<T: Send>(work: impl FnOnce() -> Result<T, SqlError> + Send) -> Result<T, SqlError> {
    let failed = || SqlError::new(crate::SqlState::INTERNAL_ERROR, "the query could not be planned");
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        thread.map_err(|_| failed())?.join().unwrap_or_else(|_| Err(failed()))
    })
}

fn plan_here(
    statement: &Statement,
    context: &Context<'_>,
    literals: &[String],
    now: Option<&str>,
) -> Result<Plan, SqlError> {
    let query = match statement.ast() {
        Some(Tree::Query(query)) => (**query).clone(),
        _ => {
            return Err(SqlError::unsupported(
                "this statement cannot be planned across shards",
                "Only SELECT is answered from several shards at once.",
            ));
        }
    };
    refuse::check(&query, context)?;
    let request = Request { context, literals, now, shard_function: shard_function(statement, literals) };
    let shard_mark = format!("polyshard.{}()", request.shard_function);
    let query = prepare::query(query, &request)?;
    // Once more, for what the views brought in.
    refuse::check(&query, context)?;
    let analyzer = Analyzer::new(context);
    let usage = Usage::of(&query);
    let mut planner = Planner { analyzer, fragments: Vec::new(), usage, temps: 0, shard_mark, merge: None };
    let shape = planner.analyzer.query(&query, &Scope::root());
    if matches!(shape.place, Place::Sharded(_)) && query.order_by.is_none() {
        let text = query.to_string();
        check_printed(&text, &query)?;
        planner.fragment("ps_0", text, Source::EveryShard);
        let merge = planner.fragments.first().map(|rows| Merge::unsorted(rows, query));
        return Ok(Plan {
            fragments: planner.fragments,
            combine: String::new(),
            mode: Mode::Concat,
            quick: None,
            merge,
        });
    }
    let mut combined = query;
    planner.rewrite(&mut combined, &Scope::root())?;
    if planner.analyzer.is_exhausted() {
        return Err(SqlError::new(
            crate::SqlState("54001"),
            "the query is too complex to be planned across shards",
        )
        .hint("Nest fewer sub-queries."));
    }
    let combine = combined.to_string();
    if combine.contains(&planner.shard_mark) {
        return Err(SqlError::unsupported(
            "polyshard.shard() cannot be told in this query, which joins rows of different shards",
            "Use it in a sub-select over one table.",
        ));
    }
    check_printed(&combine, &combined)?;
    for fragment in &planner.fragments {
        if tree::query(&fragment.sql)?.to_string() != fragment.sql {
            return Err(unprintable());
        }
    }
    let quick = Quick::of(&combined, &planner.fragments);
    let merge = planner.merge.filter(|merge| merge.is_whole(&combined, &planner.fragments));
    Ok(Plan { fragments: planner.fragments, combine, mode: Mode::Combine, quick, merge })
}

/// What we send must mean what we planned: read again, it is the same tree.
fn check_printed(text: &str, query: &crate::ast::Query) -> Result<(), SqlError> {
    if tree::query(text)? == *query {
        return Ok(());
    }
    Err(unprintable())
}

fn unprintable() -> SqlError {
    SqlError::unsupported(
        "this query is not planned across shards: it cannot be written out exactly",
        "Write it in a simpler form, or give a key.",
    )
}

/// Takes out of a query what the shards can do.
struct Planner<'r> {
    analyzer: Analyzer<'r>,
    fragments: Vec<Fragment>,
    usage: Usage,
    temps: usize,
    shard_mark: String,
    /// How the rows of the query that was looked at last could be merged.
    merge: Option<Merge>,
}

impl Planner<'_> {
    /// A name that nothing in the statement or the schema has: an unqualified name finds temporary tables first.
    fn next_temp(&mut self) -> String {
        loop {
            self.temps += 1;
            let name = format!("ps_{}", self.temps - 1);
            let schema = self.analyzer.context.schema;
            let taken = schema.tables.keys().chain(schema.views.keys()).any(|known| known.name == name);
            if !taken && !self.usage.names.contains(&name) {
                return name;
            }
        }
    }

    fn fragment(&mut self, temp: &str, sql: String, from: Source) {
        let (temp, shard_mark) = (temp.to_owned(), self.shard_mark.clone());
        self.fragments.push(Fragment {
            temp,
            sql,
            from,
            primary_key: Vec::new(),
            rows_max: None,
            shard_mark,
        });
    }

    /// Notes how many rows the last fragment has at most.
    fn limit_rows(&mut self, rows_max: Option<u64>) {
        if let Some(last) = self.fragments.last_mut() {
            last.rows_max = rows_max;
        }
    }

    /// A fragment for a table; one that is fetched already is not fetched again.
    fn fetch(&mut self, sql: String, from: Source, primary_key: Vec<String>) -> String {
        let known = self.fragments.iter().find(|known| known.sql == sql && known.from == from);
        if let Some(known) = known {
            return known.temp.clone();
        }
        let temp = self.next_temp();
        let shard_mark = self.shard_mark.clone();
        self.fragments.push(Fragment {
            temp: temp.clone(),
            sql,
            from,
            primary_key,
            rows_max: None,
            shard_mark,
        });
        temp
    }
}
