//! Moves: plans, and the carrying of rows from one shard to another while traffic runs. Has no branch per store.
