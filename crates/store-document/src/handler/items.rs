//! Single documents.

use polyshard_document_query::Value;
use polyshard_store::rights::Right;

use super::{DocumentService, reply};
use crate::charge;
use crate::document::{Document, etag_text, parse_etag};
use crate::epk::digest;
use crate::failure::Failure;
use crate::http::{Reply, Request};
use crate::partition_key::read_header;
use crate::patch::Patch;
use crate::store::{Condition, Container, Item, Key};

/// The header that names a partition.
pub(super) const KEY_HEADER: &str = "x-ms-documentdb-partitionkey";

impl DocumentService {
    /// A POST of documents is one document, a query, a batch or the wish for a query's plan.
    pub(super) async fn post_items(
        &self,
        request: &Request,
        database: &str,
        id: &str,
    ) -> Result<Reply, Failure> {
        if request.is_set("x-ms-cosmos-is-query-plan-request") {
            // Clients go on without one: queries are executed here as a whole.
            return Err(Failure::bad_request("query plans are not built: queries are executed as a whole"));
        }
        if request.is_set("x-ms-cosmos-is-batch-request") {
            return Box::pin(self.batch(request, database, id)).await;
        }
        if super::is_query(request) {
            return Box::pin(self.query_items(request, database, id)).await;
        }
        self.create_item(request, database, id).await
    }

    async fn create_item(&self, request: &Request, database: &str, id: &str) -> Result<Reply, Failure> {
        refuse_triggers(request)?;
        let container = self.container(database, id, Right::Write).await?;
        let document = Document::parse(&request.body)?;
        let key = self.key_of(request, &container, &document.value)?;
        self.permit_key(Right::Write, &container, Some(&key)).await?;
        self.store.admit(&key, 1)?;
        let written = match request.is_set("x-ms-documentdb-is-upsert") {
            true => self.store.upsert(&container, &key, &document, condition(request)).await?,
            false => self.store.create(&container, &key, &document).await?,
        };
        let status = if written.is_new { 201 } else { 200 };
        let item = Item { stamp: written.stamp, body: document.body };
        Ok(self.written(request, status, &container, &item))
    }

    pub(super) async fn read_item(
        &self,
        request: &Request,
        database: &str,
        container: &str,
        id: &str,
    ) -> Result<Reply, Failure> {
        let container = self.container(database, container, Right::Read).await?;
        let key = self.key_in(request, &container)?;
        self.permit_key(Right::Read, &container, Some(&key)).await?;
        self.store.admit(&key, 1)?;
        let item = self.store.get(&container, &key, id).await?;
        let charge = charge::read(item.body.len());
        let reply = match request.header("if-none-match") {
            Some(etag) if etag == etag_text(item.stamp.etag) => Reply::new(304).header("etag", etag),
            _ => reply::item(200, &item, true).header("x-ms-item-count", "1"),
        };
        Ok(reply.charge(charge).of(&container, self.now_ms()))
    }

    pub(super) async fn replace_item(
        &self,
        request: &Request,
        database: &str,
        container: &str,
        id: &str,
    ) -> Result<Reply, Failure> {
        refuse_triggers(request)?;
        let container = self.container(database, container, Right::Write).await?;
        let document = Document::parse(&request.body)?;
        if document.id != id {
            return Err(Failure::bad_request("the id of a document cannot be changed"));
        }
        let key = self.key_of(request, &container, &document.value)?;
        self.permit_key(Right::Write, &container, Some(&key)).await?;
        self.store.admit(&key, 1)?;
        let written = self.store.replace(&container, &key, &document, condition(request)).await?;
        let item = Item { stamp: written.stamp, body: document.body };
        Ok(self.written(request, 200, &container, &item))
    }

    pub(super) async fn patch_item(
        &self,
        request: &Request,
        database: &str,
        container: &str,
        id: &str,
    ) -> Result<Reply, Failure> {
        refuse_triggers(request)?;
        let container = self.container(database, container, Right::Write).await?;
        let patch = Patch::parse(&Value::from_json(&request.body)?, container.partition_key())?;
        let key = self.key_in(request, &container)?;
        self.permit_key(Right::Write, &container, Some(&key)).await?;
        self.store.admit(&key, 1)?;
        let patched = self.store.patch(&container, &key, id, &patch, condition(request)).await;
        let (written, document) = patched?;
        let item = Item { stamp: written.stamp, body: document.body };
        Ok(self.written(request, 200, &container, &item))
    }

