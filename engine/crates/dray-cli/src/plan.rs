//! `dray plan`, and `dray cp --dry-run`: show the effect of a copy without changing anything.
//!
//! dray-session decides the outcome of each file by the same rule as in a copy. The rule uses the
//! existing file at the destination and the log. For a copy between two endpoints, the driving
//! endpoint states whether it would accept the transfer.

mod layout;

use crate::args::{Owed, What, Who};
use crate::exit::{Exit, Stop, usage};
use crate::third_party;
use crate::units::{count, human};
use crate::{globus, output};
use dray_core::options::Options;
use dray_core::plan::object_bytes_within;
use dray_core::{
    ContentKey, End, EntryKind, Error, ErrorKind, Layout, RangeSet, RelPath, Result, TransferId,
};
use dray_open::locations::{self, Folder, Places, Sources};
use dray_open::prepare::{self, Targets};
use dray_open::store_kind::{Looked, OpenedSink};
use dray_runtime::sink::{DestinationRequest, Peek, layout_of_new};
use dray_runtime::source;
use dray_session::Failure;
use dray_session::sink::decide::{Decision, decide, is_usable};
use dray_session::sink::{Facts, Resume};
use dray_session::source::Listed;
use dray_store::{LinkScope, Store};
use dray_wire::message::Selection;
use layout::Names;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;

/// Planned outcome of one file.
enum Fate {
    Send {
        objects: u64,
    },
    Resume {
        objects: u64,
        open: u64,
        /// Ranges that must be sent.
        wanted: RangeSet,
    },
    Adopt,
    Skip,
    Refuse(Error),
}

/// Runs `dray plan`. If `shows_layout` is true, also shows the targets of each range.
pub(crate) fn run(what: &What, owed: &Owed, who: &Who, shows_layout: bool) -> Result<Exit, Stop> {
    if globus::is_meant(&what.paths) {
        return Err(globus::plan_error().into());
    }
    if third_party::is_meant(&what.paths) {
        if shows_layout {
            return Err(usage(
                "an endpoint plans a transfer without the layouts of the files, so --layout does \
                    not work between two endpoints",
                "run `dray plan --layout` with local paths on the host that has the files, or \
                    omit --layout",
            )
            .into());
        }
        return third_party::plan(what, owed, who);
    }
    third_party::refuse_owed(owed)?;
    let places = what.places()?;
    if places.sources.keep_nothing() || places.folder.keeps_nothing() {
        return Err(usage(
            "a plan needs real files, but the source or the destination is a null end",
            "run the command \
            without --dry-run",
        )
        .into());
    }
    if matches!(places.sources, Sources::Remote(..)) || matches!(places.folder, Folder::Remote(_)) {
        return Err(usage(
            "the source or the destination is on another host (dray://), and this command cannot \
                examine files there",
            "use dray plan only for copies between folders of this host or locations in stores \
                (disks://, rados://, root://), or between two endpoints",
        )
        .into());
    }
    let targets = Targets {
        folders: locations::targets(&what.target)?,
        lustre_attribute: what.lustre_attribute.clone(),
        ..Targets::default()
    };
    let roots = prepare::open_roots(&places.sources, &targets, what.links.into())?;
    let Some(store) = roots.first().map(|root| Arc::clone(&root.store)) else {
        return Err(usage("the command has no SRC or no DST", "give both SRC and DST").into());
    };
    let sink = Sink::open(what, &places, &targets, &store)?;
    let mut planner = Planner {
        what,
        shows_layout,
        options: what.options(&places),
        from: Names::of(&store),
        to: Names::of(&sink.store),
        sink,
        totals: Totals::default(),
    };
    source::list_all(
        roots,
        &Selection {
            rename: places.rename.clone(),
            ..what.selection()
        },
        &what.options(&places),
        |entries, failed| {
            for failure in failed {
                planner.fail(&failure);
            }
            for entry in entries {
                planner.plan(&entry);
            }
        },
    )?;
    Ok(planner.finish())
}

