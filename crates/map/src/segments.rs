//! Changes to the segments of a composite map.

use crate::apply::Work;
use crate::change::Delta;
use crate::definition::{MapDefinition, Scheme, Segment};
use crate::encode::KeyBytes;
use crate::entry::{Entry, NewEntry};
use crate::error::ChangeError;
use crate::hash::HashSpec;
use crate::range::KeyRange;

pub(crate) fn add(work: &Work<'_>, segment: &Segment, entries: &[NewEntry]) -> Result<Delta, ChangeError> {
    let (_, segments) = composite(work, "add a segment")?;
    let mut segments = segments.to_vec();
    let place = segments.partition_point(|known| known.lo() <= segment.lo());
    segments.insert(place, segment.clone());
    let after = work.definition.with_segments(segments.clone())?;
    let stray = entries.iter().find(|entry| {
        let lo = after.bucket_of(entry.range.lo().as_slice());
        lo.is_some_and(|(lo, _)| lo.as_ref() != Some(segment.lo()))
    });
    if let Some(stray) = stray {
        let reason = format!("it is not in the new segment {}", after.describe_segment(segment.lo()));
        return Err(ChangeError::BadBound { bound: after.describe_range(&stray.range), reason });
    }
    let delta = work.add(&after, entries)?;
    Ok(Delta { segments: Some(segments), ..delta })
}

/// The upper part gets a copy of each entry. The lower part's entries stay, but mean fewer keys: they are touched too.
pub(crate) fn split(work: &Work<'_>, segment: &KeyBytes, at: &KeyBytes) -> Result<Delta, ChangeError> {
    let (hash, segments) = composite(work, "split a segment")?;
    if matches!(work.definition.scheme(), Scheme::ListHash { .. }) {
        return Err(ChangeError::WrongScheme {
            kind: "list_hash",
            verb: "split a segment",
            remedy: "a segment is one value already; add another one",
        });
    }
    let index = find(work, segments, segment)?;
    let whole = segments[index].range();
    if !whole.contains(at.as_slice()) || at == segment {
        return Err(ChangeError::NotInside {
            at: work.definition.describe_segment(at),
            entry: format!("segment {}", work.definition.describe_segment(segment)),
        });
    }
    let part = |lo: &KeyBytes, hi: Option<&KeyBytes>| {
        Segment::new(KeyRange::new(lo.clone(), hi.cloned()).expect("the split point is strictly inside"))
    };
    let (below, above) = (part(segment, Some(at)), part(at, whole.hi()));
    let mut after = segments.to_vec();
    after.splice(index..=index, [below, above]);
    let after_definition = work.definition.with_segments(after.clone())?;

    let mut delta = Delta { segments: Some(after), ..Delta::default() };
    for entry in work.overlapping(&MapDefinition::segment_space(hash, segment)) {
        work.check_own_lock(entry)?;
        delta.remove.push(entry.range.clone());
        let touched = work.touched(entry);
        let range = buckets_in(&after_definition, &entry.range, at)?;
        delta.put.extend([Entry { range, ..touched.clone() }, touched]);
    }
    Ok(delta)
}

pub(crate) fn remove(work: &Work<'_>, segment: &KeyBytes) -> Result<Delta, ChangeError> {
    let (hash, segments) = composite(work, "remove a segment")?;
    let mut after = segments.to_vec();
    after.remove(find(work, segments, segment)?);
    let mut delta = Delta { segments: Some(after), ..Delta::default() };
    for entry in work.overlapping(&MapDefinition::segment_space(hash, segment)) {
        work.check_own_lock(entry)?;
        delta.remove.push(entry.range.clone());
    }
    Ok(delta)
}

fn composite<'a>(work: &Work<'a>, verb: &'static str) -> Result<(&'a HashSpec, &'a [Segment]), ChangeError> {
    match work.definition.scheme() {
        Scheme::RangeHash { hash, segments, .. } | Scheme::ListHash { hash, segments, .. } => {
            Ok((hash, segments))
        }
        other => {
            let remedy = "only range_hash and list_hash maps have segments";
            Err(ChangeError::WrongScheme { kind: other.kind(), verb, remedy })
        }
    }
}

fn find(work: &Work<'_>, segments: &[Segment], lo: &KeyBytes) -> Result<usize, ChangeError> {
    let unknown = |_| ChangeError::UnknownSegment { segment: work.definition.describe_segment(lo) };
    segments.binary_search_by(|segment| segment.lo().cmp(lo)).map_err(unknown)
}

/// The same buckets in another segment.
fn buckets_in(
    definition: &MapDefinition,
    range: &KeyRange,
    segment: &KeyBytes,
) -> Result<KeyRange, ChangeError> {
    let bucket = |bound: &KeyBytes| definition.bucket_of(bound.as_slice()).map(|(_, bucket)| bucket);
    match (bucket(range.lo()), range.hi().and_then(bucket)) {
        (Some(from), Some(to)) => definition.segment_buckets(segment, from, to),
        _ => Err(ChangeError::BadBound {
            bound: definition.describe_range(range),
            reason: "it is no range of buckets; repair the map".to_owned(),
        }),
    }
}
