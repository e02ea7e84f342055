//! The service's table of outcomes, verb by verb and state by state.

use proptest::prelude::*;
use uuid::Uuid;

use super::{LeaseError, LeaseState, is_break_time, is_lease_time, parse_lease_id};
use crate::model::{Lease, LeaseAction};

const T: i64 = 1_000_000;

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn acquire(number: u128, seconds: i64) -> LeaseAction {
    LeaseAction::Acquire { proposed: Some(id(number)), seconds }
}

/// A lease of id 1 in every state at `T`.
fn states() -> [(LeaseState, Lease); 5] {
    let of = |until_ms, broken_ms| Lease { id: Some(id(1)), seconds: 30, until_ms, broken_ms };
    [
        (LeaseState::Available, Lease::default()),
        (LeaseState::Leased, of(T + 10_000, 0)),
        (LeaseState::Breaking, of(T + 10_000, T + 5_000)),
        (LeaseState::Broken, of(T + 10_000, T)),
        (LeaseState::Expired, of(T, 0)),
    ]
}

/// The state that a verb leads to from each of the five, or why it does not.
fn outcomes(action: LeaseAction) -> [Result<LeaseState, LeaseError>; 5] {
    states().map(|(state, lease)| {
        assert_eq!(lease.state(T), state);
        lease.apply(action, id(99), T).map(|done| done.lease.state(T))
    })
}

#[test]
fn who_may_acquire() {
    use LeaseError::*;
    use LeaseState::Leased;
    let own = [Ok(Leased), Ok(Leased), Err(BreakingNotAcquired), Ok(Leased), Ok(Leased)];
    assert_eq!(outcomes(acquire(1, 15)), own);
    let other = [Ok(Leased), Err(AlreadyPresent), Err(AlreadyPresent), Ok(Leased), Ok(Leased)];
    assert_eq!(outcomes(acquire(2, -1)), other);
    let unnamed = LeaseAction::Acquire { proposed: None, seconds: -1 };
    assert_eq!(outcomes(unnamed), other);
    let done = Lease::default().apply(unnamed, id(7), T).unwrap();
    assert_eq!((done.id, done.lease.id, done.lease.state(i64::MAX - 1)), (Some(id(7)), Some(id(7)), Leased));
    for seconds in [-2, 0, 14, 61, i64::MIN, i64::MAX] {
        assert!(!is_lease_time(seconds), "{seconds}");
    }
    assert!([-1, 15, 60].into_iter().all(is_lease_time));
}

#[test]
fn renew_release_and_change() {
    use LeaseError::*;
    use LeaseState::*;
    let wrong = Err(Mismatch);
    assert_eq!(
        outcomes(LeaseAction::Renew { id: id(1) }),
        [wrong, Ok(Leased), Err(BrokenNotRenewed), Err(BrokenNotRenewed), Ok(Leased)]
    );
    assert_eq!(outcomes(LeaseAction::Renew { id: id(2) }), [wrong; 5]);
    assert_eq!(
        outcomes(LeaseAction::Release { id: id(1) }),
        [wrong, Ok(Available), Ok(Available), Ok(Available), Ok(Available)]
    );
    assert_eq!(outcomes(LeaseAction::Release { id: id(2) }), [wrong; 5]);
    let none = Err(NotPresent);
    let change = |from, to| outcomes(LeaseAction::Change { id: id(from), proposed: id(to) });
    assert_eq!(change(1, 2), [none, Ok(Leased), Err(BreakingNotChanged), none, none]);
    assert_eq!(change(2, 1), [none, Ok(Leased), Err(BreakingNotChanged), none, none]);
    assert_eq!(change(2, 3), [none, wrong, wrong, none, none]);
}

