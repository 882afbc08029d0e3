//! The side of a rank: post requests and carry them out, sleep until they are answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::arena::{Arena, WaitNote, Window, IN_BASE};
use crate::desk::{NodeDesk, Places};
use crate::heap::{give_back, payload_at, Heap};
use crate::line::{flag, op, status, ReplyBody, RequestBody, RING};
use crate::stream::{stream_bytes, Draining, Filling};
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
    /// What is being sent in parts.
    filling: Option<Filling>,
    /// The memory of other nodes of this machine, by rank.
    near: HashMap<i32, Arc<Window>>,
}

/// How long one looks for the next part of a stream without offering the core to others, and before one naps in between,
/// and for how long.
/// SPIN, LOOK and NAP, by arithmetic: a part of 128 KiB comes every 10 to 30 us; LOOK is a slice of the scheduler.
const SPIN: Duration = Duration::from_micros(50);
const LOOK: Duration = Duration::from_millis(4);
const NAP: Duration = Duration::from_micros(50);

/// The memory of this node, or of another one of this machine.
#[derive(Clone)]
pub enum BlockMemory {
    Here(Arc<Arena>),
    Near(Arc<Window>),
}

impl BlockMemory {
    pub fn window(&self) -> &Window {
        match self {
            Self::Here(arena) => &arena.base,
            Self::Near(window) => window,
        }
    }

    /// The description in a block, and where its payload begins.
    pub fn description(&self, block: u64) -> (Vec<u8>, usize) {
        let block = block as usize;
        let mut length = [0; 4];
        self.window().read(block + 4, &mut length);
        let mut description = vec![0; u32::from_ne_bytes(length) as usize];
        self.window().read(block + 64, &mut description);
        let begin = block + payload_at(description.len());
        (description, begin)
    }

    /// Give a block back that was received.
    pub fn give_back(&self, block: u64) {
        give_back(self.window(), block as usize);
    }
}

/// A wait for the next part of a stream.
struct PartWait {
    begin: Instant,
    checked: Instant,
}

