//! Queries and feeds: of documents, and of databases, containers and offers.

use polyshard_document_query::{BoundQuery, Condition, Limits, Parameters, PathStep, Query, Test, Value};
use polyshard_store::rights::Right;

use super::items::KEY_HEADER;
use super::{DocumentService, reply};
use crate::charge;
use crate::epk;
use crate::failure::Failure;
use crate::http::{Reply, Request};
use crate::partition_key::{Definition, read_header};
use crate::store::{Container, Page, PageOf, Scope};
use crate::token::Token;

/// Rows of a page if nothing is said, and at most.
const PAGE_ROWS: (usize, usize) = (1000, 10_000);

/// Partitions that a query is sent to one by one at most; of more, all documents are read.
const PARTITIONS_MAX: usize = 100;
/// Ids that are looked for on the shards at most.
const IDS_MAX: usize = 1000;

/// A query as a client has sent it.
struct Asked {
    query: BoundQuery,
    /// Its text and parameters, which a token belongs to.
    text: String,
}

impl Asked {
    fn parse(request: &Request) -> Result<Asked, Failure> {
        let sent = Value::from_json(&request.body)?;
        let text = sent.get("query");
        let text = text.as_str().ok_or_else(|| Failure::bad_request("the body has no query"))?;
        let mut parameters = Parameters::new();
        let given = sent.get("parameters");
        for parameter in given.as_array().unwrap_or_default() {
            let name = parameter.get("name");
            let name = name.as_str().ok_or_else(|| Failure::bad_request("a parameter has no name"))?;
            parameters.insert(name, parameter.get("value"));
        }
        let query = Query::parse(text, &Limits::default())?;
        if !query.user_functions().is_empty() {
            return Err(Failure::not_built("user-defined functions"));
        }
        Ok(Asked { query: query.bind(&parameters)?, text: format!("{text}\n{}", given.to_json()) })
    }
}

impl DocumentService {
    /// All documents as they are, page by page.
    pub(super) async fn read_feed(
        &self,
        request: &Request,
        database: &str,
        id: &str,
    ) -> Result<Reply, Failure> {
        if request.header("a-im").is_some() {
            return Err(Failure::not_built("change feeds"));
        }
        let container = self.container(database, id, Right::Read).await?;
        let scope = self.scope(request, &container)?;
        self.permit_scope(&container, &scope).await?;
        let of = format!("feed\n{}\n{}", container.rid, named_scope(request));
        let page = self.store.feed(&container, scope, page_of(request, &of)?).await?;
        self.paged(&container, page, &of)
    }

    /// A query over documents.
    pub(super) async fn query_items(
        &self,
        request: &Request,
        database: &str,
        id: &str,
    ) -> Result<Reply, Failure> {
        let container = self.container(database, id, Right::Read).await?;
        let Asked { query, text } = Asked::parse(request)?;
        let mut scope = self.scope(request, &container)?;
        let conditions = query.conditions();
        let is_all = matches!(&scope, Scope::Range { lo, hi } if lo.is_empty() && *hi == [0xFF]);
        let named = container.partition_key().filter(|_| is_all);
        let named = named.and_then(|definition| keys_of_conditions(definition, &conditions));
        let is_one = named.as_ref().is_some_and(|named| named.len() <= 1);
        if is_all && !is_one && !request.is_set("x-ms-documentdb-query-enablecrosspartition") {
            return Err(Failure::bad_request(
                "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition \
                 to true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception.",
            ));
        }
        if let Some(named) = named {
            // What the map has no key for has no documents.
            let keys = named.iter().map(|values| self.store.key(&container, values));
            let keys: Result<Vec<_>, Failure> =
                keys.filter(|key| !matches!(key, Err(failure) if failure.status == 400)).collect();
            scope = Scope::Partitions(keys?);
        }
        self.permit_scope(&container, &scope).await?;
        let is_id = |path: &[PathStep]| matches!(path, [PathStep::Key(name)] if **name == *"id");
        let ids = one_of(&conditions, is_id).unwrap_or_default();
        let ids: Vec<String> =
            ids.iter().filter_map(Value::as_str).filter(|id| !id.contains('\0')).map(str::to_owned).collect();
        let ids = if ids.len() > IDS_MAX { Vec::new() } else { ids };
        let of = format!("query\n{}\n{}\n{text}", container.rid, named_scope(request));
        let page = self.store.query(&container, scope, ids, &query, page_of(request, &of)?).await?;
        self.paged(&container, page, &of)
    }

    fn paged(&self, container: &Container, page: Page, of: &str) -> Result<Reply, Failure> {
        let charge = charge::page(page.examined, page.rows.len());
        let reply = reply::list(&container.rid, "Documents", &page.rows, page.count).charge(charge);
        let reply = reply.of(container, self.now_ms());
        Ok(match page.next {
            Some(token) => reply.header("x-ms-continuation", token.write(of)?),
            None => reply,
        })
    }

    /// Which documents a request is about: those of a partition, of a prefix of a hierarchical key, or of an interval.
    fn scope(&self, request: &Request, container: &Container) -> Result<Scope, Failure> {
        let Some(definition) = container.partition_key() else {
            return Ok(Scope::Partition(Box::new(self.store.key(container, &[])?)));
        };
        if let Some(header) = request.header(KEY_HEADER) {
            let values = read_header(header)?;
            if !values.is_empty() && values.len() < definition.levels() {
                let lo = epk::effective(&values);
                let hi = [lo.as_slice(), &[0xFF]].concat();
                return Ok(Scope::Range { lo, hi });
            }
            return Ok(Scope::Partition(Box::new(self.key_of_values(container, values)?)));
        }
        let bound = |name: &str, default: &[u8]| match request.header(name) {
            Some(text) => {
                epk::from_hex(text).ok_or_else(|| Failure::bad_request(format!("{name} is not hexadecimal")))
            }
            None => Ok(default.to_vec()),
        };
        match (bound("x-ms-start-epk", &[])?, bound("x-ms-end-epk", &[0xFF])?) {
            (lo, hi) if lo.is_empty() && hi == [0xFF] => Ok(Scope::all()),
            (lo, hi) => Ok(Scope::Range { lo, hi }),
        }
    }

