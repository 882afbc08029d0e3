//! Bounded queues between threads whose every wait ends when the job stops.

use std::sync::Mutex;
use std::time::Instant;

use crossbeam_channel::{bounded, Receiver, RecvTimeoutError, SendTimeoutError, Sender};

use crate::control::{Control, Flow, PATIENCE};
use crate::error::{JobFailure, Result};

/// A queue of limited length; closed by its senders when nothing more comes.
pub struct Queue<T> {
    /// None once the queue is closed.
    sender: Mutex<Option<Sender<T>>>,
    receiver: Receiver<T>,
}

impl<T> Queue<T> {
    pub fn new(most: usize) -> Queue<T> {
        let (sender, receiver) = bounded(most);
        Queue {
            sender: Mutex::new(Some(sender)),
            receiver,
        }
    }

    /// Append, and wait while the queue is full; the wait is booked on `flow`.
    pub fn send(&self, mut item: T, control: &Control, flow: &Flow) -> Result<()> {
        let since = Instant::now();
        let sender = self.sender.lock().expect("no holder panics").clone();
        let sender = sender.ok_or_else(|| JobFailure::misuse("the queue is closed"))?;
        while let Err(SendTimeoutError::Timeout(back)) = sender.send_timeout(item, PATIENCE) {
            control.check()?;
            item = back;
        }
        flow.waited(since);
        Ok(())
    }

    /// The oldest item; None once the queue is closed and empty.
    pub fn receive(&self, control: &Control, flow: &Flow) -> Result<Option<T>> {
        let since = Instant::now();
        loop {
            control.check()?;
            match self.receiver.recv_timeout(PATIENCE) {
                Ok(item) => {
                    flow.waited(since);
                    return Ok(Some(item));
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Say that nothing more comes.
    pub fn close(&self) {
        self.sender.lock().expect("no holder panics").take();
    }

    /// Drop what waits.
    pub fn clear(&self) {
        self.receiver.try_iter().for_each(drop);
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
                assert!(queue.receiver.len() <= 2);
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
