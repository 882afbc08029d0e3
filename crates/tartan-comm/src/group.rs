//! Collectives: the ranks of a node carry them out in the arena; leaders carry between nodes what the others lack.
//!
//! A collective is one exchange of contributions. Each rank writes a header, and its contribution where that is small,
//! and meets the others. If all are small, everything is known now. Else each writes its contribution behind those of the
//! ranks before it, and they meet again. Half k mod 2 of a window belongs to collective k (R8): nobody writes half k + 2
//! before all have entered k + 1, so what collective k has left can be read until the reader's next collective.

use std::io;
use std::sync::Arc;

use crate::arena::{Arena, WaitNote, Window, HEADER, IN_GROUP, SIGNATURE, SMALL};
use crate::line::{op, RequestBody};
use crate::meeting::{
    arrive, calls, contributed, leave, members, places, release, RELEASE, SLEEPERS,
};
use crate::rank::{KeepWaiting, NodeRank, WaitEnd};
use crate::words;

/// Why a collective did not come about.
#[derive(Debug)]
pub enum CollectiveFailure {
    Stop(WaitEnd),
    /// The ranks call different things: what each calls.
    Mismatch(Vec<String>),
    /// All contributions together do not fit: their bytes.
    TooLarge(u128),
}

impl From<WaitEnd> for CollectiveFailure {
    fn from(stop: WaitEnd) -> Self {
        Self::Stop(stop)
    }
}

/// The side of one rank of a group.
pub struct Group {
    arena: Arc<Arena>,
    pub window: Arc<Window>,
    group: u32,
    slot: usize,
    mine: usize,
    locals: u32,
    spans: bool,
    turn: u64,
    round: u32,
    /// Where the contributions of the latest collective lie in the window, and how long they are.
    pub places: Vec<(usize, usize)>,
    /// Whether they lie one behind the other.
    pub joined: bool,
}

impl Group {
    /// Join a group, whose ranks are written down in its window. `locals` of them are on this node; `mine` is this one's
    /// place among all.
    ///
    /// # Errors
    /// Where the window cannot be mapped.
    pub fn new(
        arena: Arc<Arena>,
        group: u32,
        slot: usize,
        mine: usize,
        locals: u32,
    ) -> io::Result<Self> {
        let window = Arc::new(arena.window(slot)?);
        let spans = members(&window).len() > locals as usize;
        Ok(Self {
            arena,
            window,
            group,
            slot,
            mine,
            locals,
            spans,
            turn: 0,
            round: 0,
            places: Vec::new(),
            joined: false,
        })
    }

    /// Exchange contributions: `places` says afterwards where they lie. All ranks give the same signature.
    ///
    /// # Errors
    /// See `CollectiveFailure`; a mismatch and a lack of room are found by all ranks alike.
    pub fn exchange(
        &mut self,
        rank: &mut NodeRank,
        signature: &[u8],
        contribution: &[u8],
        check: KeepWaiting<'_>,
    ) -> Result<(), CollectiveFailure> {
        self.turn += 1;
        let half = (self.turn % 2) as usize;
        self.tell(half, signature, contribution);
        self.meet(rank, signature, 0, check)?;
        self.refuse_mismatch(half)?;
        let layout = self.arena.layout;
        let sizes: Vec<usize> = (0..members(&self.window).len())
            .map(|member| contributed(&self.arena, &self.window, half, member))
            .collect();
        if sizes.iter().all(|&bytes| bytes <= SMALL) {
            let small = |(member, &bytes)| (layout.small_at(half, member), bytes);
            self.places = sizes.iter().enumerate().map(small).collect();
            self.joined = false;
            return Ok(());
        }
        let total: u128 = sizes.iter().map(|&bytes| bytes as u128).sum();
        if total > layout.half as u128 {
            return Err(CollectiveFailure::TooLarge(total));
        }
        self.places = places(&self.arena, &self.window, half);
        self.joined = true;
        self.window.write(self.places[self.mine].0, contribution);
        self.meet(rank, signature, 1, check)
    }

    /// Meet the ranks of this node alone, between two steps of one collective.
    ///
    /// # Errors
    /// Where the wait is ended.
    pub fn meet_here(
        &mut self,
        rank: &mut NodeRank,
        signature: &[u8],
        check: KeepWaiting<'_>,
    ) -> Result<(), CollectiveFailure> {
        self.meet(rank, signature, 2, check)
    }

    /// Room behind joined contributions, for a result that the ranks of this node share; None where there is not enough.
    pub fn room(&self, bytes: usize) -> Option<usize> {
        let &(at, last) = self.places.last()?;
        let place = (at + last).next_multiple_of(64);
        let end = self.arena.layout.data_at((self.turn % 2) as usize) + self.arena.layout.half;
        (self.joined && place <= end && bytes <= end - place).then_some(place)
    }

    /// Use the group no more, after a collective in which all ranks have said so; nothing of it may be read afterwards.
    pub fn leave(&self) {
        if leave(&self.window, self.locals) {
            self.arena.give_slot_back(self.slot, &self.window);
        }
    }

    fn tell(&self, half: usize, signature: &[u8], contribution: &[u8]) {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&self.turn.to_ne_bytes());
        header[8..16].copy_from_slice(&(contribution.len() as u64).to_ne_bytes());
        let length = signature.len().min(SIGNATURE);
        header[16..16 + length].copy_from_slice(&signature[..length]);
        let layout = &self.arena.layout;
        self.window
            .write(layout.header_at(half, self.mine), &header);
        if contribution.len() <= SMALL {
            self.window
                .write(layout.small_at(half, self.mine), contribution);
        }
    }

    fn refuse_mismatch(&self, half: usize) -> Result<(), CollectiveFailure> {
        let count = members(&self.window).len();
        let header = |member| {
            let mut header = [0; HEADER];
            self.window
                .read(self.arena.layout.header_at(half, member), &mut header);
            header
        };
        let mine = header(self.mine);
        let same = |other: &[u8; HEADER]| other[..8] == mine[..8] && other[16..] == mine[16..];
        if (0..count).map(header).all(|other| same(&other)) {
            return Ok(());
        }
        Err(CollectiveFailure::Mismatch(calls(
            &self.arena,
            &self.window,
            half,
        )))
    }

    fn meet(
        &mut self,
        rank: &mut NodeRank,
        signature: &[u8],
        phase: i32,
        check: KeepWaiting<'_>,
    ) -> Result<(), CollectiveFailure> {
        let round = self.round.wrapping_add(1);
        self.round = round;
        if arrive(&self.window, self.locals, round) {
            if !self.spans || phase == 2 {
                release(&self.window, round);
                return Ok(());
            }
            let request = RequestBody {
                op: op::MEET,
                peer: (self.turn % 2) as i32,
                tag: phase,
                group: self.slot as u32,
                address: u64::from(self.group),
                bytes: u64::from(round),
                ..RequestBody::default()
            };
            rank.post(request, check)?;
        }
        let word = self.window.word(RELEASE);
        let waiting = || WaitNote {
            epoch: 0,
            call: IN_GROUP,
            peer: 0,
            tag: 0,
            slot: self.slot as u32,
            offset: RELEASE as u64,
            expected: round.wrapping_sub(1),
            text: String::from_utf8_lossy(signature).into_owned(),
        };
        let ready = || words::is_released(word, round);
        rank.sleep(word, self.window.word(SLEEPERS), &ready, &waiting, check)?;
        Ok(())
    }
}
