//! What happens to the parts of an upload that is not finished.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use object_store::memory::InMemory;
use object_store::{PutResult, UploadPart};

use super::*;

/// What an upload was asked to do.
#[derive(Debug, Default)]
struct Calls {
    fails: AtomicBool,
    parts: AtomicUsize,
    completed: AtomicUsize,
    aborted: AtomicUsize,
}

#[derive(Debug)]
struct Counted(Arc<Calls>);

fn broken() -> object_store::Error {
    object_store::Error::Generic { store: "test", source: "it is away".into() }
}

impl Calls {
    fn answer(&self) -> object_store::Result<()> {
        if self.fails.load(Ordering::SeqCst) { Err(broken()) } else { Ok(()) }
    }

    async fn are(&self, parts: usize, completed: usize, aborted: usize) {
        // The abort runs by itself.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
        let counts = (count(&self.parts), count(&self.completed), count(&self.aborted));
        assert_eq!(counts, (parts, completed, aborted));
    }
}

type Later<'a, T> = std::pin::Pin<Box<dyn Future<Output = object_store::Result<T>> + Send + 'a>>;

impl MultipartUpload for Counted {
    fn put_part(&mut self, _data: PutPayload) -> UploadPart {
        self.0.parts.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(self.0.answer()))
    }

    fn complete<'s, 'f>(&'s mut self) -> Later<'f, PutResult>
    where
        's: 'f,
        Self: 'f,
    {
        let done = self.0.answer();
        if done.is_ok() {
            self.0.completed.fetch_add(1, Ordering::SeqCst);
        }
        Box::pin(async move {
            done.map(|()| PutResult { e_tag: None, version: None, extensions: Default::default() })
        })
    }

    fn abort<'s, 'f>(&'s mut self) -> Later<'f, ()>
    where
        's: 'f,
        Self: 'f,
    {
        self.0.aborted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(()) })
    }
}

fn writer(calls: &Arc<Calls>) -> Box<RemoteWriter> {
    Box::new(RemoteWriter {
        store: Arc::new(InMemory::new()),
        at: Path::from("x"),
        path: "x".to_owned(),
        upload: Upload::Parts(Box::new(Counted(calls.clone()))),
        part_bytes: 10,
        waiting: BytesMut::new(),
    })
}

const PART: Bytes = Bytes::from_static(&[7; 10]);

#[tokio::test]
async fn a_finished_upload_is_not_aborted() {
    let calls = Arc::new(Calls::default());
    let mut writer = writer(&calls);
    writer.write(PART).await.unwrap();
    writer.write(Bytes::from_static(b"rest")).await.unwrap();
    writer.finish().await.unwrap();
    calls.are(2, 1, 0).await;
}

#[tokio::test]
async fn parts_of_an_upload_that_breaks_off_are_aborted() {
    let calls = Arc::new(Calls::default());
    let mut writer = writer(&calls);
    writer.write(PART).await.unwrap();
    drop(writer);
    calls.are(1, 0, 1).await;
}

#[tokio::test]
async fn an_upload_is_aborted_when_a_part_fails_and_can_not_be_finished() {
    let calls = Arc::new(Calls::default());
    let mut writer = writer(&calls);
    writer.write(PART).await.unwrap();
    calls.fails.store(true, Ordering::SeqCst);
    writer.write(PART).await.unwrap_err();
    calls.are(2, 0, 1).await;
    calls.fails.store(false, Ordering::SeqCst);
    writer.finish().await.unwrap_err();
    calls.are(2, 0, 1).await;
}

#[tokio::test]
async fn an_upload_is_aborted_when_it_cannot_be_completed() {
    for rest in [0, 4] {
        let calls = Arc::new(Calls::default());
        let mut writer = writer(&calls);
        writer.write(PART).await.unwrap();
        writer.write(PART.slice(..rest)).await.unwrap();
        calls.fails.store(true, Ordering::SeqCst);
        writer.finish().await.unwrap_err();
        calls.are(1 + rest.min(1), 0, 1).await;
    }
}
