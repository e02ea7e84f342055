//! Random sequences of operations, whose outcome is compared with the model's after each of them. Some of them are cut
//! off when their bytes are stored, as if the process were killed, and another process goes on.

use std::sync::atomic::Ordering;

use polyshard_store_blob::{
    BlockListKind, BlockSource, ContentHeaders, CopyKind, CopyOptions, CopySource, DeleteSnapshots, NewBlob,
    PageQuery, StoreError,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::model::{Blob, Content, PAGE, runs};
use crate::place::Place;
use crate::process::{INLINE_BYTES_MAX, Process, blob, bytes, id, unconditional, upload};

const NAMES: [&str; 3] = ["a", "b/c", "d"];
const STEPS: usize = 250;
/// Pages of a page blob at most: more than two rows of 64 KiB have.
const PAGES_MAX: usize = 300;

on_both_engines! { blobs_are_what_the_model_says }

async fn blobs_are_what_the_model_says(place: Place) {
    let process = place.open().await;
    let seed = std::env::var("POLYSHARD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(rand::random::<u64>);
    println!("POLYSHARD_SEED={seed}");
    let random = StdRng::seed_from_u64(seed);
    let mut world = World { process, random, blobs: std::array::from_fn(|_| Blob::default()), number: 0 };
    for step in 0..STEPS {
        let which = world.random.random_range(0..NAMES.len());
        let what = world.step(which).await;
        world.check(which, &format!("seed {seed}, step {step}: {what} of {}", NAMES[which])).await;
    }
    world.process.expect_nothing_left(&NAMES).await;
    world.process.close().await;
}

struct World {
    process: Process,
    random: StdRng,
    blobs: [Blob; NAMES.len()],
    number: u64,
}

impl World {
    fn data(&mut self, length_max: usize) -> Vec<u8> {
        self.number += 1;
        bytes(self.random.random_range(1..=length_max), self.number)
    }

    fn some_id(&mut self) -> String {
        format!("block-{}", self.random.random_range(0..5))
    }

    async fn step(&mut self, which: usize) -> String {
        match self.random.random_range(0..100) {
            0..20 => self.put_block(which).await,
            20..35 => self.commit(which).await,
            35..40 => self.put(which).await,
            40..44 => self.create_append(which).await,
            44..52 => self.append(which).await,
            52..56 => self.create_pages(which).await,
            56..70 => self.write_pages(which).await,
            70..75 => self.clear_pages(which).await,
            75..78 => self.resize(which).await,
            78..85 => self.snapshot(which).await,
            85..87 => self.delete_snapshots(which).await,
            87..89 => self.delete(which).await,
            89..93 => self.copy(which).await,
            93..96 => self.kill(which).await,
            _ => {
                self.process.store.sweep().await;
                "sweep".to_owned()
            }
        }
    }

    async fn put_block(&mut self, which: usize) -> String {
        let (block, data) = (self.some_id(), self.data(2500));
        let done = self.process.put_block(NAMES[which], &block, &data).await;
        let model = &mut self.blobs[which];
        match &model.content {
            None | Some(Content::Block { .. }) => {
                done.unwrap();
                model.uncommitted.insert(block, data);
            }
            Some(_) => assert!(matches!(done, Err(StoreError::WrongKind(_))), "{done:?}"),
        }
        "put block".to_owned()
    }

    async fn commit(&mut self, which: usize) -> String {
        let sources =
            [BlockSource::Latest, BlockSource::Latest, BlockSource::Committed, BlockSource::Uncommitted];
        let list: Vec<(BlockSource, String)> = (0..self.random.random_range(0..5))
            .map(|_| (sources[self.random.random_range(0..4)], self.some_id()))
            .collect();
        let asked: Vec<(BlockSource, &str)> =
            list.iter().map(|(source, id)| (*source, id.as_str())).collect();
        let done = self.process.commit(NAMES[which], &asked).await;
        let model = &mut self.blobs[which];
        if matches!(model.content, Some(Content::Append { .. } | Content::Page { .. })) {
            assert!(matches!(done, Err(StoreError::WrongKind(_))), "{done:?}");
        } else if let Some(blocks) = model.listed(&list) {
            done.unwrap();
            model.make(Content::Block { blocks, whole: Vec::new() });
        } else {
            assert!(matches!(done, Err(StoreError::InvalidBlockList(_))), "{done:?}");
        }
        "put block list".to_owned()
    }

    async fn put(&mut self, which: usize) -> String {
        let data = self.data(2500);
        self.process.put(NAMES[which], &data).await;
        self.blobs[which].make(Content::Block { blocks: Vec::new(), whole: data });
        "put blob".to_owned()
    }

    async fn create_append(&mut self, which: usize) -> String {
        let new = NewBlob::default();
        self.process.store.create_append(&blob(NAMES[which]), &new, unconditional()).await.unwrap();
        self.blobs[which].make(Content::Append { bytes: Vec::new(), appends: 0 });
        "create append".to_owned()
    }

    async fn append(&mut self, which: usize) -> String {
        let data = self.data(2500);
        let done = self.process.store.append(&blob(NAMES[which]), upload(&data), unconditional()).await;
        match &mut self.blobs[which].content {
            Some(Content::Append { bytes, appends }) => {
                let done = done.unwrap();
                assert_eq!(done.offset, bytes.len() as u64);
                bytes.extend(data);
                *appends += 1;
                assert_eq!(done.written.blob.props.blocks, *appends);
            }
            Some(_) => assert!(matches!(done, Err(StoreError::WrongKind(_))), "{done:?}"),
            None => assert!(matches!(done, Err(StoreError::NoSuchBlob(_))), "{done:?}"),
        }
        "append".to_owned()
    }

    async fn create_pages(&mut self, which: usize) -> String {
        let count = self.random.random_range(0..=PAGES_MAX);
        let (name, new) = (blob(NAMES[which]), NewBlob::default());
        let made = self.process.store.create_pages(&name, (count * PAGE) as u64, 0, &new, unconditional());
        made.await.unwrap();
        self.blobs[which].make(Content::Page { pages: vec![None; count], written: vec![0; count] });
        "create pages".to_owned()
    }

    /// Some pages of a blob that has any.
    fn some_pages(&mut self, which: usize) -> Option<(usize, usize)> {
        let Some(Content::Page { pages, .. }) = &self.blobs[which].content else { return None };
        let count = pages.len();
        if count == 0 {
            return None;
        }
        let first = self.random.random_range(0..count);
        let most = if self.random.random_range(0..4) == 0 { count - first } else { (count - first).min(9) };
        Some((first, first + self.random.random_range(1..=most)))
    }

    async fn write_pages(&mut self, which: usize) -> String {
        let Some((first, end)) = self.some_pages(which) else { return self.create_pages(which).await };
        self.number += 1;
        let data = bytes((end - first) * PAGE, self.number);
        let name = blob(NAMES[which]);
        let put = self.process.store.put_pages(&name, (first * PAGE) as u64, upload(&data), unconditional());
        put.await.unwrap();
        self.blobs[which].write(first, &data);
        format!("write pages {first} to {end}")
    }

    async fn clear_pages(&mut self, which: usize) -> String {
        let Some((first, end)) = self.some_pages(which) else { return "nothing".to_owned() };
        let range = (first * PAGE) as u64..(end * PAGE) as u64;
        self.process.store.clear_pages(&blob(NAMES[which]), range, unconditional()).await.unwrap();
        self.blobs[which].clear(first, end);
        format!("clear pages {first} to {end}")
    }

    async fn resize(&mut self, which: usize) -> String {
        let count = self.random.random_range(0..=PAGES_MAX);
        let name = blob(NAMES[which]);
        let done = self.process.store.resize(&name, (count * PAGE) as u64, unconditional()).await;
        match &self.blobs[which].content {
            Some(Content::Page { .. }) => {
                done.unwrap();
                self.blobs[which].resize(count);
            }
            Some(_) => assert!(matches!(done, Err(StoreError::WrongKind(_))), "{done:?}"),
            None => assert!(matches!(done, Err(StoreError::NoSuchBlob(_))), "{done:?}"),
        }
        format!("resize to {count} pages")
    }

    async fn snapshot(&mut self, which: usize) -> String {
        let model = &mut self.blobs[which];
        if let Some(content) = model.content.clone() {
            let taken = self.process.snapshot(NAMES[which]).await;
            model.time += 1;
            model.snapshots.push((taken, model.time, model.making, content));
        }
        "snapshot".to_owned()
    }

    async fn delete_snapshots(&mut self, which: usize) -> String {
        let model = &mut self.blobs[which];
        if model.content.is_some() && !model.snapshots.is_empty() {
            let (taken, ..) = model.snapshots.remove(self.random.random_range(0..model.snapshots.len()));
            let name = blob(NAMES[which]);
            let delete =
                self.process.store.delete_blob(&name, Some(taken), DeleteSnapshots::Refuse, unconditional());
            delete.await.unwrap();
        }
        "delete a snapshot".to_owned()
    }

    async fn delete(&mut self, which: usize) -> String {
        let name = blob(NAMES[which]);
        let done =
            self.process.store.delete_blob(&name, None, DeleteSnapshots::Include, unconditional()).await;
        let model = &mut self.blobs[which];
        match model.content {
            Some(_) => {
                done.unwrap();
                let making = model.making;
                *model = Blob { making, ..Blob::default() };
            }
            None => assert!(matches!(done, Err(StoreError::NoSuchBlob(_))), "{done:?}"),
        }
        "delete".to_owned()
    }

    async fn copy(&mut self, which: usize) -> String {
        let from = self.random.random_range(0..NAMES.len());
        let source = CopySource::Own {
            name: blob(NAMES[from]),
            snapshot: self.blobs[from].snapshots.first().map(|(taken, ..)| *taken),
            conditions: Box::default(),
            url: "http://localhost/acct/box/source".to_owned(),
        };
        let options = CopyOptions { headers: Some(ContentHeaders::default()), ..CopyOptions::default() };
        let name = blob(NAMES[which]);
        let copied =
            self.process.store.copy_blob(&name, source, CopyKind::Whole, &options, unconditional()).await;
        let first = self.blobs[from].snapshots.first().map(|(.., content)| content.clone());
        match first.or_else(|| self.blobs[from].content.clone()) {
            Some(mut content) => {
                copied.unwrap();
                if let Content::Page { written, .. } = &mut content {
                    written.fill(0);
                }
                // A short copy has no list of blocks.
                if let Content::Block { blocks, whole } = &mut content {
                    let length = blocks.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
                    if length as u64 <= INLINE_BYTES_MAX {
                        whole.splice(..0, std::mem::take(blocks).into_iter().flat_map(|(_, bytes)| bytes));
                    }
                }
                self.blobs[which].make(content);
            }
            None => assert!(matches!(copied, Err(StoreError::Source(_))), "{copied:?}"),
        }
        format!("copy from {}", NAMES[from])
    }

    /// Cuts an operation off when its object is stored, and goes on in another process: nothing has happened.
    async fn kill(&mut self, which: usize) -> String {
        let (name, data) = (NAMES[which], bytes(2500, 1));
        self.process.memory.hangs.store(true, Ordering::SeqCst);
        let block = self.some_id();
        let work = async {
            match self.number % 3 {
                0 => drop(self.process.put_block(name, &block, &data).await),
                1 => self.process.put(name, &data).await,
                _ => drop(self.process.store.append(&blob(name), upload(&data), unconditional()).await),
            }
        };
        let is_cut = tokio::select! {
            () = work => false,
            () = self.process.memory.hung.notified() => true,
        };
        // What was not cut off was refused before it stored anything.
        assert_ne!(is_cut, self.process.memory.hangs.swap(false, Ordering::SeqCst));
        self.process.restart();
        format!("kill ({is_cut})")
    }

    async fn check(&mut self, which: usize, context: &str) {
        let (name, model) = (NAMES[which], &self.blobs[which]);
        match &model.content {
            None => {
                let missing = self.process.all(name, None).await;
                assert!(matches!(missing, Err(StoreError::NoSuchBlob(_))), "{context}");
            }
            Some(content) => self.check_content(name, None, content, context).await,
        }
        for (taken, _, _, content) in &model.snapshots {
            self.check_content(name, Some(*taken), content, &format!("{context}, snapshot {taken}")).await;
        }
        self.check_uncommitted(name, model, context).await;
        self.check_changes(name, model, context).await;
        let size = model.content.as_ref().map_or(0, |content| content.bytes().len() as u64);
        if size > 1 {
            let from = self.random.random_range(0..size);
            let to = self.random.random_range(from + 1..=size);
            let expected = model.content.as_ref().unwrap().bytes()[from as usize..to as usize].to_vec();
            let read = self.process.range(name, None, (from, to)).await.unwrap();
            assert!(read == expected, "{context}: bytes {from} to {to}");
        }
    }

    async fn check_content(
        &self,
        name: &str,
        snapshot: Option<polyshard_store_blob::SnapshotId>,
        content: &Content,
        context: &str,
    ) {
        let all = self.process.all(name, snapshot).await;
        let all = all.unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(all == content.bytes(), "{context}: {} bytes, {} expected", all.len(), content.bytes().len());
        match content {
            Content::Block { blocks, .. } => {
                let (name, kind) = (blob(name), BlockListKind::Committed);
                let list = self.process.store.block_list(&name, snapshot, kind, unconditional()).await;
                let list = list.unwrap().committed;
                let list: Vec<_> = list.into_iter().map(|block| (block.id, block.size)).collect();
                let expected: Vec<_> =
                    blocks.iter().map(|(block, bytes)| (id(block), bytes.len() as u64)).collect();
                assert_eq!(list, expected, "{context}");
            }
            Content::Page { pages, .. } => {
                let (name, query) = (blob(name), PageQuery::default());
                let found = self.process.store.page_ranges(&name, snapshot, &query, unconditional()).await;
                let found: Vec<_> =
                    found.unwrap().ranges.iter().map(|range| (range.first, range.last)).collect();
                assert_eq!(found, runs(pages.len(), |page| pages[page].is_some()), "{context}");
            }
            Content::Append { .. } => {}
        }
    }

    async fn check_uncommitted(&self, name: &str, model: &Blob, context: &str) {
        if matches!(model.content, Some(Content::Append { .. } | Content::Page { .. })) {
            return;
        }
        let list =
            self.process.store.block_list(&blob(name), None, BlockListKind::All, unconditional()).await;
        if model.content.is_none() && model.uncommitted.is_empty() {
            assert!(matches!(list, Err(StoreError::NoSuchBlob(_))), "{context}");
            return;
        }
        let list = list.unwrap();
        assert_eq!(list.blob.is_some(), model.content.is_some(), "{context}");
        let list: Vec<_> = list.uncommitted.into_iter().map(|block| (block.id, block.size)).collect();
        let expected: Vec<_> =
            model.uncommitted.iter().map(|(block, bytes)| (id(block), bytes.len() as u64)).collect();
        assert_eq!(list, expected, "{context}");
    }

    /// What was written and cleared since each snapshot of the blob as it was made last.
    async fn check_changes(&self, name: &str, model: &Blob, context: &str) {
        let Some(Content::Page { pages, written }) = &model.content else { return };
        for (taken, time, making, old) in &model.snapshots {
            let query = PageQuery { since: Some(*taken), ..PageQuery::default() };
            let (name, context) = (blob(name), format!("{context}, changes since {taken}"));
            let found = self.process.store.page_ranges(&name, None, &query, unconditional()).await;
            if *making != model.making {
                assert!(matches!(found, Err(StoreError::InvalidSnapshot)), "{context}: {found:?}");
                continue;
            }
            let Content::Page { pages: old, .. } = old else { panic!("a blob keeps its kind") };
            let was_valid = |page: usize| old.get(page).is_some_and(Option::is_some);
            let found = found.unwrap().ranges;
            let of = |is_cleared: bool| {
                let of = found.iter().filter(|range| range.is_cleared == is_cleared);
                of.map(|range| (range.first, range.last)).collect::<Vec<_>>()
            };
            let changed = |page: usize| pages[page].is_some() && written[page] > *time;
            assert_eq!(of(false), runs(pages.len(), changed), "{context}");
            let cleared = |page: usize| pages[page].is_none() && was_valid(page);
            assert_eq!(of(true), runs(pages.len(), cleared), "{context}");
            assert!(found.is_sorted_by_key(|range| range.first), "{context}");
        }
    }
}