/// The destination as it is now.
struct Sink {
    /// Store of the destination folder, or of its nearest ancestor that exists.
    store: Arc<dyn Store>,
    /// The state of the destination folder. `None` if the folder does not exist.
    peek: Option<Peek>,
    /// Precision of file times in nanoseconds: the coarser of the two ends.
    precision_nanoseconds: u32,
}

impl Sink {
    fn open(
        what: &What,
        places: &Places,
        targets: &Targets,
        source: &Arc<dyn Store>,
    ) -> Result<Self> {
        let Looked { near, folder } = match &places.folder {
            Folder::Local(folder) => look(folder, targets)?,
            Folder::Stored(location) => prepare::look(location, targets)?,
            Folder::Remote(_) | Folder::RemoteNull(_) => {
                let error = Error::new(ErrorKind::Internal, End::Here, "open the destination");
                return Err(error.cause("the destination is on another host"));
            }
        };
        let store = near;
        let precision = |store: &Arc<dyn Store>| store.capabilities().time_precision_nanoseconds;
        let precision_nanoseconds = precision(&store).max(precision(source));
        let mut peek = None;
        if let Some(folder) = folder {
            let request = DestinationRequest {
                store: folder.store,
                above: folder.above,
                claims: places.claims.clone(),
                transfer: TransferId::new("plan")?,
                owner: folder.owner.unwrap_or_else(prepare::owner),
                durability: what.durability.into(),
                log: None,
                words: places.words.clone(),
            };
            peek = Some(Peek::open(request, &what.selection())?);
        }
        Ok(Self {
            store,
            peek,
            precision_nanoseconds,
        })
    }

    fn look(&self, path: &RelPath, key: &ContentKey) -> Result<Facts> {
        match &self.peek {
            Some(peek) => peek.look(path, key),
            None => Ok(Facts {
                existing: None,
                resume: None,
                layout: layout_of_new(self.store.as_ref(), path, key.size),
            }),
        }
    }
}

/// Opens a folder of this host, or the nearest folder above it that exists.
fn look(folder: &Path, targets: &Targets) -> Result<Looked> {
    let near = folder.ancestors().find(|near| near.is_dir());
    let near = near.unwrap_or(Path::new("/"));
    let open = |root: &Path| targets.open(root, End::Sink, LinkScope::Never, false);
    let store = open(near)?;
    let exists = near == folder;
    let above = match open(Path::new("/")) {
        Ok(top) => Some((top, locations::from_top(folder)?)),
        Err(_) => None,
    };
    Ok(Looked {
        near: Arc::clone(&store),
        folder: exists.then_some(OpenedSink {
            store,
            above,
            owner: None,
        }),
    })
}

#[derive(Default)]
struct Totals {
    others: u64,
    failed: u64,
    /// Number of files, bytes and objects for each planned outcome.
    fates: BTreeMap<&'static str, (u64, u64, u64)>,
    /// Number of bytes to send for each storage target of the source.
    from: BTreeMap<String, u64>,
    /// Number of bytes to send for each storage target of the sink.
    to: BTreeMap<String, u64>,
}

struct Planner<'a> {
    what: &'a What,
    shows_layout: bool,
    options: Options,
    from: Names,
    to: Names,
    sink: Sink,
    totals: Totals,
}

