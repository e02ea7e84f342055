//! The global map on an engine: journalled changes, resolver, leases, notification.
