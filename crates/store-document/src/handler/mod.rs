//! The service: from a request to one call of the store, and back to an answer.

mod batch;
mod containers;
mod items;
mod path;
mod query;
mod reply;
mod resources;

use std::sync::Arc;

use polyshard_store::Target;
use polyshard_store::rights::Right;

use self::path::Path;
use crate::auth::{MasterKey, Signed};
use crate::failure::Failure;
use crate::http::{Reply, Request};
use crate::name::dataset_name;
use crate::store::{Container, DocumentStore, Key};

/// Parts of a container that are not built.
const NOT_BUILT_IN_CONTAINERS: [(&str, &str); 6] = [
    ("sprocs", "stored procedures"),
    ("triggers", "triggers"),
    ("udfs", "user-defined functions"),
    ("conflicts", "conflict feeds"),
    ("partitionedsystemdocuments", "system documents"),
    ("retriablewrites", "retriable writes"),
];

/// The Cosmos DB protocol over a store.
pub(crate) struct DocumentService {
    store: Arc<DocumentStore>,
    key: MasterKey,
    region: String,
}

impl DocumentService {
    /// The service of the account with this key.
    pub fn new(store: Arc<DocumentStore>, key: MasterKey, region: String) -> DocumentService {
        DocumentService { store, key, region }
    }

    /// The time in ticks of 100 ns since 1970.
    pub fn now_ticks(&self) -> i64 {
        self.store.kit().now_ticks()
    }

    fn now_ms(&self) -> i64 {
        self.store.kit().now_ms()
    }

    /// Whether a request was signed with the account's key.
    pub fn authorize(&self, request: &Request) -> Result<(), Failure> {
        let (kind, link) = Path::parse(&request.path)?.signed();
        let signed = Signed {
            method: &request.method,
            kind: &kind,
            link: &link,
            ms_date: request.header("x-ms-date"),
            date: request.header("date"),
        };
        self.key.check(request.header("authorization"), signed, self.now_ms().div_euclid(1000))
    }

    /// The answer to a request that was let in.
    pub async fn answer(&self, request: &Request) -> Reply {
        match self.carry_out(request).await {
            Ok(reply) => self.finish(reply),
            Err(failure) => self.refused(&failure),
        }
    }

    /// The answer to one that is refused.
    pub fn refused(&self, failure: &Failure) -> Reply {
        self.finish(reply::refused(failure))
    }

