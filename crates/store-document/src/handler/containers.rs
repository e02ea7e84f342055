//! Containers and their ranges of partition keys.

use polyshard_store::Target;
use polyshard_store::rights::Right;
use serde_json::{Map, Value, json};

use super::DocumentService;
use super::reply::{RANGE, resource};
use super::resources::{check_if_match, id_of, json_object, throughput};
use crate::charge;
use crate::document::etag_text;
use crate::failure::Failure;
use crate::http::{Reply, Request};
use crate::partition_key::Definition;
use crate::rid;
use crate::store::{Container, ContainerBody};

/// The ranges of a container never change, so neither does their ETag.
const RANGES_ETAG: i64 = 1;

/// What is set by the server, or has a meaning of its own here.
const NOT_KEPT: [&str; 13] = [
    "id",
    "partitionKey",
    "defaultTtl",
    "_rid",
    "_self",
    "_etag",
    "_ts",
    "_docs",
    "_sprocs",
    "_triggers",
    "_udfs",
    "_conflicts",
    "statistics",
];

impl DocumentService {
    pub(super) async fn create_container(&self, request: &Request, database: &str) -> Result<Reply, Failure> {
        self.permit(Target::Store(Right::Schema)).await?;
        let sent = json_object(request)?;
        let database = self.store.database(database).await?;
        let body = ContainerBody { throughput: throughput(request)?, ..body_of(&sent)? };
        let container = self.store.create_container(&database, id_of(&sent)?, body).await?;
        Ok(self.shown(201, &container))
    }

    pub(super) async fn read_container(
        &self,
        _: &Request,
        database: &str,
        id: &str,
    ) -> Result<Reply, Failure> {
        self.permit(Target::Any).await?;
        Ok(self.shown(200, &self.store.container(database, id).await?))
    }

    pub(super) async fn replace_container(
        &self,
        request: &Request,
        database: &str,
        id: &str,
    ) -> Result<Reply, Failure> {
        self.permit(Target::Store(Right::Schema)).await?;
        let container = self.store.container(database, id).await?;
        check_if_match(request, &container.etag())?;
        let sent = json_object(request)?;
        let new = body_of(&sent)?;
        let paths = |body: &ContainerBody| body.partition_key.as_ref().map(|key| key.paths.clone());
        if id_of(&sent)? != container.id || paths(&new) != paths(&container.body) {
            return Err(Failure::bad_request(
                "the id and the partition key of a container cannot be changed",
            ));
        }
        let replaced = self.store.replace_container(&container, |body| {
            body.default_ttl = new.default_ttl;
            body.policies = new.policies;
        });
        Ok(self.shown(200, &replaced.await?))
    }

    pub(super) async fn delete_container(
        &self,
        request: &Request,
        database: &str,
        id: &str,
    ) -> Result<Reply, Failure> {
        self.permit(Target::Store(Right::Schema)).await?;
        let container = self.store.container(database, id).await?;
        check_if_match(request, &container.etag())?;
        self.store.delete_container(&container).await?;
        Ok(Reply::new(204).charge(charge::RESOURCE))
    }

    pub(super) async fn list_containers(&self, request: &Request, database: &str) -> Result<Reply, Failure> {
        let (rid, containers) = self.containers(database).await?;
        self.list(request, &rid, "DocumentCollections", containers).await
    }

    pub(super) async fn query_containers(&self, request: &Request, database: &str) -> Result<Reply, Failure> {
        let (rid, containers) = self.containers(database).await?;
        self.query_list(request, &rid, "DocumentCollections", containers).await
    }

    async fn containers(&self, database: &str) -> Result<(String, Vec<(String, Value)>), Failure> {
        self.permit(Target::Any).await?;
        let database = self.store.database(database).await?;
        let containers = self.store.containers(&database).await?;
        let shown =
            containers.into_iter().map(|container| (container.id.clone(), container.json())).collect();
        Ok((rid::database(database.record.id), shown))
    }

    /// There is one range, so that clients send every query whole. A client that knows of it is told that nothing has
    /// changed: the Python SDK asks until it is.
    pub(super) async fn read_ranges(
        &self,
        request: &Request,
        database: &str,
        id: &str,
    ) -> Result<Reply, Failure> {
        self.permit(Target::Any).await?;
        let container = self.store.container(database, id).await?;
        let etag = etag_text(RANGES_ETAG);
        let reply = |status| Reply::new(status).header("etag", etag.clone()).charge(charge::RESOURCE);
        if request.header("if-none-match") == Some(&etag) {
            return Ok(reply(304).of(&container, self.now_ms()));
        }
        let range = rid::range(container.body.database, container.record.id);
        let shown = json!({
            "_rid": container.rid,
            "PartitionKeyRanges": [{
                "id": RANGE,
                "_rid": range,
                "_self": format!("{}pkranges/{range}/", container.self_link),
                "_etag": etag,
                "_ts": container.body.ts_s,
                "minInclusive": "",
                "maxExclusive": "FF",
                "ridPrefix": 0,
                "throughputFraction": 1,
                "status": "online",
                "parents": [],
                "ownedArchivalPKRangeIds": [],
                "lsn": 1,
            }],
            "_count": 1,
        });
        let reply = reply(200).header("x-ms-item-count", "1").of(&container, self.now_ms());
        Ok(reply.body(shown.to_string().into_bytes()))
    }

    fn shown(&self, status: u16, container: &Container) -> Reply {
        resource(status, &container.etag(), &container.json()).of(container, self.now_ms())
    }
}

/// What is kept of a container that a client has sent.
fn body_of(sent: &Value) -> Result<ContainerBody, Failure> {
    let partition_key = match &sent["partitionKey"] {
        Value::Null => None,
        key => {
            let key: Definition = serde_json::from_value(key.clone())
                .map_err(|error| Failure::bad_request(format!("partitionKey: {error}")))?;
            key.check()?;
            Some(key)
        }
    };
    let default_ttl = match &sent["defaultTtl"] {
        Value::Null => None,
        ttl => {
            let ttl = ttl.as_i64().filter(|ttl| *ttl == -1 || (1..=i64::from(i32::MAX)).contains(ttl));
            let message = "defaultTtl is -1 or a whole number of seconds from 1 on";
            Some(ttl.ok_or_else(|| Failure::bad_request(message))?)
        }
    };
    if sent["uniqueKeyPolicy"]["uniqueKeys"].as_array().is_some_and(|keys| !keys.is_empty()) {
        return Err(Failure::not_built("unique keys"));
    }
    let mut policies: Map<String, Value> = sent.as_object().cloned().unwrap_or_default();
    policies.retain(|name, _| !NOT_KEPT.contains(&name.as_str()));
    let mut default = |name: &str, value: Value| {
        policies.entry(name).or_insert(value);
    };
    default(
        "indexingPolicy",
        json!({
            "indexingMode": "consistent",
            "automatic": true,
            "includedPaths": [{"path": "/*"}],
            "excludedPaths": [{"path": "/\"_etag\"/?"}],
        }),
    );
    default(
        "conflictResolutionPolicy",
        json!({"mode": "LastWriterWins", "conflictResolutionPath": "/_ts", "conflictResolutionProcedure": ""}),
    );
    default("geospatialConfig", json!({"type": "Geography"}));
    Ok(ContainerBody { database: 0, ts_s: 0, partition_key, default_ttl, throughput: None, policies })
}
