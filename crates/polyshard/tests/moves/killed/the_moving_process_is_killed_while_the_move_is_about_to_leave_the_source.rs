//! The moving process is killed while the move is about to leave the source.

use crate::scenario::{Part, State, survives};

#[test]
fn nothing_is_lost() {
    survives(Part::Mover, State::Departing);
}
