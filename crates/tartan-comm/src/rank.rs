//! The side of a rank: post requests and carry them out, sleep until they are answered.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Instant;

use crate::arena::{Arena, WaitNote, IN_BASE};
use crate::desk::{NodeDesk, Places};
use crate::heap::{give_back, payload_at, Heap};
use crate::line::{op, status, ReplyBody, RequestBody, RING};
use crate::wait::{sleep_unless, LookTime, TURN};

/// Why a wait has ended without what was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The arena was aborted; `Arena::reason` says why.
    Aborted,
    /// The check said so.
    Interrupted,
    /// There is no room for a payload of so many bytes.
    NoRoom(usize),
}

/// Called now and then in long waits; false ends them.
pub type KeepWaiting<'a> = &'a mut dyn FnMut() -> bool;

/// One rank of a node.
pub struct NodeRank {
    pub arena: Arc<Arena>,
    me: usize,
    seq: u64,
    desk: NodeDesk,
    heap: Heap,
    patience: LookTime,
}

impl NodeRank {
    /// The rank of this number on its node. It may look for what comes where there is a core for every rank.
    pub fn new(arena: Arc<Arena>, places: Places, me: usize, has_core: bool) -> Self {
        let layout = arena.layout;
        Self {
            patience: LookTime::new(has_core),
            desk: NodeDesk::new(Arc::clone(&arena), places),
            heap: Heap::new(layout.heap_at(me), layout.heap),
            arena,
            me,
            seq: 0,
        }
    }

    /// Publish a request (R1), carry it out, and return its number.
    ///
    /// # Errors
    /// Where all lines are in use and the wait for one is ended.
    pub fn post(&mut self, request: RequestBody, check: KeepWaiting<'_>) -> Result<u64, WaitEnd> {
        if self.arena.aborted() {
            return Err(WaitEnd::Aborted);
        }
        let seq = self.seq + 1;
        if seq > RING {
            self.answered(seq - RING, &request, check)?;
        }
        self.seq = seq;
        // SAFETY: the line is this rank's, and the request before in it was answered, as just seen.
        unsafe { (*self.arena.request(self.me, seq)).publish(seq, request) };
        if !self.desk.serve_rank(self.me) {
            return Err(WaitEnd::Aborted);
        }
        Ok(seq)
    }

    /// Publish a request and wait for its reply.
    ///
    /// # Errors
    /// Where the wait is ended.
    pub fn ask(
        &mut self,
        request: RequestBody,
        check: KeepWaiting<'_>,
    ) -> Result<ReplyBody, WaitEnd> {
        let seq = self.post(request, check)?;
        self.answered(seq, &request, check)
    }

    /// Wait until one of several deferred requests has ended; `WAIT` or `TEST` of it is answered at once then. Return
    /// false where one of them is not known.
    ///
    /// # Errors
    /// Where the wait is ended.
    pub fn wait_any(&mut self, requests: &[u64], check: KeepWaiting<'_>) -> Result<bool, WaitEnd> {
        let waiter = self.seq + requests.len() as u64 + 1;
        for &request in requests {
            let watch = RequestBody {
                op: op::WATCH,
                address: request,
                bytes: waiter,
                ..RequestBody::default()
            };
            match self.ask(watch, check)?.status {
                status::PENDING => {}
                outcome => return Ok(outcome == status::DONE),
            }
        }
        let any = RequestBody {
            op: op::WAIT_ANY,
            bytes: requests.len() as u64,
            ..RequestBody::default()
        };
        self.ask(any, check).map(|_| true)
    }

    fn answered(
        &self,
        seq: u64,
        request: &RequestBody,
        check: KeepWaiting<'_>,
    ) -> Result<ReplyBody, WaitEnd> {
        let line = self.arena.reply(self.me, seq);
        // SAFETY: the line is answered for this rank alone, which reads it before it asks in it again.
        let take = || unsafe { (*line).take(seq) };
        let at = self.arena.ack_at(self.me, seq);
        let waiting = || WaitNote {
            epoch: 0,
            call: u32::from(request.op),
            peer: request.peer,
            tag: request.tag,
            slot: IN_BASE,
            offset: at as u64,
            expected: seq.saturating_sub(RING) as u32,
            text: String::new(),
        };
        let ready = || take().is_some();
        let sleepers = self.arena.sleeps(self.me);
        self.sleep(self.arena.base.word(at), sleepers, &ready, &waiting, check)?;
        take().ok_or(WaitEnd::Interrupted)
    }

    /// Wait until something is ready; `word` changes then.
    ///
    /// # Errors
    /// Where the wait is ended.
    pub fn sleep(
        &self,
        word: &AtomicU32,
        sleepers: &AtomicU32,
        ready: &dyn Fn() -> bool,
        waiting: &dyn Fn() -> WaitNote,
        check: KeepWaiting<'_>,
    ) -> Result<(), WaitEnd> {
        if ready() {
            return Ok(());
        }
        let begin = Instant::now();
        if self.patience.comes_soon(begin, ready) {
            self.patience.note(begin);
            return Ok(());
        }
        let told = waiting();
        self.begin_wait(&told);
        let ended = loop {
            let value = word.load(Ordering::SeqCst);
            sleep_unless(word, value, sleepers, TURN, || {
                ready() || self.arena.aborted()
            });
            if ready() {
                break Ok(());
            }
            if self.arena.aborted() {
                break Err(WaitEnd::Aborted);
            }
            if !check() {
                break Err(WaitEnd::Interrupted);
            }
        };
        self.arena.epoch(self.me).fetch_add(1, Ordering::SeqCst);
        self.patience.note(begin);
        ended
    }

    fn begin_wait(&self, told: &WaitNote) {
        self.arena.describe(self.me, told);
        self.arena.epoch(self.me).fetch_add(1, Ordering::SeqCst);
    }

    /// Say that this rank has returned and asks for nothing any more.
    pub fn end(&self) {
        self.arena.end(self.me);
    }

    /// Put a payload and its description into a block for the receiver.
    ///
    /// # Errors
    /// Where there is no room.
    pub fn lay_out(&mut self, description: &[u8], payload: &[u8]) -> Result<u64, WaitEnd> {
        let begin = payload_at(description.len());
        let base = &self.arena.base;
        let bytes = begin + payload.len();
        let block = self.heap.take(base, bytes).ok_or(WaitEnd::NoRoom(bytes))?;
        base.write(block + 4, &(description.len() as u32).to_ne_bytes());
        base.write(block + 64, description);
        base.write(block + begin, payload);
        Ok(block as u64)
    }

    /// The description in a block, and where its payload begins.
    pub fn description(&self, block: u64) -> (Vec<u8>, usize) {
        let block = block as usize;
        let mut length = [0; 4];
        self.arena.base.read(block + 4, &mut length);
        let mut description = vec![0; u32::from_ne_bytes(length) as usize];
        self.arena.base.read(block + 64, &mut description);
        let begin = block + payload_at(description.len());
        (description, begin)
    }

    /// Give a block back that was received.
    pub fn give_back(&self, block: u64) {
        give_back(&self.arena.base, block as usize);
    }
}
