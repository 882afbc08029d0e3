//! What is answered: requests of the ranks of this node and messages of other nodes in, replies and messages out.
//!
//! What the desk remembers lies in the memory of the node, so that a rank carries out its own requests, and wakes at most
//! the rank that it answers. Who carries out a request holds the desk. A process that is killed there never leaves it: all
//! others give up when the waits are ended for its loss.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::arena::{Arena, Window, ENDED, HEADER, IN_BASE, PAGE, SMALL};
use crate::carried::{Head, ACK, HEAD, SEND};
use crate::heap::{give_back, payload_at, Heap};
use crate::line::{flag, op, status, ReplyBody, RequestBody, INLINE};
use crate::lists::{head_bytes, LIST, MATCHING, OF_NODE, OF_RANK, OUTCOMES, STOCK};
use crate::matching::{Label, Matching, ReceiveFilter};
use crate::meeting::NodeMeeting;
use crate::refusal;
use crate::shelf::{Full, List, Shelf};
use crate::wait::wake_sleepers;
use crate::words::{leave_desk, take_desk, try_desk};

/// Where the ranks are.
#[derive(Clone, Debug)]
pub struct Places {
    /// The node of each rank.
    pub node: Vec<u32>,
    /// This node, and its first rank.
    pub me: u32,
    pub first: usize,
}

/// Who sent a message, and by which request.
#[derive(Clone, Copy, Debug)]
struct Origin {
    rank: usize,
    seq: u64,
}

/// A message that lies in this node's memory.
#[derive(Clone, Copy, Debug)]
struct Message {
    origin: Origin,
    flags: u16,
    bytes: u64,
    block: u64,
    inline: [u8; INLINE],
}

#[derive(Clone, Copy, Debug)]
struct Receive {
    seq: u64,
    capacity: u64,
}

/// What has become of a deferred request.
#[derive(Clone, Copy)]
enum Outcome {
    Open,
    AskedBy(u64),
    /// Open, and the `WAIT_ANY` of this number waits for it or is about to.
    WatchedBy(u64),
    Known(ReplyBody),
}

/// A message to another node: the head, and the block that goes with it.
#[derive(Clone, Copy, Debug)]
struct Outgoing {
    node: u32,
    head: [u8; HEAD],
    block: Option<(usize, usize)>,
}

/// A message for another node, as the link carries it: the node, the head, where its block lies and its bytes.
pub type Carried = (u32, [u8; HEAD], Option<(usize, usize)>);

/// A probe that waits.
type Probe = (usize, u64, ReceiveFilter);

/// The desk of a node, as one of its processes sees it.
pub struct NodeDesk {
    arena: Arc<Arena>,
    places: Places,
    shelf: Shelf,
    heads: usize,
    matching: Vec<Matching<Message, Receive>>,
    probes: List<Probe>,
    outbox: List<Outgoing>,
    meetings: List<NodeMeeting>,
    /// Lines that were answered, and whose ranks may sleep.
    answered: Vec<(usize, u64)>,
    /// What came from other nodes: of the process that takes it in.
    inbound: Heap,
    windows: HashMap<u32, Window>,
}

/// Leaves the desk also where a request cannot be carried out to its end, which is a defect.
struct Leaving<'a>(&'a Arena);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = "the desk of this node has failed (a defect of Tartan; please report it)";
            self.0.abort(refusal::kind::DEFECT, text);
        }
        leave_desk(self.0.desk());
    }
}

impl NodeDesk {
    pub fn new(arena: Arc<Arena>, places: Places) -> Self {
        let layout = arena.layout;
        let (heads, bytes) = layout.desk();
        let nodes = (heads + head_bytes(layout.ranks)).next_multiple_of(PAGE);
        let ranks = heads + OF_NODE;
        let matching = |rank| Matching::new(ranks + rank * OF_RANK + 8);
        Self {
            places,
            shelf: Shelf::new(Arc::clone(&arena), heads, nodes, heads + bytes - nodes),
            heads: ranks,
            matching: (0..layout.ranks).map(matching).collect(),
            probes: List::new(heads + STOCK),
            outbox: List::new(heads + STOCK + LIST),
            meetings: List::new(heads + STOCK + 2 * LIST),
            answered: Vec::new(),
            inbound: Heap::new(layout.heap_at(layout.ranks), layout.heap),
            windows: HashMap::new(),
            arena,
        }
    }

