//! Bounded queues between threads whose every wait ends when the job stops.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use crate::control::{Control, Flow, PATIENCE};
use crate::error::Result;

struct State<T> {
    items: VecDeque<T>,
    closed: bool,
}

/// A queue of at most `room` items; closed by its senders when nothing more comes.
pub struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    room: usize,
}

impl<T> Queue<T> {
    pub fn new(room: usize) -> Queue<T> {
        Queue {
            state: Mutex::new(State {
                items: VecDeque::with_capacity(room),
                closed: false,
            }),
            changed: Condvar::new(),
            room,
        }
    }

    /// Append, waiting for room; the wait is booked on `flow`.
    pub fn send(&self, item: T, control: &Control, flow: &Flow) -> Result<()> {
        let since = Instant::now();
        let mut state = self.state.lock().expect("no holder panics");
        while state.items.len() >= self.room {
            control.check()?;
            state = self
                .changed
                .wait_timeout(state, PATIENCE)
                .expect("no holder panics")
                .0;
        }
        state.items.push_back(item);
        drop(state);
        self.changed.notify_all();
        flow.waited(since);
        Ok(())
    }

    /// The oldest item; None once the queue is closed and empty.
    pub fn receive(&self, control: &Control, flow: &Flow) -> Result<Option<T>> {
        let since = Instant::now();
        let mut state = self.state.lock().expect("no holder panics");
        loop {
            control.check()?;
            if let Some(item) = state.items.pop_front() {
                drop(state);
                self.changed.notify_all();
                flow.waited(since);
                return Ok(Some(item));
            }
            if state.closed {
                return Ok(None);
            }
            state = self
                .changed
                .wait_timeout(state, PATIENCE)
                .expect("no holder panics")
                .0;
        }
    }

    /// Say that nothing more comes.
    pub fn close(&self) {
        self.state.lock().expect("no holder panics").closed = true;
        self.changed.notify_all();
    }

    /// Drop what waits.
    pub fn clear(&self) {
        self.state.lock().expect("no holder panics").items.clear();
    }

    /// How many items wait.
    pub fn len(&self) -> usize {
        self.state.lock().expect("no holder panics").items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Edge;

    #[test]
    fn items_come_in_order_and_the_end_is_seen() {
        let (control, queue) = (Control::default(), Queue::new(2));
        let flow = control.flow(Edge::Sort);
        let got = std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..10 {
                    queue.send(i, &control, flow).unwrap();
                }
                queue.close();
            });
            let mut got = Vec::new();
            while let Some(item) = queue.receive(&control, flow).unwrap() {
                assert!(queue.len() <= 2);
                got.push(item);
            }
            got
        });
        assert_eq!(got, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn a_stop_ends_both_waits() {
        let (control, queue) = (Control::default(), Queue::new(1));
        let flow = control.flow(Edge::Sort);
        queue.send(1, &control, flow).unwrap();
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| queue.send(2, &control, flow));
            control.cancel();
            assert!(sender.join().unwrap().is_err());
        });
        assert!(queue.receive(&control, flow).is_err());
    }
}
