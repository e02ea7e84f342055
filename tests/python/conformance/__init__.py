"""One suite for every store: what all of them promise, tried with each store's own client on real servers."""
