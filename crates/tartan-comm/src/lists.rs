//! How much memory the heads of the lists take that the desk keeps: numbers, for the layout of the arena.

/// Bytes of a list: its first and its last node.
/// LIST, STOCK and MATCHING, by format.
pub const LIST: usize = 8;
/// Bytes of the stock of nodes: the first one that was given back, and how many were never taken.
/// By format: a cache line of its own.
pub const STOCK: usize = 64;
/// Bytes of the messages and the receives of a rank.
/// By format.
pub const MATCHING: usize = 2 * LIST;
/// Deferred requests of a rank are remembered in so many lists, by their numbers.
/// By judgement: a rank has some requests under way; with hundreds a list has several. No benchmark of its own.
pub const OUTCOMES: usize = 32;
/// Bytes for a rank: how many of its requests were read, its matching, its deferred requests.
/// By format.
pub const OF_RANK: usize = 8 + MATCHING + OUTCOMES * LIST;
/// Bytes for the node: the stock; what is for other nodes, meetings, probes.
/// By format.
pub const OF_NODE: usize = STOCK + 3 * LIST;

/// Bytes of the heads of all lists.
pub fn head_bytes(ranks: usize) -> usize {
    OF_NODE + ranks * OF_RANK
}
