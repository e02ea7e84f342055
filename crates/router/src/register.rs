//! Has shards know of datasets before their first rows come, and remembers which do.

use std::collections::HashSet;
use std::sync::Mutex;

use async_recursion::async_recursion as boxed;
use polyshard_engine as engine;
use polyshard_shard::Dataset;
use uuid::Uuid;

use crate::error::RouterError;
use crate::router::Router;
use crate::ticket::Ticket;

/// What this process has recorded on shards, by their incarnation.
#[derive(Default)]
pub(crate) struct Registered {
    /// Tables, by the names that shards have for them.
    tables: Mutex<HashSet<(Uuid, String)>>,
    /// Datasets of the catalog, by their numbers: with all their tables.
    datasets: Mutex<HashSet<(Uuid, u64)>>,
}

impl Router {
    /// Records on a ticket's shard, once, that a dataset has rows there: before the first of them is written. The
    /// protocol then knows what a range holds.
    #[boxed]
    pub async fn bind(&self, ticket: &Ticket, dataset: &Dataset) -> Result<(), RouterError> {
        if self.is_bound(ticket, dataset) {
            return Ok(());
        }
        let key = self.bound_key(ticket, dataset);
        let fail = |error| RouterError::Shard { shard: ticket.shard().clone(), error };
        let shard = self.shards.get(ticket.shard()).await.map_err(fail)?;
        shard.bind(dataset).await.map_err(fail)?;
        self.registered.tables.lock().expect("no panic while held").insert(key);
        Ok(())
    }

    /// Whether this process has recorded all tables of a dataset of the catalog on a ticket's shard.
    pub fn is_registered(&self, ticket: &Ticket, number: u64) -> bool {
        let key = (self.incarnation(ticket), number);
        self.registered.datasets.lock().expect("no panic while held").contains(&key)
    }

    /// Records all tables of a dataset of the catalog on a ticket's shard, all or none: before the first row in any of
    /// them is written.
    #[boxed]
    pub async fn register(
        &self,
        ticket: &Ticket,
        number: u64,
        tables: &[Dataset],
    ) -> Result<(), RouterError> {
        let key = (self.incarnation(ticket), number);
        let fail = |error| RouterError::Shard { shard: ticket.shard().clone(), error };
        let shard = self.shards.get(ticket.shard()).await.map_err(fail)?;
        shard.bind_all(tables).await.map_err(fail)?;
        self.registered.datasets.lock().expect("no panic while held").insert(key);
        Ok(())
    }

    /// As [`Router::bind`], inside a transaction that was begun by this ticket, where one beside it would wait for it:
    /// on SQLite. Not remembered, since it may be rolled back.
    #[boxed]
    pub async fn bind_within(
        &self,
        ticket: &Ticket,
        dataset: &Dataset,
        transaction: engine::Transaction,
    ) -> (engine::Transaction, Result<(), RouterError>) {
        if self.is_bound(ticket, dataset) {
            return (transaction, Ok(()));
        }
        let tables = std::slice::from_ref(dataset);
        let (transaction, bound) = polyshard_shard::bind_within(transaction, ticket.dialect(), tables).await;
        (transaction, bound.map_err(|error| RouterError::Shard { shard: ticket.shard().clone(), error }))
    }

    fn is_bound(&self, ticket: &Ticket, dataset: &Dataset) -> bool {
        let key = self.bound_key(ticket, dataset);
        self.registered.tables.lock().expect("no panic while held").contains(&key)
    }

    fn bound_key(&self, ticket: &Ticket, dataset: &Dataset) -> (Uuid, String) {
        (self.incarnation(ticket), dataset.name.clone())
    }

    fn incarnation(&self, ticket: &Ticket) -> Uuid {
        let view = self.view();
        view.shards.get(ticket.shard()).map_or(Uuid::nil(), |record| record.incarnation)
    }
}
