//! One open PostgreSQL database: its writer, readers, pool and listener.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_recursion::async_recursion as boxed;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::connect::{Connector, Purpose};
use super::listen::Listening;
use super::pool::{Lent, Pool};
use super::pooler;
use super::raw_pool::{RawLent, RawPool};
use super::readers::Readers;
use super::scan::PostgresScan;
use super::transaction::PostgresTransaction;
use super::writer::{Command, Writer};
use crate::group::{Answer, Counters, Op};
use crate::guard::{self, Guard};
use crate::statement::Action;
use crate::{Access, Batch, Error, Listener, Options, PostgresTarget, Rows, SessionHook, Statement, Stats};

pub(crate) struct Engine {
    connector: Arc<Connector>,
    queue: mpsc::Sender<Command>,
    writer: Mutex<Option<JoinHandle<()>>>,
    readers: Readers,
    pool: Arc<Pool>,
    raw: Arc<RawPool>,
    listening: Listening,
    closed: AtomicBool,
}

impl Engine {
    #[boxed]
    pub async fn open(
        target: PostgresTarget,
        options: Options,
        hook: Option<Arc<dyn SessionHook>>,
    ) -> Result<Arc<Engine>, Error> {
        let options = Arc::new(options);
        let counters = Arc::new(Counters::default());
        let connector = Arc::new(Connector::new(&target, options.clone(), hook, counters)?);

        // Before the hook: it may rely on session locks.
        let first = connector.connect_bare().await?;
        let second = connector.connect_bare().await?;
        pooler::refuse(&first, &second, &connector.target).await?;
        drop((first, second));

        let session = connector.connect(Purpose::Writing).await?;
        let (queue, commands) = mpsc::channel(options.queue_max);
        let writer = tokio::spawn(Writer::new(connector.clone(), session).run(commands));
        Ok(Arc::new(Engine {
            queue,
            writer: Mutex::new(Some(writer)),
            readers: Readers::new(connector.clone()),
            pool: Arc::new(Pool::new(connector.clone())),
            raw: Arc::new(RawPool::new(connector.clone())),
            listening: Listening::new(connector.clone()),
            connector,
            closed: AtomicBool::new(false),
        }))
    }

    pub async fn write(&self, batch: Batch) -> Answer {
        let (reply, answer) = oneshot::channel();
        match self.queue.try_send(Command::Write(Op { batch, reply })) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                return Err(Error::Busy {
                    message: format!("{} writes are waiting already", self.connector.options.queue_max),
                });
            }
            Err(TrySendError::Closed(_)) => return Err(Error::Closed),
        }
        answer.await.map_err(|_| Error::Closed)?
    }

    #[boxed]
    pub async fn read(&self, statement: &Statement, guard: Option<&Guard>) -> Result<Rows, Error> {
        self.check_open()?;
        if matches!(statement.action, Action::Notify { .. }) {
            return Err(Error::invalid("a notification is a write"));
        }
        self.readers.read(statement, guard).await
    }

    pub async fn scan(
        &self,
        statement: Statement,
        page_rows: usize,
        guard: Option<&Guard>,
    ) -> Result<PostgresScan, Error> {
        self.check_open()?;
        if matches!(statement.action, Action::Notify { .. }) {
            return Err(Error::invalid("a notification cannot be scanned"));
        }
        PostgresScan::start(self.lend(guard).await?, statement, page_rows).await
    }

    pub async fn begin(&self, access: Access, guard: Option<&Guard>) -> Result<PostgresTransaction, Error> {
        self.check_open()?;
        let lent = self.lend(guard).await?;
        PostgresTransaction::begin(self.connector.clone(), lent, access, async || self.lend(guard).await)
            .await
    }

    /// A session in protocol messages.
    pub async fn raw(&self, guard: Option<&Guard>) -> Result<RawLent, Error> {
        self.check_open()?;
        let lent = self.raw.lend().await?;
        match guard::check(guard) {
            Ok(()) => Ok(lent),
            Err(error) => {
                lent.finish();
                Err(error)
            }
        }
    }

    /// A session of the pool, for a caller who may still use it.
    async fn lend(&self, guard: Option<&Guard>) -> Result<Lent, Error> {
        let lent = self.pool.lend().await?;
        guard::check(guard)?;
        Ok(lent)
    }

    pub async fn listen(&self, channel: &str) -> Result<Listener, Error> {
        self.check_open()?;
        self.listening.listen(channel).await
    }

    pub fn session_generation(&self) -> u64 {
        self.connector.generation()
    }

    pub fn disconnect_all(&self) {
        self.connector.next_generation();
        self.pool.drop_idle();
        self.raw.drop_idle();
        self.readers.close();
    }

    pub fn stats(&self) -> Stats {
        self.connector.counters.snapshot(self.queue.max_capacity() - self.queue.capacity())
    }

    pub async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // An error means that it is closed already.
        let _ = self.queue.send(Command::Close).await;
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer
            && writer.await.is_err()
        {
            tracing::error!("the PostgreSQL writer panicked");
        }
        self.listening.close().await;
        self.pool.close().await;
        self.raw.close().await;
        self.readers.close();
        self.connector.close(self.connector.options.connect_timeout).await;
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }
}
