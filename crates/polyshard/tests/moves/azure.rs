//! A caller of the table and queue doors: entities and messages of the same tenants as the SQL rows.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polyshard_azure_storage::{AccountKey, DEVELOPMENT_KEY, Timestamp};

/// The account of development setups.
const ACCOUNT: &str = "devstoreaccount1";
/// How long an answer may take; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);
/// A table whose partitions are `<tenant>-<anything>`.
pub const TABLE: &str = "Orders";

/// The queue of a tenant.
pub fn queue(tenant: i64) -> String {
    format!("{tenant}-jobs")
}

/// A connection to one of the doors.
pub struct Azure {
    stream: BufReader<TcpStream>,
    key: AccountKey,
}

/// What a door answered.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    /// A header of it.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

impl Azure {
    /// Connects to a door.
    pub fn connect(address: &str) -> io::Result<Azure> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let key = AccountKey::from_base64(DEVELOPMENT_KEY).expect("the published key");
        Ok(Azure { stream: BufReader::new(stream), key })
    }

    /// Puts an entity.
    pub fn put_entity(&mut self, tenant: i64, id: i64) -> io::Result<Reply> {
        let body = format!(r#"{{"PartitionKey":"{tenant}-{}","RowKey":"{id}","n":{id}}}"#, id % 3);
        self.table("POST", &format!("/{ACCOUNT}/{TABLE}"), &body)
    }

    /// Sends a message.
    pub fn put_message(&mut self, tenant: i64, id: i64) -> io::Result<Reply> {
        let body = format!("<QueueMessage><MessageText>{id}</MessageText></QueueMessage>");
        self.queue("POST", &format!("/{ACCOUNT}/{}/messages", queue(tenant)), "", &body)
    }

    /// Deletes an entity.
    pub fn delete_entity(&mut self, tenant: i64, id: i64) -> io::Result<Reply> {
        let key = format!("PartitionKey='{tenant}-{}',RowKey='{id}'", id % 3);
        self.table_with("DELETE", &format!("/{ACCOUNT}/{TABLE}({key})"), "If-Match: *\r\n", "")
    }

    /// A request to the table door; the resource is signed without the query.
    pub fn table(&mut self, method: &str, target: &str, body: &str) -> io::Result<Reply> {
        self.table_with(method, target, "", body)
    }

    /// The same with more headers, each with its line end.
    pub fn table_with(&mut self, method: &str, target: &str, more: &str, body: &str) -> io::Result<Reply> {
        let (date, path) = (date(), path(target));
        let signature = self.key.sign(&format!("{date}\n/{ACCOUNT}{path}"));
        let headers = format!(
            "x-ms-date: {date}\r\nx-ms-version: 2019-02-02\r\nAccept: application/json;odata=nometadata\r\n\
             Content-Type: application/json\r\nAuthorization: SharedKeyLite {ACCOUNT}:{signature}\r\n{more}"
        );
        self.ask(method, target, &headers, body)
    }

    /// A request to the queue door.
    pub fn queue(&mut self, method: &str, target: &str, query: &str, body: &str) -> io::Result<Reply> {
        let date = date();
        let text = format!(
            "{method}\n\napplication/xml\n\nx-ms-date:{date}\nx-ms-version:2019-02-02\n/{ACCOUNT}{target}"
        );
        let signature = self.key.sign(&text);
        let headers = format!(
            "x-ms-date: {date}\r\nx-ms-version: 2019-02-02\r\nContent-Type: application/xml\r\n\
             Authorization: SharedKeyLite {ACCOUNT}:{signature}\r\n"
        );
        self.ask(method, &format!("{target}{query}"), &headers, body)
    }

    fn ask(&mut self, method: &str, target: &str, headers: &str, body: &str) -> io::Result<Reply> {
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.stream.get_mut().write_all(format!("{head}{body}").as_bytes())?;
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other("no status"))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        let mut reply = Reply { status, headers, body: String::new() };
        let length = reply.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        reply.body = String::from_utf8(bytes).map_err(io::Error::other)?;
        Ok(reply)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// All entities that there are: tenant and number.
    pub fn entities(&mut self) -> io::Result<Vec<(i64, i64)>> {
        let mut found = Vec::new();
        let mut query = String::new();
        loop {
            let reply = self.table("GET", &format!("/{ACCOUNT}/{TABLE}(){query}"), "")?;
            assert_eq!(reply.status, 200, "{reply:?}");
            let page: serde_json::Value = serde_json::from_str(&reply.body).map_err(io::Error::other)?;
            for entity in page["value"].as_array().expect("a list") {
                let partition = entity["PartitionKey"].as_str().expect("a key");
                let tenant = partition.split('-').next().and_then(|tenant| tenant.parse().ok());
                let id = entity["RowKey"].as_str().and_then(|id| id.parse().ok());
                found.push((tenant.expect("a tenant"), id.expect("a number")));
            }
            let next = |name: &str| reply.header(&format!("x-ms-continuation-Next{name}")).map(str::to_owned);
            match (next("PartitionKey"), next("RowKey")) {
                (Some(partition), row) => {
                    query = format!("?NextPartitionKey={partition}");
                    query.extend(row.map(|row| format!("&NextRowKey={row}")));
                }
                _ => return Ok(found),
            }
        }
    }

    /// Takes all messages of a tenant's queue: their numbers.
    pub fn messages(&mut self, tenant: i64) -> io::Result<Vec<(i64, i64)>> {
        let target = format!("/{ACCOUNT}/{}/messages", queue(tenant));
        let mut found = Vec::new();
        loop {
            let reply = self.queue("GET", &target, "?numofmessages=32&visibilitytimeout=3600", "")?;
            assert_eq!(reply.status, 200, "{reply:?}");
            let texts: Vec<&str> = reply.body.split("<MessageText>").skip(1).collect();
            if texts.is_empty() {
                return Ok(found);
            }
            for text in texts {
                let id = text.split('<').next().and_then(|id| id.parse().ok());
                found.push((tenant, id.expect("a number")));
            }
        }
    }
}

fn path(target: &str) -> &str {
    target.split('?').next().unwrap_or(target)
}

/// Now, as the doors want it.
fn date() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    Timestamp::from_unix_ms(now.as_millis() as i64).expect("a date of this century").rfc1123()
}
