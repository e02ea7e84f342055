//! The file system that SQLite calls: its own, but for what is written to a log.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use rusqlite::ffi;
use rusqlite::ffi::{sqlite3_file, sqlite3_filename, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs};

use crate::gathered::Gathered;
use crate::turn;

const NAME: &CStr = c"polyshard-log";

/// SQLite's own file system, and the result of registering ours.
struct Registered {
    own: *mut sqlite3_vfs,
    result: c_int,
}

// SAFETY: SQLite keeps its own file system for as long as the process runs, and lets any thread call it.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

static REGISTERED: OnceLock<Registered> = OnceLock::new();

/// An open log, at the beginning of the room that SQLite gives a file; its own file system has what comes after it.
#[repr(C)]
struct LogFile {
    base: sqlite3_file,
    gathered: *mut Gathered,
}

const OWN_FILE_AT: usize = size_of::<LogFile>();
// A file of SQLite's own file system is a struct of pointers and numbers of at most eight bytes.
const _: () = assert!(OWN_FILE_AT.is_multiple_of(8));

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    // What later versions have, shared memory and mapped pages, is for databases and not for logs.
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// Makes the file system known to SQLite, once; returns its name, to open connections with, or SQLite's error.
pub fn register() -> Result<&'static CStr, c_int> {
    match REGISTERED.get_or_init(make).result {
        ffi::SQLITE_OK => Ok(NAME),
        error => Err(error),
    }
}

/// Syncs the file of a connection's database, which may be used by others meanwhile; SQLite's error if it could not be.
///
/// By SQLite's own file, since whoever opens one by himself and closes it gives up all locks that the process has on
/// it, SQLite's as well. That a file could not be written is told to each who has it open, and once: a connection that
/// is used for this should be used for nothing else.
pub fn sync_database(connection: &rusqlite::Connection) -> Result<(), c_int> {
    let mut file: *mut sqlite3_file = ptr::null_mut();
    // SAFETY: the connection is open while it is borrowed, and so is its file, which is not changed by being synced. A
    // connection is not shared between threads.
    let result = unsafe {
        let to = (&raw mut file).cast();
        match ffi::sqlite3_file_control(
            connection.handle(),
            c"main".as_ptr(),
            ffi::SQLITE_FCNTL_FILE_POINTER,
            to,
        ) {
            ffi::SQLITE_OK if file.is_null() || (*file).pMethods.is_null() => ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_OK => match (*(*file).pMethods).xSync {
                Some(sync) => sync(file, ffi::SQLITE_SYNC_NORMAL),
                None => ffi::SQLITE_IOERR_FSYNC,
            },
            error => error,
        }
    };
    if result == ffi::SQLITE_OK { Ok(()) } else { Err(result) }
}

fn make() -> Registered {
    // SAFETY: without a name it finds the default one, which SQLite keeps.
    let own = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
    if own.is_null() {
        return Registered { own, result: ffi::SQLITE_ERROR };
    }
    // SAFETY: it is not null, and nobody changes what is copied. All but opening is then done by its own functions,
    // which find in our copy what they would find in theirs.
    let mut ours = unsafe { *own };
    ours.szOsFile += OWN_FILE_AT as c_int;
    ours.pNext = ptr::null_mut();
    ours.zName = NAME.as_ptr();
    ours.xOpen = Some(open);
    // SAFETY: what is registered must stay where it is, and so is never freed. It is not made the default one.
    let result = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(ours)), 0) };
    Registered { own, result }
}

/// Opens a file: a log is ours, all others are its own file system's from here on.
unsafe extern "C" fn open(
    _ours: *mut sqlite3_vfs,
    name: sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let Some(Registered { own, .. }) = REGISTERED.get() else { return ffi::SQLITE_CANTOPEN };
    // SAFETY: it was found when ours was registered.
    let Some(open) = (unsafe { (**own).xOpen }) else { return ffi::SQLITE_CANTOPEN };
    if flags & ffi::SQLITE_OPEN_WAL == 0 {
        // SAFETY: SQLite's own arguments, and more room than its own file system asks for.
        return unsafe { open(*own, name, file, flags, out_flags) };
    }
    // SAFETY: SQLite has room at `file` for what `szOsFile` says, which is ours and that of its own file system.
    unsafe {
        let real = own_file(file);
        (*real).pMethods = ptr::null();
        let result = open(*own, name, real, flags, out_flags);
        // SQLite closes what has methods, even if it could not be opened.
        (*file).pMethods = if (*real).pMethods.is_null() {
            ptr::null()
        } else {
            (*file.cast::<LogFile>()).gathered = Box::into_raw(Box::default());
            &raw const METHODS
        };
        result
    }
}