    fn finish(&self, reply: Reply) -> Reply {
        let random = self.store.kit().random();
        let (high, low) = (random, self.store.kit().random());
        let activity = format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xFFFF,
            high & 0xFFF,
            0x8000 | (low >> 48) & 0x3FFF,
            low & 0xFFFF_FFFF_FFFF
        );
        reply
            .header("x-ms-activity-id", activity)
            .header("x-ms-serviceversion", concat!("version=polyshard-", env!("CARGO_PKG_VERSION")))
            .header("x-ms-gatewayversion", "version=2.0.0")
            .header("x-ms-schemaversion", "1.18")
            .header("cache-control", "no-store, no-cache")
    }

    async fn carry_out(&self, request: &Request) -> Result<Reply, Failure> {
        let path = Path::parse(&request.path)?;
        let names = path.names();
        match (request.method.as_str(), names.as_slice()) {
            ("GET", []) => self.account(request),
            // What is asked most, first; the rest is put elsewhere, since a request takes the room of the largest.
            (method, ["dbs", database, "colls", container, "docs"]) => match method {
                "POST" => Box::pin(self.post_items(request, database, container)).await,
                "GET" => Box::pin(self.read_feed(request, database, container)).await,
                _ => Err(Failure::method_not_allowed()),
            },
            (method, ["dbs", database, "colls", container, "docs", id]) => match method {
                "GET" => self.read_item(request, database, container, id).await,
                "PUT" => self.replace_item(request, database, container, id).await,
                "DELETE" => self.delete_item(request, database, container, id).await,
                "PATCH" => Box::pin(self.patch_item(request, database, container, id)).await,
                _ => Err(Failure::method_not_allowed()),
            },
            _ => Box::pin(self.carry_out_other(request, &names)).await,
        }
    }

    async fn carry_out_other(&self, request: &Request, names: &[&str]) -> Result<Reply, Failure> {
        match (request.method.as_str(), names) {
            ("GET", ["dbs"]) => self.list_databases(request).await,
            ("POST", ["dbs"]) if is_query(request) => self.query_databases(request).await,
            ("POST", ["dbs"]) => self.create_database(request).await,
            ("GET", ["dbs", database]) => self.read_database(database).await,
            ("DELETE", ["dbs", database]) => self.delete_database(request, database).await,
            ("GET", ["dbs", database, "colls"]) => self.list_containers(request, database).await,
            ("POST", ["dbs", database, "colls"]) if is_query(request) => {
                self.query_containers(request, database).await
            }
            ("POST", ["dbs", database, "colls"]) => self.create_container(request, database).await,
            ("GET", ["dbs", database, "colls", container]) => {
                self.read_container(request, database, container).await
            }
            ("PUT", ["dbs", database, "colls", container]) => {
                self.replace_container(request, database, container).await
            }
            ("DELETE", ["dbs", database, "colls", container]) => {
                self.delete_container(request, database, container).await
            }
            ("GET", ["dbs", database, "colls", container, "pkranges"]) => {
                self.read_ranges(request, database, container).await
            }
            ("POST", ["dbs", database, "colls", container, "operations", "partitionkeydelete"]) => {
                self.delete_partition(request, database, container).await
            }
            ("GET", ["offers"]) => self.list_offers(request).await,
            ("POST", ["offers"]) => self.query_offers(request).await,
            ("GET", ["offers", offer]) => self.read_offer(offer).await,
            ("PUT", ["offers", offer]) => self.replace_offer(request, offer).await,
            (_, ["dbs", _, "users", ..]) => Err(Failure::not_built("users and permissions")),
            (_, ["dbs", _, "clientencryptionkeys", ..]) => Err(Failure::not_built("client encryption keys")),
            (_, ["dbs", _, "colls", _, "docs", _, "attachments", ..]) => {
                Err(Failure::not_built("attachments"))
            }
            (_, ["dbs", _, "colls", _, part, ..]) => {
                let part = NOT_BUILT_IN_CONTAINERS.iter().find(|(name, _)| name == part);
                Err(part.map_or_else(Failure::method_not_allowed, |(_, what)| Failure::not_built(what)))
            }
            (_, [] | ["dbs"] | ["dbs", _] | ["dbs", _, "colls"] | ["offers", ..]) => {
                Err(Failure::method_not_allowed())
            }
            _ => Err(Failure::not_found("the path")),
        }
    }

    /// Whether the account may do something that concerns no documents.
    async fn permit(&self, target: Target<'_>) -> Result<(), Failure> {
        Ok(self.store.kit().permit(self.store.account(), target).await?)
    }

    /// A container that documents are about to be read or written in.
    async fn container(&self, database: &str, container: &str, right: Right) -> Result<Container, Failure> {
        match self.store.container(database, container).await {
            Err(failure) if failure.status == 404 => {
                // Who may not look for it is not told that there is none.
                if let Ok(name) = dataset_name(self.store.account(), &format!("{database}/{container}")) {
                    self.permit(Target::Dataset(right, &name, None)).await?;
                }
                Err(Failure { substatus: Failure::no_owner("").substatus, ..failure })
            }
            other => other,
        }
    }

    /// Whether the account may do this with the documents of a partition.
    async fn permit_key(
        &self,
        right: Right,
        container: &Container,
        key: Option<&Key>,
    ) -> Result<(), Failure> {
        if !self.store.kit().is_limited(self.store.account()) {
            return Ok(());
        }
        let key = key.map(|key| key.text.as_str());
        Box::pin(self.permit(Target::Dataset(right, &container.name, key))).await
    }
}

/// Whether a POST asks for something.
fn is_query(request: &Request) -> bool {
    let is_by_type = |kind: &str| kind.to_ascii_lowercase().starts_with("application/query+json");
    request.is_set("x-ms-documentdb-isquery") || request.header("content-type").is_some_and(is_by_type)
}
