//! The part of an SQLite file in a statement that only PostgreSQL can carry out as it is meant: the rows of its tables
//! come to the session that combines, which works the part out in its place.
//!
//! The file's own part is asked of it only if the translation takes it, and if both engines put texts in one order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use polyshard_map::ShardId;
use polyshard_sql::ast::visit_relations;
use polyshard_sql::{Context, Placement, Plan, SqlError, Table, TableName, folded, quoted};

use super::shards::Shards;
use super::worker::{Sink, Trouble, Worker};
use super::{FETCH_BYTES_MAX, Texts, concerns};
use crate::session::Session;

/// Words of a statement whose meaning depends on the order of texts.
const ORDERED: [&str; 9] = ["<", ">", "order by", "min", "max", "between", "greatest", "least", "over"];

/// Words whose meaning depends on which letters a database knows: files know all of Unicode, a database what its own
/// `lc_ctype` says, down to ASCII alone. `substring` may be asked by a pattern.
const LETTERS: [&str; 8] = ["upper", "lower", "initcap", "ilike", "~", "similar", "regexp", "substring"];

impl Session {
    /// Whether an SQLite file can work a part out just as PostgreSQL would.
    async fn can_push(&self, sql: &str, context: &Context<'_>) -> bool {
        let Ok(defaults) = self.door.defaults().await else { return false };
        let lower = sql.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        if has(&LETTERS) || !defaults.is_utf8() || (!defaults.by_bytes && has(&ORDERED)) {
            return false;
        }
        let parsed = polyshard_sql::statements(sql).ok().and_then(|found| found.into_iter().next());
        parsed.is_some_and(|parsed| {
            polyshard_sql_on_sqlite::prepare(&parsed, context, &[], &self.lite_settings).is_ok()
        })
    }

    /// Fetches the fragments as [`Session::fetch`] does, where SQLite files have a part in them.
    pub(super) async fn fetch_from_files(
        &mut self,
        working: &mut Shards,
        combine: &mut Worker,
        plan: &Plan,
        texts: &Texts,
        context: &Context<'_>,
    ) -> Result<u64, Trouble> {
        if !self.texts_are_exact() {
            return Err(SqlError::unsupported(
                "values cannot be told exactly under the session's settings while some shards are SQLite files",
                "RESET extra_float_digits, IntervalStyle and DateStyle.",
            )
            .into());
        }
        let parts = self.bring_in(working, combine, plan, texts, context).await?;
        let rows = self.fetch(working, combine, plan, texts).await?;
        self.work_out(combine, &parts).await?;
        Ok(rows)
    }

    /// Has the rows come of files whose part the combine session works out: the statements that do so, to be run once
    /// its tables are there.
    async fn bring_in(
        &mut self,
        working: &mut Shards,
        combine: &mut Worker,
        plan: &Plan,
        texts: &Texts,
        context: &Context<'_>,
    ) -> Result<Vec<String>, Trouble> {
        let mut files = Vec::new();
        for shard in working.ids().into_iter().filter(|shard| self.door.is_file(shard)) {
            let mut pushed = true;
            for (fragment, sql) in plan.fragments.iter().zip(&texts[&shard]) {
                pushed &= !concerns(fragment, &shard) || self.can_push(sql, context).await;
            }
            if !pushed {
                files.push(shard);
            }
        }
        let (mut parts, mut count) = (Vec::new(), 0);
        for shard in files {
            let Some(worker) = working.inside(&shard) else { continue };
            let tables = tables_of(plan, &texts[&shard], &shard, context)?;
            let mut others = BTreeMap::new();
            for table in tables.values() {
                count += 1;
                let name = format!("ps_in_{count}");
                self.bring_table(worker, combine, table, &name).await?;
                others.insert(table.name.clone(), name);
            }
            for fragment in plan.fragments.iter().filter(|fragment| concerns(fragment, &shard)) {
                let sql = fragment.sql_over(&shard, &others, context)?;
                parts.push(format!("INSERT INTO pg_temp.{} {sql}", fragment.temp));
            }
            worker.end();
            worker.send().await?;
            worker.idle = true;
        }
        Ok(parts)
    }

