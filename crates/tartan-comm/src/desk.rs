//! What the proxy answers: requests of the ranks of this node and messages of other nodes in, replies and messages out.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use crate::arena::{Arena, Window, ENDED, HEADER, IN_BASE, SMALL};
use crate::heap::{give_back, payload_at, Heap};
use crate::line::{flag, op, status, Reply, Request, INLINE};
use crate::matching::{Label, Matching, Wanted};
use crate::refusal;
use crate::wait::wake_sleepers;

/// Bytes of the head of a message between nodes.
pub const HEAD: usize = 72;
const SEND: u32 = 1;
const ACK: u32 = 2;

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

enum Outcome {
    Open,
    AskedBy(u64),
    Known(Reply),
}

/// A message to another node: the head, and the block that goes with it.
#[derive(Clone, Debug)]
struct Outgoing {
    node: u32,
    head: [u8; HEAD],
    block: Option<(usize, usize)>,
}

/// A message for another node, as the link carries it: the node, the head, the block.
pub type Carried = (u32, [u8; HEAD], Vec<u8>);

/// All ranks of a group on this node have come to a meeting that other nodes take part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// The number of the group, the same on all nodes; that of its window on this node.
    pub group: u32,
    pub slot: u32,
    pub half: u32,
    pub phase: u32,
    pub round: u32,
}

/// The state of the proxy.
pub struct Desk {
    arena: Arc<Arena>,
    places: Places,
    next: Vec<u64>,
    matching: Vec<Matching<Message, Receive>>,
    probes: Vec<(usize, u64, Wanted)>,
    outcomes: HashMap<(usize, u64), Outcome>,
    inbound: Heap,
    windows: HashMap<u32, Window>,
    outbox: Vec<Outgoing>,
    meetings: Vec<Meeting>,
}

impl Desk {
    pub fn new(arena: Arc<Arena>, places: Places) -> Self {
        let layout = arena.layout;
        Self {
            places,
            next: vec![1; layout.ranks],
            matching: (0..layout.ranks).map(|_| Matching::default()).collect(),
            probes: Vec::new(),
            outcomes: HashMap::new(),
            inbound: Heap::new(layout.heap_at(layout.ranks), layout.heap),
            windows: HashMap::new(),
            outbox: Vec::new(),
            meetings: Vec::new(),
            arena,
        }
    }

    /// Whether a request waits to be read.
    pub fn is_asked(&self) -> bool {
        (0..self.next.len()).any(|rank| self.request(rank).is_some())
    }

    /// Carry out all requests that were published; return whether there was one.
    pub fn serve(&mut self) -> bool {
        let mut any = false;
        for rank in 0..self.next.len() {
            while let Some(request) = self.request(rank) {
                let seq = self.next[rank];
                self.next[rank] += 1;
                self.carry_out(rank, seq, &request);
                any = true;
            }
        }
        any
    }

    fn request(&self, rank: usize) -> Option<Request> {
        let seq = self.next[rank];
        // SAFETY: the line lies in the arena; this desk is its only reader, and it was not answered yet.
        unsafe { (*self.arena.request(rank, seq)).take(seq) }
    }

