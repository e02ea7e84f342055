//! The account, its databases, and the offers of request units.

use polyshard_store::Target;
use polyshard_store::rights::Right;
use serde_json::{Value, json};

use super::DocumentService;
use super::reply::{self, resource};
use crate::charge;
use crate::failure::Failure;
use crate::http::{Reply, Request};
use crate::rid;
use crate::store::{Database, Offered, Throughput};

/// Request units a second that can be asked for.
const UNITS_MAX: u64 = 1_000_000;

impl DocumentService {
    /// What every client asks first. Whoever has the key may know it.
    pub(super) fn account(&self, request: &Request) -> Result<Reply, Failure> {
        let id = self.store.account();
        // SDKs turn to this address after the first call: it is the one that they have reached.
        let host = request.header("host").unwrap_or("127.0.0.1:8081");
        let location = json!([{"name": self.region, "databaseAccountEndpoint": format!("http://{host}/")}]);
        let engine = json!({
            "maxSqlQueryInputLength": 524_288,
            "maxJoinsPerSqlQuery": 10,
            "maxLogicalAndPerSqlQuery": 2000,
            "maxLogicalOrPerSqlQuery": 2000,
            "maxUdfRefPerSqlQuery": 10,
            "maxInExpressionItemsCount": 16_000,
            "queryMaxInMemorySortDocumentCount": 500,
            "maxQueryRequestTimeoutFraction": 0.9,
            "sqlAllowNonFiniteNumbers": false,
            "sqlAllowAggregateFunctions": true,
            "sqlAllowSubQuery": true,
            "sqlAllowScalarSubQuery": true,
            "allowNewKeywords": true,
            "sqlAllowLike": true,
            "sqlAllowGroupByClause": true,
            "sqlAllowTop": true,
        });
        let shown = json!({
            "id": id,
            "_rid": format!("{id}.documents.local"),
            "_self": "",
            "_dbs": "//dbs/",
            "media": "//media/",
            "addresses": "//addresses/",
            "writableLocations": location,
            "readableLocations": location,
            "enableMultipleWriteLocations": false,
            "continuousBackupEnabled": false,
            "enableNRegionSynchronousCommit": false,
            "userReplicationPolicy": {"asyncReplication": false, "minReplicaSetSize": 1, "maxReplicasetSize": 4},
            "userConsistencyPolicy": {"defaultConsistencyLevel": "Session"},
            "systemReplicationPolicy": {"minReplicaSetSize": 1, "maxReplicasetSize": 4},
            "readPolicy": {"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1},
            "queryEngineConfiguration": engine.to_string(),
        });
        Ok(Reply::new(200).charge(charge::RESOURCE).body(shown.to_string().into_bytes()))
    }

    pub(super) async fn create_database(&self, request: &Request) -> Result<Reply, Failure> {
        self.permit(Target::Store(Right::Schema)).await?;
        let sent = json_object(request)?;
        let database = self.store.create_database(id_of(&sent)?, throughput(request)?).await?;
        Ok(shown(201, &database))
    }

    pub(super) async fn read_database(&self, id: &str) -> Result<Reply, Failure> {
        self.permit(Target::Any).await?;
        Ok(shown(200, &self.store.database(id).await?))
    }

    pub(super) async fn delete_database(&self, request: &Request, id: &str) -> Result<Reply, Failure> {
        self.permit(Target::Store(Right::Schema)).await?;
        let database = self.store.database(id).await?;
        check_if_match(request, &database.etag())?;
        self.store.delete_database(&database).await?;
        Ok(Reply::new(204).charge(charge::RESOURCE))
    }

    pub(super) async fn list_databases(&self, request: &Request) -> Result<Reply, Failure> {
        let databases = self.databases().await?;
        self.list(request, "", "Databases", databases).await
    }

    pub(super) async fn query_databases(&self, request: &Request) -> Result<Reply, Failure> {
        let databases = self.databases().await?;
        self.query_list(request, "", "Databases", databases).await
    }

    async fn databases(&self) -> Result<Vec<(String, Value)>, Failure> {
        self.permit(Target::Any).await?;
        let databases = self.store.databases().await?;
        Ok(databases.into_iter().map(|database| (database.id.clone(), database.json())).collect())
    }

    pub(super) async fn list_offers(&self, request: &Request) -> Result<Reply, Failure> {
        let offers = self.offers().await?;
        self.list(request, "", "Offers", offers).await
    }

    pub(super) async fn query_offers(&self, request: &Request) -> Result<Reply, Failure> {
        let offers = self.offers().await?;
        self.query_list(request, "", "Offers", offers).await
    }

    async fn offers(&self) -> Result<Vec<(String, Value)>, Failure> {
        self.permit(Target::Any).await?;
        let offers = self.store.offers().await?;
        let mut shown: Vec<_> = offers.iter().map(|offer| (rid::offer(offer.number), offer.json())).collect();
        shown.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(shown)
    }

    pub(super) async fn read_offer(&self, rid: &str) -> Result<Reply, Failure> {
        self.permit(Target::Any).await?;
        Ok(offer(&self.store.offer(rid).await?))
    }

    pub(super) async fn replace_offer(&self, request: &Request, rid: &str) -> Result<Reply, Failure> {
        self.permit(Target::Store(Right::Schema)).await?;
        check_if_match(request, &self.store.offer(rid).await?.etag)?;
        let sent = json_object(request)?;
        let content = &sent["content"];
        let autoscale = content["offerAutopilotSettings"]["maxThroughput"].as_u64();
        let throughput = match (autoscale, content["offerThroughput"].as_u64()) {
            (Some(units), _) => Throughput::Autoscale(units),
            (None, Some(units)) => Throughput::Manual(units),
            (None, None) => return Err(Failure::bad_request("the offer has no throughput")),
        };
        check_units(throughput)?;
        Ok(offer(&self.store.replace_offer(rid, throughput).await?))
    }
}

fn shown(status: u16, database: &Database) -> Reply {
    resource(status, &database.etag(), &database.json())
}

fn offer(offer: &Offered) -> Reply {
    reply::resource(200, &offer.etag, &offer.json())
}

/// The body of a request about a database, container or offer.
pub(super) fn json_object(request: &Request) -> Result<Value, Failure> {
    let sent: Value = serde_json::from_slice(&request.body)
        .map_err(|error| Failure::bad_request(format!("the body is no JSON: {error}")))?;
    if sent.is_object() { Ok(sent) } else { Err(Failure::bad_request("the body is no JSON object")) }
}

pub(super) fn id_of(sent: &Value) -> Result<&str, Failure> {
    sent["id"].as_str().ok_or_else(|| Failure::bad_request("the property 'id' is missing"))
}

/// What a request says about request units.
pub(super) fn throughput(request: &Request) -> Result<Option<Throughput>, Failure> {
    let autoscale = request.header("x-ms-cosmos-offer-autopilot-settings");
    let throughput = match (autoscale, request.header("x-ms-offer-throughput")) {
        (Some(settings), _) => {
            let settings: Value = serde_json::from_str(settings).unwrap_or_default();
            let units = settings["maxThroughput"].as_u64();
            units
                .map(Throughput::Autoscale)
                .ok_or_else(|| Failure::bad_request("maxThroughput is no number"))?
        }
        (None, Some(units)) => {
            let units = units.trim().parse().ok();
            units
                .map(Throughput::Manual)
                .ok_or_else(|| Failure::bad_request("x-ms-offer-throughput is no number"))?
        }
        (None, None) => return Ok(None),
    };
    check_units(throughput)?;
    Ok(Some(throughput))
}

fn check_units(throughput: Throughput) -> Result<(), Failure> {
    let (units, least) = match throughput {
        Throughput::Manual(units) => (units, 400),
        Throughput::Autoscale(units) => (units, 1000),
    };
    if (least..=UNITS_MAX).contains(&units) && units % 100 == 0 {
        return Ok(());
    }
    Err(Failure::bad_request(format!("request units are a multiple of 100, from {least} to {UNITS_MAX}")))
}

/// The condition of a change of a database, container or offer.
pub(super) fn check_if_match(request: &Request, etag: &str) -> Result<(), Failure> {
    match request.header("if-match") {
        Some(wanted) if wanted != "*" && wanted != etag => Err(Failure::etag()),
        _ => Ok(()),
    }
}
