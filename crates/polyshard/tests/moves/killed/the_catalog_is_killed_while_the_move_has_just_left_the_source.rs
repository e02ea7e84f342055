//! The catalog is killed while the move has just left the source.

use crate::scenario::{Part, State, survives};

#[test]
#[ignore = "long: a part of the whole matrix"]
fn nothing_is_lost() {
    survives(Part::Catalog, State::Departed);
}
