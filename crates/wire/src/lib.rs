//! What every front door shares: listener, limits, deadlines, shutdown. Knows no protocol.
