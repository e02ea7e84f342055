//! SQL for the console: the server is a client of its own SQL door, so that there is one way in for statements.

use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use polyshard_admin::types::Role;
use polyshard_admin::types::{QUERY_ROWS_MAX, QueryAnswer, QueryResult};
use polyshard_admin::{ErrorCode, Problem};
use polyshard_sql::Kind;
use tokio::task::JoinSet;
use tokio_postgres::error::DbError;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{
    AsyncMessage, CancelToken, Client, Config, Connection, NoTls, SimpleQueryMessage, Socket,
};

/// How long the statements of one request may take.
const QUERY_S_MAX: u64 = 60;
/// Notices kept of one request; a statement can raise any number.
const NOTICES_MAX: usize = 100;
/// Statements whose route EXPLAIN can tell.
const EXPLAINED: [&str; 7] = ["select", "with", "values", "insert", "update", "delete", "table"];

/// The door takes the console for the user of the configuration, who may make users; an operator may not. What cannot
/// be read is not carried out by the door either.
pub(super) fn check_role(sql: &str, role: Role) -> Result<(), Problem> {
    if role >= Role::Admin {
        return Ok(());
    }
    let is_about_users = |kind: &Kind| match kind {
        Kind::Ddl(ddl) => ddl.tag.ends_with(" USER") || ddl.tag.ends_with(" ROLE"),
        _ => false,
    };
    let statements = polyshard_sql::statements(sql).unwrap_or_default();
    match statements.iter().any(|statement| is_about_users(statement.kind())) {
        false => Ok(()),
        true => {
            let message = "users are made and changed by the bearer of a token of the role admin";
            Err(Problem::new(ErrorCode::Forbidden, message)
                .with_remedy("ask an administrator for one: 'polyshard token add NAME --role admin'"))
        }
    }
}

/// How the server reaches its own SQL door.
pub(crate) struct SqlClient {
    config: Config,
    /// What tells the door that nobody waits for a statement any more. Each takes a moment.
    leaving: Mutex<JoinSet<()>>,
}

/// Has the door stop what runs on a connection, unless it is over.
struct Leaving<'a> {
    over: bool,
    token: CancelToken,
    leaving: &'a Mutex<JoinSet<()>>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.over || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let token = self.token.clone();
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        while leaving.try_join_next().is_some() {}
        leaving.spawn(async move {
            if let Err(error) = token.cancel_query(NoTls).await {
                tracing::debug!(%error, "a statement of the console could not be cancelled");
            }
        });
    }
}

impl SqlClient {
    /// To the door at this address, `postgres://user@host:port/database`, with this password. None if the address
    /// cannot be read.
    pub(crate) fn new(address: &str, password: &str) -> Option<SqlClient> {
        let reachable = address.replace("@0.0.0.0:", "@127.0.0.1:").replace("@[::]:", "@[::1]:");
        let mut config: Config = reachable.parse().ok()?;
        config
            .password(password)
            .application_name("polyshard console")
            .connect_timeout(Duration::from_secs(5));
        Some(SqlClient { config, leaving: Mutex::default() })
    }

    /// Runs the statements; the connection ends with them. They are stopped when whoever asked has left.
    pub(super) async fn run(&self, sql: &str) -> Result<QueryAnswer, Problem> {
        let (client, connection) = self.config.connect(NoTls).await.map_err(|error| of_sql(&error))?;
        let (token, leaving) = (client.cancel_token(), &self.leaving);
        let mut leaving = Leaving { over: false, token, leaving };
        let said = Mutex::new(Vec::new());
        let take = || std::mem::take(&mut *said.lock().expect("no panic while held"));
        let work = async {
            let explained = explained(&client, sql).await;
            // Where a shard's own plan is passed on, the route is said beside it.
            let route = take().iter().flat_map(lines_of).chain(explained).collect();
            let began = Instant::now();
            let results = run(&client, sql).await?;
            let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            Ok(QueryAnswer { took_us, route, results, notices: take().iter().map(line_of).collect() })
        };
        let limit = Duration::from_secs(QUERY_S_MAX);
        tokio::select! {
            answer = tokio::time::timeout(limit, work) => answer.inspect(|_| leaving.over = true).unwrap_or_else(|_| {
                Err(Problem::new(ErrorCode::Unavailable, format!("the statements took more than {QUERY_S_MAX} s"))
                    .with_remedy("use an SQL client for long statements"))
            }),
            ended = serve(connection, &said) => Err(match ended {
                Err(error) => of_sql(&error),
                Ok(()) => Problem::unavailable("the SQL door ended the connection"),
            }),
        }
    }
}

