//! Functions of other stores, run inside the client's transaction on an SQLite shard (H2).

use polyshard_engine::{Dialect, Rows};
use polyshard_router::Access;
use polyshard_sql::Schema;
use polyshard_store::{Call, Step};

use super::run::Solo;
use crate::reply;
use crate::session::{Done, Session, Stop, Wanted};

impl Session {
    /// Does what a store asks for in the transaction on the shard that is wanted.
    pub(crate) async fn enlist_lite(
        &mut self,
        call: &mut dyn Call,
        wanted: &Wanted<'_>,
        access: Access,
    ) -> Result<Option<String>, Stop> {
        self.enter_lite(wanted, access).await?;
        self.transaction.movable = false;
        if access == Access::Write {
            self.let_lite_know(call).await?;
            self.transaction.wrote = true;
        } else {
            for dataset in call.registration(Dialect::Sqlite) {
                let known = self.door.router.check_dataset_on_shards(&dataset.name);
                known.map_err(|error| reply::of_router(&error))?;
            }
        }
        if access == Access::Write || self.transaction.has_one_snapshot() {
            self.begin_lite(&Schema::default(), access == Access::Write).await?;
        }
        let wrong = |error| Stop::Refused(polyshard_sql_on_sqlite::error(&error, &Schema::default()));
        let mut answer: Option<Rows> = None;
        loop {
            let statement =
                match call.step(Dialect::Sqlite, answer.as_ref()).map_err(|error| reply::of_store(&error))? {
                    Step::Run(statement) => statement,
                    Step::Done(said) => return Ok(said),
                };
            let Some(lite) = &mut self.lite else { return Err(Stop::Told) };
            let ran = match &mut lite.transaction {
                Some(transaction) => transaction.get().run(statement).await,
                None => lite.tickets[0].read(statement).await,
            };
            answer = Some(ran.map_err(wrong)?);
        }
    }

    /// Lets the shard know of the dataset before its first row there. A transaction that has begun is alone on the
    /// shard, so it must be told inside.
    async fn let_lite_know(&mut self, call: &mut dyn Call) -> Done {
        for dataset in call.registration(Dialect::Sqlite) {
            let router = self.door.router.clone();
            let Some(lite) = &mut self.lite else { return Ok(()) };
            let bound = match lite.transaction.take() {
                None => router.bind(&lite.tickets[0], &dataset).await,
                Some(transaction) => {
                    let (transaction, bound) =
                        router.bind_within(&lite.tickets[0], &dataset, transaction.into_inner()).await;
                    lite.transaction = Some(Solo::new(transaction));
                    bound
                }
            };
            bound.map_err(|error| reply::of_router(&error))?;
        }
        Ok(())
    }
}
