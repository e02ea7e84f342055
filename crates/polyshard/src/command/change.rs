//! The verbs of `polyshard map` that change a map: from flags to one change.

use std::str::FromStr;

use clap::Args;
use polyshard_admin::types::{
    AddChange, AddSegmentChange, AssignChange, ChangeRequest, KeyText, LockChange, MergeChange, NewEntry,
    RangeView, RemoveChange, RemoveSegmentChange, SetStateChange, SplitChange, SplitSegmentChange,
    UnlockChange,
};
use polyshard_map::{GroupName, MapName, ShardId, State};

use super::BasisFlag;
use crate::selector::{Ends, SegmentFlag, Selector, leading_key};

/// Which map, based on which version, past whose locks.
#[derive(Debug, Args)]
#[group(skip)]
pub struct ChangeArgs {
    /// The map
    pub name: MapName,
    #[command(flatten)]
    pub basis: BasisFlag,
    /// Change ranges that this owner has locked
    #[arg(long, value_name = "OWNER")]
    pub lock_owner: Option<String>,
}

/// `map add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    #[command(flatten)]
    selector: Selector,
    /// The shard that will own it [default: the one with its rows, or the emptiest of its region and tier]
    #[arg(long, value_name = "SHARD")]
    to: Option<ShardId>,
    /// The group it lives and moves with (list maps)
    #[arg(long)]
    group: Option<GroupName>,
    /// online, read_only or offline
    #[arg(long)]
    state: Option<State>,
}

/// `map remove`.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    #[command(flatten)]
    selector: Selector,
}

/// `map split` and `map merge`.
#[derive(Debug, Args)]
pub struct BoundaryArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    /// First key of the upper part; on a hash map the number of its first bucket
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    at: String,
    #[command(flatten)]
    segment: SegmentFlag,
}

/// `map assign`.
#[derive(Debug, Args)]
pub struct AssignArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    #[command(flatten)]
    selector: Selector,
    /// All entries of this group
    #[arg(long, group = "selector")]
    group: Option<GroupName>,
    /// The shard that will own it
    #[arg(long, value_name = "SHARD")]
    to: ShardId,
}

/// `map state`.
#[derive(Debug, Args)]
pub struct StateArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    /// online, read_only or offline
    state: State,
    #[command(flatten)]
    selector: Selector,
}

/// `map lock`.
#[derive(Debug, Args)]
pub struct LockArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    #[command(flatten)]
    selector: Selector,
    /// Who holds the lock
    #[arg(long)]
    owner: String,
    /// How long it holds: 500ms, 30s, 10m, 2h
    #[arg(long, default_value = "10m")]
    lease: Lease,
}

/// `map unlock`.
#[derive(Debug, Args)]
pub struct UnlockArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    #[command(flatten)]
    selector: Selector,
    /// Whose lock is given back
    #[arg(long, required_unless_present = "force")]
    owner: Option<String>,
    /// Break the lock, whoever holds it
    #[arg(long, conflicts_with = "owner")]
    force: bool,
}

/// `map add-segment`.
#[derive(Debug, Args)]
pub struct AddSegmentArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    /// One leading key (list_hash maps)
    #[arg(
        long,
        value_name = "KEY",
        allow_hyphen_values = true,
        conflicts_with = "range",
        required_unless_present = "range"
    )]
    key: Option<String>,
    /// Leading keys from LO (included) to HI (not included); an empty side is infinite
    #[arg(long, value_name = "LO..HI", allow_hyphen_values = true)]
    range: Option<Ends>,
    /// The shards its buckets are spread over
    #[arg(long, value_delimiter = ',', required = true, value_name = "SHARD,…")]
    shards: Vec<ShardId>,
}

/// `map split-segment`.
#[derive(Debug, Args)]
pub struct SplitSegmentArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    /// The segment, by the leading key it begins with ('' is the one without a beginning)
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    segment: String,
    /// First leading key of the upper part
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    at: String,
}

