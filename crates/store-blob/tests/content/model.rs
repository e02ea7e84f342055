//! What blobs must be like, as plainly as it can be said: buffers and lists.

use std::collections::BTreeMap;

use polyshard_store_blob::{BlockSource, SnapshotId};

pub const PAGE: usize = 512;

#[derive(Clone)]
pub enum Content {
    /// Put whole, or of blocks in this order.
    Block { blocks: Vec<(String, Vec<u8>)>, whole: Vec<u8> },
    /// All that was appended.
    Append { bytes: Vec<u8>, appends: i64 },
    /// Each page, if it is valid, and when it was written last.
    Page { pages: Vec<Option<Vec<u8>>>, written: Vec<u64> },
}

impl Content {
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Content::Block { blocks, whole } => {
                blocks.iter().flat_map(|(_, bytes)| bytes.clone()).chain(whole.clone()).collect()
            }
            Content::Append { bytes, .. } => bytes.clone(),
            Content::Page { pages, .. } => {
                pages.iter().flat_map(|page| page.clone().unwrap_or_else(|| vec![0; PAGE])).collect()
            }
        }
    }
}

/// A blob and its snapshots.
#[derive(Clone, Default)]
pub struct Blob {
    pub content: Option<Content>,
    pub uncommitted: BTreeMap<String, Vec<u8>>,
    /// Each with the time it was taken at, and which making of the blob it is of.
    pub snapshots: Vec<(SnapshotId, u64, u64, Content)>,
    /// Grows with every change.
    pub time: u64,
    /// Grows each time when the blob is made anew.
    pub making: u64,
}

impl Blob {
    /// Replaces the blob; its uncommitted blocks are gone.
    pub fn make(&mut self, content: Content) {
        self.content = Some(content);
        self.uncommitted.clear();
        self.making += 1;
    }

    /// The blocks that a list names; none if there is one that does not exist.
    pub fn listed(&self, list: &[(BlockSource, String)]) -> Option<Vec<(String, Vec<u8>)>> {
        let committed = |id: &String| match &self.content {
            Some(Content::Block { blocks, .. }) => {
                blocks.iter().find(|(own, _)| own == id).map(|(_, bytes)| bytes.clone())
            }
            _ => None,
        };
        let uncommitted = |id: &String| self.uncommitted.get(id).cloned();
        let find = |(source, id): &(BlockSource, String)| {
            let bytes = match source {
                BlockSource::Latest => uncommitted(id).or_else(|| committed(id)),
                BlockSource::Committed => committed(id),
                BlockSource::Uncommitted => uncommitted(id),
            };
            bytes.map(|bytes| (id.clone(), bytes))
        };
        list.iter().map(find).collect()
    }

    /// Writes pages from one on.
    pub fn write(&mut self, first: usize, data: &[u8]) {
        self.time += 1;
        let Some(Content::Page { pages, written }) = &mut self.content else { panic!("it has no pages") };
        for (at, bytes) in data.chunks(PAGE).enumerate() {
            pages[first + at] = Some(bytes.to_vec());
            written[first + at] = self.time;
        }
    }

    /// Clears pages from one to before another.
    pub fn clear(&mut self, first: usize, end: usize) {
        self.time += 1;
        let Some(Content::Page { pages, .. }) = &mut self.content else { panic!("it has no pages") };
        pages[first..end].fill(None);
    }

    /// Gives the blob another number of pages.
    pub fn resize(&mut self, count: usize) {
        self.time += 1;
        let Some(Content::Page { pages, written }) = &mut self.content else { panic!("it has no pages") };
        pages.resize(count, None);
        written.resize(count, 0);
    }
}

/// Runs of pages of which something is true: the first byte, and the last one.
pub fn runs(count: usize, holds: impl Fn(usize) -> bool) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for page in (0..count).filter(|page| holds(*page)) {
        let (first, last) = ((page * PAGE) as u64, ((page + 1) * PAGE - 1) as u64);
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == first => *end = last,
            _ => runs.push((first, last)),
        }
    }
    runs
}
