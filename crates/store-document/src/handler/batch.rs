//! Batches: transactional ones, all or nothing, and those of independent operations.

use futures_util::future::join_all;
use polyshard_document_query::Value;
use polyshard_store::rights::Right;

use super::DocumentService;
use super::items::{condition_of, wants_little};
use crate::charge;
use crate::document::{DOCUMENT_BYTES_MAX, Document, append, etag_text};
use crate::epk::digest;
use crate::failure::Failure;
use crate::http::{Reply, Request};
use crate::partition_key::read_header;
use crate::patch::Patch;
use crate::store::{BATCH_OPERATIONS_MAX, Container, Key, Operation, OperationKind, Outcome};

/// Independent operations that are carried out at the same time.
const AT_ONCE: usize = 16;

impl DocumentService {
    pub(super) async fn batch(&self, request: &Request, database: &str, id: &str) -> Result<Reply, Failure> {
        if request.body.len() > DOCUMENT_BYTES_MAX {
            return Err(Failure::too_large("Request size is too large: a batch has at most 2 MB"));
        }
        let container = self.container(database, id, Right::Write).await?;
        let sent = Value::from_json(&request.body)?;
        let sent = sent.as_array().ok_or_else(|| Failure::bad_request("a batch is a list of operations"))?;
        if sent.is_empty() || sent.len() > BATCH_OPERATIONS_MAX {
            return Err(Failure::bad_request(
                "Batch request has more operations than what is supported: 1 to 100.",
            ));
        }
        let answered = match request.is_set("x-ms-cosmos-batch-atomic") {
            true => self.atomic(request, &container, sent).await?,
            false => self.independent(request, &container, sent).await?,
        };
        let Answered { status, charge, body } = answered;
        Ok(Reply::new(status).charge(charge).of(&container, self.now_ms()).body(body))
    }

    async fn atomic(
        &self,
        request: &Request,
        container: &Container,
        sent: &[Value],
    ) -> Result<Answered, Failure> {
        let key = self.key_in(request, container)?;
        self.permit_key(Right::Write, container, Some(&key)).await?;
        self.store.admit(&key, sent.len())?;
        let count = sent.len();
        let mut operations = Vec::with_capacity(count);
        for (at, sent) in sent.iter().enumerate() {
            match operation(sent, container, &key) {
                Ok(operation) => operations.push(operation),
                Err(failure) => return Ok(Answered::refused(at, &failure, count, request)),
            }
        }
        match self.store.batch(container, &key, &operations).await? {
            Ok(outcomes) => Ok(Answered::all(outcomes.into_iter().map(Ok).collect(), 200, request)),
            Err((at, failure)) => Ok(Answered::refused(at, &failure, operations.len(), request)),
        }
    }

    async fn independent(
        &self,
        request: &Request,
        container: &Container,
        sent: &[Value],
    ) -> Result<Answered, Failure> {
        let mut outcomes = Vec::with_capacity(sent.len());
        for some in sent.chunks(AT_ONCE) {
            let each = some.iter().map(|sent| self.one(request, container, sent));
            outcomes.extend(join_all(each).await);
        }
        let status = if outcomes.iter().all(Result::is_ok) { 200 } else { 207 };
        Ok(Answered::all(outcomes, status, request))
    }

    /// One operation by itself, in the partition that it names.
    async fn one(&self, request: &Request, container: &Container, sent: &Value) -> Result<Outcome, Failure> {
        let key = match sent.get("partitionKey") {
            Value::String(header) => self.key_of_values(container, read_header(&header)?)?,
            Value::Array(_) => {
                self.key_of_values(container, read_header(&sent.get("partitionKey").to_json())?)?
            }
            _ => self.key_in(request, container)?,
        };
        self.permit_key(Right::Write, container, Some(&key)).await?;
        self.store.admit(&key, 1)?;
        let operation = operation(sent, container, &key)?;
        let outcomes = self.store.batch(container, &key, std::slice::from_ref(&operation)).await?;
        let outcomes = outcomes.map_err(|(_, failure)| failure)?;
        outcomes.into_iter().next().ok_or_else(|| Failure::damaged("answer", "a batch has none"))
    }
}

