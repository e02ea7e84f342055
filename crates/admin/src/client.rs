//! The blocking client of the API, for the command line and tests.

mod archives;
mod checker;
mod moves;
mod quotas;
mod users;
mod watch;
mod writes;

use std::time::Duration;

use polyshard_map::{MapName, ShardId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::Response;
use ureq::typestate::{WithBody, WithoutBody};
use ureq::{Agent, Body, RequestBuilder};

use crate::extract::IMPORT_BYTES_MAX;
use crate::operator::{Basis, Data};
use crate::problem::{ErrorBody, ErrorCode, Problem};
use crate::types::{
    BindRequest, ChangeAnswer, ChangeRequest, CheckAnswer, DatasetView, DatasetsAnswer, DeclareRequest,
    EntriesAnswer, Located, MapView, MapsAnswer, NewMap, NewShard, OperationView, OperationsAnswer,
    PageRequest, RepairAnswer, RepairRequest, SchemaCheckAnswer, ShardPatch, ShardView, ShardsAnswer, Status,
    StoresAnswer, TableView, TablesAnswer, UnbindRequest,
};

/// How long one request may take: a change waits for shards, each of which has seconds to answer.
const REQUEST_S_MAX: u64 = 120;

/// How long a connection may take; the server is near, or not there.
const CONNECT_S_MAX: u64 = 5;

/// Most bytes of an answer: an exported map may be somewhat longer than the import it came from.
const ANSWER_BYTES_MAX: u64 = 4 * IMPORT_BYTES_MAX as u64;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server said what is wrong.
    #[error("{0}")]
    Problem(#[from] Problem),
    /// No server there, or the connection broke; whether a change was made is then not known.
    #[error("cannot reach the server at {server}: {reason}")]
    Unreachable {
        /// Its address.
        server: String,
        /// What happened.
        reason: String,
    },
    /// Something answered that is not this API.
    #[error("{server} did not answer as a polyshard server: {reason}")]
    NotPolyshard {
        /// Its address.
        server: String,
        /// What came instead.
        reason: String,
    },
}

/// The blocking client of the API.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    server: String,
    token: String,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("server", &self.server).finish_non_exhaustive()
    }
}

type Answered<T> = Result<T, ClientError>;