impl Planner<'_> {
    fn fail(&mut self, failure: &Failure) {
        self.totals.failed += 1;
        crate::output::complain(&failure.error);
        if self.what.json {
            let mut line = crate::report::failure(failure);
            line["event"] = json!("file");
            line["fate"] = json!("fail");
            output::result(&line.to_string());
        }
    }

    fn plan(&mut self, listed: &Listed) {
        let EntryKind::File { size, .. } = listed.entry.kind else {
            if listed.entry.kind != EntryKind::DirectoryEnd {
                self.totals.others += 1;
            }
            return;
        };
        let content = self.what.content();
        let key = ContentKey {
            size,
            demanded: content.demanded,
            modified: listed.entry.metadata.modified,
            precision_nanoseconds: self.sink.precision_nanoseconds,
            identity: content.identity(),
        };
        match self.sink.look(&listed.path, &key) {
            Ok(facts) => {
                let fate = self.fate(&key, &facts, &listed.layout);
                self.tell(listed, size, &fate, &facts.layout);
            }
            Err(error) => self.fail(&Failure {
                path: listed.path.clone(),
                error: error.file(&listed.path),
            }),
        }
    }

    fn fate(&self, key: &ContentKey, facts: &Facts, source: &Layout) -> Fate {
        match decide(self.options.overwrite, key, facts.existing.as_ref()) {
            Decision::Adopt => return Fate::Adopt,
            Decision::Skip => return Fate::Skip,
            Decision::Refuse(error) => return Fate::Refuse(error),
            Decision::Take => {}
        }
        let asked = NonZeroU64::new(self.options.object_bytes).unwrap_or(NonZeroU64::MIN);
        let send = || {
            let steps = (source.step(key.size), facts.layout.step(key.size));
            sent(key.size, asked, steps)
        };
        match &facts.resume {
            // A copy sizes its buffers for the objects in the log, so the log is usable with any
            // object size.
            Some(Ok(resume)) if is_usable(resume, key.size, NonZeroU64::MAX) => {
                resumed(resume, key.size)
            }
            Some(Err(error)) => {
                output::note(&format!("note: {error}"));
                send()
            }
            _ => send(),
        }
    }

    fn tell(&mut self, listed: &Listed, size: u64, fate: &Fate, layout: &Layout) {
        let (word, bytes, objects) = match fate {
            Fate::Send { objects } => ("send", size, *objects),
            Fate::Resume { open, wanted, .. } => ("resume", wanted.bytes(), *open),
            Fate::Adopt => ("adopt", 0, 0),
            Fate::Skip => ("skip", 0, 0),
            Fate::Refuse(_) => ("refuse", 0, 0),
        };
        let total = self.totals.fates.entry(word).or_default();
        *total = (total.0 + 1, total.1 + bytes, total.2 + objects);
        let from = shares(&self.from, &listed.layout, size, bytes);
        let to = shares(&self.to, layout, size, bytes);
        for (totals, shares) in [(&mut self.totals.from, &from), (&mut self.totals.to, &to)] {
            for (name, share) in shares.iter().filter(|(_, share)| *share > 0) {
                *totals.entry(name.clone()).or_default() += share;
            }
        }
        let names = |shares: Vec<(String, u64)>| -> Vec<String> {
            shares.into_iter().map(|(name, _)| name).collect()
        };
        let (from, to) = (names(from), names(to));
        if let Fate::Refuse(error) = fate {
            self.totals.failed += 1;
            crate::output::complain(&error.clone().file(&listed.path));
        }
        if self.what.json {
            let line = file_json(listed, size, fate, word, bytes, objects, (&from, &to));
            output::result(&line.to_string());
            self.show_layout(listed, size, fate, layout);
            return;
        }
        let path = &listed.path;
        let whole = size;
        let size = human(size);
        output::result(&match fate {
            Fate::Send { objects } => {
                format!("send    {path} ({size}, {})", count(*objects, "object"))
            }
            Fate::Resume { objects, open, .. } => {
                format!(
                    "resume  {path} ({size}, {open} of {} to send)",
                    count(*objects, "object")
                )
            }
            Fate::Adopt => format!("adopt   {path} ({size}; the same file exists)"),
            Fate::Skip => format!("skip    {path} ({size}; another file exists)"),
            Fate::Refuse(_) => format!("refuse  {path} ({size})"),
        });
        self.show_layout(listed, whole, fate, layout);
    }

    fn show_layout(&self, listed: &Listed, size: u64, fate: &Fate, sink: &Layout) {
        let wanted = match fate {
            _ if !self.shows_layout => return,
            Fate::Send { .. } => &RangeSet::full(size),
            Fate::Resume { wanted, .. } => wanted,
            Fate::Adopt | Fate::Skip | Fate::Refuse(_) => return,
        };
        let (from, to) = ((&listed.layout, &self.from), (sink, &self.to));
        layout::show(&listed.path, wanted, from, to, self.what.json);
    }

    fn finish(&self) -> Exit {
        let totals = &self.totals;
        let sum = |pick: fn(&(u64, u64, u64)) -> u64| totals.fates.values().map(pick).sum::<u64>();
        let (files, bytes, objects) = (sum(|t| t.0), sum(|t| t.1), sum(|t| t.2));
        if self.what.json {
            let of = |word: &str| totals.fates.get(word).map_or(0, |total| total.0);
            let line = json!({
                "event": "plan",
                "files": files,
                "files_send": of("send"),
                "files_resume": of("resume"),
                "files_adopt": of("adopt"),
                "files_skip": of("skip"),
                "files_failed_total": totals.failed,
                "folders_and_links": totals.others,
                "bytes_to_send": bytes,
                "objects_to_send": objects,
                "source_targets": totals.from,
                "sink_targets": totals.to,
            });
            output::result(&line.to_string());
        } else {
            let fates = totals.fates.iter();
            let fates = fates.map(|(word, (files, ..))| format!("{word} {files}"));
            output::result(&format!(
                "{} ({}), {} folders and links; {} in {} to send{}",
                count(files, "file"),
                fates.collect::<Vec<_>>().join(", "),
                totals.others,
                human(bytes),
                count(objects, "object"),
                match totals.failed {
                    0 => String::new(),
                    failed => format!("; {failed} files or folders cannot be copied"),
                },
            ));
            for (word, targets) in [("from", &totals.from), ("to", &totals.to)] {
                for (name, bytes) in targets {
                    output::result(&format!("  {word} {name}: {}", human(*bytes)));
                }
            }
        }
        if totals.failed > 0 {
            Exit::SomeFailed
        } else {
            Exit::Safe
        }
    }
}

