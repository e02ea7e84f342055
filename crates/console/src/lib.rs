//! The web console's files, embedded in the program. The pages use the admin API only, as any other client does.

/// One file of the console.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// Its path after the address of the admin door, without the first slash.
    pub path: &'static str,
    /// What it is.
    pub content_type: &'static str,
    /// Its bytes.
    pub bytes: &'static [u8],
}

/// All files.
pub const ASSETS: &[Asset] = &[];
