//! The short way: a series that runs one prepared statement for one key is taken as a whole.
//!
//! What [`super::extended`] finds out step by step is known already for such a statement, and holds as long as two
//! numbers do. Whatever is not as usual goes the long way: before anything is sent, by not taking this one, and after
//! that by handing the shard's session on with the rest of its answer.

use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use polyshard_engine::Dialect;
use polyshard_map::{Key, MapName};
use polyshard_router::{Access, View};
use polyshard_sql::Kind;

use super::extended::params;
use super::named::Named;
use super::statement::may_change;
use super::{Done, Session, Stop};
use crate::backend::{Expected, Heard, Turn, put_bind_head};
use crate::cache::{Columns, Prepared, Way};
use crate::codec::{self, Bind, Head, Parse};
use crate::reply;
use crate::settings::number_under;

/// Describe of the unnamed portal.
const DESCRIBE: &[u8] = b"P\0";
/// Bytes of the body of an Execute of the unnamed portal: its name, and how many rows.
const EXECUTE_BYTES: usize = 5;

/// A series on its way: it has leave to go to its shard.
pub(super) struct Asked {
    pub turn: Turn,
    pub way: Arc<Way>,
    pub map: MapName,
    pub key: Key,
    /// How long it is in what was read of the client.
    pub bytes: usize,
}

/// How a series went.
pub(super) enum Taken {
    /// The long way is to be gone: nothing was sent.
    Not,
    /// It is answered, and the client knows that it can go on.
    Answered,
    /// The shard's session works for us, and its answer is to be heard.
    Begun,
}

/// Who has looked at a prepared statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looked {
    /// The long way, at this very one.
    At,
    /// Whoever has it prepared for texts with literals, at those.
    Elsewhere,
}

/// Bytes of a series that goes the short way: what is longer gains nothing, and its room would be kept.
const SERIES_BYTES_MAX: usize = 16 * 1024;

/// Where the parts of a series are that binds the unnamed portal, runs it, and ends.
struct Series {
    /// The whole Parse of the unnamed statement, if there is one.
    parse: Option<Range<usize>>,
    /// The body of Bind.
    bind: Range<usize>,
    /// What follows it, to the end of Sync.
    tail: Range<usize>,
    describes: bool,
}

impl Series {
    /// If it is there as a whole.
    fn read(buffer: &[u8]) -> Option<Series> {
        let (mut parse, mut at) = (None, 0);
        let mut next = |kind: u8| -> Option<Range<usize>> {
            let Head { kind: found, bytes } = codec::head(buffer.get(at..)?).ok()??;
            if found != kind || buffer.len() - at < bytes {
                return None;
            }
            let body = at + 5..at + bytes;
            at += bytes;
            Some(body)
        };
        if buffer.first() == Some(&b'P') {
            parse = Some(next(b'P')?);
        }
        let bind = next(b'B')?;
        let describe = next(b'D');
        if describe.as_ref().is_some_and(|body| buffer[body.clone()] != *DESCRIBE) {
            return None;
        }
        let execute = next(b'E')?;
        // An unnamed portal.
        if execute.len() != EXECUTE_BYTES || buffer[execute.start] != 0 {
            return None;
        }
        let sync = next(b'S').filter(|body| body.is_empty() && body.end <= SERIES_BYTES_MAX)?;
        let tail = bind.end..sync.end;
        Some(Series { parse, bind, tail, describes: describe.is_some() })
    }
}

impl Session {
    /// Whether a series begins here with nothing under way.
    fn is_at_rest(&self) -> bool {
        self.transaction.is_none()
            && self.backend.is_none()
            && !self.skipping
            && !self.embedded
            && !self.transaction.failed
            && self.transaction.schema.is_none()
            && self.portals.is_empty()
            && self.held.is_empty()
            && self.own.shard.is_none()
            && !self.own.move_rows
            && self.under.is_none()
            && self.lite.is_none()
            && self.parked.is_empty()
            && !self.is_limited()
    }

    /// Carries out the series that begins with the next message, if it can go the short way. False if it must go the
    /// long one, and then nothing was done.
    pub(super) async fn run_short(&mut self) -> Result<bool, Stop> {
        let Some(asked) = self.ask_series() else { return Ok(false) };
        let taken = self.take_turn(asked).await;
        let ended = match taken {
            Ok(Taken::Not) => return Ok(false),
            Ok(Taken::Answered) => return Ok(true),
            Ok(Taken::Begun) => Box::pin(self.drain()).await,
            Err(stop) => Err(stop),
        };
        Box::pin(self.end_short(ended)).await.map(|()| true)
    }

    /// Ends a series whose Sync was sent with it, as any other.
    async fn end_short(&mut self, ended: Done) -> Done {
        let ended = self.end_answered_series(ended).await;
        self.answer_sync(ended).await
    }