/// `map remove-segment`.
#[derive(Debug, Args)]
pub struct RemoveSegmentArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    /// The segment, by the leading key it begins with ('' is the one without a beginning)
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    segment: String,
}

impl AddArgs {
    pub fn request(&self) -> ChangeRequest {
        let entry = NewEntry {
            range: self.selector.range(),
            shard: self.to.clone(),
            state: self.state,
            group: self.group.clone(),
        };
        ChangeRequest::Add(AddChange { entries: vec![entry] })
    }
}

impl RemoveArgs {
    pub fn request(&self) -> ChangeRequest {
        ChangeRequest::Remove(RemoveChange { range: self.selector.range() })
    }
}

impl BoundaryArgs {
    pub fn split(&self) -> ChangeRequest {
        ChangeRequest::Split(SplitChange { at: KeyText::text(&self.at), segment: self.segment.key() })
    }

    pub fn merge(&self) -> ChangeRequest {
        ChangeRequest::Merge(MergeChange { at: KeyText::text(&self.at), segment: self.segment.key() })
    }
}

impl AssignArgs {
    pub fn request(&self) -> ChangeRequest {
        let range = self.group.is_none().then(|| self.selector.range());
        ChangeRequest::Assign(AssignChange { range, group: self.group.clone(), to: self.to.clone() })
    }
}

impl StateArgs {
    pub fn request(&self) -> ChangeRequest {
        ChangeRequest::SetState(SetStateChange { range: self.selector.range(), state: self.state })
    }
}

impl LockArgs {
    pub fn request(&self) -> ChangeRequest {
        ChangeRequest::Lock(LockChange {
            range: self.selector.range(),
            owner: self.owner.clone(),
            lease_ms: self.lease.0,
        })
    }
}

impl UnlockArgs {
    pub fn request(&self) -> ChangeRequest {
        ChangeRequest::Unlock(UnlockChange { range: self.selector.range(), owner: self.owner.clone() })
    }
}

impl AddSegmentArgs {
    pub fn request(&self) -> ChangeRequest {
        let segment = match (&self.key, &self.range) {
            (Some(key), _) => RangeView::Key { key: KeyText::text(key) },
            (None, Some(ends)) => ends.range(),
            // The parser requires one of the two.
            (None, None) => RangeView::all(),
        };
        ChangeRequest::AddSegment(AddSegmentChange { segment, shards: self.shards.clone() })
    }
}

impl SplitSegmentArgs {
    pub fn request(&self) -> ChangeRequest {
        ChangeRequest::SplitSegment(SplitSegmentChange {
            segment: leading_key(&self.segment),
            at: KeyText::text(&self.at),
        })
    }
}

impl RemoveSegmentArgs {
    pub fn request(&self) -> ChangeRequest {
        ChangeRequest::RemoveSegment(RemoveSegmentChange { segment: leading_key(&self.segment) })
    }
}

/// A duration as people write it, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease(u64);

impl Lease {
    /// Milliseconds.
    pub fn ms(self) -> u64 {
        self.0
    }
}

impl FromStr for Lease {
    type Err = String;

    fn from_str(text: &str) -> Result<Lease, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err("write a number and ms, s, m or h, for example 10m".to_owned()),
        };
        let number: u64 =
            number.parse().map_err(|_| "write a number and ms, s, m or h, for example 10m".to_owned())?;
        number.checked_mul(unit_ms).map(Lease).ok_or_else(|| "that is too long".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::Lease;

    #[test]
    fn a_lease_is_a_number_with_a_unit() {
        assert_eq!("500ms".parse(), Ok(Lease(500)));
        assert_eq!("10m".parse(), Ok(Lease(600_000)));
        assert_eq!("2h".parse(), Ok(Lease(7_200_000)));
        for wrong in ["10", "m", "", "1d", "-1s", "99999999999999999999s", "18446744073709551615h"] {
            assert!(wrong.parse::<Lease>().is_err(), "{wrong}");
        }
    }
}
