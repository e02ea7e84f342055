//! The catalog is killed while the move is rolled back.

use crate::scenario::{Part, State, survives};

#[test]
fn nothing_is_lost() {
    survives(Part::Catalog, State::RollingBack);
}