    /// Reads the series that comes next, and enters its shard.
    fn ask_series(&mut self) -> Option<Asked> {
        if !self.is_at_rest() {
            return None;
        }
        let buffer = &self.client.incoming[..];
        let Series { parse, bind, tail, describes } = Series::read(buffer)?;
        let bind = Bind::read(&buffer[bind]).ok()?;
        let Named { prepared, told } = self.statements.get(bind.statement)?;
        if !bind.portal.is_empty() || prepared.inline.is_some() {
            return None;
        }
        if let Some(parse) = &parse {
            // The unnamed statement is commonly sent again and again.
            let parse = Parse::read(&buffer[parse.clone()]).ok()?;
            let same = *parse.text == *prepared.text && *parse.types == *prepared.types;
            if !same || !parse.name.is_empty() || !bind.statement.is_empty() {
                return None;
            }
        }
        let view = self.door.router.view();
        let way = self.way(prepared, &view, Looked::At)?;
        let analysis = way.analysis.as_ref().filter(|_| way.fits)?;
        // What is prepared by this series is told anew.
        if parse.is_none() && !Arc::ptr_eq(told, &way.description) {
            return None;
        }
        let values = bind.values().ok()?;
        if values.values.len() != way.description.parameters.len() {
            return None;
        }
        let (map, key) = analysis.one_key(&params(&values, &way.description.parameters))?;
        let map = map.clone();
        let access = if analysis.writes() { Access::Write } else { Access::Read };
        self.question.clear();
        let id = number_under(way.description.id, self.settings.meaning());
        put_bind_head(&mut self.question, id, bind.rest.len());
        self.question.put_slice(bind.rest);
        self.question.put_slice(&buffer[tail.clone()]);
        if self.begin_watching(way.word) {
            return None;
        }
        let first = if parse.is_some() { reply::PARSE_COMPLETE } else { &[] };
        let expected = Expected { first, tells_bound: true, describes };
        let asked = self.enter_short(&view, way, (map, key), access, expected)?;
        Some(Asked { bytes: tail.end, ..asked })
    }

    /// Enters the shard of a key, if that takes no waiting and there is nothing to be refused.
    pub(super) fn enter_short(
        &self,
        view: &Arc<View>,
        way: Arc<Way>,
        (map, key): (MapName, Key),
        access: Access,
        expected: Expected,
    ) -> Option<Asked> {
        let ticket = self.door.router.try_enter(view, &map, &key, access)?;
        if ticket.dialect() != Dialect::Postgres || !self.door.journal.is_ready(view, ticket.shard()) {
            return None;
        }
        Some(Asked { turn: Turn::new(ticket, expected), way, map, key, bytes: 0 })
    }

    /// Has a shard answer what stands in [`Session::question`]. An error means that it was asked, and the session that
    /// it was asked on is gone.
    pub(super) async fn take_turn(&mut self, asked: Asked) -> Result<Taken, Stop> {
        let Asked { mut turn, way, map, key, bytes } = asked;
        // Why it is not to be had, the long way tells.
        if turn.lend().await.is_err() {
            return Ok(Taken::Not);
        }
        // It may have waited long for the session: what was true of the tables, and of the rights, must still be so.
        let outdated = way.basis.position < self.door.journal.position() || self.is_limited();
        if outdated
            || !turn.has(&self.settings, way.description.id)
            || !self.door.host.quotas().try_admit(&map, &key)
        {
            turn.finish();
            return Ok(Taken::Not);
        }
        turn.ticket().begin_at(self.client.settled());
        self.cancel.running.add(turn.cancel());
        self.client.skip(bytes);
        self.transaction.wrote = way.writes;
        self.told = false;
        let heard = match turn.ask(&self.question).await {
            Ok(()) => turn.hear(&mut self.client).await,
            Err(broken) => Err(broken),
        };
        match heard {
            Ok(Heard::Whole { bytes, columns }) => match columns {
                None => turn.pass_on(bytes, None, &mut self.client.out),
                Some(place) => {
                    let shard = turn.ticket().shard().clone();
                    match way.columns.told(&shard, turn.said(&place)) {
                        Some(told) => turn.pass_on(bytes, Some((&place, &told)), &mut self.client.out),
                        None => return Ok(Box::pin(self.learn_columns(turn, &way, map, key, place)).await),
                    }
                }
            },
            Ok(_) => {
                self.backend = turn.into_backend(&self.door, map, key);
                return Ok(Taken::Begun);
            }
            Err(broken) => {
                self.backend = turn.into_backend(&self.door, map, key);
                return Err(Box::pin(self.lose_broken(broken)).await);
            }
        }
        self.transaction.wrote = false;
        self.client.settle();
        // The client need not wait until the session is given back.
        if self.client.whole()?.is_none() {
            self.client.flush().await?;
        }
        turn.ticket().end_at(self.client.exchanged());
        self.cancel.running.clear().await;
        turn.finish();
        self.client.flush_if_full().await?;
        Ok(Taken::Answered)
    }

