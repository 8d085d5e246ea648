//! Reads a checkpoint: checks each record, and collects the places of the complete folders.

use super::records::{self, BODY_BYTES_MAX, HEAD_BYTES, PRELUDE_BYTES, Record};
use dray_core::RelPath;
use dray_core::maps::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of folders that are taken from a checkpoint, and of records of entries. The places
/// of the folders then need about 50 MB of memory.
const FOLDERS_MAX: usize = 1 << 17;

/// Maximum total length in bytes of the paths of these folders.
const PATH_BYTES_MAX: usize = 32 << 20;

/// The frames of a record in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    pub offset: u64,
    pub length: u32,
}

/// A folder that was listed completely.
#[derive(Debug)]
pub(crate) struct Known {
    pub(super) version: Vec<u8>,
    pub(super) chunks: Vec<Chunk>,
    /// The entry with the attributes of the folder.
    pub(super) end: Chunk,
}

impl Known {
    /// Returns a folder without entries and without attributes.
    pub(super) fn empty() -> Self {
        let end = Chunk {
            offset: 0,
            length: 0,
        };
        Self {
            version: Vec::new(),
            chunks: Vec::new(),
            end,
        }
    }
}

/// The content of a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    folders: HashMap<RelPath, Vec<(u32, Arc<Known>)>>,
    /// Length in bytes of the complete records. Zero if the file has no usable record.
    pub length: u64,
    pub next_folder: u32,
}

impl Loaded {
    pub(super) fn find(&self, root: u32, path: &RelPath) -> Option<Arc<Known>> {
        let found = self.folders.get(path)?.iter().find(|(of, _)| *of == root);
        found.map(|(_, known)| Arc::clone(known))
    }

    fn keep(&mut self, open: Open, end: Chunk) {
        let known = Arc::new(Known {
            version: open.version,
            chunks: open.chunks,
            end,
        });
        let at = self.folders.entry(open.path).or_default();
        at.retain(|(root, _)| *root != open.root);
        at.push((open.root, known));
    }
}

/// A folder whose end was not read yet.
struct Open {
    root: u32,
    path: RelPath,
    version: Vec<u8>,
    chunks: Vec<Chunk>,
}

/// Reads a checkpoint. An incomplete record at the end is left out, because a process that is killed
/// leaves such a record.
///
/// # Errors
/// The reason why the file cannot be used.
pub(super) fn load(
    file: &File,
    key: &[u8],
    age_max: Duration,
    now: SystemTime,
) -> Result<Loaded, String> {
    let failed = |error: std::io::Error| error.to_string();
    let size = file.metadata().map_err(failed)?.len();
    if size == 0 {
        return Ok(Loaded::default());
    }
    let mut reader = BufReader::with_capacity(1 << 18, file);
    reader.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut prelude = [0; PRELUDE_BYTES];
    let is_read = size >= PRELUDE_BYTES as u64 && reader.read_exact(&mut prelude).is_ok();
    if !is_read || prelude.as_slice() != records::prelude().as_slice() {
        return Err("the file is not a checkpoint of this version of dray".to_owned());
    }
    let mut loading = Loading {
        key,
        age_max,
        now,
        open: HashMap::default(),
        loaded: Loaded::default(),
        paths_bytes: 0,
        records: 0,
    };
    let mut at = PRELUDE_BYTES as u64;
    while at < size {
        let mut head = [0; HEAD_BYTES];
        if size - at < HEAD_BYTES as u64 {
            break;
        }
        reader.read_exact(&mut head).map_err(failed)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let end = at + HEAD_BYTES as u64 + u64::from(length);
        if length > BODY_BYTES_MAX + 64 || (length == 0 && end < size) {
            return Err(format!("the record at byte {at} is damaged"));
        }
        if end > size {
            break;
        }
        let mut body = vec![0; length as usize];
        reader.read_exact(&mut body).map_err(failed)?;
        let is_whole = records::is_whole(head, at, &body);
        match records::parse(&body).filter(|_| is_whole) {
            Some(record) => loading.take(&record, at)?,
            None if end == size => break,
            None => return Err(format!("the record at byte {at} is damaged")),
        }
        at = end;
    }
    if loading.records == 0 {
        return Ok(Loaded::default());
    }
    loading.loaded.length = at;
    Ok(loading.loaded)
}

struct Loading<'a> {
    key: &'a [u8],
    age_max: Duration,
    now: SystemTime,
    open: HashMap<u32, Open>,
    loaded: Loaded,
    paths_bytes: usize,
    records: usize,
}

impl Loading<'_> {
    fn take(&mut self, record: &Record<'_>, at: u64) -> Result<(), String> {
        let is_first = self.records == 0;
        self.records += 1;
        // The frames follow the head, the type and the number of the folder.
        let chunk = |frames: &[u8]| Chunk {
            offset: at + HEAD_BYTES as u64 + 5,
            length: frames.len() as u32,
        };
        match record {
            Record::Header { created, key } if is_first => self.check(*created, key),
            _ if is_first => Err("the first record is not a header".to_owned()),
            Record::Header { .. } => Err(format!("the record at byte {at} is a second header")),
            Record::Folder {
                folder,
                root,
                path,
                version,
            } => {
                self.loaded.next_folder = folder.saturating_add(1);
                let path = RelPath::parse(path).map_err(|error| error.cause)?;
                self.paths_bytes += path.as_bytes().len();
                if self.records < FOLDERS_MAX && self.paths_bytes < PATH_BYTES_MAX {
                    let open = Open {
                        root: *root,
                        path,
                        version: version.to_vec(),
                        chunks: Vec::new(),
                    };
                    self.open.insert(*folder, open);
                }
                Ok(())
            }
            Record::Entries { folder, frames } => {
                if let Some(open) = self.open.get_mut(folder) {
                    open.chunks.push(chunk(frames));
                }
                Ok(())
            }
            Record::End { folder, frames } => {
                if let Some(open) = self.open.remove(folder) {
                    self.loaded.keep(open, chunk(frames));
                }
                Ok(())
            }
            Record::Forget { path } => {
                let path = RelPath::parse(path).map_err(|error| error.cause)?;
                self.loaded.folders.remove(&path);
                // A file may fail before the listing of its folder ends.
                self.open.retain(|_, open| open.path != path);
                Ok(())
            }
        }
    }

    fn check(&self, created: u64, key: &[u8]) -> Result<(), String> {
        if key != self.key {
            return Err("the file belongs to another transfer or another selection".to_owned());
        }
        let now = self.now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let created = Duration::from_secs(created);
        if created > now + Duration::from_secs(60) {
            return Err(
                "the time in the file is in the future by the clock of this host".to_owned(),
            );
        }
        if now.saturating_sub(created) > self.age_max {
            return Err("the file is too old".to_owned());
        }
        Ok(())
    }
}
