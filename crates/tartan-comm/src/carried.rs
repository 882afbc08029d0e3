//! The head of a message between nodes, as the link carries it: pure.

use crate::line::INLINE;

/// Bytes of the head of a message between nodes.
/// By format.
pub const HEAD: usize = 72;
/// Kinds of heads.
/// SEND and ACK, by format.
pub const SEND: u32 = 1;
pub const ACK: u32 = 2;

/// The head of a message between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub kind: u32,
    pub from: u32,
    pub to: u32,
    pub tag: i32,
    pub group: u32,
    pub flags: u32,
    pub seq: u64,
    pub bytes: u64,
    pub status: i32,
    pub inline: [u8; INLINE],
}

impl Head {
    /// Where a block lies in the memory of the sender's node, which that of the receiver maps.
    pub fn place(&self) -> u64 {
        let mut place = [0; 8];
        place.copy_from_slice(&self.inline[..8]);
        u64::from_le_bytes(place)
    }

    pub fn packed(&self) -> [u8; HEAD] {
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

    pub fn unpacked(head: &[u8]) -> Option<Self> {
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
