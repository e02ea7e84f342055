//! Conditions one by one and together, on what is there and on what is not.

use super::{ConditionError, Conditions, Etags};
use crate::model::{Etag, Subject};
use crate::tag_filter::{TagFilter, TagUse};

const SECOND: i64 = polyshard_azure_storage::TICKS_PER_SECOND;
/// Changed a little after the second that clients are told.
const MODIFIED: i64 = 1000 * SECOND + 7;
const ETAG: Etag = Etag(5_000);

use ConditionError::{Exists, NotMet, NotModified, Unsatisfiable};

fn these(own: bool) -> Option<Etags> {
    let other = "W/\"wrong\"".to_owned();
    Some(Etags::These(if own { vec![other, ETAG.to_string()] } else { vec![other] }))
}

/// Read, write, create; of what is there and of what is not.
fn outcomes(conditions: &Conditions) -> [Option<ConditionError>; 6] {
    let tags = [("a".to_owned(), "1".to_owned())];
    let there = Some(Subject { etag: ETAG, modified: MODIFIED, tags: &tags });
    [
        conditions.check_read(there).err(),
        conditions.check_write(there).err(),
        conditions.check_create(there).err(),
        conditions.check_read(None).err(),
        conditions.check_write(None).err(),
        conditions.check_create(None).err(),
    ]
}

#[test]
fn single_conditions() {
    let none = Conditions::default;
    let since = |seconds: i64| Some((1000 + seconds) * SECOND);
    let met = Some(NotMet);
    let not_modified = Some(NotModified);
    let tags = |text| TagFilter::parse(text, TagUse::Condition).ok();
    for (conditions, expected) in [
        (none(), [None; 6]),
        (Conditions { if_match: these(true), ..none() }, [None, None, None, met, met, met]),
        (Conditions { if_match: these(false), ..none() }, [met; 6]),
        (Conditions { if_match: Some(Etags::Any), ..none() }, [None, None, None, met, met, met]),
        (Conditions { if_none_match: these(true), ..none() }, [not_modified, met, met, None, None, None]),
        (Conditions { if_none_match: these(false), ..none() }, [None; 6]),
        (
            Conditions { if_none_match: Some(Etags::Any), ..none() },
            [Some(Unsatisfiable), met, Some(Exists), Some(Unsatisfiable), None, None],
        ),
        (Conditions { modified_since: since(-1), ..none() }, [None; 6]),
        (Conditions { modified_since: since(0), ..none() }, [not_modified, met, met, None, None, None]),
        (Conditions { unmodified_since: since(0), ..none() }, [None; 6]),
        (Conditions { unmodified_since: since(-1), ..none() }, [met, met, met, None, None, None]),
        (Conditions { tags: tags("a='1'"), ..none() }, [None; 6]),
        (Conditions { tags: tags("a='2'"), ..none() }, [met, met, met, None, None, None]),
    ] {
        assert_eq!(outcomes(&conditions), expected, "{conditions:?}");
    }
}

#[test]
fn pairs_of_conditions() {
    let (before, after) = (Some(999 * SECOND), Some(1001 * SECOND));
    let not_modified = Some(NotModified);
    let read = |conditions: Conditions| outcomes(&conditions)[0];
    let write = |conditions: Conditions| outcomes(&conditions)[1];
    let pair =
        |own, since| Conditions { if_none_match: these(own), modified_since: since, ..Conditions::default() };
    // For reads, one that holds is enough; for writes, the ETag decides.
    assert_eq!([read(pair(true, before)), read(pair(false, after))], [None, None]);
    assert_eq!(read(pair(true, after)), not_modified);
    assert_eq!([write(pair(true, before)), write(pair(false, after))], [Some(NotMet), None]);
    let pair =
        |own, since| Conditions { if_match: these(own), unmodified_since: since, ..Conditions::default() };
    // For reads, both must hold.
    assert_eq!([read(pair(true, before)), read(pair(false, after))], [Some(NotMet), Some(NotMet)]);
    assert_eq!([read(pair(true, after)), write(pair(true, before))], [None, None]);
    // What does not match is an error before it is merely not modified.
    let both = Conditions { if_match: these(false), if_none_match: these(true), ..Conditions::default() };
    assert_eq!(read(both), Some(NotMet));
}

#[test]
fn appends_and_sequence_numbers() {
    let append =
        |position, max| Conditions { append_position: position, size_max: max, ..Conditions::default() };
    assert_eq!(append(Some(10), Some(15)).check_append(10, 5), Ok(()));
    assert_eq!(append(Some(9), Some(15)).check_append(10, 5), Err(ConditionError::AppendPosition));
    assert_eq!(append(None, Some(14)).check_append(10, 5), Err(ConditionError::MaxSize));
    assert_eq!(append(None, Some(u64::MAX)).check_append(u64::MAX, 5), Ok(()));
    let sequence = |most, less, equal| {
        let conditions = Conditions {
            sequence_most: most,
            sequence_less: less,
            sequence_equal: equal,
            ..Conditions::default()
        };
        conditions.check_sequence(7).is_ok()
    };
    assert!(sequence(Some(7), Some(8), Some(7)));
    assert!(
        !sequence(Some(6), None, None) && !sequence(None, Some(7), None) && !sequence(None, None, Some(8))
    );
}
