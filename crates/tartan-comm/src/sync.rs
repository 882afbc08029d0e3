//! Atomics, fences and cells; under `cfg(loom)` those of loom, which tries every order that the rules allow.
//!
//! Each order that the protocol needs has a name, an `OrderNeed`. Tests under loom weaken one at a time, and expect a report.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Where the protocol needs an order of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderNeed {
    /// A request is published (R1), read (R2), answered (R3), the answer read (R4).
    Publish,
    TakeRequest,
    Answer,
    TakeAnswer,
    /// The fences of one who goes to sleep and of one who wakes (R6).
    SleeperFence,
    WakerFence,
    /// The reason is written before the abort word, and read after it (R7).
    Abort,
    TakeReason,
    /// A rank comes to a meeting, the last one lets all go on, they see it (R8).
    Arrive,
    Release,
    Released,
    /// The desk is taken, and left to others (R2).
    TakeDesk,
    LeaveDesk,
    /// A block is given back, and seen to be free.
    GiveBack,
    Collect,
    /// A part of a stream is filled or drained, and seen to be.
    Moved,
    TakeMoved,
}

/// The order for a need.
#[cfg(not(loom))]
#[inline(always)]
pub fn order(_need: OrderNeed, strong: Ordering) -> Ordering {
    strong
}

/// The fence for a need.
#[cfg(not(loom))]
#[inline(always)]
pub fn fence(_need: OrderNeed) {
    std::sync::atomic::fence(Ordering::SeqCst);
}

#[cfg(loom)]
mod weakened {
    use super::{OrderNeed, Ordering};
    use std::cell::Cell;

    std::thread_local! {
        // Loom runs all threads of a model on one thread of the system.
        static WEAKENED: Cell<Option<OrderNeed>> = const { Cell::new(None) };
    }

    /// Run a model with one order relaxed, or one fence left out.
    pub fn with<T>(need: Option<OrderNeed>, run: impl FnOnce() -> T) -> T {
        WEAKENED.set(need);
        let result = run();
        WEAKENED.set(None);
        result
    }

    pub fn order(need: OrderNeed, strong: Ordering) -> Ordering {
        if WEAKENED.get() == Some(need) {
            Ordering::Relaxed
        } else {
            strong
        }
    }

    pub fn fence(need: OrderNeed) {
        if WEAKENED.get() != Some(need) {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }
}
#[cfg(loom)]
pub use weakened::{fence, order, with};

/// Plain memory that a protocol hands from one side to the other.
#[cfg_attr(not(loom), repr(transparent))]
pub struct PlainCell<T> {
    #[cfg(not(loom))]
    cell: std::cell::UnsafeCell<T>,
    #[cfg(loom)]
    cell: loom::cell::UnsafeCell<T>,
}

// SAFETY: the protocol says which side uses it when; under loom, every use is checked.
unsafe impl<T: Send> Sync for PlainCell<T> {}

impl<T: Copy> PlainCell<T> {
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self {
            cell: loom::cell::UnsafeCell::new(value),
        }
    }

    /// Read it.
    ///
    /// # Safety
    /// Nothing writes it meanwhile.
    pub unsafe fn get(&self) -> T {
        #[cfg(not(loom))]
        return *self.cell.get();
        #[cfg(loom)]
        return self.cell.with(|at| unsafe { *at });
    }

    /// Write it.
    ///
    /// # Safety
    /// Nothing else uses it meanwhile.
    pub unsafe fn set(&self, value: T) {
        #[cfg(not(loom))]
        {
            *self.cell.get() = value;
        }
        #[cfg(loom)]
        self.cell.with_mut(|at| unsafe { *at = value });
    }
}
