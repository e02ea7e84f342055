//! The server is killed while the move is rolled back.

use crate::scenario::{Part, State, survives, survives_on_files};

#[test]
#[ignore = "long: a part of the whole matrix"]
fn nothing_is_lost() {
    survives(Part::Server, State::RollingBack);
}

#[test]
#[ignore = "long: a part of the whole matrix"]
fn nothing_is_lost_on_files() {
    survives_on_files(State::RollingBack);
}
