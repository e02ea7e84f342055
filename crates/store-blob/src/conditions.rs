//! Conditions of requests: ETags, dates, tags, leases, sizes and sequence numbers, held against what is there.

use uuid::Uuid;

use polyshard_azure_storage::TICKS_PER_SECOND;

use crate::lease_rules::LeaseError;
use crate::model::{Etag, Lease, Subject, Ticks};
use crate::tag_filter::TagFilter;

/// The ETags of `If-Match` or `If-None-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Etags {
    /// `*`
    Any,
    /// These, without their quotes. One that never was is like no other, and not an error.
    These(Vec<String>),
}

impl Etags {
    fn has(&self, etag: Etag) -> bool {
        match self {
            Etags::Any => true,
            Etags::These(these) => {
                let etag = etag.to_string();
                these.contains(&etag)
            }
        }
    }
}

/// What must hold for a request to be carried out. Everything that is not given holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// `If-Match`
    pub if_match: Option<Etags>,
    /// `If-None-Match`
    pub if_none_match: Option<Etags>,
    /// `If-Modified-Since`
    pub modified_since: Option<Ticks>,
    /// `If-Unmodified-Since`
    pub unmodified_since: Option<Ticks>,
    /// `x-ms-if-tags`
    pub tags: Option<TagFilter>,
    /// `x-ms-lease-id`
    pub lease: Option<Uuid>,
    /// `x-ms-blob-condition-appendpos`
    pub append_position: Option<u64>,
    /// `x-ms-blob-condition-maxsize`
    pub size_max: Option<u64>,
    /// `x-ms-if-sequence-number-le`
    pub sequence_most: Option<i64>,
    /// `x-ms-if-sequence-number-lt`
    pub sequence_less: Option<i64>,
    /// `x-ms-if-sequence-number-eq`
    pub sequence_equal: Option<i64>,
}

/// A condition that does not hold; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// A reader has what there is.
    #[error("it was not modified")]
    NotModified,
    /// By ETag, date or tags.
    #[error("a condition of the request does not hold; read it again")]
    NotMet,
    /// It was to be made only if it is not there.
    #[error("it is already there")]
    Exists,
    /// A read of what is not there.
    #[error("the condition can never hold; leave out If-None-Match: *")]
    Unsatisfiable,
    /// The append would not begin where it should.
    #[error("the blob has another length than the append position given")]
    AppendPosition,
    /// The blob would be longer than it may.
    #[error("the blob would be longer than the size given")]
    MaxSize,
    /// The sequence number is another.
    #[error("the sequence number does not fit the condition")]
    Sequence,
    /// By its lease.
    #[error(transparent)]
    Lease(#[from] LeaseError),
}

impl Conditions {
    /// Conditions of nothing but a lease.
    pub fn of_lease(lease: Option<Uuid>) -> Conditions {
        Conditions { lease, ..Conditions::default() }
    }

    /// Whether something may be read. If it does not exist, whoever asks answers that, unless this is an error.
    pub fn check_read(&self, subject: Option<Subject<'_>>) -> Result<(), ConditionError> {
        if self.if_none_match == Some(Etags::Any) {
            return Err(ConditionError::Unsatisfiable);
        }
        let Some(subject) = subject else {
            return if self.if_match.is_some() { Err(ConditionError::NotMet) } else { Ok(()) };
        };
        let is_match = self.if_match.as_ref().is_none_or(|etags| etags.has(subject.etag));
        let is_unmodified = self.unmodified_since.is_none_or(|since| !is_after(subject.modified, since));
        if !is_match || !is_unmodified {
            return Err(ConditionError::NotMet);
        }
        // Either of these two lets it be read.
        let is_other = self.if_none_match.as_ref().map(|etags| !etags.has(subject.etag));
        let is_newer = self.modified_since.map(|since| is_after(subject.modified, since));
        match (is_other, is_newer) {
            (Some(true), _) | (_, Some(true)) | (None, None) => self.check_tags(&subject),
            _ => Err(ConditionError::NotModified),
        }
    }

    /// Whether something that exists (or does not) may be changed. `If-None-Match: *` means that it must not exist.
    pub fn check_write(&self, subject: Option<Subject<'_>>) -> Result<(), ConditionError> {
        self.check_change(subject, ConditionError::NotMet)
    }

    /// Whether a blob may be put where this is (or nothing).
    pub fn check_create(&self, subject: Option<Subject<'_>>) -> Result<(), ConditionError> {
        self.check_change(subject, ConditionError::Exists)
    }

    fn check_change(
        &self,
        subject: Option<Subject<'_>>,
        exists: ConditionError,
    ) -> Result<(), ConditionError> {
        let Some(subject) = subject else {
            let needs_one = self.if_none_match.is_none() && self.if_match.is_some();
            return if needs_one { Err(ConditionError::NotMet) } else { Ok(()) };
        };
        // An ETag decides alone where a date is given beside it; other pairs were refused when the request was read.
        let holds = match (&self.if_none_match, &self.if_match, self.modified_since, self.unmodified_since) {
            (Some(Etags::Any), ..) => return Err(exists),
            (Some(etags), ..) => !etags.has(subject.etag),
            (None, Some(etags), ..) => etags.has(subject.etag),
            (None, None, Some(since), _) => is_after(subject.modified, since),
            (None, None, None, Some(since)) => !is_after(subject.modified, since),
            (None, None, None, None) => true,
        };
        if !holds {
            return Err(ConditionError::NotMet);
        }
        self.check_tags(&subject)
    }

    fn check_tags(&self, subject: &Subject<'_>) -> Result<(), ConditionError> {
        // An expression of a request cannot name a container, so none is needed here.
        let holds = self.tags.as_ref().is_none_or(|filter| filter.matches("", subject.tags));
        if holds { Ok(()) } else { Err(ConditionError::NotMet) }
    }

    /// Whether the lease lets a request read.
    pub fn check_read_lease(&self, lease: &Lease, now_ms: i64) -> Result<(), ConditionError> {
        Ok(lease.check_read(self.lease, now_ms)?)
    }

    /// Whether the lease lets a request write.
    pub fn check_write_lease(&self, lease: &Lease, now_ms: i64) -> Result<(), ConditionError> {
        Ok(lease.check_write(self.lease, now_ms)?)
    }

    /// Whether so many bytes may be appended to a blob of this size.
    pub fn check_append(&self, size: u64, length: u64) -> Result<(), ConditionError> {
        if self.append_position.is_some_and(|position| position != size) {
            return Err(ConditionError::AppendPosition);
        }
        if self.size_max.is_some_and(|max| size.saturating_add(length) > max) {
            return Err(ConditionError::MaxSize);
        }
        Ok(())
    }

    /// Whether pages of a blob with this sequence number may be written.
    pub fn check_sequence(&self, number: i64) -> Result<(), ConditionError> {
        let holds = self.sequence_most.is_none_or(|most| number <= most)
            && self.sequence_less.is_none_or(|less| number < less)
            && self.sequence_equal.is_none_or(|equal| number == equal);
        if holds { Ok(()) } else { Err(ConditionError::Sequence) }
    }
}

/// Whether a time is after another, as far as clients can tell: they are told whole seconds.
fn is_after(time: Ticks, other: Ticks) -> bool {
    time.div_euclid(TICKS_PER_SECOND) > other.div_euclid(TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests;