    async fn bring_table(
        &mut self,
        worker: &mut Worker,
        combine: &mut Worker,
        table: &Table,
        name: &str,
    ) -> Result<(), Trouble> {
        let columns: Vec<String> = table.columns.iter().map(|column| quoted(&column.name)).collect();
        let (list, of) =
            (columns.join(", "), format!("{}.{}", quoted(&table.name.schema), quoted(&table.name.name)));
        let select = format!("SELECT {list} FROM {of}");
        combine.ask(&format!("CREATE TEMPORARY TABLE {name} AS {select} WITH NO DATA"));
        if !table.primary_key.is_empty() {
            // PostgreSQL then knows what depends on what in GROUP BY.
            let key: Vec<&str> = table.primary_key.iter().map(|at| columns[*at].as_str()).collect();
            combine.ask(&format!("ALTER TABLE pg_temp.{name} ADD PRIMARY KEY ({})", key.join(", ")));
        }
        combine.send().await?;
        while combine.is_waiting() {
            combine.answer(self.client()).await?;
        }
        worker.ask(&format!("COPY ({select}) TO STDOUT (FORMAT text)"));
        worker.send().await?;
        combine.ask(&format!("COPY pg_temp.{name} FROM STDIN (FORMAT text)"));
        combine.send().await?;
        combine.ready_for_data(self.client()).await?;
        if let Err(trouble) = worker.pass(self.client(), Sink::Session(combine), FETCH_BYTES_MAX).await {
            combine.fail_data(self.client()).await?;
            return Err(trouble);
        }
        combine.end_data();
        combine.end_copy(self.client()).await
    }

    /// Works the parts out whose rows have come.
    async fn work_out(&mut self, combine: &mut Worker, parts: &[String]) -> Result<(), Trouble> {
        if parts.is_empty() {
            return Ok(());
        }
        combine.end_copy(self.client()).await?;
        for part in parts {
            combine.ask(part);
            combine.send().await?;
            combine.answer(self.client()).await?;
        }
        Ok(())
    }
}

/// The tables that a shard's part reads and whose rows are not the same everywhere.
fn tables_of(
    plan: &Plan,
    texts: &[String],
    shard: &ShardId,
    context: &Context<'_>,
) -> Result<BTreeMap<TableName, Arc<Table>>, SqlError> {
    let (mut tables, mut unknown) = (BTreeMap::new(), BTreeSet::new());
    for (fragment, sql) in plan.fragments.iter().zip(texts) {
        if !concerns(fragment, shard) {
            continue;
        }
        let parsed = polyshard_sql::statements(sql)?;
        let Some(tree) = parsed.first().and_then(|statement| statement.ast()) else {
            return Err(not_there("a part of the query"));
        };
        let _: ControlFlow<()> = visit_relations(tree, |name| {
            let mut parts = name.0.iter().rev().filter_map(|part| part.as_ident()).map(folded);
            let (short, within) = (parts.next().unwrap_or_default(), parts.next());
            match context.schema.table(within.as_deref(), &short, context.search_path) {
                Some(table) if !matches!(table.placement, Placement::Reference { .. }) => {
                    tables.insert(table.name.clone(), table.clone());
                }
                None if context.schema.views.keys().any(|view| view.name == short) => {
                    unknown.insert(short);
                }
                _ => {}
            }
            ControlFlow::Continue(())
        });
    }
    match unknown.first() {
        None => Ok(tables),
        Some(view) => Err(not_there(&format!("view {view}"))),
    }
}

fn not_there(what: &str) -> SqlError {
    SqlError::unsupported(
        format!("{what} cannot be worked out over SQLite and PostgreSQL shards together"),
        "Query the tables themselves, or move the rows to PostgreSQL shards first.",
    )
}
