//! What earlier backups of this process had of each SQLite database: one that has provably not changed since is not
//! read again.

use std::collections::HashMap;
use std::sync::Mutex;

use polyshard_engine::Version;

use crate::depot::Location;
use crate::manifest::Part;
use crate::pool::{Chunk, Pool};

/// What earlier backups of this process had. One is shared by all backups of a process.
#[derive(Default)]
pub struct Memory {
    known: Mutex<HashMap<(String, String), Known>>,
}

/// The copy of one database, and its version just before the moment of the copy.
#[derive(Clone)]
pub(crate) struct Known {
    version: Version,
    at: Location,
    part: Part,
}

impl Memory {
    /// The chunks of a database's copy, if it has the content that an earlier backup in the same depot has and all of
    /// them are still there. In doubt it has not.
    pub(crate) async fn chunks(
        &self,
        to: &Location,
        name: &str,
        now: Option<&Version>,
        pool: &Pool,
    ) -> Option<Vec<Chunk>> {
        let key = (to.depot.url().to_owned(), name.to_owned());
        let known = self.known.lock().expect("no panic while held").get(&key).cloned()?;
        if Some(&known.version) != now {
            return None;
        }
        // That backup may have been removed, or its list damaged: then the database is read.
        let chunks = known.part.list(&known.at).await.ok()?;
        chunks.iter().all(|chunk| pool.has(chunk)).then_some(chunks)
    }

    /// Remembers the copies of a backup that is whole.
    pub(crate) fn remember(&self, at: &Location, copies: Vec<(String, Version, Part)>) {
        let mut known = self.known.lock().expect("no panic while held");
        for (name, version, part) in copies {
            let key = (at.depot.url().to_owned(), name);
            known.insert(key, Known { version, at: at.clone(), part });
        }
    }
}
