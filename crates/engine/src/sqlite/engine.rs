//! One open SQLite file: its threads, its readers, its lock.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc, oneshot};

use super::checkpoint::{self, Signal};
use super::connection::{Connection, Role};
use super::error::translate;
use super::gather::Gathering;
use super::lock::FileLock;
use super::readers::Readers;
use super::room::{LogPages, LogRoom};
use super::scan::SqliteScan;
use super::seen::Look;
use super::transaction::{ReadTransaction, WriteTransaction};
use super::version::Watch;
use super::writer::{self, Channels, Command, Seat, Writer};
use crate::group::{Answer, Counters, Op};
use crate::listener::LISTENER_EVENTS_MAX;
use crate::session::{SessionHandle, SessionInner};
use crate::statement::Action;
use crate::{
    Batch, Durable, Error, Listener, Options, Rows, SessionHook, SqliteTarget, Statement, Stats, Value,
};

pub(crate) struct Engine {
    // Dropped in this order: the queue ends, then the threads, then the lock is released.
    queue: mpsc::Sender<Command>,
    gathering: Arc<Gathering>,
    writer: Arc<Seat>,
    pub(super) readers: Readers,
    threads: Threads,
    lock: Mutex<Option<FileLock>>,
    channels: Arc<Channels>,
    long_reads: Arc<Semaphore>,
    pub(super) options: Arc<Options>,
    counters: Arc<Counters>,
    generation: AtomicU64,
    closed: AtomicBool,
    /// Opened with the first moment that is held.
    pub(super) watch: Mutex<Option<Watch>>,
}

impl Engine {
    pub async fn open(
        target: SqliteTarget,
        options: Options,
        hook: Option<Arc<dyn SessionHook>>,
    ) -> Result<Arc<Engine>, Error> {
        let opened = tokio::task::spawn_blocking(move || Engine::open_blocking(target.path, options)).await;
        let engine = opened.map_err(|_| Error::Unavailable {
            message: "opening the SQLite file was stopped".to_owned(),
        })??;
        if let Some(hook) = hook {
            let mut handle = SessionHandle { inner: SessionInner::Sqlite(&engine) };
            hook.on_session(&mut handle).await?;
        }
        Ok(engine)
    }