    /// Learns what clients are told of a shard's columns, and has the answer passed on as any other.
    async fn learn_columns(
        &mut self,
        mut turn: Turn,
        way: &Way,
        map: MapName,
        key: Key,
        place: Range<usize>,
    ) -> Taken {
        let raw = turn.said(&place).to_vec();
        let Some(backend) = turn.into_backend(&self.door, map, key) else { return Taken::Not };
        let mut told = BytesMut::from(&raw[..]);
        let translated = match backend.is_home() {
            true => Ok(None),
            false => backend.translate_columns(&mut told[5..]).await,
        };
        // What cannot be learnt is told when the answer is passed on.
        if let Ok(None) = translated {
            way.columns.tell(backend.shard.clone(), raw.into(), told.freeze());
        }
        self.backend = Some(backend);
        Taken::Begun
    }

    /// What is known of a prepared statement as things are, once the long way has been gone.
    pub(super) fn way(&self, prepared: &Arc<Prepared>, view: &View, looked: Looked) -> Option<Arc<Way>> {
        let position = self.door.journal.known_position(view)?;
        if let Some(way) = prepared.way()
            && way.seq == view.seq
            && way.basis.position == position
            && way.basis.strict == self.own.strict
            && (looked == Looked::Elsewhere || way.analysis.is_some())
            && (Arc::ptr_eq(&way.basis.search_path, &self.search_path)
                || way.basis.search_path == self.search_path)
        {
            return Some(way);
        }
        self.find_way(prepared, view, position, looked)
    }

    #[cold]
    fn find_way(
        &self,
        prepared: &Arc<Prepared>,
        view: &View,
        position: u64,
        looked: Looked,
    ) -> Option<Arc<Way>> {
        let basis = self.basis(position);
        let description = prepared.description(&basis).filter(|description| !description.own_types)?;
        let analysed = prepared.analysed.as_ref().filter(|analysed| analysed.refusal.is_none())?;
        let analysis = analysed.known(&basis);
        if looked == Looked::At && analysis.is_none() {
            return None;
        }
        // What home is, and that there are PostgreSQL shards, is by this number too.
        if self.door.router.view().seq != view.seq || !self.door.journal.has_postgres() {
            return None;
        }
        let kind = analysed.statement.kind();
        let plain = matches!(kind, Kind::Select | Kind::Insert | Kind::Update | Kind::Delete);
        let fits = analysis.as_ref().is_some_and(|analysis| {
            plain && !analysis.is_aside() && !analysis.writes_system() && analysis.undeclared().is_none()
        });
        let writes = analysis.as_ref().is_some_and(|analysis| may_change(analysis));
        let word = super::watch::word(prepared.text.as_bytes());
        let seq = view.seq;
        let way = Arc::new(Way {
            seq,
            basis,
            description,
            analysis,
            fits,
            writes,
            word,
            columns: Columns::default(),
        });
        prepared.note_way(way.clone());
        Some(way)
    }
}

#[cfg(test)]
mod tests {
    use super::Series;

    const BIND: &[u8] = b"B\0\0\0\x13\0s1\0\0\0\0\x01\0\0\0\x017\0\0";
    const DESCRIBE: &[u8] = b"D\0\0\0\x06P\0";
    const EXECUTE: &[u8] = b"E\0\0\0\x09\0\0\0\0\0";
    const SYNC: &[u8] = b"S\0\0\0\x04";

    #[test]
    fn a_series_is_taken_once_its_last_byte_is_there() {
        let parse = b"P\0\0\0\x0b\0one\0\0\0";
        let whole = [&parse[..], BIND, DESCRIBE, EXECUTE, SYNC].concat();
        for end in 0..whole.len() {
            assert!(Series::read(&whole[..end]).is_none(), "{end}");
        }
        let series = Series::read(&whole).unwrap();
        assert_eq!(whole[series.parse.unwrap()], parse[5..]);
        assert_eq!((&whole[series.bind], series.describes), (&BIND[5..], true));
        assert_eq!(whole[series.tail], [DESCRIBE, EXECUTE, SYNC].concat());
        let short = [BIND, EXECUTE, SYNC, BIND].concat();
        let series = Series::read(&short).unwrap();
        assert_eq!((series.tail, series.describes), (BIND.len()..short.len() - BIND.len(), false));
    }

    #[test]
    fn anything_else_is_no_series() {
        let of_statement = b"D\0\0\0\x06S\0";
        let named = b"E\0\0\0\x0ap\0\0\0\0\0";
        let flush = b"H\0\0\0\x04";
        let long = b"S\0\0\0\x05\0";
        let wrong = [
            [BIND, DESCRIBE, EXECUTE, flush].concat(),
            [BIND, of_statement, EXECUTE, SYNC].concat(),
            [BIND, named, SYNC].concat(),
            [BIND, EXECUTE, EXECUTE, SYNC].concat(),
            [BIND, EXECUTE, long].concat(),
            [BIND, BIND, EXECUTE, SYNC].concat(),
            [SYNC].concat(),
            Vec::new(),
        ];
        for wrong in wrong {
            assert!(Series::read(&wrong).is_none(), "{wrong:?}");
        }
    }
}