/// Carries what is asked and answered, and keeps the notices.
async fn serve(
    mut connection: Connection<Socket, NoTlsStream>,
    said: &Mutex<Vec<DbError>>,
) -> Result<(), tokio_postgres::Error> {
    std::future::poll_fn(|context| {
        loop {
            match connection.poll_message(context) {
                Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => {
                    let mut said = said.lock().expect("no panic while held");
                    if said.len() < NOTICES_MAX {
                        said.push(notice);
                    }
                }
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

/// A notice with what was found out about it.
fn lines_of(notice: &DbError) -> Vec<String> {
    let detail = notice.detail().into_iter().flat_map(str::lines);
    detail.chain([notice.message()]).map(str::to_owned).collect()
}

fn line_of(notice: &DbError) -> String {
    format!("{}: {}", notice.severity(), notice.message())
}

/// What EXPLAIN says of the route. Some statements have none, which is no failure.
async fn explained(client: &Client, sql: &str) -> Vec<String> {
    let first = sql.trim_start().split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    let single = !sql.trim().trim_end_matches(';').contains(';');
    if !single || !EXPLAINED.contains(&first.to_ascii_lowercase().as_str()) {
        return Vec::new();
    }
    let Ok(messages) = client.simple_query(&format!("EXPLAIN {sql}")).await else { return Vec::new() };
    let line = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    };
    messages.iter().filter_map(line).collect()
}

async fn run(client: &Client, sql: &str) -> Result<Vec<QueryResult>, Problem> {
    let stream = client.simple_query_raw(sql).await.map_err(|error| of_sql(&error))?;
    let mut stream = std::pin::pin!(stream);
    let (mut results, mut current) = (Vec::new(), empty());
    while let Some(message) = stream.next().await {
        match message.map_err(|error| of_sql(&error))? {
            SimpleQueryMessage::RowDescription(columns) => {
                current.columns = columns.iter().map(|column| column.name().to_owned()).collect();
            }
            SimpleQueryMessage::Row(row) if current.rows.len() < QUERY_ROWS_MAX => {
                current.rows.push((0..row.len()).map(|index| row.get(index).map(str::to_owned)).collect());
            }
            SimpleQueryMessage::Row(_) => current.cut = true,
            SimpleQueryMessage::CommandComplete(rows) => {
                current.tag = if rows == 1 { "1 row".to_owned() } else { format!("{rows} rows") };
                results.push(std::mem::replace(&mut current, empty()));
            }
            _ => {}
        }
    }
    Ok(results)
}

fn empty() -> QueryResult {
    QueryResult { columns: Vec::new(), rows: Vec::new(), tag: String::new(), cut: false }
}

/// The door's own words.
fn of_sql(error: &tokio_postgres::Error) -> Problem {
    match error.as_db_error() {
        Some(said) => {
            let problem =
                Problem::invalid("sql", format!("{} (SQLSTATE {})", said.message(), said.code().code()));
            match said.hint().or(said.detail()) {
                Some(hint) => problem.with_remedy(hint),
                None => problem,
            }
        }
        None => Problem::unavailable(format!("the SQL door cannot be used: {error}"))
            .with_remedy("a door that takes TLS only is for SQL clients; see the server's log otherwise"),
    }
}
