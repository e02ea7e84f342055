//! A shard's answers on their way to the client.

use bytes::{Buf, BufMut};
use polyshard_engine::RawFrame;
use polyshard_sql::SqlError;

use super::ids::Rows;
use super::words::{field, is_stale, lost, read_tag};
use super::{Backend, Broken, Drained, Step};
use crate::client::{Client, OUT_BYTES, broken_off};
use crate::reply::{self, state};
use crate::type_ids::RowPatch;

/// A message's type and length.
const MESSAGE_HEAD_BYTES: usize = 5;

impl Backend {
    /// Passes answers on to the client until nothing is to be answered, or the shard waits for data. Returns whether
    /// an error was among them by `failed`.
    pub async fn drain(&mut self, client: &mut Client, failed: &mut bool) -> Result<Drained, Broken> {
        self.flush().await?;
        loop {
            while let Some(Step::Own(words)) = self.steps.front() {
                client.out.extend_from_slice(words);
                self.steps.pop_front();
            }
            if self.steps.is_empty() {
                return Ok(Drained::Done);
            }
            let frame = self.lent().head().map_err(lost)?;
            let there = self.lent().incoming().len();
            let Some(frame) = frame.filter(|frame| frame.bytes <= there || !self.copying) else {
                if self.copying {
                    return Ok(Drained::CopyIn);
                }
                self.wait(client).await?;
                continue;
            };
            if frame.bytes > there {
                let as_it_comes = matches!(frame.kind, b'D' | b'd') && self.rows_patch().is_none();
                if as_it_comes && frame.bytes > OUT_BYTES && !self.is_quiet() {
                    Box::pin(self.stream(client, frame.bytes)).await?;
                } else {
                    self.wait(client).await?;
                }
                continue;
            }
            if frame.kind == b'T' {
                self.row_patch = None;
                if !self.is_home() {
                    Box::pin(self.translate_waiting_columns(frame)).await?;
                }
            }
            if self.answer(client, frame, failed)? {
                return Ok(Drained::CopyIn);
            }
            client.flush_if_full().await?;
        }
    }

    /// What is to be done with the rows that come.
    fn rows_patch(&self) -> Option<&RowPatch> {
        match self.steps.front() {
            Some(Step::Execute(Rows::AsTheyAre)) => None,
            Some(Step::Execute(Rows::Patched(patch))) => Some(patch),
            _ => self.row_patch.as_deref(),
        }
    }

    fn is_quiet(&self) -> bool {
        matches!(self.steps.front(), Some(Step::Query { quiet: true }))
    }

    /// Takes one message; true if the shard now waits for data.
    fn answer(&mut self, client: &mut Client, frame: RawFrame, failed: &mut bool) -> Result<bool, Broken> {
        let quiet = self.is_quiet();
        match frame.kind {
            b'Z' => {
                let incoming = self.lent().incoming();
                let status = incoming[..frame.bytes].get(5).copied().unwrap_or(b'I');
                incoming.advance(frame.bytes);
                self.status = status;
                // After an error the rest of a series is passed over, up to here.
                while let Some(step) = self.steps.pop_front() {
                    if matches!(step, Step::Sync | Step::Query { .. }) {
                        break;
                    }
                }
                return Ok(false);
            }
            b'E' => {
                let (_, body) = self.lent().take(frame);
                self.check_fatal(&body)?;
                self.stale |= is_stale(&body);
                self.copying = false;
                if !matches!(self.steps.front(), Some(Step::Query { .. })) {
                    self.skip_to_sync();
                }
                if quiet {
                    self.quiet_error.get_or_insert(body);
                } else {
                    *failed = true;
                    reply::message(&mut client.out, b'E', |out| out.put_slice(&body));
                }
                return Ok(false);
            }
            // A notification for whoever had the session before.
            b'A' => {
                self.lent().incoming().advance(frame.bytes);
                return Ok(false);
            }
            // What settings are now concerns the client even if they were set quietly.
            b'S' => {
                let (_, body) = self.lent().take(frame);
                reply::message(&mut client.out, b'S', |out| out.put_slice(&body));
                return Ok(false);
            }
            b'G' => self.copying = true,
            b'1' | b'2' | b'3'
                if matches!(self.steps.front(), Some(Step::Prepare(_) | Step::Forget(_) | Step::Skip)) =>
            {
                self.steps.pop_front();
                self.lent().incoming().advance(frame.bytes);
                return Ok(false);
            }
            b'T' | b'n' if matches!(self.steps.front(), Some(Step::Columns)) => {
                self.steps.pop_front();
                self.lent().incoming().advance(frame.bytes);
                return Ok(false);
            }
            b'D' if self.rows_patch().is_some() => self.patch_row(frame),
            b'2' | b'3' | b'T' | b'n' | b'C' | b'I' | b's' => {
                let over = matches!(
                    (frame.kind, self.steps.front()),
                    (b'2', Some(Step::Bind))
                        | (b'3', Some(Step::Close))
                        | (b'T' | b'n', Some(Step::Describe))
                        | (b'C' | b'I' | b's', Some(Step::Execute(_)))
                );
                if over {
                    self.steps.pop_front();
                }
            }
            _ => {}
        }
        let lent = self.lent.as_mut().expect("it is there until it is given back");
        let incoming = lent.incoming();
        if quiet && frame.kind == b'C' {
            self.undone = incoming[5..frame.bytes] == *b"ROLLBACK\0";
        }
        let mut quiet = quiet;
        if let Some((described, said)) = &mut self.gathering {
            match frame.kind {
                b'T' | b'H' => quiet |= std::mem::replace(described, true),
                b'c' => quiet = true,
                b'C' => {
                    quiet = true;
                    *said = Some(read_tag(&incoming[5..frame.bytes]));
                }
                _ => {}
            }
        }
        if !quiet {
            client.out.extend_from_slice(&incoming[..frame.bytes]);
        }
        incoming.advance(frame.bytes);
        Ok(frame.kind == b'G')
    }

