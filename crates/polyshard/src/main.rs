//! The command line: 'polyshard up' and the operator's commands over the admin API.

mod args;
mod command;
mod demo;
mod exit;
mod interrupt;
mod load;
mod output;
mod runtime;
mod selector;
mod table;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

/// The memory of everything that is not SQLite's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match args::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(refused) => return refused.show(),
    };
    let output = output::Output::new(cli.global.format());
    match command::run(&cli, &output) {
        Ok(exit) => exit.into(),
        Err(failure) => output.fail(failure).into(),
    }
}
