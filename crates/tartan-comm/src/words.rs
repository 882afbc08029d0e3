//! Single words by which ranks agree: who has the desk, meetings, blocks in use, the abort word. Where they lie, others know.

use crate::sync::{order, AtomicU32, AtomicU64, OrderNeed, Ordering};
use crate::wait::{comes_soon, sleep_while, wake, wake_sleepers, TURN};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and others may sleep until it is free.
/// By format of a word: FREE, HELD, WANTED.
const WANTED: u32 = 2;

/// Take the desk; wait while another has it. False where `stop` says so before it is free.
pub fn take_desk(desk: &AtomicU32, stop: impl Fn() -> bool) -> bool {
    if comes_soon(|| try_desk(desk)) {
        return true;
    }
    while desk.swap(WANTED, order(OrderNeed::TakeDesk, Ordering::Acquire)) != FREE {
        if stop() {
            return false;
        }
        sleep_while(desk, WANTED, TURN);
    }
    true
}

/// Take the desk if nobody has it.
pub fn try_desk(desk: &AtomicU32) -> bool {
    let strong = order(OrderNeed::TakeDesk, Ordering::Acquire);
    desk.compare_exchange(FREE, HELD, strong, Ordering::Relaxed)
        .is_ok()
}

/// Leave the desk to the others.
pub fn leave_desk(desk: &AtomicU32) {
    if desk.swap(FREE, order(OrderNeed::LeaveDesk, Ordering::Release)) == WANTED {
        wake(desk);
    }
}

/// Count a rank that has come to a round; return whether it is the last of `locals`.
pub fn arrive(arrivals: &AtomicU32, locals: u32, round: u32) -> bool {
    let before = arrivals.fetch_add(1, order(OrderNeed::Arrive, Ordering::AcqRel));
    before.wrapping_add(1) == locals.wrapping_mul(round)
}

/// Let go on who meets in a round.
pub fn release(released: &AtomicU32, sleepers: &AtomicU32, round: u32) {
    released.store(round, order(OrderNeed::Release, Ordering::Release));
    wake_sleepers(released, sleepers);
}

/// Whether a round is over.
pub fn is_released(released: &AtomicU32, round: u32) -> bool {
    released.load(order(OrderNeed::Released, Ordering::Acquire)) == round
}

/// Give a block back; nothing of it is read afterwards.
pub fn give_back(in_use: &AtomicU32) {
    in_use.store(0, order(OrderNeed::GiveBack, Ordering::Release));
}

/// Whether a block was given back, and may be written again.
pub fn is_free(in_use: &AtomicU32) -> bool {
    in_use.load(order(OrderNeed::Collect, Ordering::Acquire)) == 0
}

/// Tell how many bytes of a stream were filled or drained.
pub fn note_moved(moved: &AtomicU64, bytes: u64) {
    moved.store(bytes, order(OrderNeed::Moved, Ordering::Release));
}

/// How many bytes of a stream the other side has filled or drained.
pub fn moved(moved: &AtomicU64) -> u64 {
    moved.load(order(OrderNeed::TakeMoved, Ordering::Acquire))
}

/// Claim the right to give the reason of an abort: the first one counts.
pub fn claim_abort(word: &AtomicU32) -> bool {
    word.compare_exchange(0, 2, Ordering::SeqCst, Ordering::SeqCst)
        .is_ok()
}

/// End all waits; the reason is written.
pub fn abort(word: &AtomicU32) {
    word.store(1, order(OrderNeed::Abort, Ordering::SeqCst));
}

/// Whether all waits were ended (R7).
pub fn is_aborted(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) == 1
}

/// The same, before the reason is read.
pub fn has_reason(word: &AtomicU32) -> bool {
    word.load(order(OrderNeed::TakeReason, Ordering::Acquire)) == 1
}
