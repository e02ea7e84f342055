//! Queries and feeds: pages of rows, executed here over the documents of all shards.

use polyshard_document_query::{BoundQuery, Environment, Position, Resume, Value};

use super::reader::{Found, Reader};
use super::{Container, DocumentStore, Scope};
use crate::document::{append, stamped};
use crate::failure::Failure;
use crate::token::Token;

/// Bytes of a page at most, but for its first row.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Documents looked at for one page at most, where the next page can go on from there.
const EXAMINED_MAX: usize = 20_000;
/// Bytes of documents looked at for one page at most.
const EXAMINED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A part of an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    /// The rows in JSON, with commas between.
    pub rows: Vec<u8>,
    pub count: usize,
    /// Where the next part begins, if there may be more.
    pub next: Option<Token>,
    /// Documents that were looked at.
    pub examined: usize,
}

/// Which part of an answer is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageOf {
    pub rows_max: usize,
    pub token: Option<Token>,
}

impl Page {
    /// Adds a row, unless the page is full.
    fn add(&mut self, row: &[u8], rows_max: usize) -> bool {
        if self.count >= rows_max || (self.count > 0 && self.rows.len() + row.len() > PAGE_BYTES_MAX) {
            return false;
        }
        if self.count > 0 {
            self.rows.push(b',');
        }
        self.rows.extend(row);
        self.count += 1;
        true
    }
}

/// What a query reads.
enum Source<'a> {
    Documents(Box<Reader<'a>>),
    /// Values with their positions, in order.
    Listed(Vec<(Vec<u8>, Value)>),
}

impl Source<'_> {
    /// The next values with their positions and lengths; none if there are no more.
    async fn next(&mut self) -> Result<Vec<(Vec<u8>, Value, usize)>, Failure> {
        match self {
            Source::Listed(values) => {
                Ok(std::mem::take(values).into_iter().map(|(position, value)| (position, value, 0)).collect())
            }
            Source::Documents(reader) => {
                let read = |found: Found| {
                    let value = Value::from_json(&found.item.body)
                        .map_err(|error| Failure::damaged("document", error))?;
                    Ok((found.position, stamped(&value, &found.item.stamp), found.item.body.len()))
                };
                reader.next().await?.into_iter().map(read).collect()
            }
        }
    }
}

impl DocumentStore {
    /// A page of all documents of a scope as they are.
    pub(crate) async fn feed(
        &self,
        container: &Container,
        scope: Scope,
        of: PageOf,
    ) -> Result<Page, Failure> {
        let mut reader = Reader::new(self, container, scope, Vec::new());
        if let Some(position) = of.token.and_then(|token| token.scanned) {
            reader = reader.start_at(position, false);
        }
        let (mut page, mut last) = (Page::default(), None);
        loop {
            let found = reader.next().await?;
            if found.is_empty() {
                return Ok(page);
            }
            for Found { item, position } in found {
                let mut row = Vec::with_capacity(item.body.len() + 256);
                append(&mut row, &item.body, &item.stamp);
                if !page.add(&row, of.rows_max) {
                    page.next = last.map(Token::at);
                    return Ok(page);
                }
                page.examined += 1;
                last = Some(position);
            }
        }
    }

    /// A page of the answer to a query over the documents of a scope.
    pub(crate) async fn query(
        &self,
        container: &Container,
        scope: Scope,
        ids: Vec<String>,
        query: &BoundQuery,
        of: PageOf,
    ) -> Result<Page, Failure> {
        let mut reader = Reader::new(self, container, scope, ids);
        if query.shape().streaming
            && let Some(token) = &of.token
        {
            let after = token.after.as_ref().map(|after| after.tie_breaker.clone());
            match (&token.scanned, after) {
                (Some(scanned), Some(after)) if *scanned < after => reader = reader.start_at(after, true),
                (Some(scanned), _) => reader = reader.start_at(scanned.clone(), false),
                (None, Some(after)) => reader = reader.start_at(after, true),
                (None, None) => {}
            }
        }
        self.execute(query, Source::Documents(Box::new(reader)), of).await
    }

    /// A page of the answer to a query over values that are at hand.
    pub(crate) async fn query_listed(
        &self,
        query: &BoundQuery,
        values: Vec<(Vec<u8>, Value)>,
        of: PageOf,
    ) -> Result<Page, Failure> {
        let mut values = values;
        if query.shape().streaming
            && let Some(after) = of.token.as_ref().and_then(|token| token.after.as_ref())
        {
            values.retain(|(position, _)| *position >= after.tie_breaker);
        }
        self.execute(query, Source::Listed(values), of).await
    }

    async fn execute(&self, query: &BoundQuery, mut source: Source<'_>, of: PageOf) -> Result<Page, Failure> {
        let is_streaming = query.shape().streaming;
        let rows_max = of.rows_max.max(1);
        let token = of.token.unwrap_or_default();
        let resume = Resume { after: token.after.clone(), progress: token.progress() };
        let mut execution = query.execute(Environment {
            now_ticks: self.kit.now_ticks(),
            seed: self.kit.random(),
            // One more tells whether there is a next page.
            page_rows: Some(rows_max + 1),
            resume: Some(resume),
            ..Environment::default()
        });
        let mut page = Page::default();
        let mut bytes = 0;
        // After the last row that the client has.
        let mut next = token;
        let mut is_over = false;
        while !is_over {
            let values = source.next().await?;
            if values.is_empty() {
                execution.finish()?;
                is_over = true;
            }
            for (position, value, length) in values {
                execution.push(&value, &position)?;
                page.examined += 1;
                bytes += length;
                if is_streaming {
                    while let Some(row) = execution.next_row() {
                        if !page.add(row.value.to_json().as_bytes(), rows_max) {
                            page.next = Some(next);
                            return Ok(page);
                        }
                        next = after(row.position, row.progress.rows_skipped, row.progress.rows_returned);
                    }
                    next.scanned = Some(position);
                    let progress = execution.progress();
                    if page.count == 0 || next.after.is_none() {
                        (next.skipped, next.returned) = (progress.rows_skipped, progress.rows_returned);
                    }
                }
                if execution.is_satisfied() {
                    execution.finish()?;
                    is_over = true;
                    break;
                }
            }
            if is_streaming && !is_over && (page.examined >= EXAMINED_MAX || bytes >= EXAMINED_BYTES_MAX) {
                let progress = execution.progress();
                (next.skipped, next.returned) = (progress.rows_skipped, progress.rows_returned);
                page.next = Some(next);
                return Ok(page);
            }
            // Others may have their turn.
            tokio::task::yield_now().await;
        }
        while let Some(row) = execution.next_row() {
            if !page.add(row.value.to_json().as_bytes(), rows_max) {
                page.next = Some(next);
                return Ok(page);
            }
            next = after(row.position, row.progress.rows_skipped, row.progress.rows_returned);
        }
        Ok(page)
    }
}

fn after(position: Position, skipped: u64, returned: u64) -> Token {
    Token { scanned: None, after: Some(position), skipped, returned }
}
