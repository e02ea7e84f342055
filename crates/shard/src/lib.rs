//! One shard on an engine: local map, session hello, fence.