    fn open_blocking(path: PathBuf, options: Options) -> Result<Arc<Engine>, Error> {
        let lock = FileLock::take(&path)?;
        let options = Arc::new(options);
        let counters = Arc::new(Counters::default());
        let signal = Arc::new(Signal::new(options.sqlite_wal_pages_max));
        let channels = Arc::new(Channels::new(HashMap::new()));

        let mut connection = Connection::open(&path, Role::Writer, &options)?;
        let (committed, log) = (signal.clone(), Arc::new(LogPages::default()));
        let room = LogRoom::new(&path, connection.page_bytes()?, log.clone());
        connection
            .raw
            .wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
                let pages = u32::try_from(pages).unwrap_or(0);
                committed.committed(pages);
                log.committed(pages);
                Ok(())
            }))
            .map_err(translate)?;
        let checkpointer = checkpoint::start(&path, &options, signal.clone())?;
        let (queue, commands) = mpsc::channel(options.queue_max);
        let gathering = Arc::new(Gathering::default());
        let writer = Writer::new(
            connection,
            options.clone(),
            counters.clone(),
            channels.clone(),
            gathering.clone(),
            room,
            signal.clone(),
        );
        let writer = Arc::new(Seat::new(Some(writer)));
        let threads =
            Threads { writer: Mutex::new(None), checkpointer: Mutex::new(Some(checkpointer)), signal };
        let (seat, gathered) = (writer.clone(), gathering.clone());
        let handle = std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || writer::run(&seat, commands, &gathered))
            .map_err(|error| Error::Unavailable { message: format!("cannot start a thread ({error})") })?;
        *threads.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);

        Ok(Arc::new(Engine {
            queue,
            gathering,
            writer,
            readers: Readers::new(path, options.clone(), counters.clone()),
            threads,
            lock: Mutex::new(Some(lock)),
            channels,
            long_reads: Arc::new(Semaphore::new(options.sqlite_long_reads_max)),
            options,
            counters,
            generation: AtomicU64::new(1),
            closed: AtomicBool::new(false),
            watch: Mutex::default(),
        }))
    }

    pub async fn write(&self, batch: Batch) -> Answer {
        if batch.in_place
            && let Some(answer) = self.write_in_place(&batch)
        {
            return answer;
        }
        let (reply, answer) = oneshot::channel();
        match self.queue.try_send(Command::Write(Op { batch, reply })) {
            Ok(()) => self.gathering.joined(|| self.waiting()),
            Err(TrySendError::Full(_)) => {
                return Err(Error::Busy {
                    message: format!("{} writes are waiting already", self.options.queue_max),
                });
            }
            Err(TrySendError::Closed(_)) => return Err(Error::Closed),
        }
        answer.await.map_err(|_| Error::Closed)?
    }

    /// Writes on this thread if nobody else writes or waits for it; nothing if the batch should rather be queued.
    fn write_in_place(&self, batch: &Batch) -> Option<Answer> {
        // On a runtime with one thread everybody would wait.
        let flavor = Handle::try_current().ok()?.runtime_flavor();
        if self.waiting() > 0 || flavor != RuntimeFlavor::MultiThread {
            return None;
        }
        let mut taken = self.writer.try_lock().ok()?;
        let writer = taken.as_mut().filter(|writer| writer.is_lone())?;
        if self.closed.load(Ordering::SeqCst) {
            return Some(Err(Error::Closed));
        }
        // The runtime gives this thread's other tasks to another one: a disk may take its time.
        Some(tokio::task::block_in_place(|| writer.write_in_place(batch, || self.waiting())))
    }

    /// How many wait for the writer.
    fn waiting(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }

    /// A batch by itself that is durable with the next one that is.
    pub async fn write_lazily(&self, batch: Batch) -> Answer {
        let (reply, answer) = oneshot::channel();
        let command = Command::WriteLazily(Op { batch, reply });
        self.queue.send(command).await.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }

    /// A batch by itself that sees the file of another beside this one, under a name.
    pub async fn write_beside(&self, other: (&str, &Arc<Engine>), batch: Batch, durable: Durable) -> Answer {
        let (name, other) = other;
        // It is not closed while it is read.
        let _permit = other.long_read().await?;
        let (reply, answer) = oneshot::channel();
        let other = (name.to_owned(), other.readers.path().to_owned());
        let command = Command::WriteBeside { op: Op { batch, reply }, other, durable };
        self.queue.send(command).await.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }

    pub fn read(&self, statement: &Statement) -> Result<Rows, Error> {
        self.read_with(statement, |connection, text, params| connection.run(text, params))
    }

    /// The rows that are wanted; all are counted.
    pub fn read_wanted(&self, statement: &Statement, look: &mut Look<'_>) -> Result<Rows, Error> {
        self.read_with(statement, |connection, text, params| connection.run_wanted(text, params, look))
    }

    fn read_with(
        &self,
        statement: &Statement,
        run: impl FnOnce(&mut Connection, &Arc<str>, &[Value]) -> Result<Rows, Error>,
    ) -> Result<Rows, Error> {
        self.check_open()?;
        self.readers.count();
        let Action::Sql { text, params } = &statement.action else {
            return Err(Error::invalid("a notification is a write"));
        };
        let mut connection = self.readers.take()?;
        connection.limit(Some(self.options.statement_timeout));
        let result = run(&mut connection, text, params).map_err(writes_in_read);
        self.readers.give_back(connection);
        let rows = result?;
        crate::group::check(0, statement.expect, rows.affected)?;
        Ok(rows)
    }

    pub async fn scan(
        self: &Arc<Engine>,
        statement: Statement,
        page_rows: usize,
    ) -> Result<SqliteScan, Error> {
        let permit = self.long_read().await?;
        SqliteScan::start(self.clone(), permit, statement, page_rows)
    }

    /// A scan that sees the files of `others` beside this one, each under its name.
    pub async fn scan_attached(
        self: &Arc<Engine>,
        others: &[(String, Arc<Engine>)],
        statement: Statement,
        page_rows: usize,
    ) -> Result<SqliteScan, Error> {
        // A permit of every file: none is closed while it is read.
        let mut permits = vec![self.long_read().await?];
        let mut files = Vec::with_capacity(others.len());
        for (name, other) in others {
            permits.push(other.long_read().await?);
            files.push((name.clone(), other.readers.path().to_owned()));
        }
        let mut connection = Box::new(Connection::open(self.readers.path(), Role::Reader, &self.options)?);
        Counters::add(&self.counters.sessions_opened, 1);
        connection.attach(&files)?;
        SqliteScan::start_attached(self.clone(), permits, connection, statement, page_rows)
    }

    pub async fn begin_read(self: &Arc<Engine>) -> Result<ReadTransaction, Error> {
        let permit = self.long_read().await?;
        ReadTransaction::begin(self.clone(), permit)
    }

    pub async fn begin_write(self: &Arc<Engine>) -> Result<WriteTransaction, Error> {
        let (reply, lent) = oneshot::channel();
        let wait = async {
            self.queue.send(Command::Begin(reply)).await.map_err(|_| Error::Closed)?;
            lent.await.map_err(|_| Error::Closed)?
        };
        match tokio::time::timeout(self.options.acquire_timeout, wait).await {
            Ok(lent) => Ok(WriteTransaction::new(lent?, self.clone())),
            Err(_) => Err(Error::Busy {
                message: format!("the writer was not free within {:?}", self.options.acquire_timeout),
            }),
        }
    }

    pub fn listen(&self, channel: &str) -> Result<Listener, Error> {
        self.check_open()?;
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels.retain(|_, sender| sender.receiver_count() > 0);
        let sender =
            channels.entry(channel.to_owned()).or_insert_with(|| broadcast::Sender::new(LISTENER_EVENTS_MAX));
        Ok(Listener::new(sender.subscribe()))
    }

    pub fn session_generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    pub fn disconnect_all(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    pub fn stats(&self) -> Stats {
        let stats = self.counters.snapshot(self.waiting());
        Stats { reads: stats.reads + self.readers.counted(), ..stats }
    }

    pub async fn close(self: &Arc<Engine>) {
        self.closed.store(true, Ordering::SeqCst);
        // An error means that it is closed already.
        let _ = self.queue.send(Command::Close).await;
        self.queue.closed().await;
        // Scans and read transactions end first; no new one gets a permit.
        let all = u32::try_from(self.options.sqlite_long_reads_max).unwrap_or(u32::MAX);
        drop(self.long_reads.acquire_many(all).await);
        self.long_reads.close();
        let engine = self.clone();
        let joined = tokio::task::spawn_blocking(move || engine.close_blocking()).await;
        if joined.is_err() {
            tracing::error!("closing the SQLite file was stopped");
        }
    }

    fn close_blocking(&self) {
        self.readers.close();
        self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.threads.join();
        self.channels.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    async fn long_read(&self) -> Result<OwnedSemaphorePermit, Error> {
        self.check_open()?;
        let permit = self.long_reads.clone().acquire_owned();
        match tokio::time::timeout(self.options.acquire_timeout, permit).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(Error::Closed),
            Err(_) => Err(Error::Busy {
                message: format!(
                    "{} scans and read transactions are open already",
                    self.options.sqlite_long_reads_max
                ),
            }),
        }
    }
}

fn writes_in_read(error: Error) -> Error {
    match error {
        Error::ReadOnly { .. } => Error::invalid("a read may not write: use Database::write"),
        error => error,
    }
}

/// The two threads; dropping this waits for them.
struct Threads {
    writer: Mutex<Option<JoinHandle<()>>>,
    checkpointer: Mutex<Option<JoinHandle<()>>>,
    signal: Arc<Signal>,
}

impl Threads {
    /// The writer first: the checkpointer's last work is to empty the log.
    fn join(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = writer
            && thread.join().is_err()
        {
            tracing::error!("the SQLite writer thread panicked");
        }
        self.signal.stop();
        let checkpointer = self.checkpointer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = checkpointer
            && thread.join().is_err()
        {
            tracing::error!("the SQLite checkpointer thread panicked");
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.join();
    }
}
