//! Creating, changing, deleting and listing databases and containers.

use std::sync::Arc;

use polyshard_catalog::DatasetRecord;
use polyshard_store::{Created, DatasetName, ErrorKind, read_body};
use serde_json::Value;

use super::DocumentStore;
use super::records::{
    ContainerBody, DatabaseBody, Throughput, container_json, container_link, database_json, etag_of,
};
use crate::failure::Failure;
use crate::partition_key::Definition;
use crate::rid;

/// A database as it is known now.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    pub id: String,
    pub record: Arc<DatasetRecord>,
    pub body: DatabaseBody,
}

/// A container as it is known now.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub database: String,
    pub id: String,
    pub name: DatasetName,
    pub record: Arc<DatasetRecord>,
    pub body: ContainerBody,
    pub rid: String,
    pub self_link: String,
}

impl Database {
    /// As clients see it.
    pub fn json(&self) -> Value {
        database_json(&self.id, &self.record, &self.body)
    }

    /// Its ETag.
    pub fn etag(&self) -> String {
        etag_of(&self.record)
    }
}

impl Container {
    fn new(
        database: &str,
        id: &str,
        name: DatasetName,
        record: Arc<DatasetRecord>,
    ) -> Result<Container, Failure> {
        let body: ContainerBody = read_body(&record)?;
        Ok(Container {
            database: database.to_owned(),
            id: id.to_owned(),
            name,
            rid: rid::container(body.database, record.id),
            self_link: container_link(body.database, record.id),
            record,
            body,
        })
    }

    /// As clients see it.
    pub fn json(&self) -> Value {
        container_json(&self.id, &self.record, &self.body)
    }

    /// Its ETag.
    pub fn etag(&self) -> String {
        etag_of(&self.record)
    }

    /// How it is partitioned, if it is.
    pub fn partition_key(&self) -> Option<&Definition> {
        self.body.partition_key.as_ref()
    }

    /// The time to live of its documents, as statements take it.
    pub fn ttl(&self) -> i64 {
        self.body.default_ttl.unwrap_or(0)
    }
}

impl DocumentStore {
    fn seconds(&self) -> i64 {
        self.kit.now_ms().div_euclid(1000)
    }

