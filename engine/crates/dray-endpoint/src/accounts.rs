//! With `setuid`, a session acts as the system account named like its owner.
//!
//! Not for: changing the account of a thread (`dray_runtime::account`).
//!
//! Invariant owned here: a thread that acts as an owner opens every folder itself. A folder that
//! the endpoint has opened would bypass the permissions of the folders above it.

use dray_config::Config;
use dray_config::roots::Root;
use dray_core::{End, Error, ErrorKind, Result};
use dray_link::threads::refused;
use dray_runtime::account::{self, HostAccounts};
use std::ops::Deref;
use std::sync::mpsc::{RecvError, sync_channel};

/// The system accounts of sessions. Without `setuid`, all sessions act as the endpoint's account.
pub struct Accounts {
    /// Lowest account number that a session may act as. `None`: sessions act as the endpoint's
    /// account.
    uid_min: Option<u32>,
    host: Box<dyn account::Accounts>,
}

/// A root, opened by the endpoint or by the thread that uses it.
pub enum Opened<'r> {
    /// The root that the endpoint opened. All threads share it.
    Shared(&'r Root),
    /// A root that the calling thread opened itself.
    Own(Box<Root>),
}

impl Deref for Opened<'_> {
    type Target = Root;

    fn deref(&self) -> &Root {
        match self {
            Self::Shared(root) => root,
            Self::Own(root) => root,
        }
    }
}

impl Accounts {
    /// Returns the rules for accounts that `config` sets (`setuid`, `setuid_min`).
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if `setuid` is set and this process lacks the right to
    /// change its account.
    pub fn open(config: &Config) -> Result<Self> {
        if config.setuid {
            account::check_rights().map_err(|error| {
                let cause = format!("the configuration has setuid = true, but {}", error.cause);
                error.cause(cause).remedy(
                    "start the endpoint as root (or give it CAP_SETUID and CAP_SETGID), or remove \
                        setuid from the configuration",
                )
            })?;
        }
        Ok(Self {
            uid_min: config.setuid.then_some(config.setuid_min),
            host: Box::new(HostAccounts),
        })
    }

    /// Returns accounts whose numbers come from `host` instead of the system. For tests.
    #[cfg(test)]
    pub(crate) fn made(host: Box<dyn account::Accounts>) -> Self {
        let uid_min = Some(account::UID_MIN_DEFAULT);
        Self { uid_min, host }
    }

    /// Makes the calling thread act as `owner` until the thread ends. The thread must do no work
    /// for other owners.
    ///
    /// # Errors
    /// The errors of [`account::become_account`]. After an error the caller must end the session.
    pub fn enter(&self, owner: &str) -> Result<()> {
        match self.uid_min {
            Some(uid_min) => account::become_account(owner, uid_min, self.host.as_ref()),
            None => Ok(()),
        }
    }

    /// Does `work` as `owner`. With `setuid`, a new thread does the work, and the calling thread
    /// keeps the endpoint's account.
    ///
    /// # Errors
    /// The errors of [`Accounts::enter`] and of `work`.
    pub fn act_as<T: Send>(
        &self,
        owner: &str,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        self.act_as_asking(owner, |_: &mut dyn FnMut(()) -> Result<()>| work(), Ok)
    }

    /// Same as [`Accounts::act_as`], for work that needs data which only the endpoint's account can
    /// read. The argument of `work` is a function to which `work` passes each question. The calling
    /// thread, which has the endpoint's account, answers the question with `answer`.
    ///
    /// # Errors
    /// The errors of [`Accounts::act_as`].
    pub fn act_as_asking<Q: Send, A: Send, T: Send>(
        &self,
        owner: &str,
        work: impl FnOnce(&mut dyn FnMut(Q) -> Result<A>) -> Result<T> + Send,
        mut answer: impl FnMut(Q) -> Result<A>,
    ) -> Result<T> {
        match self.uid_min {
            None => work(&mut answer),
            Some(_) => asking(|| self.enter(owner), work, answer),
        }
    }

    /// Returns `root` for use by the calling thread, which has called [`Accounts::enter`]. With
    /// `setuid`, the root is opened again with the thread's account.
    ///
    /// # Errors
    /// If the account cannot open the root.
    pub fn root<'r>(&self, root: &'r Root) -> Result<Opened<'r>> {
        match self.uid_min {
            Some(_) => Ok(Opened::Own(Box::new(root.anew()?))),
            None => Ok(Opened::Shared(root)),
        }
    }
}

/// Does `work` on a new thread, after `enter` has changed the account of that thread. The calling
/// thread answers the questions of `work`.
fn asking<Q: Send, A: Send, T: Send>(
    enter: impl FnOnce() -> Result<()> + Send,
    work: impl FnOnce(&mut dyn FnMut(Q) -> Result<A>) -> Result<T> + Send,
    mut answer: impl FnMut(Q) -> Result<A>,
) -> Result<T> {
    let (asks, asked) = sync_channel::<Q>(0);
    let (answers, answered) = sync_channel::<Result<A>>(0);
    let acts = move || {
        enter()?;
        work(&mut move |question| {
            let gone = |_| {
                Error::new(
                    ErrorKind::Internal,
                    End::Here,
                    "ask the main process of the endpoint",
                )
            };
            asks.send(question).map_err(|_| gone(RecvError))?;
            answered.recv().map_err(gone)?
        })
    };
    std::thread::scope(|scope| {
        // Moved here, so that `answers` is dropped if `answer` panics. The new thread would
        // otherwise wait for an answer forever, and the scope would wait for the thread.
        let answers = answers;
        let acting = std::thread::Builder::new()
            .name("dray-account".to_owned())
            .spawn_scoped(scope, acts)
            .map_err(|error| refused(&error))?;
        // The loop ends when the thread drops its end of the channel.
        for question in asked {
            if answers.send(answer(question)).is_err() {
                break;
            }
        }
        // If `work` panics, the caller gets the same panic as without a thread.
        let ended = acting.join();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
pub(crate) mod tests;
