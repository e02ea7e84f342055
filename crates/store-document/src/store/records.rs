//! What the catalog keeps about databases and containers, and how it is shown.

use polyshard_catalog::DatasetRecord;
use polyshard_store::Body;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::document::etag_text;
use crate::partition_key::Definition;
use crate::rid;

/// The request units of whatever nothing was said about.
pub(crate) const THROUGHPUT_DEFAULT: u64 = 400;

/// Request units a second that were asked for. They are kept and shown; requests are not limited by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Throughput {
    /// So many.
    #[serde(rename = "manual")]
    Manual(u64),
    /// Up to so many.
    #[serde(rename = "autoscale")]
    Autoscale(u64),
}

/// What is kept about a database.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DatabaseBody {
    pub ts_s: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Throughput>,
}

impl Body for DatabaseBody {
    const FORMAT: u32 = 1;
}

/// What is kept about a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ContainerBody {
    /// The number of its database: a later one of the same name is another one.
    pub database: u64,
    pub ts_s: i64,
    /// None: all documents are in one partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<Definition>,
    /// The time to live of documents: none if they do not end, -1 if only those do that say so themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_ttl: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Throughput>,
    /// What is kept and shown as it was sent, such as the indexing policy.
    #[serde(default)]
    pub policies: Map<String, Value>,
}

impl Body for ContainerBody {
    const FORMAT: u32 = 1;
}

/// The ETag of a record, which is another one after each change.
pub(crate) fn etag_of(record: &DatasetRecord) -> String {
    etag_text((record.id << 24 | record.version & 0xFF_FFFF) as i64)
}

/// A database as clients see it.
pub(crate) fn database_json(id: &str, record: &DatasetRecord, body: &DatabaseBody) -> Value {
    let rid = rid::database(record.id);
    json!({
        "id": id,
        "_rid": rid,
        "_self": format!("dbs/{rid}/"),
        "_etag": etag_of(record),
        "_colls": "colls/",
        "_users": "users/",
        "_ts": body.ts_s,
    })
}

/// A container as clients see it.
pub(crate) fn container_json(id: &str, record: &DatasetRecord, body: &ContainerBody) -> Value {
    let rid = rid::container(body.database, record.id);
    let mut shown = body.policies.clone();
    let mut set = |name: &str, value: Value| shown.insert(name.to_owned(), value);
    set("id", json!(id));
    set("_rid", json!(rid));
    set("_self", json!(container_link(body.database, record.id)));
    set("_etag", json!(etag_of(record)));
    set("_ts", json!(body.ts_s));
    for (name, path) in [
        ("_docs", "docs/"),
        ("_sprocs", "sprocs/"),
        ("_triggers", "triggers/"),
        ("_udfs", "udfs/"),
        ("_conflicts", "conflicts/"),
    ] {
        set(name, json!(path));
    }
    if let Some(key) = &body.partition_key {
        set("partitionKey", json!(key));
    }
    if let Some(ttl) = body.default_ttl {
        set("defaultTtl", json!(ttl));
    }
    Value::Object(shown)
}

/// The address of a container by its resource id.
pub(crate) fn container_link(database: u64, container: u64) -> String {
    format!("dbs/{}/colls/{}/", rid::database(database), rid::container(database, container))
}

/// The request units of a database or container.
#[derive(Clone, Debug)]
pub(crate) struct Offered {
    /// The number of the record they are of.
    pub number: u64,
    pub rid: String,
    pub self_link: String,
    pub throughput: Throughput,
    pub ts_s: i64,
    pub etag: String,
}

impl Offered {
    /// As clients see it.
    pub fn json(&self) -> Value {
        let content = match self.throughput {
            Throughput::Manual(units) => {
                json!({"offerThroughput": units, "offerIsRUPerMinuteThroughputEnabled": false})
            }
            Throughput::Autoscale(units) => json!({
                "offerThroughput": (units / 10).max(THROUGHPUT_DEFAULT.min(units)),
                "offerIsRUPerMinuteThroughputEnabled": false,
                "offerAutopilotSettings": {"maxThroughput": units},
            }),
        };
        let offer = rid::offer(self.number);
        json!({
            "id": offer,
            "_rid": offer,
            "_self": format!("offers/{offer}/"),
            "_etag": self.etag,
            "_ts": self.ts_s,
            "resource": self.self_link,
            "offerResourceId": self.rid,
            "offerVersion": "V2",
            "offerType": "Invalid",
            "content": content,
        })
    }
}
