//! What serves those who cannot carry out their requests: a thread for slots. Python, and a link to other nodes, come to
//! the desk by `with`.

use std::os::fd::RawFd;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::{park_timeout, JoinHandle};
use std::time::{Duration, Instant};

use crate::arena::Arena;
use crate::desk::{NodeDesk, Places};
use crate::refusal::kind;
use crate::wait::sharpen_timer;

/// How long the proxy sleeps between two looks for requests of slots: briefly for a while after one.
/// NAP, LONG_NAP and BUSY, by judgement: a slot waits 50 us more at most while requests come; a waiting proxy takes
/// under 1 % of a core (`tartan bench comm parts=idle`: 1.2 % with 8 ranks, bar 2 %).
const NAP: Duration = Duration::from_micros(50);
const LONG_NAP: Duration = Duration::from_millis(2);
const BUSY: Duration = Duration::from_millis(10);

struct Shared {
    arena: Arc<Arena>,
    desk: Mutex<NodeDesk>,
    stops: AtomicBool,
}

/// The proxy of a node; ends when it is dropped.
pub struct Proxy {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Start the proxy; only where slots run, it has a thread, which `polls`: they write their requests and cannot wake it.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start(arena: Arc<Arena>, places: Places, polls: bool) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            desk: Mutex::new(NodeDesk::new(Arc::clone(&arena), places)),
            arena,
            stops: AtomicBool::new(false),
        });
        let mut thread = None;
        if polls {
            let mine = Arc::clone(&shared);
            let named = std::thread::Builder::new().name("tartan-proxy".into());
            thread = Some(named.spawn(move || guarded(&mine))?);
        }
        Ok(Self { shared, thread })
    }

    /// Use the desk; the other threads of this process wait meanwhile.
    pub fn with<T>(&self, use_it: impl FnOnce(&mut NodeDesk) -> T) -> T {
        let mut desk = self
            .shared
            .desk
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        use_it(&mut desk)
    }

    /// As `Desk::stuck`; None also where another thread uses the desk, which may wait there for ever.
    pub fn stuck(&self) -> Option<u64> {
        match self.shared.desk.try_lock() {
            Ok(mut desk) => desk.stuck(),
            Err(TryLockError::Poisoned(desk)) => desk.into_inner().stuck(),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The descriptor that becomes readable when there is something for other nodes.
    pub fn outbox(&self) -> RawFd {
        self.shared.arena.outbox()
    }
}

impl Shared {
    fn run(&self) {
        sharpen_timer();
        let mut last = Instant::now();
        while !self.stops.load(Ordering::SeqCst) {
            let worked = self
                .desk
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .serve();
            if worked {
                last = Instant::now();
            } else if last.elapsed() < BUSY {
                park_timeout(NAP);
            } else {
                park_timeout(LONG_NAP);
            }
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
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
