//! The tasks by which a database is taken in with its rows.

use polyshard_catalog::{CatalogError, NewShard, ShardLimits};
use polyshard_map::{Epoch, KeyRange, MapDefinition, MapName, NewEntry, Scheme, ShardId, spread_buckets};
use polyshard_schema::{JournalError, KeyColumns};

use super::{Inner, Outcome};
use crate::procedure::{Columns, Made, Procedure, TakeIn};

impl From<&Columns> for KeyColumns {
    fn from(columns: &Columns) -> KeyColumns {
        let name = |schema: &str, name: &str| polyshard_sql::TableName {
            schema: schema.to_owned(),
            name: name.to_owned(),
        };
        KeyColumns {
            everywhere: columns.everywhere.clone(),
            single: columns
                .single
                .iter()
                .map(|(schema, table, column)| (name(schema, table), column.clone()))
                .collect(),
            only: columns.tables.iter().map(|(schema, table)| name(schema, table)).collect(),
        }
    }
}

/// What to do about a refusal of the journal.
pub(super) fn of_journal(error: JournalError) -> Result<Outcome, CatalogError> {
    match error {
        JournalError::Catalog(error) => Err(error),
        JournalError::Refused(refused) => {
            let hint = refused.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
            Ok(Outcome::Refused(format!("{}{hint}", refused.message)))
        }
        JournalError::Damaged { .. } | JournalError::Stuck { .. } => Ok(Outcome::Refused(error.to_string())),
        JournalError::Shard { error: ref inner, .. } if !inner.is_retryable() => {
            Ok(Outcome::Refused(error.to_string()))
        }
        error => Ok(Outcome::Retry(error.to_string())),
    }
}

impl Inner {
    pub(super) async fn take_in(
        &self,
        procedure: &mut Procedure,
        database: &TakeIn,
    ) -> Result<Outcome, CatalogError> {
        let router = &self.options.router;
        let id = &database.shard;
        let new = NewShard {
            id: id.clone(),
            url: database.url.clone(),
            password: database.password.clone(),
            server: None,
            region: database.region.clone(),
            tier: database.tier.clone(),
            limits: ShardLimits::default(),
        };
        let is_there = self.options.driver.catalog().shards().await?.iter().any(|known| known.id == *id);
        if !is_there && procedure.made_shard(id).is_some() {
            let opened = router.open_candidate(&new.candidate()).await;
            let opened = opened.map_err(|error| CatalogError::Shard { shard: id.clone(), error })?;
            // The journal must know that its tables stay before anybody finds the shard and brings it up.
            let taken = self.options.journal.take_in(&opened).await;
            opened.close().await;
            if let Err(error) = taken {
                return of_journal(error);
            }
        }
        if let Some(noted) = self.make_shard(procedure, new).await? {
            return Ok(noted);
        }
        match router.refresh().await {
            Ok(()) => Ok(Outcome::Done),
            Err(error) => Ok(Outcome::Retry(error.to_string())),
        }
    }

    pub(super) async fn create_map(
        &self,
        procedure: &mut Procedure,
        definition: &MapDefinition,
        shard: &ShardId,
        columns: &Columns,
    ) -> Result<Outcome, CatalogError> {
        let driver = &self.options.driver;
        let name = definition.name();
        match driver.catalog().map(name).await {
            Ok(record) if record.live && record.definition == *definition => {
                // Ours, unless somebody else has made one like it meanwhile.
                let entries = driver.catalog().entries(name).await?;
                let ours = procedure.has_made_map(name)
                    && !entries.is_empty()
                    && entries.iter().all(|entry| entry.shard == *shard);
                return if ours {
                    Ok(Outcome::Done)
                } else {
                    Err(CatalogError::Exists(format!("map {name}")))
                };
            }
            Ok(record) if record.live => return Err(CatalogError::Exists(format!("map {name}"))),
            Ok(_) => return Ok(Outcome::Retry(format!("map {name} is being made"))),
            Err(CatalogError::NoSuchMap(_)) if procedure.has_made_map(name) => {}
            Err(CatalogError::NoSuchMap(_)) => {
                procedure.note(Made::Map { map: name.clone() });
                return Ok(Outcome::Noted);
            }
            Err(error) => return Err(error),
        }
        let entries = match definition.scheme() {
            Scheme::Hash(hash) => spread_buckets(hash, std::slice::from_ref(shard))
                .map_err(|error| CatalogError::Invalid(error.to_string()))?,
            Scheme::Range => vec![NewEntry::new(KeyRange::all(), shard.clone())],
            _ => match self.listed(definition, shard, columns).await? {
                Ok(entries) => entries,
                Err(outcome) => return Ok(outcome),
            },
        };
        let entries = entries.into_iter().map(|entry| entry.at(Epoch::ZERO)).collect();
        driver.create_map(definition, entries).await?;
        match self.options.router.refresh().await {
            Ok(()) => Ok(Outcome::Done),
            Err(error) => Ok(Outcome::Retry(error.to_string())),
        }
    }

    /// An entry for each key that is there.
    async fn listed(
        &self,
        definition: &MapDefinition,
        shard: &ShardId,
        columns: &Columns,
    ) -> Result<Result<Vec<NewEntry>, Outcome>, CatalogError> {
        let opened = self.options.router.administer(shard).await;
        let opened = opened.map_err(|error| CatalogError::Shard { shard: shard.clone(), error })?;
        let keys = self.options.journal.keys_of_database(&opened, definition, &columns.into()).await;
        let keys = match keys {
            Ok(keys) => keys,
            Err(error) => return Ok(Err(of_journal(error)?)),
        };
        let mut entries = Vec::with_capacity(keys.len());
        for text in keys {
            let wrong = |why: String| CatalogError::Invalid(format!("{text:?} is no key: {why}"));
            let key = definition.key_type().parse(&text).map_err(|error| wrong(error.to_string()))?;
            let placement = definition.placement(&key).map_err(|error| wrong(error.to_string()))?;
            entries.push(NewEntry::new(KeyRange::point(placement), shard.clone()));
        }
        entries.sort_by(|a, b| a.range.cmp(&b.range));
        Ok(Ok(entries))
    }

    pub(super) async fn drop_map(&self, name: &MapName) -> Result<Outcome, CatalogError> {
        match self.options.driver.drop_map(name, None, false).await {
            Ok(_) | Err(CatalogError::NoSuchMap(_) | CatalogError::HoldsData { .. }) => Ok(Outcome::Done),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn adopt_tables(
        &self,
        map: &MapName,
        shard: &ShardId,
        columns: &Columns,
    ) -> Result<Outcome, CatalogError> {
        let definition = self.options.driver.catalog().map(map).await?.definition;
        match self.options.journal.adopt_tables(shard, &definition, &columns.into()).await {
            Ok(()) => Ok(Outcome::Done),
            Err(error) => of_journal(error),
        }
    }
}
