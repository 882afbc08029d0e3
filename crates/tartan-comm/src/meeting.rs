//! The window of a group: its ranks, how they meet, and where their contributions lie.

use std::sync::atomic::Ordering;

use crate::arena::{Arena, Window, HEADER, PAGE, SMALL};
use crate::words;

/// All ranks of a group on this node have come to a meeting that other nodes take part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeMeeting {
    /// The number of the group, the same on all nodes; that of its window on this node.
    pub group: u32,
    pub slot: u32,
    pub half: u32,
    pub phase: u32,
    pub round: u32,
}

const ARRIVALS: usize = 0;
/// Where the number of the latest round lies that all ranks of a group have come to.
/// By format: words that different ranks write lie in cache lines of their own.
pub const RELEASE: usize = 64;
/// Where it lies how many sleep until the next one.
/// SLEEPERS and MEMBERS, by format, as RELEASE.
pub const SLEEPERS: usize = 128;
const MEMBERS: usize = 192;
/// Where it lies how many ranks of the node have left the group.
/// By format, as RELEASE.
const LEFT: usize = 256;

/// Write down the ranks of a group, before any of them uses it.
pub fn found(window: &Window, members: &[u32]) {
    for (place, member) in members.iter().enumerate() {
        window.write(PAGE + 4 * place, &member.to_ne_bytes());
    }
    window
        .word(MEMBERS)
        .store(members.len() as u32, Ordering::Release);
}

/// The ranks of a group.
pub fn members(window: &Window) -> Vec<u32> {
    let count = window.word(MEMBERS).load(Ordering::Acquire) as usize;
    (0..count)
        .map(|place| window.word(PAGE + 4 * place).load(Ordering::Relaxed))
        .collect()
}

/// Count a rank that has come to a round; return whether it is the last of this node's.
pub fn arrive(window: &Window, locals: u32, round: u32) -> bool {
    words::arrive(window.word(ARRIVALS), locals, round)
}

/// Count a rank of the node that uses the window no more; return whether it is the last.
pub fn leave(window: &Window, locals: u32) -> bool {
    window.word(LEFT).fetch_add(1, Ordering::AcqRel) + 1 == locals
}

/// What each member of a group has called, by its header.
pub fn calls(arena: &Arena, window: &Window, half: usize) -> Vec<String> {
    let text = |member| {
        let mut header = [0; HEADER];
        window.read(arena.layout.header_at(half, member), &mut header);
        String::from_utf8_lossy(&header[16..])
            .trim_end_matches('\0')
            .to_string()
    };
    (0..members(window).len()).map(text).collect()
}

/// Let go on who meets in a round.
pub fn release(window: &Window, round: u32) {
    words::release(window.word(RELEASE), window.word(SLEEPERS), round);
}

/// Bytes of the contribution of a member.
pub fn contributed(arena: &Arena, window: &Window, half: usize, member: usize) -> usize {
    let mut bytes = [0; 8];
    window.read(arena.layout.header_at(half, member) + 8, &mut bytes);
    usize::from_ne_bytes(bytes)
}

/// Where large contributions lie.
pub fn places(arena: &Arena, window: &Window, half: usize) -> Vec<(usize, usize)> {
    let mut at = arena.layout.data_at(half);
    let count = window.word(MEMBERS).load(Ordering::Acquire) as usize;
    (0..count)
        .map(|member| {
            let bytes = contributed(arena, window, half, member);
            at = at.saturating_add(bytes);
            (at.saturating_sub(bytes), bytes)
        })
        .collect()
}

/// Where the parts lie that a message between nodes has.
pub fn parts(
    arena: &Arena,
    window: &Window,
    meeting: NodeMeeting,
    members: &[usize],
) -> Vec<(usize, usize)> {
    let (layout, half) = (&arena.layout, meeting.half as usize);
    if meeting.phase > 0 {
        let places = places(arena, window, half);
        return members.iter().map(|&member| places[member]).collect();
    }
    let mut parts = Vec::new();
    for &member in members {
        parts.push((layout.header_at(half, member), HEADER));
        let bytes = contributed(arena, window, half, member);
        if bytes <= SMALL {
            parts.push((layout.small_at(half, member), bytes));
        }
    }
    parts
}
