//! The server is killed while the move keeps the old rows.

use crate::scenario::{Part, State, survives, survives_on_files};

#[test]
#[ignore = "long: a part of the whole matrix"]
fn nothing_is_lost() {
    survives(Part::Server, State::Keeping);
}

#[test]
#[ignore = "long: a part of the whole matrix"]
fn nothing_is_lost_on_files() {
    survives_on_files(State::Keeping);
}