    /// Whether these documents may be read, and whether the quotas let the request in.
    async fn permit_scope(&self, container: &Container, scope: &Scope) -> Result<(), Failure> {
        match scope {
            Scope::Partition(key) => {
                self.permit_key(Right::Read, container, Some(key)).await?;
                self.store.admit(key, 1)
            }
            Scope::Partitions(keys) => {
                for key in keys {
                    self.permit_key(Right::Read, container, Some(key)).await?;
                    self.store.admit(key, 1)?;
                }
                Ok(())
            }
            Scope::Range { .. } => {
                self.permit_key(Right::Read, container, None).await?;
                self.store.admit_all(container)
            }
        }
    }

    /// A page of a list of databases, containers or offers.
    pub(super) async fn list(
        &self,
        request: &Request,
        rid: &str,
        name: &str,
        all: Vec<(String, serde_json::Value)>,
    ) -> Result<Reply, Failure> {
        let of = format!("list\n{rid}\n{name}");
        let PageOf { rows_max, token } = page_of(request, &of)?;
        let after = token.and_then(|token| token.scanned).unwrap_or_default();
        let mut rest = all.into_iter().filter(|(id, _)| id.as_bytes() > after.as_slice());
        let page: Vec<_> = rest.by_ref().take(rows_max).collect();
        let rows = page.iter().map(|(_, shown)| shown.to_string()).collect::<Vec<_>>().join(",");
        let reply = reply::list(rid, name, rows.as_bytes(), page.len()).charge(charge::RESOURCE);
        Ok(match (page.last(), rest.next()) {
            (Some((last, _)), Some(_)) => {
                reply.header("x-ms-continuation", Token::at(last.as_bytes().to_vec()).write(&of)?)
            }
            _ => reply,
        })
    }

    /// A page of a query over such a list.
    pub(super) async fn query_list(
        &self,
        request: &Request,
        rid: &str,
        name: &str,
        all: Vec<(String, serde_json::Value)>,
    ) -> Result<Reply, Failure> {
        let Asked { query, text } = Asked::parse(request)?;
        let of = format!("query\n{rid}\n{name}\n{text}");
        let values: Result<Vec<_>, Failure> = all
            .into_iter()
            .map(|(id, shown)| Ok((id.into_bytes(), Value::from_json(shown.to_string().as_bytes())?)))
            .collect();
        let page = self.store.query_listed(&query, values?, page_of(request, &of)?).await?;
        let reply = reply::list(rid, name, &page.rows, page.count).charge(charge::RESOURCE);
        Ok(match page.next {
            Some(token) => reply.header("x-ms-continuation", token.write(&of)?),
            None => reply,
        })
    }
}

/// Of which values all documents of the answer have one at a path, if the conditions say it.
fn one_of(conditions: &[Condition], is_path: impl Fn(&[PathStep]) -> bool) -> Option<Vec<Value>> {
    conditions.iter().find_map(|condition| match &condition.test {
        Test::Equal(value) if is_path(&condition.path) => Some(vec![value.clone()]),
        Test::In(values) if is_path(&condition.path) => Some(values.clone()),
        _ => None,
    })
}

/// The partitions that a query's conditions name, if they name some and these are few: the values of each.
fn keys_of_conditions(definition: &Definition, conditions: &[Condition]) -> Option<Vec<Vec<Value>>> {
    let is_scalar = |value: &Value| !matches!(value, Value::Array(_) | Value::Object(_) | Value::Undefined);
    let mut keys: Vec<Vec<Value>> = vec![Vec::new()];
    for level in 0..definition.levels() {
        let mut values = one_of(conditions, |path| definition.is_path(level, path))?;
        values.retain(is_scalar);
        values.sort_by(Value::total_order);
        values.dedup();
        if keys.len() * values.len() > PARTITIONS_MAX {
            return None;
        }
        let with = |key: &Vec<Value>, value: &Value| [key.as_slice(), std::slice::from_ref(value)].concat();
        keys = keys.iter().flat_map(|key| values.iter().map(move |value| with(key, value))).collect();
    }
    Some(keys)
}

/// What of a request says which documents it is about.
fn named_scope(request: &Request) -> String {
    let names = [KEY_HEADER, "x-ms-start-epk", "x-ms-end-epk"];
    names.map(|name| request.header(name).unwrap_or_default()).join("\n")
}

fn page_of(request: &Request, of: &str) -> Result<PageOf, Failure> {
    let asked = request.header("x-ms-max-item-count").and_then(|text| text.trim().parse::<i64>().ok());
    let rows_max = match asked {
        Some(rows) if rows > 0 => usize::try_from(rows).unwrap_or(PAGE_ROWS.1).min(PAGE_ROWS.1),
        _ => PAGE_ROWS.0,
    };
    let token = request.header("x-ms-continuation").filter(|text| !text.is_empty());
    Ok(PageOf { rows_max, token: token.map(|text| Token::read(text, of)).transpose()? })
}
