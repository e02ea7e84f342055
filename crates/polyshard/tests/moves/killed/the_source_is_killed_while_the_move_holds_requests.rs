//! The source is killed while the move holds requests.

use crate::scenario::{Part, State, survives};

#[test]
fn nothing_is_lost() {
    survives(Part::Source, State::Fencing);
}
