//! Sleep until another process has written a word (R6).
//!
//! A sleeper says that it sleeps, passes a SeqCst fence, reads the word again and only then sleeps; a waker writes the
//! word, passes a SeqCst fence and reads whether anyone sleeps. One of the two then sees what the other wrote.
//!
//! To wake a sleeper takes some 60 us where its core sleeps too. So one looks for a while before, longer where there is
//! a core for every rank and waits were short.

use std::time::Duration;
#[cfg(not(loom))]
use std::time::Instant;

use crate::sync::{fence, AtomicU32, OrderNeed, Ordering};
#[cfg(loom)]
pub use stand_in::{sleep_while, wake};

/// The longest sleep at a time: signals and the abort word are looked at in between.
/// By judgement: a signal is heard within a tenth of a second, and `tartan bench comm parts=idle` is far below its bar.
/// At half of it sleepers wake twice as often.
pub const TURN: Duration = Duration::from_millis(100);

/// How often one looks before it sleeps: some 20 us, where nobody else wants the processor.
/// Measured by `tartan bench comm`: waking a sleeper takes some 60 us, so looking for a third of that pays where the
/// other is soon done.
#[cfg(not(loom))]
const LOOKS: u32 = 64;
#[cfg(loom)]
const LOOKS: u32 = 0;

/// Whether something is ready now or soon. Others have the processor between two looks: to wake a sleeper takes longer.
pub fn comes_soon(ready: impl Fn() -> bool) -> bool {
    for _ in 0..LOOKS {
        if ready() {
            return true;
        }
        std::thread::yield_now();
    }
    ready()
}

/// How long one rank looks before it sleeps, where there is a core for every rank: as long again as waits took lately.
#[cfg(not(loom))]
pub struct LookTime {
    /// Nanoseconds of a wait, a running mean; none where ranks outnumber cores.
    typical: Option<AtomicU32>,
}

#[cfg(not(loom))]
impl LookTime {
    /// The longest time that one looks.
    /// MOST and COUNTED, by judgement: as long as a slice of the scheduler, after which others get the core anyway.
    /// `tartan bench comm parts=programs` measured the three programs with it.
    const MOST: Duration = Duration::from_millis(8);
    /// As long a wait counts at most, so that a single long one is soon forgotten.
    /// By judgement, twice MOST.
    const COUNTED: Duration = Duration::from_millis(16);

    pub fn new(has_core: bool) -> Self {
        Self {
            typical: has_core.then(|| AtomicU32::new(0)),
        }
    }

    /// Whether something is ready before it is better to sleep.
    pub fn comes_soon(&self, begin: Instant, ready: impl Fn() -> bool) -> bool {
        if comes_soon(&ready) {
            return true;
        }
        let limit = self.limit();
        while begin.elapsed() < limit {
            if comes_soon(&ready) {
                return true;
            }
        }
        false
    }

    /// Take note of a wait that has ended.
    pub fn note(&self, begin: Instant) {
        if let Some(typical) = &self.typical {
            let took = begin.elapsed().min(Self::COUNTED).as_nanos() as u32;
            let before = typical.load(Ordering::Relaxed);
            typical.store(before - before / 4 + took / 4, Ordering::Relaxed);
        }
    }

    /// None of it where a wait would mostly be longer, as one would sleep after all.
    fn limit(&self) -> Duration {
        let typical = self
            .typical
            .as_ref()
            .map_or(0, |typical| typical.load(Ordering::Relaxed));
        let limit = 2 * Duration::from_nanos(u64::from(typical));
        if limit > Self::MOST {
            Duration::ZERO
        } else {
            limit
        }
    }
}

/// Sleep as long as a word has a value; also ends by a wake, by a signal, or at the limit.
#[cfg(not(loom))]
pub fn sleep_while(word: &AtomicU32, value: u32, limit: Duration) {
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    // SAFETY: a word of shared memory that outlives the call, and a limit on the stack.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            &raw const limit,
        )
    };
}

/// Wake all that sleep on a word.
#[cfg(not(loom))]
pub fn wake(word: &AtomicU32) {
    // SAFETY: a word of shared memory; the call reads nothing else.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Sleep until `ready` holds, `word` having changed then, or the limit is reached. `sleepers` is counted up meanwhile.
pub fn sleep_unless(
    word: &AtomicU32,
    value: u32,
    sleepers: &AtomicU32,
    limit: Duration,
    ready: impl Fn() -> bool,
) {
    sleepers.fetch_add(1, Ordering::SeqCst);
    fence(OrderNeed::SleeperFence);
    if !ready() {
        sleep_while(word, value, limit);
    }
    sleepers.fetch_sub(1, Ordering::SeqCst);
}

/// Wake those who sleep on a word that was written before this call.
pub fn wake_sleepers(word: &AtomicU32, sleepers: &AtomicU32) {
    fence(OrderNeed::WakerFence);
    if sleepers.load(Ordering::Relaxed) != 0 {
        wake(word);
    }
}

/// Let naps end after microseconds, not after the system's usual slack of 50.
pub fn sharpen_timer() {
    // SAFETY: changes the slack of this thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000_u64) };
}

/// The futex for loom: to compare and to fall asleep is one step for those who wake. A sleep has no limit here, so that
/// a lost wake is a deadlock, which loom reports.
#[cfg(loom)]
mod stand_in {
    use super::{AtomicU32, Duration, Ordering};
    use loom::sync::{Condvar, Mutex};

    loom::lazy_static! {
        static ref BED: Mutex<()> = Mutex::new(());
        static ref ALARM: Condvar = Condvar::new();
    }

    pub fn sleep_while(word: &AtomicU32, value: u32, _limit: Duration) {
        let held = BED.lock().unwrap();
        if word.load(Ordering::Relaxed) == value {
            drop(ALARM.wait(held).unwrap());
        }
    }

    pub fn wake(_word: &AtomicU32) {
        let _held = BED.lock().unwrap();
        ALARM.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn waited(patience: &LookTime, times: usize, took: Duration) {
        for _ in 0..times {
            patience.note(Instant::now().checked_sub(took).unwrap());
        }
    }

    #[test]
    fn one_looks_as_long_again_as_waits_took() {
        let patience = LookTime::new(true);
        assert_eq!(patience.limit(), Duration::ZERO);
        waited(&patience, 30, Duration::from_millis(1));
        let limit = patience.limit();
        assert!(limit > Duration::from_micros(1900) && limit < Duration::from_millis(3));
        waited(&patience, 1, Duration::from_secs(10));
        assert_eq!(patience.limit(), Duration::ZERO);
        waited(&patience, 3, Duration::from_micros(10));
        assert!(patience.limit() > Duration::ZERO && patience.limit() <= LookTime::MOST);
    }

    #[test]
    fn nobody_looks_longer_where_ranks_outnumber_cores() {
        let patience = LookTime::new(false);
        waited(&patience, 30, Duration::from_millis(1));
        assert_eq!(patience.limit(), Duration::ZERO);
    }
}