impl PartWait {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            begin: now,
            checked: now,
        }
    }

    /// Wait a little, the longer the more was waited.
    fn wait(&mut self, arena: &Arena, check: KeepWaiting<'_>) -> Result<(), WaitEnd> {
        if arena.aborted() {
            return Err(WaitEnd::Aborted);
        }
        if self.checked.elapsed() > TURN {
            self.checked = Instant::now();
            if !check() {
                return Err(WaitEnd::Interrupted);
            }
        }
        match self.begin.elapsed() {
            waited if waited < SPIN => std::hint::spin_loop(),
            waited if waited < LOOK => std::thread::yield_now(),
            _ => std::thread::sleep(NAP),
        }
        Ok(())
    }
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
            filling: None,
            near: HashMap::new(),
        }
    }

    /// Read large payloads of some ranks where they lie, in the memory of another node.
    pub fn add_near(&mut self, ranks: impl Iterator<Item = i32>, window: Window) {
        let window = Arc::new(window);
        self.near
            .extend(ranks.map(|rank| (rank, Arc::clone(&window))));
    }

    /// The memory in which the block of a message of a rank lies.
    pub fn memory_of(&self, source: i32, in_parts: bool) -> BlockMemory {
        match self.near.get(&source) {
            Some(window) if in_parts => BlockMemory::Near(Arc::clone(window)),
            _ => BlockMemory::Here(Arc::clone(&self.arena)),
        }
    }

    /// Whether a payload for a rank may go in parts: to one of this node, or one that maps its memory.
    pub fn may_stream(&self, to: usize) -> bool {
        let reads = |to: usize| self.desk.is_here(to) || self.near.contains_key(&(to as i32));
        self.arena.layout.streams && reads(to)
    }

    /// Begin to send a payload in parts; return the number of the request. `finish_stream` ends it.
    ///
    /// # Errors
    /// Where there is no room for all of it, or the waits were ended.
    ///
    /// # Safety
    /// The payload lives and stays the same until then.
    pub unsafe fn begin_stream(
        &mut self,
        mut request: RequestBody,
        description: &[u8],
        payload: &[u8],
        check: KeepWaiting<'_>,
    ) -> Result<u64, WaitEnd> {
        let (block, begin) = self.describe(description, stream_bytes(payload.len()))?;
        // SAFETY: as this function asks.
        self.filling = Some(unsafe { Filling::new(&self.arena.base, block, begin, payload) });
        request.flags |= flag::STREAM;
        request.address = block as u64;
        let posted = self.post(request, check);
        if posted.is_err() {
            self.filling = None;
        }
        posted
    }

    /// Send a payload in parts, and wait for the reply.
    ///
    /// # Errors
    /// Where there is no room for all of it, or the wait is ended.
    pub fn send_stream(
        &mut self,
        request: RequestBody,
        description: &[u8],
        payload: &[u8],
        check: KeepWaiting<'_>,
    ) -> Result<ReplyBody, WaitEnd> {
        // SAFETY: the stream is ended before the payload is.
        let seq = unsafe { self.begin_stream(request, description, payload, check) }?;
        self.finish_stream();
        self.answered(seq, &request, check)
    }

    /// Copy all the rest of what is being sent.
    pub fn finish_stream(&mut self) {
        while self.fill() && !self.arena.aborted() {}
        self.filling = None;
    }

    /// Copy a part of what is being sent; return whether there was one.
    fn fill(&mut self) -> bool {
        let Some(filling) = &mut self.filling else {
            return false;
        };
        filling.fill(&self.arena.base);
        if filling.is_done() {
            self.filling = None;
        }
        true
    }

    /// Publish a request and wait for its reply; what is being sent goes on meanwhile.
    ///
    /// # Errors
    /// Where the wait is ended.
    pub fn ask_beside(
        &mut self,
        request: RequestBody,
        check: KeepWaiting<'_>,
    ) -> Result<ReplyBody, WaitEnd> {
        let seq = self.post(request, check)?;
        let line = self.arena.reply(self.me, seq);
        // SAFETY: the line is answered for this rank alone, which reads it before it asks in it again.
        while unsafe { (*line).take(seq) }.is_none() && self.fill() {}
        self.answered(seq, &request, check)
    }

    /// Copy a payload that comes in parts, and give its block back; what is being sent goes on meanwhile.
    ///
    /// # Errors
    /// Where the waits are ended.
    pub fn drain(
        &mut self,
        memory: &BlockMemory,
        block: u64,
        begin: usize,
        out: &mut [u8],
        check: KeepWaiting<'_>,
    ) -> Result<(), WaitEnd> {
        let arena = Arc::clone(&self.arena);
        let mut draining = Draining::new(block as usize, begin);
        let mut pause = PartWait::new();
        while draining.drained() < out.len() {
            if draining.drain(memory.window(), out) | self.fill() {
                pause = PartWait::new();
            } else {
                pause.wait(&arena, check)?;
            }
        }
        memory.give_back(block);
        Ok(())
    }

    /// Wait until a payload that comes in parts lies in its block as a whole; return where.
    ///
    /// # Errors
    /// Where the waits are ended.
    pub fn whole(
        &mut self,
        memory: &BlockMemory,
        block: u64,
        begin: usize,
        bytes: usize,
        check: KeepWaiting<'_>,
    ) -> Result<usize, WaitEnd> {
        let arena = Arc::clone(&self.arena);
        let stream = Draining::new(block as usize, begin);
        let mut pause = PartWait::new();
        loop {
            if let Some(place) = stream.whole(memory.window(), bytes) {
                return Ok(place);
            }
            if !self.fill() {
                pause.wait(&arena, check)?;
            }
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
        let (block, begin) = self.describe(description, payload.len())?;
        self.arena.base.write(begin, payload);
        Ok(block as u64)
    }

    /// Take a block for a description and a payload of so many bytes; return it, and where the payload begins.
    fn describe(&mut self, description: &[u8], payload: usize) -> Result<(usize, usize), WaitEnd> {
        let begin = payload_at(description.len());
        let base = &self.arena.base;
        let bytes = begin + payload;
        let block = self.heap.take(base, bytes).ok_or(WaitEnd::NoRoom(bytes))?;
        base.write(block + 4, &(description.len() as u32).to_ne_bytes());
        base.write(block + 64, description);
        Ok((block, block + begin))
    }
}
