//! The source is killed while the move is undone.

use crate::scenario::{Part, State, survives};

#[test]
#[ignore = "long: a part of the whole matrix"]
fn nothing_is_lost() {
    survives(Part::Source, State::Undoing);
}
