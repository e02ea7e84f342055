//! The real program from end to end: its command line and its HTTP door, on real databases, broken on purpose.

mod backup;
mod bad_input;
mod crashes;
mod demo;
mod disaster;
mod embedded;
mod fleet;
mod folders;
mod load;
mod outages;
mod postgres;
mod processes;
mod restores;
mod rights;
mod several;
mod support;
mod traces;
mod watch;
