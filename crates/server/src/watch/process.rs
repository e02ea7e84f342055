//! What this process uses, by the names that Prometheus' own clients give it. Linux only; elsewhere nothing is told.

use std::fs;

use polyshard_meter::{Kind, Text};

/// Clock ticks in a second of what the kernel tells of processes: fixed, part of its interface.
const TICKS_PER_S: f64 = 100.0;

pub(super) fn write(page: &mut Text) {
    if let Some(seconds) = cpu_s() {
        page.metric("process_cpu_seconds_total", Kind::Counter, "Processor time used, in seconds.");
        page.sample("process_cpu_seconds_total", &[], seconds);
    }
    if let Some(bytes) = resident_bytes() {
        page.metric("process_resident_memory_bytes", Kind::Gauge, "Memory in use, in bytes.");
        page.sample("process_resident_memory_bytes", &[], bytes);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        page.metric("process_open_fds", Kind::Gauge, "Open files and sockets.");
        page.sample("process_open_fds", &[], open.count());
    }
}

fn cpu_s() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in brackets, may hold anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_S)
}

fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