    /// Do something while nobody else has the desk, then wake who was answered; None where all waits were ended.
    fn alone<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let arena = Arc::clone(&self.arena);
        if !take_desk(arena.desk(), || arena.aborted()) {
            return None;
        }
        let leaving = Leaving(&arena);
        let result = work(self);
        drop(leaving);
        for (rank, seq) in self.answered.drain(..) {
            let word = arena.base.word(arena.ack_at(rank, seq));
            wake_sleepers(word, arena.sleeps(rank));
        }
        Some(result)
    }

    /// How many requests of a rank were read.
    fn read(&self, rank: usize) -> &AtomicU64 {
        self.arena.base.long(self.heads + rank * OF_RANK)
    }

    fn outcomes(&self, rank: usize, seq: u64) -> List<(u64, Outcome)> {
        let lists = self.heads + rank * OF_RANK + 8 + MATCHING;
        List::new(lists + (seq % OUTCOMES as u64) as usize * LIST)
    }

    /// End all waits where something cannot be remembered.
    fn require_room<T>(&self, kept: Result<T, Full>) -> Option<T> {
        let Ok(kept) = kept else {
            let text = format!(
                "more than {} messages and requests of a node wait to be received",
                self.shelf.len()
            );
            self.arena.abort(refusal::kind::NO_ROOM, &text);
            return None;
        };
        Some(kept)
    }

    /// Whether a rank is of this node.
    pub fn is_here(&self, rank: usize) -> bool {
        self.places.node.get(rank) == Some(&self.places.me)
    }

    /// Whether a request waits to be read.
    pub fn is_asked(&self) -> bool {
        (0..self.matching.len()).any(|rank| self.request(rank).is_some())
    }

    /// Carry out all requests that were published; return whether there was one.
    pub fn serve(&mut self) -> bool {
        if !self.is_asked() {
            return false;
        }
        let all = |desk: &mut Self| (0..desk.matching.len()).for_each(|rank| desk.read_all(rank));
        self.served(all)
    }

    /// Carry out what a rank of this process has published; return false where all waits were ended.
    pub fn serve_rank(&mut self, rank: usize) -> bool {
        self.served(|desk| desk.read_all(rank))
    }

    fn served(&mut self, work: impl FnOnce(&mut Self)) -> bool {
        let outgoing = self.alone(|desk| {
            work(desk);
            desk.has_outgoing()
        });
        if outgoing == Some(true) {
            self.arena.tell_leader();
        }
        outgoing.is_some()
    }

    fn read_all(&mut self, rank: usize) {
        while let Some((seq, request)) = self.request(rank) {
            self.read(rank).store(seq, Ordering::Relaxed);
            self.carry_out(rank, seq, &request);
        }
    }

    fn request(&self, rank: usize) -> Option<(u64, RequestBody)> {
        let seq = self.read(rank).load(Ordering::Relaxed) + 1;
        // SAFETY: the line lies in the arena; it is read by who has the desk, or to see whether it was published.
        let request = unsafe { (*self.arena.request(rank, seq)).take(seq) }?;
        Some((seq, request))
    }

    fn carry_out(&mut self, rank: usize, seq: u64, asked: &RequestBody) {
        if asked.flags & flag::DEFER != 0 {
            let outcomes = self.outcomes(rank, seq);
            self.require_room(self.shelf.push(&outcomes, (seq, Outcome::Open)));
            self.answer(rank, seq, pending());
        }
        let wanted = ReceiveFilter {
            source: asked.peer,
            tag: asked.tag,
            group: asked.group,
        };
        match asked.op {
            op::SEND => self.send(rank, seq, asked),
            op::RECV => {
                let receive = Receive {
                    seq,
                    capacity: asked.bytes,
                };
                let found = self.matching[rank].receive(&self.shelf, wanted, receive);
                if let Some((label, message, receive)) = self.require_room(found).flatten() {
                    self.matched(rank, label, &message, receive);
                }
            }
            op::WAIT => self.wait(rank, seq, asked.address),
            op::TEST => self.test(rank, seq, asked.address),
            op::WATCH => self.watch(rank, seq, asked.address, asked.bytes),
            op::WAIT_ANY => self.wait_any(rank, seq, asked.bytes),
            op::PROBE => self.probe(rank, seq, wanted, asked.flags & flag::NOW != 0),
            op::MEET => {
                self.require_room(self.shelf.push(&self.meetings, meeting(asked)));
                self.answer(rank, seq, ReplyBody::default());
            }
            op::ARRIVE => self.arrive_for(rank, seq, asked),
            op::FAIL => self.refuse(rank, asked),
            _ => self.answer(rank, seq, unknown()),
        }
    }

    /// A slot has come to a meeting: a GPU cannot count in memory that it shares with the host.
    fn arrive_for(&mut self, rank: usize, seq: u64, asked: &RequestBody) {
        self.answer(rank, seq, ReplyBody::default());
        if let Err(error) = self.count(meeting(asked)) {
            let text = format!("the window of a group: {error}");
            self.arena.abort(refusal::kind::NO_ROOM, &text);
        }
    }

    fn count(&mut self, meeting: NodeMeeting) -> io::Result<()> {
        let members = self.members(meeting.slot)?;
        let here = |&&member: &&u32| self.places.node[member as usize] == self.places.me;
        let locals = members.iter().filter(here).count();
        let (_, window) = self.window(meeting.slot)?;
        if !crate::meeting::arrive(window, locals as u32, meeting.round) {
            return Ok(());
        }
        if locals == members.len() || meeting.phase == 2 {
            crate::meeting::release(window, meeting.round);
        } else {
            self.require_room(self.shelf.push(&self.meetings, meeting));
        }
        Ok(())
    }

    /// A slot cannot go on: end all waits, for the reason that it gives.
    fn refuse(&mut self, rank: usize, asked: &RequestBody) {
        let half = asked.peer as usize;
        let calls = match self.window(asked.group) {
            Ok((arena, window)) if asked.flags == refusal::MISMATCH => {
                crate::meeting::calls(arena, window, half % 2)
            }
            _ => Vec::new(),
        };
        let place = self.places.first + rank;
        let (kind, text) = refusal::reason(place, self.places.node.len(), asked, &calls);
        self.arena.abort(kind, &text);
    }

    fn send(&mut self, rank: usize, seq: u64, asked: &RequestBody) {
        let origin = Origin {
            rank: self.places.first + rank,
            seq,
        };
        let message = Message {
            origin,
            flags: asked.flags & !flag::DEFER,
            bytes: asked.bytes,
            block: asked.address,
            inline: asked.inline,
        };
        let label = Label {
            source: origin.rank as i32,
            tag: asked.tag,
            group: asked.group,
        };
        let node = self.places.node[asked.peer as usize];
        if node == self.places.me {
            self.arrive(asked.peer as usize - self.places.first, label, message);
            return;
        }
        let head = Head {
            kind: SEND,
            from: origin.rank as u32,
            to: asked.peer as u32,
            tag: asked.tag,
            group: asked.group,
            flags: u32::from(message.flags),
            seq,
            bytes: asked.bytes,
            status: 0,
            inline: asked.inline,
        };
        if message.flags & flag::STREAM != 0 {
            // the receiver maps the memory of this node, and needs but the place
            let mut near = head;
            near.inline[..8].copy_from_slice(&asked.address.to_le_bytes());
            return self.post(node, &near, None);
        }
        let block = (message.flags & flag::INLINE == 0)
            .then(|| (asked.address as usize, self.block_bytes(asked)));
        self.post(node, &head, block);
    }

    fn post(&mut self, node: u32, head: &Head, block: Option<(usize, usize)>) {
        let head = head.packed();
        let outgoing = Outgoing { node, head, block };
        self.require_room(self.shelf.push(&self.outbox, outgoing));
    }

    fn block_bytes(&self, asked: &RequestBody) -> usize {
        let mut description = [0; 4];
        self.arena
            .base
            .read(asked.address as usize + 4, &mut description);
        payload_at(u32::from_ne_bytes(description) as usize) + asked.bytes as usize
    }

    fn arrive(&mut self, to: usize, label: Label, message: Message) {
        let found = self.matching[to].arrive(&self.shelf, label, message);
        match self.require_room(found) {
            Some(Some((message, receive))) => self.matched(to, label, &message, receive),
            Some(None) => self.tell_probe(to, label, &message),
            None => {}
        }
    }

    fn matched(&mut self, to: usize, label: Label, message: &Message, receive: Receive) {
        let too_long = message.bytes > receive.capacity;
        let outcome = if too_long {
            status::TOO_LONG
        } else {
            status::DONE
        };
        let near = message.flags & flag::STREAM != 0 && !self.is_here(message.origin.rank);
        if too_long && message.flags & flag::INLINE == 0 && !near {
            give_back(&self.arena.base, message.block as usize);
        }
        self.finish(to, receive.seq, described(label, message, outcome));
        self.tell_sender(label, message, outcome);
    }

    fn tell_sender(&mut self, label: Label, message: &Message, outcome: i32) {
        let Origin { rank, seq } = message.origin;
        let node = self.places.node[rank];
        if node == self.places.me {
            let reply = ReplyBody {
                status: outcome,
                bytes: message.bytes,
                tag: label.tag,
                ..ReplyBody::default()
            };
            return self.finish(rank - self.places.first, seq, reply);
        }
        let head = Head {
            kind: ACK,
            to: rank as u32,
            tag: label.tag,
            seq,
            bytes: message.bytes,
            status: outcome,
            flags: u32::from(message.flags & flag::STREAM),
            inline: message.inline,
            ..Head::default()
        };
        self.post(node, &head, None);
    }

    /// A request has ended: answer it, or who waits for it, or remember how.
    fn finish(&mut self, rank: usize, seq: u64, reply: ReplyBody) {
        let outcomes = self.outcomes(rank, seq);
        let its = |(other, _): &(u64, Outcome)| *other == seq;
        match self.shelf.find(&outcomes, its) {
            None => self.answer(rank, seq, reply),
            Some((_, Outcome::AskedBy(waiter))) => {
                self.shelf.remove(&outcomes, its);
                self.answer(rank, waiter, reply);
            }
            Some((_, watched)) => {
                self.shelf
                    .replace(&outcomes, its, (seq, Outcome::Known(reply)));
                if let Outcome::WatchedBy(waiter) = watched {
                    self.answer_waiting(rank, waiter);
                }
            }
        }
    }

    /// Answer a `WAIT_ANY`, if it was read and not answered: one that comes later sees for itself what has ended.
    fn answer_waiting(&mut self, rank: usize, waiter: u64) {
        let is_read = self.read(rank).load(Ordering::Relaxed) >= waiter;
        // SAFETY: the line lies in the arena; who has the desk is the only one to write it.
        let acknowledged = unsafe { (*self.arena.reply(rank, waiter)).acknowledged() };
        if is_read && acknowledged < waiter {
            self.answer(rank, waiter, ReplyBody::default());
        }
    }

    fn watch(&mut self, rank: usize, seq: u64, of: u64, waiter: u64) {
        let outcomes = self.outcomes(rank, of);
        let its = |(other, _): &(u64, Outcome)| *other == of;
        let reply = match self.shelf.find(&outcomes, its) {
            None => unknown(),
            Some((_, Outcome::Known(_))) => ReplyBody::default(),
            Some(_) => {
                self.shelf
                    .replace(&outcomes, its, (of, Outcome::WatchedBy(waiter)));
                pending()
            }
        };
        self.answer(rank, seq, reply);
    }

    /// Wait, unless one of the requests that were watched has ended meanwhile.
    fn wait_any(&mut self, rank: usize, seq: u64, watched: u64) {
        let open = Cell::new(0);
        for list in 0..OUTCOMES as u64 {
            self.shelf.find(&self.outcomes(rank, list), |(_, outcome)| {
                let waits = matches!(outcome, Outcome::WatchedBy(waiter) if *waiter == seq);
                open.set(open.get() + u64::from(waits));
                false
            });
        }
        if open.get() < watched {
            self.answer(rank, seq, ReplyBody::default());
        }
    }

    fn wait(&mut self, rank: usize, seq: u64, of: u64) {
        let outcomes = self.outcomes(rank, of);
        let its = |(other, _): &(u64, Outcome)| *other == of;
        match self.shelf.find(&outcomes, its) {
            None => self.answer(rank, seq, unknown()),
            Some((_, Outcome::Known(reply))) => {
                self.shelf.remove(&outcomes, its);
                self.answer(rank, seq, reply);
            }
            Some(_) => {
                self.shelf
                    .replace(&outcomes, its, (of, Outcome::AskedBy(seq)));
            }
        }
    }

    fn test(&mut self, rank: usize, seq: u64, of: u64) {
        let outcomes = self.outcomes(rank, of);
        match self.shelf.find(&outcomes, |(other, _)| *other == of) {
            Some((_, Outcome::Open | Outcome::AskedBy(_) | Outcome::WatchedBy(_))) => {
                self.answer(rank, seq, pending())
            }
            _ => self.wait(rank, seq, of),
        }
    }

    fn probe(&mut self, rank: usize, seq: u64, wanted: ReceiveFilter, now: bool) {
        match self.matching[rank].find(&self.shelf, wanted) {
            Some((label, message)) => {
                self.answer(rank, seq, described(label, &message, status::DONE))
            }
            None if now => self.answer(rank, seq, pending()),
            None => {
                self.require_room(self.shelf.push(&self.probes, (rank, seq, wanted)));
            }
        }
    }

    fn tell_probe(&mut self, to: usize, label: Label, message: &Message) {
        let asks = |probe: &Probe| probe.0 == to && probe.2.takes(&label);
        if let Some((rank, seq, _)) = self.shelf.remove(&self.probes, asks) {
            self.answer(rank, seq, described(label, message, status::DONE));
        }
    }

    fn answer(&mut self, rank: usize, seq: u64, reply: ReplyBody) {
        // SAFETY: the line lies in the arena; who has the desk is its only writer, and answers each request once.
        unsafe { (*self.arena.reply(rank, seq)).publish(seq, reply) };
        self.answered.push((rank, seq));
    }

    /// Take what is for other nodes: messages, whose blocks are given back by `sent` once they were carried, and meetings.
    pub fn take(&mut self) -> (Vec<Carried>, Vec<NodeMeeting>) {
        if !self.has_outgoing() {
            return (Vec::new(), Vec::new());
        }
        let taken = self.alone(|desk| {
            let meetings = desk.shelf.take_all(&desk.meetings);
            (desk.shelf.take_all(&desk.outbox), meetings)
        });
        let (messages, meetings) = taken.unwrap_or_default();
        let carried = |message: Outgoing| (message.node, message.head, message.block);
        (messages.into_iter().map(carried).collect(), meetings)
    }

    /// Give the block of a message back that `take` returned.
    pub fn sent(&self, block: usize) {
        give_back(&self.arena.base, block);
    }

    /// Take room for a block of another node's message, which may be written but for its first word; `deliver` says that
    /// it is there.
    ///
    /// # Errors
    /// Where there is no room.
    pub fn reserve(&mut self, bytes: usize) -> io::Result<usize> {
        self.inbound.take(&self.arena.base, bytes).ok_or_else(|| {
            let most = self.arena.layout.heap;
            io::Error::other(format!(
                "messages of other nodes that wait to be received take more than {most} bytes"
            ))
        })
    }

    /// Take in a message of another node: its head, and the room that was reserved for its block, where it has one, with
    /// the bytes of that.
    ///
    /// # Errors
    /// Where the head is none, or the block is not as long as it says.
    pub fn deliver(&mut self, head: &[u8], block: Option<(usize, usize)>) -> io::Result<()> {
        let head = Head::unpacked(head).ok_or_else(|| io::Error::other("a head that is none"))?;
        let to = (head.to as usize)
            .checked_sub(self.places.first)
            .filter(|&to| to < self.matching.len())
            .ok_or_else(|| io::Error::other(format!("rank {} is not of this node", head.to)))?;
        if head.kind == ACK {
            let reply = ReplyBody {
                status: head.status,
                bytes: head.bytes,
                tag: head.tag,
                ..ReplyBody::default()
            };
            if head.status == status::TOO_LONG && head.flags & u32::from(flag::STREAM) != 0 {
                give_back(&self.arena.base, head.place() as usize);
            }
            self.alone(|desk| desk.finish(to, head.seq, reply));
            return Ok(());
        }
        let place = self.block_of(&head, block)?;
        let label = Label {
            source: head.from as i32,
            tag: head.tag,
            group: head.group,
        };
        let message = Message {
            origin: Origin {
                rank: head.from as usize,
                seq: head.seq,
            },
            flags: head.flags as u16,
            bytes: head.bytes,
            block: place as u64,
            inline: head.inline,
        };
        self.alone(|desk| desk.arrive(to, label, message));
        Ok(())
    }

    /// Where the block of a message lies, 0 where its payload is in the head.
    fn block_of(&self, head: &Head, block: Option<(usize, usize)>) -> io::Result<usize> {
        if head.flags & u32::from(flag::INLINE) != 0 {
            return Ok(0);
        }
        if head.flags & u32::from(flag::STREAM) != 0 {
            return Ok(head.place() as usize);
        }
        let whole = |&(at, bytes): &(usize, usize)| {
            let mut description = [0; 4];
            self.arena.base.read(at + 4, &mut description);
            let begin = payload_at(u32::from_ne_bytes(description) as usize) as u64;
            begin.checked_add(head.bytes) == Some(bytes as u64)
        };
        match block.filter(whole) {
            Some((at, _)) => Ok(at),
            None => Err(io::Error::other("a block of another node is cut off")),
        }
    }

    /// The ranks of a group, as its first rank on this node has written them down.
    ///
    /// # Errors
    /// Where the window cannot be mapped.
    pub fn members(&mut self, slot: u32) -> io::Result<Vec<u32>> {
        let (_, window) = self.window(slot)?;
        Ok(crate::meeting::members(window))
    }

    fn window(&mut self, slot: u32) -> io::Result<(&Arena, &Window)> {
        if !self.windows.contains_key(&slot) {
            let window = self.arena.window(slot as usize)?;
            self.windows.insert(slot, window);
        }
        Ok((&self.arena, &self.windows[&slot]))
    }

    /// Whether something is for other nodes.
    pub fn has_outgoing(&self) -> bool {
        !self.shelf.is_bare(&self.outbox) || !self.shelf.is_bare(&self.meetings)
    }

    /// What other nodes need of the contributions of some members: headers and small ones, or the large ones.
    ///
    /// # Errors
    /// Where the window cannot be mapped.
    pub fn pack(&mut self, meeting: NodeMeeting, members: &[usize]) -> io::Result<Vec<u8>> {
        let (arena, window) = self.window(meeting.slot)?;
        let parts = crate::meeting::parts(arena, window, meeting, members);
        let mut packed = vec![0; parts.iter().map(|part| part.1).sum()];
        let mut at = 0;
        for (offset, bytes) in parts {
            window.read(offset, &mut packed[at..at + bytes]);
            at += bytes;
        }
        Ok(packed)
    }

    /// Put contributions of another node, as `pack` returned them there, into the window of a group.
    ///
    /// # Errors
    /// Where they are not what the headers say.
    pub fn unpack(
        &mut self,
        meeting: NodeMeeting,
        members: &[usize],
        packed: &[u8],
    ) -> io::Result<()> {
        let (arena, window) = self.window(meeting.slot)?;
        let mut rest = packed;
        let mut cut = |bytes: usize| -> io::Result<&[u8]> {
            let (cut, after) = rest
                .split_at_checked(bytes)
                .ok_or_else(|| io::Error::other("contributions of another node are cut off"))?;
            rest = after;
            Ok(cut)
        };
        if meeting.phase == 0 {
            for &member in members {
                let half = meeting.half as usize;
                window.write(arena.layout.header_at(half, member), cut(HEADER)?);
                let bytes = crate::meeting::contributed(arena, window, half, member);
                if bytes <= SMALL {
                    window.write(arena.layout.small_at(half, member), cut(bytes)?);
                }
            }
        } else {
            for (offset, bytes) in crate::meeting::parts(arena, window, meeting, members) {
                window.write(offset, cut(bytes)?);
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        Err(io::Error::other(
            "contributions of another node are too long",
        ))
    }

    /// Let the ranks of a group go on that meet in a round.
    ///
    /// # Errors
    /// Where the window cannot be mapped.
    pub fn release(&mut self, slot: u32, round: u32) -> io::Result<()> {
        let (_, window) = self.window(slot)?;
        crate::meeting::release(window, round);
        Ok(())
    }

    /// A number that stays the same as long as all ranks of this node wait or have ended and none can go on by itself;
    /// None where one computes, can go on, has the desk, or all have ended.
    pub fn stuck(&mut self) -> Option<u64> {
        let arena = Arc::clone(&self.arena);
        if !try_desk(arena.desk()) {
            return None;
        }
        let _leaving = Leaving(&arena);
        self.stamp()
    }

    fn stamp(&mut self) -> Option<u64> {
        if self.is_asked() || self.has_outgoing() {
            return None;
        }
        let mut stamp = 0_u64;
        let mut waits = false;
        for rank in 0..self.matching.len() {
            let told = self.arena.told(rank);
            let again = self.arena.epoch(rank).load(Ordering::SeqCst);
            if told.epoch.is_multiple_of(2) || told.epoch != again {
                return None;
            }
            if told.call != ENDED {
                let (slot, offset) = (told.slot, told.offset as usize);
                let now = match slot {
                    IN_BASE => self.arena.base.word(offset).load(Ordering::Acquire),
                    _ => self
                        .window(slot)
                        .ok()?
                        .1
                        .word(offset)
                        .load(Ordering::Acquire),
                };
                if now != told.expected {
                    return None;
                }
                waits = true;
            }
            stamp = stamp
                .wrapping_mul(1_000_003)
                .wrapping_add(u64::from(told.epoch));
        }
        waits.then_some(stamp)
    }
}

/// The meeting that a request is about.
fn meeting(asked: &RequestBody) -> NodeMeeting {
    NodeMeeting {
        group: asked.address as u32,
        slot: asked.group,
        half: asked.peer as u32,
        phase: asked.tag as u32,
        round: asked.bytes as u32,
    }
}

fn described(label: Label, message: &Message, outcome: i32) -> ReplyBody {
    ReplyBody {
        status: outcome,
        source: label.source,
        tag: label.tag,
        flags: u32::from(message.flags),
        bytes: message.bytes,
        address: message.block,
        inline: message.inline,
    }
}

fn pending() -> ReplyBody {
    ReplyBody {
        status: status::PENDING,
        ..ReplyBody::default()
    }
}

fn unknown() -> ReplyBody {
    ReplyBody {
        status: status::UNKNOWN,
        ..ReplyBody::default()
    }
}
