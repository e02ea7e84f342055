//! The target is killed while the move copies.

use crate::scenario::{Part, State, survives};

#[test]
fn nothing_is_lost() {
    survives(Part::Target, State::Copying);
}
