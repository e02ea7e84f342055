//! Bytes that a client sends, on their way into a row or an object: summed, compared, and durable before anything
//! names them.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;

use super::home::Home;
use super::rows::Step;
use super::{BlobStore, StoreError};
use crate::checksum::{Digester, Digests, Wanted};
use crate::model::Upload;
use crate::objects::{ByteStream, ObjectId};

/// Where bytes have been put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stored {
    /// They are to lie in the row.
    Inline(Bytes),
    /// They are an object, which is announced.
    Object(ObjectId),
}

/// Bytes that were put away, and what must be written with the row that names them.
pub(super) struct Received {
    pub stored: Stored,
    pub length: u64,
    pub digests: Digests,
}

impl Received {
    /// The object, if it is one.
    pub fn object(&self) -> Option<&ObjectId> {
        match &self.stored {
            Stored::Inline(_) => None,
            Stored::Object(id) => Some(id),
        }
    }

    /// The bytes, if they are for the row.
    pub fn inline(&self) -> Option<&Bytes> {
        match &self.stored {
            Stored::Inline(bytes) => Some(bytes),
            Stored::Object(_) => None,
        }
    }
}

impl BlobStore {
    /// Puts the bytes of a client away: few of them in memory, for the row; more into an announced object. They are
    /// what the client meant to send, or this fails. No ticket is held meanwhile. If the row that names the object is
    /// not written after all, [`BlobStore::forget`] is to be called.
    pub(super) async fn receive(
        &self,
        home: &Home,
        upload: Upload,
        anyway: Wanted,
    ) -> Result<Received, StoreError> {
        let Upload { length, bytes, expected, wanted } = upload;
        self.charge(home, length);
        let wanted = Wanted { md5: wanted.md5 || anyway.md5, crc64: wanted.crc64 || anyway.crc64 };
        let digester = Digester::new(expected.wanted(wanted));
        if length <= self.options.inline_bytes_max {
            let (body, digests) = collect(bytes, length, digester).await?;
            expected.check(&digests)?;
            return Ok(Received { stored: Stored::Inline(body), length, digests });
        }
        self.check_depot().await?;
        let id = self.new_object();
        // Its container was found just before: if it is gone since, its objects are looked for by what is pending.
        self.write(home, vec![self.announce(home, &id)]).await?;
        let done = match self.send(home, &id, bytes, length, digester).await {
            Ok(digests) => expected.check(&digests).map(|()| digests).map_err(StoreError::from),
            Err(error) => Err(error),
        };
        match done {
            Ok(digests) => Ok(Received { stored: Stored::Object(id), length, digests }),
            Err(error) => {
                self.forget(home, &id).await;
                Err(error)
            }
        }
    }

    async fn send(
        &self,
        home: &Home,
        id: &ObjectId,
        mut bytes: ByteStream,
        length: u64,
        mut digester: Digester,
    ) -> Result<Digests, StoreError> {
        let mut object = self.options.objects.create(home.dataset_id(), id, length).await?;
        let mut got = 0;
        while let Some(piece) = bytes.next().await {
            let piece = piece?;
            got += piece.len() as u64;
            check_length(got, length)?;
            digester.update(&piece);
            object.write(piece).await?;
        }
        check_whole(got, length)?;
        object.finish().await?;
        Ok(digester.finish())
    }

    /// What must be written with the row that names received bytes.
    pub(super) fn take_received(&self, home: &Home, received: &Received) -> Option<Step> {
        received.object().map(|id| self.take(home, id))
    }

    /// Gives up an object that no row will name. If this fails, the sweep finds it later.
    pub(super) async fn forget(&self, home: &Home, id: &ObjectId) {
        if let Err(error) = self.write(home, vec![self.give_up(home, id)]).await {
            tracing::debug!(%error, "the object of a failed upload is removed later");
        }
    }

    /// The same for received bytes after their row could not be written. If it is not known whether it was, the object
    /// stays: the announcement tells.
    pub(super) async fn forget_unless_named(&self, home: &Home, received: &Received, error: &StoreError) {
        if let (Some(id), false) = (received.object(), error.is_outcome_unknown()) {
            self.forget(home, id).await;
        }
    }
}

/// All bytes of a short upload.
pub(super) async fn collect(
    mut bytes: ByteStream,
    length: u64,
    mut digester: Digester,
) -> Result<(Bytes, Digests), StoreError> {
    let mut body = BytesMut::new();
    let (mut only, mut got) = (None, 0);
    while let Some(piece) = bytes.next().await {
        let piece = piece?;
        got += piece.len() as u64;
        check_length(got, length)?;
        digester.update(&piece);
        // Most come in one piece, which need not be copied.
        if body.is_empty() && piece.len() as u64 == length {
            only = Some(piece);
        } else {
            body.extend_from_slice(&piece);
        }
    }
    let body = only.unwrap_or_else(|| body.freeze());
    check_whole(body.len() as u64, length)?;
    Ok((body, digester.finish()))
}

fn check_length(got: u64, length: u64) -> Result<(), StoreError> {
    if got > length {
        return Err(StoreError::Client(format!("more than the {length} bytes announced were sent")));
    }
    Ok(())
}

fn check_whole(got: u64, length: u64) -> Result<(), StoreError> {
    if got < length {
        return Err(StoreError::Client(format!("only {got} of the {length} bytes announced were sent")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;
    use crate::objects::ObjectError;

    async fn collected(pieces: &[&'static [u8]], length: u64) -> Result<Bytes, StoreError> {
        let pieces: Vec<Result<Bytes, ObjectError>> =
            pieces.iter().map(|piece| Ok(Bytes::from_static(piece))).collect();
        let digester = Digester::new(Wanted::default());
        Ok(collect(stream::iter(pieces).boxed(), length, digester).await?.0)
    }

    #[tokio::test]
    async fn an_upload_has_exactly_the_bytes_announced() {
        assert_eq!(collected(&[b"abc"], 3).await.unwrap(), "abc");
        assert_eq!(collected(&[b"ab", b"", b"c"], 3).await.unwrap(), "abc");
        assert_eq!(collected(&[], 0).await.unwrap(), "");
        assert_eq!(collected(&[b"abc", b""], 3).await.unwrap(), "abc");
        for (pieces, length) in [(&[b"abc" as &[u8]][..], 2), (&[b"abc"], 4), (&[], 1), (&[b"abc", b"d"], 3)]
        {
            let error = collected(pieces, length).await.unwrap_err();
            assert!(matches!(error, StoreError::Client(_)), "{error}");
        }
    }
}