#[test]
fn a_break_takes_as_long_as_was_asked_or_is_left() {
    let end = |lease: &Lease, seconds| lease.apply(LeaseAction::Break { seconds }, id(99), T);
    let left = |lease: &Lease, asked: [Option<i64>; 4]| {
        asked.map(|seconds| end(lease, seconds).unwrap().seconds_left.unwrap())
    };
    let [available, leased, breaking, broken, expired] = states().map(|(_, lease)| lease);
    assert_eq!(end(&available, None), Err(LeaseError::NotPresent));
    let asked = [None, Some(0), Some(4), Some(60)];
    assert_eq!(left(&leased, asked), [10, 0, 4, 10]);
    assert_eq!(left(&breaking, asked), [5, 0, 4, 5]);
    assert_eq!(left(&broken, asked), [0; 4]);
    assert_eq!(left(&expired, asked), [0; 4]);
    let infinite = Lease { seconds: -1, until_ms: i64::MAX, ..leased };
    assert_eq!(left(&infinite, asked), [0, 0, 4, 60]);
    assert_eq!(end(&infinite, None).unwrap().lease.state(T), LeaseState::Broken);
    assert_eq!(end(&leased, Some(4)).unwrap().lease.state(T + 3_999), LeaseState::Breaking);
    assert_eq!(end(&leased, Some(4)).unwrap().lease.state(T + 4_000), LeaseState::Broken);
    assert!(!is_break_time(61) && !is_break_time(-1) && is_break_time(0) && is_break_time(60));
}

#[test]
fn writes_name_the_lease_and_reads_may() {
    use LeaseError::*;
    let write = |named: Option<u128>| states().map(|(_, lease)| lease.check_write(named.map(id), T).err());
    assert_eq!(write(None), [None, Some(UseMissing), Some(UseMissing), None, None]);
    assert_eq!(write(Some(1)), [Some(UseNotPresent), None, None, Some(UseLost), Some(UseLost)]);
    let [none, other] = [Some(UseNotPresent), Some(UseMismatch)];
    assert_eq!(write(Some(2)), [none, other, other, none, none]);
    let read = |named: Option<u128>| states().map(|(_, lease)| lease.check_read(named.map(id), T).err());
    assert_eq!(read(None), [None; 5]);
    assert_eq!(read(Some(1)), write(Some(1)));
    // Whoever wrote after the end of a lease is not overwritten by whoever had it.
    use LeaseState::{Available, Breaking, Leased};
    let left = states().map(|(_, lease)| lease.after_write(T).state(T));
    assert_eq!(left, [Available, Leased, Breaking, Available, Available]);
}

#[test]
fn what_is_shown_and_how_ids_are_written() {
    let shown =
        states().map(|(_, lease)| (lease.state(T).as_str(), lease.state(T).status(), lease.duration(T)));
    let expected = [
        ("available", "unlocked", None),
        ("leased", "locked", Some("fixed")),
        ("breaking", "locked", None),
        ("broken", "unlocked", None),
        ("expired", "unlocked", None),
    ];
    assert_eq!(shown, expected);
    let text = "6b2a3b6c-0000-4000-8000-00000000000a";
    for form in [
        text.to_owned(),
        text.to_uppercase(),
        text.replace('-', ""),
        format!("{{{text}}}"),
        format!("({text})"),
    ] {
        assert_eq!(parse_lease_id(&form).map(|id| id.to_string()).as_deref(), Some(text), "{form}");
    }
    for bad in ["", "x", "6b2a3b6c-0000-4000-8000-00000000000", "0"] {
        assert_eq!(parse_lease_id(bad), None, "{bad}");
    }
}

proptest! {
    #[test]
    fn nobody_takes_a_lease_that_somebody_has(
        verbs in prop::collection::vec((0..5u8, 1..4u128, 0..61i64, 0..20_000i64), 1..60),
    ) {
        let (mut lease, mut now) = (Lease::default(), T);
        for (verb, who, seconds, later) in verbs {
            now += later;
            let before = lease.state(now);
            let next = who % 3 + 1;
            let action = match verb {
                0 => acquire(who, seconds.max(15)),
                1 => LeaseAction::Renew { id: id(who) },
                2 => LeaseAction::Change { id: id(who), proposed: id(next) },
                3 => LeaseAction::Release { id: id(who) },
                _ => LeaseAction::Break { seconds: Some(seconds) },
            };
            let Ok(done) = lease.apply(action, id(99), now) else { continue };
            // Only its holder, or a break, changes a lease that is held.
            if before.is_locked() && verb != 4 {
                let was_changed = verb == 2 && lease.id == Some(id(next));
                prop_assert!(lease.id == Some(id(who)) || was_changed);
            }
            prop_assert_eq!(done.lease.id.is_none(), verb == 3);
            prop_assert_eq!(done.seconds_left.is_some(), verb == 4);
            lease = done.lease;
        }
    }
}