    pub(super) async fn delete_item(
        &self,
        request: &Request,
        database: &str,
        container: &str,
        id: &str,
    ) -> Result<Reply, Failure> {
        refuse_triggers(request)?;
        let container = self.container(database, container, Right::Write).await?;
        let key = self.key_in(request, &container)?;
        self.permit_key(Right::Write, &container, Some(&key)).await?;
        self.store.admit(&key, 1)?;
        self.store.delete(&key, id, condition(request)).await?;
        Ok(Reply::new(204).charge(charge::write(0)).of(&container, self.now_ms()))
    }

    pub(super) async fn delete_partition(
        &self,
        request: &Request,
        database: &str,
        id: &str,
    ) -> Result<Reply, Failure> {
        let container = self.container(database, id, Right::Write).await?;
        let key = self.key_in(request, &container)?;
        self.permit_key(Right::Write, &container, Some(&key)).await?;
        self.store.admit(&key, 1)?;
        self.store.delete_partition(&key).await?;
        Ok(Reply::new(200).charge(charge::write(0)).of(&container, self.now_ms()))
    }

    fn written(&self, request: &Request, status: u16, container: &Container, item: &Item) -> Reply {
        let with_body = !wants_little(request);
        let reply = reply::item(status, item, with_body).charge(charge::write(item.body.len()));
        reply.of(container, self.now_ms())
    }

    /// The partition that a request names, as it must.
    pub(super) fn key_in(&self, request: &Request, container: &Container) -> Result<Key, Failure> {
        let values = match request.header(KEY_HEADER) {
            Some(header) => read_header(header)?,
            None if container.partition_key().is_none() => Vec::new(),
            None => {
                return Err(Failure::bad_request("PartitionKey value must be supplied for this operation."));
            }
        };
        self.key_of_values(container, values)
    }

    /// The partition of these values, which must be all that there are.
    pub(super) fn key_of_values(&self, container: &Container, values: Vec<Value>) -> Result<Key, Failure> {
        let levels = container.partition_key().map_or(0, |key| key.levels());
        let values = if values.is_empty() { vec![Value::Undefined; levels] } else { values };
        if levels > 0 && values.len() != levels {
            let message = "Partition key provided either doesn't correspond to definition in the collection or doesn't \
                           match partition key field values specified in the document.";
            return Err(Failure {
                substatus: Failure::key_mismatch().substatus,
                ..Failure::bad_request(message)
            });
        }
        self.store.key(container, &values)
    }

    /// The partition of a document, which must be the one that the request names, if it does.
    pub(super) fn key_of(
        &self,
        request: &Request,
        container: &Container,
        document: &Value,
    ) -> Result<Key, Failure> {
        let Some(definition) = container.partition_key() else { return self.store.key(container, &[]) };
        let values = definition.values_of(document)?;
        if let Some(header) = request.header(KEY_HEADER) {
            let named = read_header(header)?;
            let named = if named.is_empty() { vec![Value::Undefined; values.len()] } else { named };
            if digest(&named) != digest(&values) {
                return Err(Failure::key_mismatch());
            }
        }
        self.store.key(container, &values)
    }
}

/// The condition of a change.
fn condition(request: &Request) -> Condition {
    condition_of(request.header("if-match"))
}

/// The condition that an ETag is: an ETag that is none of ours is that of no document.
pub(super) fn condition_of(etag: Option<&str>) -> Condition {
    match etag.map(str::trim) {
        None | Some("" | "*") => Condition::None,
        Some(etag) => Condition::Etag(parse_etag(etag).filter(|etag| *etag > 0).unwrap_or(-1)),
    }
}

/// Whether a client does not want to see what it has written.
pub(super) fn wants_little(request: &Request) -> bool {
    request.header("prefer").is_some_and(|prefer| prefer.to_ascii_lowercase().contains("return=minimal"))
}

fn refuse_triggers(request: &Request) -> Result<(), Failure> {
    let names = ["x-ms-documentdb-pre-trigger-include", "x-ms-documentdb-post-trigger-include"];
    match names.iter().any(|name| request.header(name).is_some_and(|value| !value.is_empty())) {
        true => Err(Failure::not_built("triggers")),
        false => Ok(()),
    }
}