    /// A database by its id, or by its resource id.
    pub(crate) async fn database(&self, id: &str) -> Result<Database, Failure> {
        let gone = || Failure::not_found(format_args!("database {id:?}"));
        let Ok(name) = self.dataset(id) else { return Err(gone()) };
        match self.kit.dataset(&name).await {
            Ok(record) => Ok(Database { id: id.to_owned(), body: read_body(&record)?, record }),
            Err(error) if error.kind == ErrorKind::NoDataset => {
                let found = self.by_rid(id).filter(|(name, _)| !name.contains('/')).ok_or_else(gone)?;
                Ok(Database { body: read_body(&found.1)?, id: found.0, record: found.1 })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A container by the ids of its database and itself, or by their resource ids.
    pub(crate) async fn container(&self, database: &str, id: &str) -> Result<Container, Failure> {
        let gone = || Failure::not_found(format_args!("container {database:?}/{id:?}"));
        let database = self.database(database).await?;
        let Ok(name) = self.dataset(&format!("{}/{id}", database.id)) else { return Err(gone()) };
        let container = match self.kit.dataset(&name).await {
            Ok(record) => Container::new(&database.id, id, name, record)?,
            Err(error) if error.kind == ErrorKind::NoDataset => {
                let (full, record) = self.by_rid(id).ok_or_else(gone)?;
                let (_, id) = full.split_once('/').ok_or_else(gone)?;
                Container::new(&database.id, id, self.dataset(&full)?, record)?
            }
            Err(error) => return Err(error.into()),
        };
        // One of an earlier database of this name is on its way out.
        if container.body.database == database.record.id { Ok(container) } else { Err(gone()) }
    }

    /// What has this resource id: its name within the account, and its record.
    fn by_rid(&self, text: &str) -> Option<(String, Arc<DatasetRecord>)> {
        let number = rid::parse(text)?;
        let view = self.kit.router().view();
        let found = self.kit.datasets(&view, &self.account, "").find(|(_, record)| record.id == number)?;
        Some((found.0.to_owned(), found.1.clone()))
    }

    /// Creates a database.
    pub(crate) async fn create_database(
        &self,
        id: &str,
        throughput: Option<Throughput>,
    ) -> Result<Database, Failure> {
        crate::name::check_id(id)?;
        let name = self.dataset(id)?;
        let body = DatabaseBody { ts_s: self.seconds(), throughput };
        match self.kit.create(&name, &body).await? {
            Created::New => self.database(id).await,
            Created::Already(_) => Err(Failure::conflict("Database")),
        }
    }

    /// Creates a container in a database.
    pub(crate) async fn create_container(
        &self,
        database: &Database,
        id: &str,
        body: ContainerBody,
    ) -> Result<Container, Failure> {
        crate::name::check_id(id)?;
        let name = self.dataset(&format!("{}/{id}", database.id))?;
        let body = ContainerBody { database: database.record.id, ts_s: self.seconds(), ..body };
        for _ in 0..2 {
            match self.kit.create(&name, &body).await? {
                Created::New => return self.container(&database.id, id).await,
                Created::Already(record) => {
                    let known: ContainerBody = read_body(&record)?;
                    if known.database == body.database {
                        break;
                    }
                    // It was left over when an earlier database of this name was deleted.
                    self.remove(&name).await?;
                }
            }
        }
        Err(Failure::conflict("Container"))
    }

    /// Changes what can be changed of a container.
    pub(crate) async fn replace_container(
        &self,
        container: &Container,
        edit: impl FnOnce(&mut ContainerBody),
    ) -> Result<Container, Failure> {
        let ts_s = self.seconds();
        let edit = |body: &mut ContainerBody| {
            edit(body);
            body.ts_s = ts_s;
            Ok(())
        };
        self.kit.change(&container.name, edit).await?;
        self.container(&container.database, &container.id).await
    }

    /// Deletes a database and its containers. What it has is gone at once; the documents are removed in the background.
    pub(crate) async fn delete_database(&self, database: &Database) -> Result<(), Failure> {
        self.kit.delete(&self.dataset(&database.id)?).await?;
        self.deleted.notify_one();
        // Nobody finds them any more. Should this end here, the sweeper goes on.
        for name in self.containers_of(database) {
            self.remove(&name).await?;
        }
        Ok(())
    }

    /// Deletes a container.
    pub(crate) async fn delete_container(&self, container: &Container) -> Result<(), Failure> {
        self.kit.delete(&container.name).await?;
        self.deleted.notify_one();
        Ok(())
    }

    /// Deletes a container, which somebody else may have done already.
    pub(super) async fn remove(&self, name: &DatasetName) -> Result<(), Failure> {
        match self.kit.delete(name).await {
            Err(error) if error.kind != ErrorKind::NoDataset => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn containers_of(&self, database: &Database) -> Vec<DatasetName> {
        let view = self.kit.router().view();
        let start = format!("{}/", database.id);
        let names = self.kit.datasets(&view, &self.account, &start).map(|(name, _)| name);
        names.take_while(|name| name.starts_with(&start)).filter_map(|name| self.dataset(name).ok()).collect()
    }

    /// All databases in the order of their ids.
    pub(crate) async fn databases(&self) -> Result<Vec<Database>, Failure> {
        // Without the catalog the list is as old as what this process has heard.
        self.kit.catch_up().await;
        let view = self.kit.router().view();
        let all = self.kit.datasets(&view, &self.account, "").filter(|(name, _)| !name.contains('/'));
        let found: Result<Vec<_>, Failure> = all
            .map(|(id, record)| {
                Ok(Database { id: id.to_owned(), body: read_body(record)?, record: record.clone() })
            })
            .collect();
        let mut found = found?;
        found.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(found)
    }

    /// All containers of a database in the order of their ids.
    pub(crate) async fn containers(&self, database: &Database) -> Result<Vec<Container>, Failure> {
        self.kit.catch_up().await;
        let view = self.kit.router().view();
        let start = format!("{}/", database.id);
        let mut found = Vec::new();
        for (name, record) in self.kit.datasets(&view, &self.account, &start) {
            let Some(id) = name.strip_prefix(&start) else { break };
            let container = Container::new(&database.id, id, self.dataset(name)?, record.clone())?;
            if container.body.database == database.record.id {
                found.push(container);
            }
        }
        Ok(found)
    }
}
