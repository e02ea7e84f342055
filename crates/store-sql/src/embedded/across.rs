//! SELECT over several SQLite shards: one connection that sees all their files, in one read of each.

use polyshard_lite::prepare_across;
use polyshard_router::{Access, Ticket};
use polyshard_sql::{Context, Param, Route, Schema, SqlError, TypeOid};

use super::run::{PAGE_ROWS, put_rows};
use super::translate::statement_of;
use crate::cache::Analysed;
use crate::reply;
use crate::session::{Done, Session, Stop};

impl Session {
    pub(super) async fn run_lite_across(
        &mut self,
        analysed: &Analysed,
        route: &Route,
        params: &[Param<'_>],
        types: &[u32],
    ) -> Done {
        let Route::Many { shards, ranges } = route else { return Ok(()) };
        if self.lite.as_ref().is_some_and(|lite| lite.transaction.is_some())
            || self.transaction.has_one_snapshot()
        {
            return Err(SqlError::unsupported(
                "a transaction that has written cannot query across SQLite shards",
                "End the transaction first.",
            )
            .into());
        }
        let router = self.door.router.clone();
        let mut tickets =
            router.enter_ranges(ranges, Access::Read).await.map_err(|error| reply::of_router(&error))?;
        for shard in shards {
            if !tickets.contains_key(shard) {
                let ticket = router.enter_unmapped(shard, Access::Read).await;
                tickets.insert(shard.clone(), vec![ticket.map_err(|error| reply::of_router(&error))?]);
            }
        }
        for shard in tickets.keys() {
            self.door.journal.ready(shard).await.map_err(|error| error.to_sql())?;
        }
        let firsts: Vec<&Ticket> = tickets.values().filter_map(|tickets| tickets.first()).collect();
        let Some((main, others)) = firsts.split_first() else { return Ok(()) };
        let mut names = vec!["main".to_owned()];
        names.extend((1..firsts.len()).map(|at| format!("shard_{at}")));
        let schema = self.current_schema().await?;
        let context = Context { schema: &schema, search_path: &self.search_path, strict: self.own.strict };
        let types: Vec<Option<TypeOid>> =
            types.iter().map(|oid| (*oid != 0).then_some(TypeOid(*oid))).collect();
        let prepared = prepare_across(&analysed.statement, &context, &types, &self.lite_settings, &names)?;
        let moment = self.moment(&prepared, main.shard()).await?;
        let statement = statement_of(&prepared, prepared.bind(params, &moment)?);
        let others: Vec<(String, &Ticket)> = names[1..].iter().cloned().zip(others.iter().copied()).collect();
        let wrong =
            |error: polyshard_engine::Error| Stop::Refused(polyshard_lite::error(&error, &Schema::default()));
        let mut scan = main.scan_attached(&others, statement, PAGE_ROWS).await.map_err(wrong)?;
        self.tell_columns(&prepared);
        let formats = self.formats.clone();
        let mut count = 0;
        while let Some(page) = scan.next().await.map_err(wrong)? {
            count += page.len();
            put_rows(&mut self.client.out, &prepared, &page, &formats, self.extended, &self.lite_settings)?;
            self.client.flush_if_full().await?;
        }
        reply::complete(&mut self.client.out, &format!("SELECT {count}"));
        Ok(())
    }
}