fn sent(size: u64, asked: NonZeroU64, (source, sink): (u64, u64)) -> Fate {
    let object = object_bytes_within(size, asked, asked, source, sink);
    Fate::Send {
        objects: size.div_ceil(object.get()),
    }
}

fn resumed(resume: &Resume, size: u64) -> Fate {
    let object = resume.object_bytes.max(1);
    let mut wanted = RangeSet::full(size);
    for (range, _) in resume.done.iter() {
        wanted.remove(range);
    }
    Fate::Resume {
        objects: size.div_ceil(object),
        open: wanted.bytes().div_ceil(object),
        wanted,
    }
}

/// Returns the targets of a file, each with its part of the `bytes` that must be sent.
fn shares(names: &Names, layout: &Layout, size: u64, bytes: u64) -> Vec<(String, u64)> {
    let part = |share: u64| {
        let part = u128::from(share) * u128::from(bytes) / u128::from(size.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    };
    match layout {
        Layout::Single(target) => vec![(names.name(*target), bytes)],
        several => {
            let shares = several.shares(size).into_iter();
            shares
                .map(|(target, share)| (names.name(target), part(share)))
                .collect()
        }
    }
}

fn file_json(
    listed: &Listed,
    size: u64,
    fate: &Fate,
    word: &str,
    bytes: u64,
    objects: u64,
    (from, to): (&[String], &[String]),
) -> Value {
    let mut line = json!({
        "event": "file",
        "path": listed.path.to_string(),
        "fate": word,
        "bytes": size,
        "bytes_to_send": bytes,
        "objects_to_send": objects,
        "source_targets": from,
        "sink_targets": to,
    });
    if let Fate::Refuse(error) = fate {
        line["error"] = crate::report::in_json(error);
    }
    line
}