/// The answers of a batch.
struct Answered {
    status: u16,
    charge: f64,
    body: Vec<u8>,
}

impl Answered {
    fn all(outcomes: Vec<Result<Outcome, Failure>>, status: u16, request: &Request) -> Answered {
        let with_body = !wants_little(request);
        let (mut body, mut charge) = (vec![b'['], 0.0);
        for (at, outcome) in outcomes.iter().enumerate() {
            if at > 0 {
                body.push(b',');
            }
            match outcome {
                Ok(outcome) => {
                    charge += outcome.charge;
                    write(&mut body, outcome, with_body);
                }
                Err(failure) => write_failure(&mut body, failure),
            }
        }
        body.push(b']');
        Answered { status, charge: charge.max(charge::REFUSED), body }
    }

    /// One operation failed, and so did all.
    fn refused(at: usize, failure: &Failure, count: usize, request: &Request) -> Answered {
        let outcome = |number| if number == at { failure.clone() } else { Failure::dependency() };
        Answered::all((0..count).map(|number| Err(outcome(number))).collect(), 207, request)
    }
}

fn write(out: &mut Vec<u8>, outcome: &Outcome, with_body: bool) {
    let Outcome { status, charge, item } = outcome;
    out.extend(format!(r#"{{"statusCode":{status},"requestCharge":{}"#, charge::text(*charge)).bytes());
    if let Some(item) = item {
        let etag = etag_text(item.stamp.etag);
        out.extend(format!(r#","eTag":"\"{}\"""#, etag.trim_matches('"')).bytes());
        if with_body {
            out.extend(br#","resourceBody":"#);
            append(out, &item.body, &item.stamp);
        }
    }
    out.push(b'}');
}

fn write_failure(out: &mut Vec<u8>, failure: &Failure) {
    let message = Value::string(failure.message.as_str()).to_json();
    out.extend(
        format!(
            r#"{{"statusCode":{},"requestCharge":{},"message":{message}"#,
            failure.status,
            charge::text(0.0)
        )
        .bytes(),
    );
    if let Some(substatus) = failure.substatus {
        out.extend(format!(r#","subStatusCode":{substatus}"#).bytes());
    }
    if let Some(after) = failure.retry_after {
        out.extend(format!(r#","retryAfterMilliseconds":{}"#, after.as_millis()).bytes());
    }
    out.push(b'}');
}

/// Reads an operation on a document of the partition.
fn operation(sent: &Value, container: &Container, key: &Key) -> Result<Operation, Failure> {
    let body = || {
        let document = Document::of_value(&sent.get("resourceBody"))?;
        if let Some(definition) = container.partition_key()
            && digest(&definition.values_of(&document.value)?) != key.pk
        {
            return Err(Failure::key_mismatch());
        }
        Ok(document)
    };
    let kind = sent.get("operationType");
    let kind = match kind.as_str().unwrap_or_default().to_ascii_lowercase().as_str() {
        "create" => OperationKind::Create(body()?),
        "upsert" => OperationKind::Upsert(body()?),
        "replace" => OperationKind::Replace(body()?),
        "read" => OperationKind::Read,
        "delete" => OperationKind::Delete,
        "patch" => OperationKind::Patch(Patch::parse(&sent.get("resourceBody"), container.partition_key())?),
        other => return Err(Failure::bad_request(format!("there is no operation {other:?}"))),
    };
    let named = sent.get("id");
    let id = match (&kind, named.as_str()) {
        (OperationKind::Create(document) | OperationKind::Upsert(document), _) => document.id.clone(),
        (OperationKind::Replace(document), Some(id)) if document.id != id => {
            return Err(Failure::bad_request("the id of a document cannot be changed"));
        }
        (OperationKind::Replace(document), _) => document.id.clone(),
        (_, Some(id)) => id.to_owned(),
        (_, None) => return Err(Failure::bad_request("the operation names no id")),
    };
    Ok(Operation { id, kind, condition: condition_of(sent.get("ifMatch").as_str()) })
}