    fn patch_row(&mut self, frame: RawFrame) {
        let patch = match self.steps.front() {
            Some(Step::Execute(Rows::Patched(patch))) => Some(patch.clone()),
            _ => self.row_patch.clone(),
        };
        if let Some(patch) = patch {
            patch.apply(&mut self.lent().incoming()[MESSAGE_HEAD_BYTES..frame.bytes]);
        }
    }

    /// After an error the server passes over the rest of a series: what was to be prepared in it was not.
    fn skip_to_sync(&mut self) {
        while self.steps.front().is_some_and(|step| !matches!(step, Step::Sync)) {
            match self.steps.pop_front() {
                Some(Step::Prepare(id)) => {
                    self.notes().prepared.remove(&id);
                }
                Some(Step::Forget(id)) => {
                    self.notes().prepared.insert(id, 0);
                }
                _ => {}
            }
        }
    }

    /// Passes a message that is longer than the buffers as it comes.
    async fn stream(&mut self, client: &mut Client, bytes: usize) -> Result<(), Broken> {
        let mut left = bytes;
        loop {
            let lent = self.lent.as_mut().expect("it is there until it is given back");
            let incoming = lent.incoming();
            let part = left.min(incoming.len());
            client.out.extend_from_slice(&incoming[..part]);
            incoming.advance(part);
            left -= part;
            client.flush_if_full().await?;
            if left == 0 {
                return Ok(());
            }
            // The client has half a message: nothing can be said to it any more.
            self.wait(client).await.map_err(|broken| match broken {
                Broken::Ended(error) | Broken::Cut(error) => Broken::Client(broken_off(&error.message)),
                broken => broken,
            })?;
        }
    }

    /// Waits for more of the shard's answer; also hears when the client is gone.
    async fn wait(&mut self, client: &mut Client) -> Result<(), Broken> {
        let lent = self.lent.as_mut().expect("it is there until it is given back");
        tokio::select! {
            biased;
            filled = lent.fill() => filled.map_err(lost),
            gone = client.gone() => Err(Broken::Client(gone)),
        }
    }

    /// Waits for more of the shard's answer while the client sends data.
    pub async fn fill(&mut self) -> Result<(), Broken> {
        self.lent().fill().await.map_err(lost)
    }

    /// Whether the shard has said something that was not looked at.
    pub fn has_said(&mut self) -> bool {
        !self.lent().incoming().is_empty()
    }

    pub(super) fn check_fatal(&self, body: &[u8]) -> Result<(), Broken> {
        let severity = field(body, b'V').or_else(|| field(body, b'S')).unwrap_or_default();
        if severity != "FATAL" && severity != "PANIC" {
            return Ok(());
        }
        let said = field(body, b'M').unwrap_or_default();
        let message = format!("shard {} ended the session: {said}", self.shard);
        Err(Broken::Ended(SqlError::new(state::CONNECTION_FAILURE, message).hint("Try again.")))
    }
}
