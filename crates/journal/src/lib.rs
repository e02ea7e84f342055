//! What every shard must have alike: schema changes and reference writes in one order; declared tables; ids.