    fn carry_out(&mut self, rank: usize, seq: u64, asked: &Request) {
        if asked.flags & flag::DEFER != 0 {
            self.outcomes.insert((rank, seq), Outcome::Open);
            self.answer(rank, seq, pending());
        }
        let wanted = Wanted {
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
                if let Some((label, message, receive)) =
                    self.matching[rank].receive(wanted, receive)
                {
                    self.matched(rank, label, &message, receive);
                }
            }
            op::WAIT => self.wait(rank, seq, asked.address),
            op::TEST => self.test(rank, seq, asked.address),
            op::PROBE => self.probe(rank, seq, wanted, asked.flags & flag::NOW != 0),
            op::MEET => {
                self.meetings.push(Meeting {
                    group: asked.address as u32,
                    slot: asked.group,
                    half: asked.peer as u32,
                    phase: asked.tag as u32,
                    round: asked.bytes as u32,
                });
                self.answer(rank, seq, Reply::default());
            }
            op::ARRIVE => self.arrive_for(rank, seq, asked),
            op::FAIL => self.refuse(rank, asked),
            _ => self.answer(rank, seq, unknown()),
        }
    }

    /// A slot has come to a meeting: a GPU cannot count in memory that it shares with the host.
    fn arrive_for(&mut self, rank: usize, seq: u64, asked: &Request) {
        let meeting = Meeting {
            group: asked.address as u32,
            slot: asked.group,
            half: asked.peer as u32,
            phase: asked.tag as u32,
            round: asked.bytes as u32,
        };
        self.answer(rank, seq, Reply::default());
        if let Err(error) = self.count(meeting) {
            let text = format!("the window of a group: {error}");
            self.arena.abort(refusal::kind::NO_ROOM, &text);
        }
    }

    fn count(&mut self, meeting: Meeting) -> io::Result<()> {
        let members = self.members(meeting.slot)?;
        let here = |&&member: &&u32| self.places.node[member as usize] == self.places.me;
        let locals = members.iter().filter(here).count();
        let (_, window) = self.window(meeting.slot)?;
        if !crate::group::arrive(window, locals as u32, meeting.round) {
            return Ok(());
        }
        if locals == members.len() || meeting.phase == 2 {
            crate::group::release(window, meeting.round);
        } else {
            self.meetings.push(meeting);
        }
        Ok(())
    }

    /// A slot cannot go on: end all waits, for the reason that it gives.
    fn refuse(&mut self, rank: usize, asked: &Request) {
        let half = asked.peer as usize;
        let calls = match self.window(asked.group) {
            Ok((arena, window)) if asked.flags == refusal::MISMATCH => {
                crate::group::calls(arena, window, half % 2)
            }
            _ => Vec::new(),
        };
        let place = self.places.first + rank;
        let (kind, text) = refusal::reason(place, self.places.node.len(), asked, &calls);
        self.arena.abort(kind, &text);
    }

    fn send(&mut self, rank: usize, seq: u64, asked: &Request) {
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
        let block = (message.flags & flag::INLINE == 0)
            .then(|| (asked.address as usize, self.block_bytes(asked)));
        self.outbox.push(Outgoing {
            node,
            head: head.packed(),
            block,
        });
    }

    fn block_bytes(&self, asked: &Request) -> usize {
        let mut description = [0; 4];
        self.arena
            .base
            .read(asked.address as usize + 4, &mut description);
        payload_at(u32::from_ne_bytes(description) as usize) + asked.bytes as usize
    }

    fn arrive(&mut self, to: usize, label: Label, message: Message) {
        match self.matching[to].arrive(label, message) {
            Some((message, receive)) => self.matched(to, label, &message, receive),
            None => self.tell_probe(to, label, &message),
        }
    }

    fn matched(&mut self, to: usize, label: Label, message: &Message, receive: Receive) {
        let too_long = message.bytes > receive.capacity;
        let outcome = if too_long {
            status::TOO_LONG
        } else {
            status::DONE
        };
        if too_long && message.flags & flag::INLINE == 0 {
            give_back(&self.arena.base, message.block as usize);
        }
        self.finish(to, receive.seq, described(label, message, outcome));
        self.tell_sender(label, message, outcome);
    }

    fn tell_sender(&mut self, label: Label, message: &Message, outcome: i32) {
        let Origin { rank, seq } = message.origin;
        let node = self.places.node[rank];
        if node == self.places.me {
            let reply = Reply {
                status: outcome,
                bytes: message.bytes,
                tag: label.tag,
                ..Reply::default()
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
            ..Head::default()
        };
        self.outbox.push(Outgoing {
            node,
            head: head.packed(),
            block: None,
        });
    }

    /// A request has ended: answer it, or who waits for it, or remember how.
    fn finish(&mut self, rank: usize, seq: u64, reply: Reply) {
        match self.outcomes.get_mut(&(rank, seq)) {
            None => self.answer(rank, seq, reply),
            Some(Outcome::AskedBy(waiter)) => {
                let waiter = *waiter;
                self.outcomes.remove(&(rank, seq));
                self.answer(rank, waiter, reply);
            }
            Some(outcome) => *outcome = Outcome::Known(reply),
        }
    }

    fn wait(&mut self, rank: usize, seq: u64, of: u64) {
        match self.outcomes.get_mut(&(rank, of)) {
            None => self.answer(rank, seq, unknown()),
            Some(Outcome::Known(reply)) => {
                let reply = *reply;
                self.outcomes.remove(&(rank, of));
                self.answer(rank, seq, reply);
            }
            Some(outcome) => *outcome = Outcome::AskedBy(seq),
        }
    }

    fn test(&mut self, rank: usize, seq: u64, of: u64) {
        match self.outcomes.get(&(rank, of)) {
            None => self.answer(rank, seq, unknown()),
            Some(Outcome::Known(_)) => self.wait(rank, seq, of),
            Some(_) => self.answer(rank, seq, pending()),
        }
    }

    fn probe(&mut self, rank: usize, seq: u64, wanted: Wanted, now: bool) {
        match self.matching[rank].find(wanted) {
            Some(&(label, message)) => {
                self.answer(rank, seq, described(label, &message, status::DONE))
            }
            None if now => self.answer(rank, seq, pending()),
            None => self.probes.push((rank, seq, wanted)),
        }
    }

    fn tell_probe(&mut self, to: usize, label: Label, message: &Message) {
        let asks = |probe: &(usize, u64, Wanted)| probe.0 == to && probe.2.takes(&label);
        if let Some(place) = self.probes.iter().position(asks) {
            let (rank, seq, _) = self.probes.swap_remove(place);
            self.answer(rank, seq, described(label, message, status::DONE));
        }
    }

    fn answer(&self, rank: usize, seq: u64, reply: Reply) {
        // SAFETY: the line lies in the arena; this desk is its only writer, and answers each request once.
        unsafe { (*self.arena.reply(rank, seq)).publish(seq, reply) };
        let word = self.arena.base.word(self.arena.ack_at(rank, seq));
        wake_sleepers(word, self.arena.sleeps(rank));
    }

    /// Take what is for other nodes: for each message the node, the head and the block, which is copied and given back;
    /// and the meetings.
    pub fn take(&mut self) -> (Vec<Carried>, Vec<Meeting>) {
        let base = &self.arena.base;
        let copied = |message: Outgoing| {
            let mut bytes = vec![0; message.block.map_or(0, |(_, bytes)| bytes)];
            if let Some((at, _)) = message.block {
                base.read(at, &mut bytes);
                give_back(base, at);
            }
            (message.node, message.head, bytes)
        };
        let messages = std::mem::take(&mut self.outbox);
        (
            messages.into_iter().map(copied).collect(),
            std::mem::take(&mut self.meetings),
        )
    }

    /// Take in a message of another node: its head, and its block where it has one.
    ///
    /// # Errors
    /// Where there is no room for the block, or the head is none.
    pub fn deliver(&mut self, head: &[u8], block: &[u8]) -> io::Result<()> {
        let head = Head::unpacked(head).ok_or_else(|| io::Error::other("a head that is none"))?;
        let to = (head.to as usize)
            .checked_sub(self.places.first)
            .filter(|&to| to < self.next.len())
            .ok_or_else(|| io::Error::other(format!("rank {} is not of this node", head.to)))?;
        if head.kind == ACK {
            let reply = Reply {
                status: head.status,
                bytes: head.bytes,
                tag: head.tag,
                ..Reply::default()
            };
            self.finish(to, head.seq, reply);
            return Ok(());
        }
        let place = self.keep(head.flags as u16, block)?;
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
        self.arrive(to, label, message);
        Ok(())
    }

    fn keep(&mut self, flags: u16, block: &[u8]) -> io::Result<usize> {
        if flags & flag::INLINE != 0 {
            return Ok(0);
        }
        let base = &self.arena.base;
        let place = self.inbound.take(base, block.len()).ok_or_else(|| {
            let bytes = self.arena.layout.heap;
            io::Error::other(format!(
                "messages of other nodes that wait to be received take more than {bytes} bytes"
            ))
        })?;
        base.write(place + 4, &block[4..]); // the first word says that it is in use
        Ok(place)
    }

    /// The ranks of a group, as its first rank on this node has written them down.
    ///
    /// # Errors
    /// Where the window cannot be mapped.
    pub fn members(&mut self, slot: u32) -> io::Result<Vec<u32>> {
        let (_, window) = self.window(slot)?;
        Ok(crate::group::members(window))
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
        !self.outbox.is_empty() || !self.meetings.is_empty()
    }

    /// What other nodes need of the contributions of some members: headers and small ones, or the large ones.
    ///
    /// # Errors
    /// Where the window cannot be mapped.
    pub fn pack(&mut self, meeting: Meeting, members: &[usize]) -> io::Result<Vec<u8>> {
        let (arena, window) = self.window(meeting.slot)?;
        let parts = parts(arena, window, meeting, members);
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
    pub fn unpack(&mut self, meeting: Meeting, members: &[usize], packed: &[u8]) -> io::Result<()> {
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
                let bytes = crate::group::contributed(arena, window, half, member);
                if bytes <= SMALL {
                    window.write(arena.layout.small_at(half, member), cut(bytes)?);
                }
            }
        } else {
            for (offset, bytes) in parts(arena, window, meeting, members) {
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
        crate::group::release(window, round);
        Ok(())
    }

    /// A number that stays the same as long as all ranks of this node wait or have ended and none can go on by itself;
    /// None where one computes, can go on, or all have ended.
    pub fn stuck(&mut self) -> Option<u64> {
        if self.is_asked() || self.has_outgoing() {
            return None;
        }
        let mut stamp = 0_u64;
        let mut waits = false;
        for rank in 0..self.next.len() {
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

/// Where the parts lie that a message between nodes has.
fn parts(
    arena: &Arena,
    window: &Window,
    meeting: Meeting,
    members: &[usize],
) -> Vec<(usize, usize)> {
    let (layout, half) = (&arena.layout, meeting.half as usize);
    if meeting.phase > 0 {
        let places = crate::group::places(arena, window, half);
        return members.iter().map(|&member| places[member]).collect();
    }
    let mut parts = Vec::new();
    for &member in members {
        parts.push((layout.header_at(half, member), HEADER));
        let bytes = crate::group::contributed(arena, window, half, member);
        if bytes <= SMALL {
            parts.push((layout.small_at(half, member), bytes));
        }
    }
    parts
}

fn described(label: Label, message: &Message, outcome: i32) -> Reply {
    Reply {
        status: outcome,
        source: label.source,
        tag: label.tag,
        flags: u32::from(message.flags),
        bytes: message.bytes,
        address: message.block,
        inline: message.inline,
    }
}

fn pending() -> Reply {
    Reply {
        status: status::PENDING,
        ..Reply::default()
    }
}

fn unknown() -> Reply {
    Reply {
        status: status::UNKNOWN,
        ..Reply::default()
    }
}

/// The head of a message between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Head {
    kind: u32,
    from: u32,
    to: u32,
    tag: i32,
    group: u32,
    flags: u32,
    seq: u64,
    bytes: u64,
    status: i32,
    inline: [u8; INLINE],
}

impl Head {
    fn packed(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        let words = [
            self.kind,
            self.from,
            self.to,
            self.tag as u32,
            self.group,
            self.flags,
        ];
        for (place, word) in words.iter().enumerate() {
            head[place * 4..place * 4 + 4].copy_from_slice(&word.to_le_bytes());
        }
        head[24..32].copy_from_slice(&self.seq.to_le_bytes());
        head[32..40].copy_from_slice(&self.bytes.to_le_bytes());
        head[40..44].copy_from_slice(&self.status.to_le_bytes());
        head[48..].copy_from_slice(&self.inline);
        head
    }

    fn unpacked(head: &[u8]) -> Option<Self> {
        let head: &[u8; HEAD] = head.try_into().ok()?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let mut inline = [0; INLINE];
        inline.copy_from_slice(&head[48..]);
        Some(Self {
            kind: word(0),
            from: word(4),
            to: word(8),
            tag: word(12) as i32,
            group: word(16),
            flags: word(20),
            seq: long(24),
            bytes: long(32),
            status: word(40) as i32,
            inline,
        })
        .filter(|head| matches!(head.kind, SEND | ACK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back_as_they_were() {
        let head = Head {
            kind: ACK,
            from: 1,
            to: 70_000,
            tag: -5,
            group: 9,
            flags: 3,
            seq: 1 << 40,
            bytes: u64::MAX - 1,
            status: -7,
            inline: [3; INLINE],
        };
        assert_eq!(Head::unpacked(&head.packed()), Some(head));
        assert_eq!(Head::unpacked(&[0; HEAD]), None);
        assert_eq!(Head::unpacked(&[0; 3]), None);
    }
}