impl Client {
    /// A client of the server at `http://host:port`.
    pub fn new(server: &str, token: &str) -> Answered<Client> {
        let invalid = |field: &str, message: String, remedy: &str| {
            Err(ClientError::Problem(Problem::invalid(field, message).with_remedy(remedy)))
        };
        let server = server.trim_end_matches('/');
        let host = server.strip_prefix("http://").unwrap_or_default();
        if host.is_empty() || host.contains(['/', '?', '#', '@', ' ']) {
            return invalid(
                "server",
                format!("{server:?} is not the address of a server"),
                "give http://host:port; for TLS put a proxy or tunnel in between",
            );
        }
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return invalid(
                "token",
                "the token is empty or not visible ASCII".to_owned(),
                "give the server's token",
            );
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(REQUEST_S_MAX)))
            .timeout_connect(Some(Duration::from_secs(CONNECT_S_MAX)))
            .max_redirects(0)
            // A connection for each request: one that is kept may be closed by the server at the moment it is used
            // again, and then nobody knows whether a change was made.
            .max_idle_connections(0)
            .max_idle_connections_per_host(0)
            // The server is on this machine or network: a proxy for the web is no way to it, and would see the token.
            .proxy(None)
            .build();
        Ok(Client { agent: config.into(), server: server.to_owned(), token: token.to_owned() })
    }

    /// The state of the whole.
    pub fn status(&self) -> Answered<Status> {
        self.call(self.get("/v1/status"))
    }

    /// Whether the server can serve requests.
    pub fn ready(&self) -> Answered<()> {
        self.send(self.get("/readyz")).map(drop)
    }

    /// The OpenAPI document.
    pub fn openapi(&self) -> Answered<Vec<u8>> {
        self.send(self.get("/v1/openapi.json"))
    }

    /// All shards.
    pub fn shards(&self) -> Answered<ShardsAnswer> {
        self.call(self.get("/v1/shards"))
    }

    /// One shard.
    pub fn shard(&self, id: &ShardId) -> Answered<ShardView> {
        self.call(self.get(&format!("/v1/shards/{id}")))
    }

    /// Add an empty shard.
    pub fn add_shard(&self, shard: &NewShard) -> Answered<ShardView> {
        self.call_with(self.post("/v1/shards"), shard)
    }

    /// Change what is known about a shard.
    pub fn set_shard(&self, id: &ShardId, patch: &ShardPatch, basis: Basis) -> Answered<ShardView> {
        let request = self.agent.patch(format!("{}/v1/shards/{id}", self.server));
        self.call_with(if_match(self.authorized(request), basis), patch)
    }

    /// Take a shard out.
    pub fn remove_shard(&self, id: &ShardId, data: Data) -> Answered<()> {
        self.remove(&format!("/v1/shards/{id}"), id.as_str(), data, Basis::Current)
    }

    /// Bring in a database that was a shard before.
    pub fn attach_shard(&self, shard: &NewShard) -> Answered<ShardView> {
        self.call_with(self.post(&format!("/v1/shards/{}/attach", shard.id)), shard)
    }

    /// Let a shard go with its data.
    pub fn detach_shard(&self, id: &ShardId) -> Answered<()> {
        self.answer(self.post(&format!("/v1/shards/{id}/detach")).send_empty()).map(drop)
    }

    /// All maps.
    pub fn maps(&self) -> Answered<MapsAnswer> {
        self.call(self.get("/v1/maps"))
    }

    /// One map.
    pub fn map(&self, name: &MapName) -> Answered<MapView> {
        self.call(self.get(&format!("/v1/maps/{name}")))
    }

    /// Make a map.
    pub fn create_map(&self, map: &NewMap) -> Answered<MapView> {
        self.call_with(self.post("/v1/maps"), map)
    }

    /// Drop a map.
    pub fn drop_map(&self, name: &MapName, data: Data, basis: Basis) -> Answered<()> {
        self.remove(&format!("/v1/maps/{name}"), name.as_str(), data, basis)
    }

    /// One page of a map's entries.
    pub fn entries(&self, name: &MapName, page: &PageRequest) -> Answered<EntriesAnswer> {
        let mut request = self.get(&format!("/v1/maps/{name}/entries"));
        if let Some(after) = &page.after {
            request = request.query("after", after);
        }
        if let Some(limit) = page.limit {
            request = request.query("limit", limit.to_string());
        }
        self.call(request)
    }

    /// Where a key, given in its text form, is.
    pub fn locate(&self, name: &MapName, key: &str) -> Answered<Located> {
        self.call(self.get(&format!("/v1/maps/{name}/locate")).query("key", key))
    }

    /// One change of a map; `owner` is whose locks the change may pass.
    pub fn change(
        &self,
        name: &MapName,
        change: &ChangeRequest,
        owner: Option<&str>,
        basis: Basis,
    ) -> Answered<ChangeAnswer> {
        let mut request = if_match(self.post(&format!("/v1/maps/{name}/changes")), basis);
        if let Some(owner) = owner {
            request = request.query("owner", owner);
        }
        self.call_with(request, change)
    }

    /// The map as a JSON document.
    pub fn export_map(&self, name: &MapName) -> Answered<Vec<u8>> {
        self.send(self.get(&format!("/v1/maps/{name}/export")))
    }

    /// Make a map from an exported document.
    pub fn import_map(&self, document: &[u8]) -> Answered<MapView> {
        let request = self.post("/v1/maps/import").content_type("application/json");
        self.read(self.answer(request.send(document))?)
    }

    /// Compare the catalog with the shards' local maps.
    pub fn check_map(&self, name: &MapName) -> Answered<CheckAnswer> {
        self.call(self.get(&format!("/v1/maps/{name}/check")))
    }

    /// Rebuild one side from the other.
    pub fn repair_map(&self, name: &MapName, repair: &RepairRequest) -> Answered<RepairAnswer> {
        self.call_with(self.post(&format!("/v1/maps/{name}/repair")), repair)
    }

    /// All stores of the server's program.
    pub fn stores(&self) -> Answered<StoresAnswer> {
        self.call(self.get("/v1/stores"))
    }

    /// All datasets.
    pub fn datasets(&self) -> Answered<DatasetsAnswer> {
        self.call(self.get("/v1/datasets"))
    }

    /// Have a dataset placed by a map.
    pub fn bind_dataset(&self, bind: &BindRequest) -> Answered<DatasetView> {
        self.call_with(self.post("/v1/datasets/bind"), bind)
    }

    /// Forget what a name is bound to.
    pub fn unbind_dataset(&self, unbind: &UnbindRequest) -> Answered<()> {
        self.answer(self.post("/v1/datasets/unbind").send_json(unbind)).map(drop)
    }

    /// All SQL tables.
    pub fn tables(&self) -> Answered<TablesAnswer> {
        self.call(self.get("/v1/tables"))
    }

    /// Declare how a table is placed.
    pub fn declare_table(&self, declare: &DeclareRequest) -> Answered<TableView> {
        self.call_with(self.post("/v1/tables/declare"), declare)
    }

    /// Compare the shards' schemas and reference tables.
    pub fn check_schema(&self) -> Answered<SchemaCheckAnswer> {
        self.call(self.get("/v1/schema/check"))
    }

    /// The operations.
    pub fn operations(&self) -> Answered<OperationsAnswer> {
        self.call(self.get("/v1/operations"))
    }

    /// One operation.
    pub fn operation(&self, id: &str) -> Answered<OperationView> {
        if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
            return Err(Problem::not_found(format!("there is no operation {id:?}"))
                .with_remedy("see 'polyshard ops list' for the ids")
                .into());
        }
        self.call(self.get(&format!("/v1/operations/{id}")))
    }

    fn get(&self, path: &str) -> RequestBuilder<WithoutBody> {
        self.authorized(self.agent.get(format!("{}{path}", self.server)))
    }

    fn post(&self, path: &str) -> RequestBuilder<WithBody> {
        self.authorized(self.agent.post(format!("{}{path}", self.server)))
    }

    fn authorized<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        request.header("authorization", format!("Bearer {}", self.token))
    }

    fn remove(&self, path: &str, name: &str, data: Data, basis: Basis) -> Answered<()> {
        let request = self.agent.delete(format!("{}{path}", self.server));
        let mut request = if_match(self.authorized(request), basis);
        if data == Data::Destroy {
            request = request.query("destroy", name);
        }
        self.send(request).map(drop)
    }

    fn call<T: DeserializeOwned>(&self, request: RequestBuilder<WithoutBody>) -> Answered<T> {
        self.read(self.send(request)?)
    }

    fn call_with<T: DeserializeOwned>(
        &self,
        request: RequestBuilder<WithBody>,
        body: &impl Serialize,
    ) -> Answered<T> {
        self.read(self.answer(request.send_json(body))?)
    }

    fn send(&self, request: RequestBuilder<WithoutBody>) -> Answered<Vec<u8>> {
        self.answer(request.call())
    }

    /// The body of a success, or the problem the server named.
    fn answer(&self, response: Result<Response<Body>, ureq::Error>) -> Answered<Vec<u8>> {
        let unreachable =
            |e: ureq::Error| ClientError::Unreachable { server: self.server.clone(), reason: reason(&e) };
        let mut response = response.map_err(unreachable)?;
        let bytes =
            response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec().map_err(unreachable)?;
        if response.status().is_success() {
            return Ok(bytes);
        }
        match serde_json::from_slice::<ErrorBody>(&bytes) {
            Ok(body) => Err(ClientError::Problem(body.error)),
            Err(_) => Err(self.not_polyshard(format!("HTTP status {}", response.status()))),
        }
    }

    fn read<T: DeserializeOwned>(&self, bytes: Vec<u8>) -> Answered<T> {
        serde_json::from_slice(&bytes).map_err(|e| self.not_polyshard(e.to_string()))
    }

    fn not_polyshard(&self, reason: String) -> ClientError {
        ClientError::NotPolyshard { server: self.server.clone(), reason }
    }
}

impl ClientError {
    /// The same in the words of the API, for output that is one kind of JSON.
    pub fn into_problem(self) -> Problem {
        let message = self.to_string();
        match self {
            ClientError::Problem(problem) => problem,
            ClientError::Unreachable { .. } => Problem::unavailable(message).with_remedy(
                "start it with 'polyshard up', or give its address with --server or POLYSHARD_SERVER",
            ),
            ClientError::NotPolyshard { .. } => Problem::new(ErrorCode::Unavailable, message)
                .with_remedy("check --server, and that server and command line are of the same version"),
        }
    }
}

fn if_match<B>(request: RequestBuilder<B>, basis: Basis) -> RequestBuilder<B> {
    match basis {
        Basis::Current => request,
        Basis::Version(version) => request.header("if-match", format!("\"{version}\"")),
    }
}

/// What happened, without the library's own prefix.
fn reason(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}
