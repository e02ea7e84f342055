//! Pure: key encoding, hashing, ranges, maps, change operations, the JSON form. No I/O, no clock.
