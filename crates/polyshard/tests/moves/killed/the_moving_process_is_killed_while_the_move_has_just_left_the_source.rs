//! The moving process is killed while the move has just left the source.

use crate::scenario::{Part, State, survives};

#[test]
fn nothing_is_lost() {
    survives(Part::Mover, State::Departed);
}
