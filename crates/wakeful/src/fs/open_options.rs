use std::fs;
use std::os::unix::fs::OpenOptionsExt;

/// Options that say how a file is opened, like [`std::fs::OpenOptions`].
///
/// ```
/// use wakeful::fs::OpenOptions;
///
/// # fn main() -> std::io::Result<()> {
/// # let path = std::env::temp_dir().join(format!("wakeful-open-{}", std::process::id()));
/// wakeful::block_on(async {
///     let mut log = OpenOptions::new().append(true).create(true).open(&path).await?;
///     log.write_all(b"one more line\n").await?;
/// #   std::fs::remove_file(&path)?;
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct OpenOptions(pub(super) fs::OpenOptions);

impl OpenOptions {
    /// Makes options in which nothing is set: all `bool`s are false, and the mode is 0o666.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "as in the standard library")]
    pub fn new() -> Self {
        Self(fs::OpenOptions::new())
    }

    /// Sets whether to open the file for reading.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.0.read(read);
        self
    }

    /// Sets whether to open the file for writing.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.0.write(write);
        self
    }

    /// Sets whether each write goes to the end of the file.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.0.append(append);
        self
    }

    /// Sets whether to truncate an existing file.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.0.truncate(truncate);
        self
    }

    /// Sets whether to create the file if it is missing.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.0.create(create);
        self
    }

    /// Sets whether to create the file, and to fail if it exists.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.0.create_new(create_new);
        self
    }

    /// Sets the permissions of a file that is created. The process's umask removes some of them.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.0.mode(mode);
        self
    }

    /// Sets further flags of `open(2)`, such as `O_NOFOLLOW`.
    pub fn custom_flags(&mut self, flags: i32) -> &mut Self {
        self.0.custom_flags(flags);
        self
    }
}

impl From<fs::OpenOptions> for OpenOptions {
    fn from(options: fs::OpenOptions) -> Self {
        Self(options)
    }
}
