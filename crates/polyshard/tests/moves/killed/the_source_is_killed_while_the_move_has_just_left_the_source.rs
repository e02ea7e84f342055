//! The source is killed while the move has just left the source.

use crate::scenario::{Part, State, survives};

#[test]
fn nothing_is_lost() {
    survives(Part::Source, State::Departed);
}
