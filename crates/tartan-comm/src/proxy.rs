//! The thread of a node that matches and answers. Python, and a link to other nodes, come to the desk by `with`.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::arena::Arena;
use crate::desk::{Desk, Places};
use crate::refusal::kind;
use crate::wait::{sharpen_timer, sleep_unless, wake, TURN};

/// How long the proxy sleeps between two looks for requests of slots: briefly for a while after one.
const NAP: Duration = Duration::from_micros(50);
const LONG_NAP: Duration = Duration::from_millis(2);
const BUSY: Duration = Duration::from_millis(10);

struct Shared {
    arena: Arc<Arena>,
    /// Whether slots run here, which cannot ring.
    polls: bool,
    desk: Mutex<Desk>,
    stops: AtomicBool,
    /// Becomes readable when there is something for other nodes.
    outbox: OwnedFd,
}

/// The proxy of a node; ends when it is dropped.
pub struct Proxy {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Start the thread; it `polls` where slots run, which write their requests and cannot wake it.
    ///
    /// # Errors
    /// Where the system gives no thread or no descriptor.
    pub fn start(arena: Arc<Arena>, places: Places, polls: bool) -> std::io::Result<Self> {
        // SAFETY: no memory is involved; the result is checked.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if event < 0 {
            return Err(std::io::Error::last_os_error());
        }
        let shared = Arc::new(Shared {
            desk: Mutex::new(Desk::new(Arc::clone(&arena), places)),
            arena,
            polls,
            stops: AtomicBool::new(false),
            // SAFETY: a fresh descriptor that nothing else owns.
            outbox: unsafe { OwnedFd::from_raw_fd(event) },
        });
        let mine = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("tartan-proxy".into())
            .spawn(move || guarded(&mine))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Use the desk; the proxy waits meanwhile.
    pub fn with<T>(&self, use_it: impl FnOnce(&mut Desk) -> T) -> T {
        let mut desk = self
            .shared
            .desk
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let result = use_it(&mut desk);
        self.shared.tell_outbox(&desk);
        result
    }

    /// The descriptor that becomes readable when there is something for other nodes.
    pub fn outbox(&self) -> RawFd {
        self.shared.outbox.as_raw_fd()
    }
}

impl Shared {
    fn tell_outbox(&self, desk: &Desk) {
        if desk.has_outgoing() {
            let one = 1_u64.to_ne_bytes();
            // SAFETY: eight bytes of the stack.
            unsafe { libc::write(self.outbox.as_raw_fd(), one.as_ptr().cast(), 8) };
        }
    }

    fn run(&self) {
        let mut last = Instant::now();
        if self.polls {
            sharpen_timer();
        }
        while !self.stops.load(Ordering::SeqCst) {
            let bell = self.arena.doorbell().load(Ordering::SeqCst);
            let worked = {
                let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
                let worked = desk.serve();
                if worked {
                    self.tell_outbox(&desk);
                }
                worked
            };
            if worked {
                last = Instant::now();
            } else {
                let ready = || {
                    self.arena.doorbell().load(Ordering::SeqCst) != bell
                        || self.stops.load(Ordering::SeqCst)
                };
                sleep_unless(
                    self.arena.doorbell(),
                    bell,
                    self.arena.proxy_sleeps(),
                    self.longest_sleep(last),
                    ready,
                );
            }
        }
    }
}

impl Shared {
    fn longest_sleep(&self, last: Instant) -> Duration {
        if !self.polls {
            TURN
        } else if last.elapsed() < BUSY {
            NAP
        } else {
            LONG_NAP
        }
    }
}

fn guarded(shared: &Shared) {
    if catch_unwind(AssertUnwindSafe(|| shared.run())).is_err() {
        shared.arena.abort(
            kind::DEFECT,
            "the proxy of this node has failed (a defect of Tartan; please report it)",
        );
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::SeqCst);
        wake(self.shared.arena.doorbell());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
