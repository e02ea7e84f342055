//! A server of the demonstration's own: this very program, in a folder of its own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread::JoinHandle;

use crate::exit::Failure;

/// A server that runs.
pub struct Running {
    child: Mutex<Child>,
    doors: BTreeMap<String, String>,
    reader: Mutex<Option<JoinHandle<()>>>,
    /// The folder, if it is to go with the server.
    temporary: Option<PathBuf>,
}

impl Running {
    /// Starts it, in a folder that must be new or empty, or in one that goes with it.
    pub fn start(data: Option<&Path>) -> Result<Running, Failure> {
        let failed = |what: &str, error: std::io::Error| {
            Failure::new(format!("{what}: {error}"), "name another folder with --data")
        };
        let (folder, temporary) = match data {
            Some(folder) => {
                if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
                    return Err(Failure::new(
                        format!("{} is not empty", folder.display()),
                        "name another folder with --data",
                    ));
                }
                (folder.to_owned(), None)
            }
            None => {
                let folder = std::env::temp_dir().join(format!("polyshard-demo-{}", std::process::id()));
                (folder.clone(), Some(folder))
            }
        };
        fs::create_dir_all(&folder).map_err(|error| failed("the folder cannot be made", error))?;
        let log_path = folder.join("demo.log");
        let log = File::create(&log_path).map_err(|error| failed("the log cannot be written", error))?;
        let program =
            std::env::current_exe().map_err(|error| failed("this program cannot be found", error))?;
        let mut child = Command::new(program)
            .args(["up", "--data"])
            .arg(folder.join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            // Ctrl-C is for this program alone, which then stops the server in order.
            .process_group(0)
            .spawn()
            .map_err(|error| failed("the server cannot be started", error))?;
        let Some(stdout) = child.stdout.take() else {
            return Err(Failure::new("the server has no output", "report this"));
        };
        let mut lines = BufReader::new(stdout).lines();
        let mut doors = BTreeMap::new();
        loop {
            match lines.next() {
                Some(Ok(line)) if line.starts_with("ready") => break,
                Some(Ok(line)) => {
                    if let (true, Some((name, address))) =
                        (line.starts_with("  "), line.trim().split_once(' '))
                    {
                        doors.insert(name.to_owned(), address.trim().to_owned());
                    }
                }
                Some(Err(_)) | None => {
                    drop(child.wait());
                    let said = fs::read_to_string(&log_path).unwrap_or_default();
                    if let Some(folder) = &temporary {
                        drop(fs::remove_dir_all(folder));
                    }
                    return Err(Failure::new(
                        format!("the server did not start:\n{}", said.trim_end()),
                        "another server may use the ports: stop it first",
                    ));
                }
            }
        }
        // What it says later is read, so that it never waits for a reader.
        let reader = std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Ok(Running { child: Mutex::new(child), doors, reader: Mutex::new(Some(reader)), temporary })
    }

    /// The address of a door.
    pub fn door(&self, name: &str) -> Result<&str, Failure> {
        let door = self.doors.get(name).map(|address| address.trim_end_matches('/'));
        door.ok_or_else(|| Failure::new(format!("the server has no {name} door"), "report this"))
    }

    /// Stops it as a supervisor would, and cleans up.
    pub fn stop(&self) -> Result<(), Failure> {
        let mut child = self.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        if !told.is_ok_and(|status| status.success()) {
            // It ended by itself, or nobody can tell it: then it is ended the hard way.
            drop(child.kill());
        }
        let ended =
            child.wait().map_err(|error| Failure::new(format!("the server is lost: {error}"), "report this"));
        if let Some(reader) = self.reader.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take() {
            drop(reader.join());
        }
        if let Some(folder) = &self.temporary
            && folder.exists()
        {
            fs::remove_dir_all(folder).map_err(|error| {
                Failure::new(format!("{}: {error}", folder.display()), "remove it by hand")
            })?;
        }
        ended.map(drop)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Ok(None) = child.try_wait() {
            drop(child.kill());
            drop(child.wait());
        }
        if let Some(folder) = &self.temporary {
            // Gone already if it was stopped in order; nobody is left to tell if it cannot go.
            drop(fs::remove_dir_all(folder));
        }
    }
}
