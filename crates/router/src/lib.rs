//! Map snapshot, tickets, hold and drain, retry, fan-out.