/// Where its own file system has its part of a log.
///
/// # Safety
/// `file` is where SQLite has room for a file of ours.
unsafe fn own_file(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: so it is for as many bytes as are added.
    unsafe { file.byte_add(OWN_FILE_AT) }
}

/// Calls a method of its own file system on its part of an open log. There is one, since SQLite's file systems have all
/// methods of the first version.
macro_rules! own {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        let real = own_file($file);
        match (*(*real).pMethods).$method {
            Some(method) => method(real $(, $argument)*),
            None => ffi::SQLITE_IOERR,
        }
    }};
}

/// Writes out what was gathered, then calls a method of its own file system.
macro_rules! settled {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        let gathered = &mut *(*$file.cast::<LogFile>()).gathered;
        match gathered.settle(turn(), |bytes, at| put($file, bytes, at)) {
            Ok(()) => own!($file, $method $(, $argument)*),
            Err(error) => error,
        }
    }};
}

/// # Safety
/// `file` is an open log.
unsafe fn put(file: *mut sqlite3_file, bytes: &[u8], at: i64) -> Result<(), c_int> {
    // SAFETY: it is open, and the bytes are there until this returns; there are never more of them than fit.
    match unsafe { own!(file, xWrite, bytes.as_ptr().cast(), bytes.len() as c_int, at) } {
        ffi::SQLITE_OK => Ok(()),
        error => Err(error),
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once, and does nothing with it afterwards. What is left in it is of no commit.
    unsafe {
        drop(Box::from_raw((*file.cast::<LogFile>()).gathered));
        own!(file, xClose)
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    amount: c_int,
    at: sqlite3_int64,
) -> c_int {
    let Ok(amount) = usize::try_from(amount) else { return ffi::SQLITE_IOERR_WRITE };
    // SAFETY: the log is open, SQLite calls it from one thread at a time, and has so many bytes there.
    let result = unsafe {
        let bytes = std::slice::from_raw_parts(bytes.cast::<u8>(), amount);
        let gathered = &mut *(*file.cast::<LogFile>()).gathered;
        gathered.write(turn(), bytes, at, |bytes, at| put(file, bytes, at))
    };
    result.err().unwrap_or(ffi::SQLITE_OK)
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    to: *mut c_void,
    amount: c_int,
    at: sqlite3_int64,
) -> c_int {
    let Ok(length) = usize::try_from(amount) else { return ffi::SQLITE_IOERR_READ };
    // SAFETY: the log is open, SQLite calls it from one thread at a time; so below.
    unsafe {
        let gathered = &mut *(*file.cast::<LogFile>()).gathered;
        match gathered.settle_for(turn(), (at, length), |bytes, at| put(file, bytes, at)) {
            Ok(()) => own!(file, xRead, to, amount, at),
            Err(error) => error,
        }
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    // SAFETY: see `read`.
    unsafe { settled!(file, xTruncate, size) }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: see `read`.
    unsafe { settled!(file, xSync, flags) }
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut sqlite3_int64) -> c_int {
    // SAFETY: see `read`.
    unsafe { settled!(file, xFileSize, size) }
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: see `read`.
    unsafe { own!(file, xLock, level) }
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: see `read`.
    unsafe { own!(file, xUnlock, level) }
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, is_locked: *mut c_int) -> c_int {
    // SAFETY: see `read`.
    unsafe { own!(file, xCheckReservedLock, is_locked) }
}

unsafe extern "C" fn file_control(file: *mut sqlite3_file, op: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: see `read`.
    unsafe { settled!(file, xFileControl, op, argument) }
}

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    // SAFETY: see `read`.
    unsafe { own!(file, xSectorSize) }
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: see `read`.
    unsafe { own!(file, xDeviceCharacteristics) }
}
