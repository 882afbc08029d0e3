//! The rules of order, by loom: it tries every interleaving and every value that a load may see. `cargo test` alone
//! runs none of it: `RUSTFLAGS="--cfg loom" cargo test --release -p tartan-comm --test loom`, as `make test-all` does.
#![cfg(loom)]

use std::panic::{catch_unwind, AssertUnwindSafe};

use loom::sync::Arc;
use loom::thread;
use tartan_comm::line::{ReplyBody, ReplyLine, RequestBody, RequestLine};
use tartan_comm::sync::{with, AtomicU32, AtomicU64, OrderNeed, Ordering, PlainCell};
use tartan_comm::wait::{sleep_unless, wake_sleepers, TURN};
use tartan_comm::words;

fn explore(model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// The model holds, and each of these needs is reported when it is not met.
fn holds_and_needs(model: fn(), needs: &[OrderNeed]) {
    with(None, || explore(model));
    for &need in needs {
        let found = with(Some(need), || {
            catch_unwind(AssertUnwindSafe(|| explore(model)))
        });
        assert!(found.is_err(), "{need:?} is not needed");
    }
}

/// R1 to R4: a request goes to the proxy, its reply comes back.
fn lines() {
    let both = Arc::new((RequestLine::default(), ReplyLine::default()));
    let its = Arc::clone(&both);
    let proxy = thread::spawn(move || loop {
        // SAFETY: the only reader of the request, and the only writer of the reply.
        if let Some(request) = unsafe { its.0.take(1) } {
            let reply = ReplyBody {
                tag: request.tag + 1,
                ..ReplyBody::default()
            };
            return unsafe { its.1.publish(1, reply) };
        }
        thread::yield_now();
    });
    let request = RequestBody {
        tag: 7,
        ..RequestBody::default()
    };
    // SAFETY: the only writer of the request, and the only reader of the reply.
    unsafe { both.0.publish(1, request) };
    let reply = loop {
        if let Some(reply) = unsafe { both.1.take(1) } {
            break reply;
        }
        thread::yield_now();
    };
    assert_eq!(reply.tag, 8);
    proxy.join().unwrap();
}

#[test]
fn lines_hand_over_what_they_hold() {
    let needs = [
        OrderNeed::Publish,
        OrderNeed::TakeRequest,
        OrderNeed::Answer,
        OrderNeed::TakeAnswer,
    ];
    holds_and_needs(lines, &needs);
}

/// R6: one sleeps until another has written.
fn sleep_and_wake() {
    let words = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
    let its = Arc::clone(&words);
    let waker = thread::spawn(move || {
        its.0.store(1, Ordering::Release);
        wake_sleepers(&its.0, &its.1);
    });
    let (word, sleepers) = (&words.0, &words.1);
    let ready = || word.load(Ordering::Acquire) == 1;
    while !ready() {
        sleep_unless(word, 0, sleepers, TURN, ready);
    }
    waker.join().unwrap();
}

#[test]
fn no_wake_is_lost() {
    holds_and_needs(
        sleep_and_wake,
        &[OrderNeed::SleeperFence, OrderNeed::WakerFence],
    );
}

/// R2: two take the desk in turn, and see what the other has remembered there; no wake is lost.
fn desk() {
    let both = Arc::new((AtomicU32::new(0), PlainCell::new(0)));
    let its = Arc::clone(&both);
    let visit = |both: &(AtomicU32, PlainCell<u32>)| {
        assert!(words::take_desk(&both.0, || false));
        // SAFETY: this one has the desk.
        unsafe { both.1.set(both.1.get() + 1) };
        words::leave_desk(&both.0);
    };
    let other = thread::spawn(move || (visit(&its), visit(&its)));
    visit(&both);
    other.join().unwrap();
    assert!(words::try_desk(&both.0));
    // SAFETY: this one has the desk.
    assert_eq!(unsafe { both.1.get() }, 3);
}

#[test]
fn one_at_a_time_has_the_desk() {
    holds_and_needs(desk, &[OrderNeed::TakeDesk, OrderNeed::LeaveDesk]);
}

/// R7: who sees the abort word by `has_reason` sees the reason.
fn abort() {
    let both = Arc::new((AtomicU32::new(0), PlainCell::new(0)));
    let its = Arc::clone(&both);
    let other = thread::spawn(move || {
        if words::claim_abort(&its.0) {
            // SAFETY: claimed.
            unsafe { its.1.set(5) };
            words::abort(&its.0);
        }
    });
    while !words::is_aborted(&both.0) {
        thread::yield_now();
    }
    if words::has_reason(&both.0) {
        // SAFETY: written before the word.
        assert_eq!(unsafe { both.1.get() }, 5);
    }
    other.join().unwrap();
}

#[test]
fn a_reason_is_whole() {
    holds_and_needs(abort, &[OrderNeed::Abort, OrderNeed::TakeReason]);
}

/// A block is written again after its reader has given it back.
fn blocks() {
    let both = Arc::new((AtomicU32::new(1), PlainCell::new(5)));
    let its = Arc::clone(&both);
    let reader = thread::spawn(move || {
        // SAFETY: the block is in use until it is given back.
        assert_eq!(unsafe { its.1.get() }, 5);
        words::give_back(&its.0);
    });
    while !words::is_free(&both.0) {
        thread::yield_now();
    }
    // SAFETY: nothing reads it any more.
    unsafe { both.1.set(6) };
    reader.join().unwrap();
}

#[test]
fn blocks_are_read_before_they_are_written_again() {
    holds_and_needs(blocks, &[OrderNeed::GiveBack, OrderNeed::Collect]);
}

/// Two parts of a stream by way of one place: the second is filled where the first was drained.
fn stream() {
    let all = Arc::new((AtomicU64::new(0), AtomicU64::new(0), PlainCell::new(0)));
    let its = Arc::clone(&all);
    let receiver = thread::spawn(move || {
        for part in 1..=2 {
            while words::moved(&its.0) < part {
                thread::yield_now();
            }
            // SAFETY: filled, and not filled again before it is drained.
            assert_eq!(unsafe { its.2.get() }, part);
            words::note_moved(&its.1, part);
        }
    });
    for part in 1..=2 {
        while words::moved(&all.1) + 1 < part {
            thread::yield_now();
        }
        // SAFETY: what was here is drained.
        unsafe { all.2.set(part) };
        words::note_moved(&all.0, part);
    }
    receiver.join().unwrap();
}

#[test]
fn parts_are_filled_before_they_are_read_and_drained_before_they_are_filled_again() {
    holds_and_needs(stream, &[OrderNeed::Moved, OrderNeed::TakeMoved]);
}

/// R8: three collectives of two ranks, in some halves in turn; one meeting each.
fn collectives<const HALVES: usize>() {
    struct Window {
        arrivals: AtomicU32,
        released: AtomicU32,
        sleepers: AtomicU32,
        halves: Vec<[PlainCell<u32>; 2]>,
    }
    fn rank(window: &Window, me: usize, halves: usize) {
        for turn in 1..=3_u32 {
            let half = &window.halves[turn as usize % halves];
            // SAFETY: nobody reads what collective `turn - 2` has left in this half, as all have entered the one after it.
            unsafe { half[me].set(turn) };
            if words::arrive(&window.arrivals, 2, turn) {
                words::release(&window.released, &window.sleepers, turn);
            }
            while window.released.load(Ordering::Relaxed) < turn {
                thread::yield_now();
            }
            words::is_released(&window.released, turn);
            // SAFETY: the other one has written it before the meeting.
            assert_eq!(unsafe { half[1 - me].get() }, turn);
        }
    }
    let halves = (0..HALVES)
        .map(|_| [PlainCell::new(0), PlainCell::new(0)])
        .collect();
    let window = Arc::new(Window {
        arrivals: AtomicU32::new(0),
        released: AtomicU32::new(0),
        sleepers: AtomicU32::new(0),
        halves,
    });
    let its = Arc::clone(&window);
    let other = thread::spawn(move || rank(&its, 1, HALVES));
    rank(&window, 0, HALVES);
    other.join().unwrap();
}

#[test]
fn two_halves_are_enough_and_one_is_not() {
    holds_and_needs(
        collectives::<2>,
        &[OrderNeed::Arrive, OrderNeed::Release, OrderNeed::Released],
    );
    assert!(catch_unwind(|| explore(collectives::<1>)).is_err());
}
