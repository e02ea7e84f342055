//! EXPLAIN of a statement across shards: what each shard is asked and what is combined; with ANALYZE, how it went.

use std::collections::BTreeSet;

use polyshard_map::ShardId;
use polyshard_sql::{Analysis, Explain, Kind, Merge, Mode, Plan, Route, Schema, SqlError, Statement};

use super::known::Known;
use super::shards::Shards;
use super::worker::{Trouble, Worker};
use super::{Texts, check, concerns};
use crate::reply::{self, Field, Severity, state};
use crate::session::Session;

/// Refuses forms that would not be what was asked for.
pub(super) fn check_form(explain: &Explain) -> Result<(), SqlError> {
    if explain.format == "text" {
        return Ok(());
    }
    Err(SqlError::unsupported(
        format!("EXPLAIN in the form {} is not offered across shards", explain.format),
        "Leave FORMAT out.",
    ))
}

impl Session {
    /// Names the shard whose own plan was passed on as it is, and why it is that one. Beside the plan, which programs
    /// read.
    pub(crate) fn tell_explained(&mut self, statement: &Statement, route: &Route, analysis: &Analysis) {
        if let (Kind::Explain(_), Route::One { shard, .. } | Route::Local(shard)) = (statement.kind(), route)
        {
            let notice = SqlError::new(state::SUCCESSFUL, format!("this plan is of shard {shard}"))
                .detail(analysis.describe().join("\n"));
            reply::error(&mut self.client().out, Severity::Notice, &notice);
        }
    }

    /// The plan alone, and not the shards' own plans for its parts.
    pub(super) fn explain_across(&mut self, plan: &Plan, merge: Option<&Merge>, shards: &BTreeSet<ShardId>) {
        let ids: Vec<ShardId> = shards.iter().cloned().collect();
        let lines = match merge {
            Some(merge) => plan.explain_merge(merge, &ids),
            None => plan.explain(&ids),
        };
        self.tell_plan(&lines);
    }

    /// The plan of rows that are put together in their order, and how each shard carries out its part.
    pub(super) async fn analyze_merge(
        &mut self,
        working: &mut Shards,
        known: &Known,
        merge: &Merge,
        texts: &[String],
        prefix: &str,
    ) -> Result<(), Trouble> {
        let mut lines = known.plan.explain_merge(merge, &working.ids());
        for (worker, sql) in working.all().zip(texts) {
            worker.ask(&format!("{prefix} {sql}"));
            worker.send().await?;
        }
        for worker in working.all() {
            lines.push(format!("Shard {}:", worker.shard()));
            add(&mut lines, worker.answer(self.client()).await?);
        }
        self.tell_plan(&lines);
        Ok(())
    }

    fn tell_plan(&mut self, lines: &[String]) {
        let (_, told) = self.wanted_forms();
        let out = &mut self.client().out;
        if !told {
            reply::row_description(out, &[Field::text("QUERY PLAN")], |_| false);
        }
        for line in lines {
            reply::data_row(out, [Some(line.as_str())].into_iter());
        }
        reply::complete(out, "EXPLAIN");
    }

    /// The plan, and how each shard carries out its part, all of them at once; then the combine step, for which the
    /// parts are computed once more.
    pub(super) async fn analyze_across(
        &mut self,
        working: &mut Shards,
        plan: &Plan,
        texts: &Texts,
        schema: &Schema,
        prefix: &str,
    ) -> Result<(), Trouble> {
        let mut lines = plan.explain(&working.ids());
        for worker in working.all() {
            let shard = worker.shard().clone();
            let parts = plan.fragments.iter().zip(&texts[&shard]);
            for (_, sql) in parts.filter(|(fragment, _)| concerns(fragment, &shard)) {
                worker.ask(&format!("{prefix} {sql}"));
            }
            worker.send().await?;
        }
        for worker in working.all() {
            lines.push(format!("Shard {}:", worker.shard()));
            while worker.is_waiting() {
                add(&mut lines, worker.answer(self.client()).await?);
            }
        }
        if plan.mode == Mode::Combine {
            let mut combine = working.take_combine()?;
            let analyzed = self.analyze_combine(working, &mut combine, plan, texts, schema, prefix).await;
            working.put_back(combine);
            lines.push("Combine step:".to_owned());
            add(&mut lines, analyzed?);
        }
        self.tell_plan(&lines);
        Ok(())
    }

    async fn analyze_combine(
        &mut self,
        working: &mut Shards,
        combine: &mut Worker,
        plan: &Plan,
        texts: &Texts,
        schema: &Schema,
        prefix: &str,
    ) -> Result<Vec<Vec<Option<String>>>, Trouble> {
        self.fetch(working, combine, plan, texts).await?;
        combine.ask(&format!("EXPLAIN (VERBOSE, FORMAT JSON) {}", plan.combine));
        combine.send().await?;
        combine.end_copy(self.client()).await?;
        check::relations(&combine.answer(self.client()).await?, schema)?;
        combine.ask(&format!("{prefix} {}", plan.combine));
        combine.send().await?;
        combine.answer(self.client()).await
    }
}

fn add(lines: &mut Vec<String>, rows: Vec<Vec<Option<String>>>) {
    lines.extend(rows.into_iter().flatten().flatten().map(|line| format!("  {line}")));
}
