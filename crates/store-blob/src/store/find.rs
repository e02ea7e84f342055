//! Finds blobs by their tags: looks through the blobs of one container or of all of an account.

use super::list::{Plan, read_marker, write_marker};
use super::{BlobStore, StoreError};
use crate::model::{Blob, BlobQuery, FindIn, Found, FoundPage, Listed};
use crate::tag_filter::TagFilter;
use polyshard_store::Error;

/// Blobs looked at for one page at most: a filter that lets little through must not hold up others.
const EXAMINED_MAX: usize = 10_000;
/// A container without blobs takes as much work as so many of them: every shard is asked.
const CONTAINER_COST: usize = 100;
/// Blobs that are read together.
const CHUNK: usize = 500;

impl BlobStore {
    /// A page of the blobs whose tags fit a filter.
    pub async fn find_blobs(
        &self,
        within: &FindIn,
        filter: &TagFilter,
        marker: Option<&str>,
        max: usize,
    ) -> Result<FoundPage, StoreError> {
        let after = marker.map(read_find_marker).transpose()?;
        let (from, mut after) = match after {
            Some((container, position)) => (container, Some(position)),
            None => (String::new(), None),
        };
        let records = match within {
            FindIn::Account(account) => self.records_of(account, &from),
            FindIn::Container(name) => vec![(name.name().to_owned(), self.record(name).await?)],
        };
        let only = filter.container();
        let mut page = FoundPage::default();
        let mut examined = 0;
        for (container, record) in records {
            // A marker is for the container that it names.
            let mut position = after.take().filter(|_| container == from);
            if container < from || only.is_some_and(|only| only != container) {
                continue;
            }
            if examined >= EXAMINED_MAX {
                page.next = Some(find_marker(&container, &(String::new(), 0)));
                return Ok(page);
            }
            examined += CONTAINER_COST;
            self.kit.host().quotas().admit_to(&record, None, 1).map_err(Error::from)?;
            loop {
                let plan = Plan::new(record.id, &BlobQuery { max: CHUNK, ..BlobQuery::default() }, position);
                let (entries, next) = self.page(&record, &plan).await?;
                examined += entries.len();
                for listed in entries {
                    let Listed::Blob(blob) = listed else { continue };
                    if !filter.matches(&container, &blob.props.tags) || blob.props.tags.is_empty() {
                        continue;
                    }
                    let name = blob.name.clone();
                    page.blobs.push(found(&container, *blob, filter));
                    if page.blobs.len() >= max {
                        page.next = Some(find_marker(&container, &(name, i64::MAX)));
                        return Ok(page);
                    }
                }
                let Some(next) = next else { break };
                if examined >= EXAMINED_MAX {
                    page.next = Some(find_marker(&container, &next));
                    return Ok(page);
                }
                position = Some(next);
            }
        }
        Ok(page)
    }
}

fn found(container: &str, blob: Blob, filter: &TagFilter) -> Found {
    let named: Vec<&str> = filter.names().collect();
    let tags = blob.props.tags.into_iter().filter(|(name, _)| named.contains(&name.as_str())).collect();
    Found { container: container.to_owned(), name: blob.name, tags }
}

fn find_marker(container: &str, position: &(String, i64)) -> String {
    // No container has an exclamation mark in its name.
    format!("{container}!{}", write_marker(position))
}

fn read_find_marker(marker: &str) -> Result<(String, (String, i64)), StoreError> {
    let (container, position) = marker.split_once('!').ok_or(StoreError::InvalidMarker)?;
    Ok((container.to_owned(), read_marker(position)?))
}
