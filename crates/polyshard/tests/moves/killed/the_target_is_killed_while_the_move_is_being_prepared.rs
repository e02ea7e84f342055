//! The target is killed while the move is being prepared.

use crate::scenario::{Part, State, survives};

#[test]
#[ignore = "long: a part of the whole matrix"]
fn nothing_is_lost() {
    survives(Part::Target, State::Preparing);
}
