//! Why a slot cannot go on, as text: pure. A kernel has no exceptions, so a mistake in one ends all ranks with its reason.

use crate::line::RequestBody;

/// Kinds of reasons for which all waits are ended.
pub mod kind {
    pub const LOST: u32 = 1;
    pub const DEADLOCK: u32 = 2;
    pub const NO_ROOM: u32 = 3;
    pub const REFUSED: u32 = 4;
    pub const DEFECT: u32 = 9;
}

/// A rank that does not exist (peer).
pub const NO_RANK: u16 = 1;
/// A negative tag.
pub const NO_TAG: u16 = 2;
/// A message that was sent is longer than its receiver's buffer (peer, tag, bytes).
pub const SENT_TOO_LONG: u16 = 3;
/// A message is longer than the buffer (peer, tag, bytes; the address is the room).
pub const TOO_LONG: u16 = 4;
/// A message of another type (peer, tag; the text in the line is the type of the buffer).
pub const OTHER_TYPE: u16 = 5;
/// No room for a payload (bytes).
pub const NO_ROOM: u16 = 6;
/// The members of a group call different collectives (group; peer is the half).
pub const MISMATCH: u16 = 7;
/// Bytes that are not a whole number of items (bytes; the address is the size of an item).
pub const NOT_WHOLE: u16 = 8;
/// A request that was waited for already.
pub const FREED: u16 = 9;
/// A second communicator in one slot.
pub const TWICE: u16 = 10;
/// The result of a collective is longer than its buffer (bytes; the address is the room).
pub const RESULT_TOO_LONG: u16 = 11;

/// The kind and the text of a reason.
pub fn reason(rank: usize, size: usize, asked: &RequestBody, calls: &[String]) -> (u32, String) {
    let RequestBody {
        peer,
        tag,
        bytes,
        address,
        ..
    } = *asked;
    let what = match asked.flags {
        NO_RANK => format!("rank {peer} does not exist; there are {size}, from 0"),
        NO_TAG => format!("tag {tag} is negative"),
        SENT_TOO_LONG => format!(
            "the message of {bytes} bytes with tag {tag} is longer than the buffer in which rank {peer} receives it; \
             nothing was written"
        ),
        TOO_LONG => format!(
            "the message of {bytes} bytes from rank {peer} with tag {tag} is longer than the buffer of {address} bytes; \
             nothing was written"
        ),
        OTHER_TYPE => {
            let end = asked.inline.iter().position(|&byte| byte == 0);
            let name = String::from_utf8_lossy(&asked.inline[..end.unwrap_or(asked.inline.len())]);
            format!("the message from rank {peer} with tag {tag} is not of the buffer's type, {name}")
        }
        NO_ROOM => format!(
            "{bytes} bytes do not fit into the memory that the ranks of a node share; send smaller parts"
        ),
        MISMATCH => return (kind::DEADLOCK, mismatch(calls)),
        NOT_WHOLE => format!("{bytes} bytes are not a whole number of items of {address} bytes"),
        FREED => "this request was waited for already; begin another one".to_string(),
        TWICE => "Slots::here was called twice in one kernel; call it once".to_string(),
        RESULT_TOO_LONG => {
            format!("the result of {bytes} bytes is longer than the buffer of {address} bytes")
        }
        code => format!("it failed with code {code}"),
    };
    let kind = match asked.flags {
        NO_ROOM => kind::NO_ROOM,
        _ => kind::REFUSED,
    };
    (kind, format!("rank {rank}, a slot: {what}"))
}

fn mismatch(calls: &[String]) -> String {
    let each: Vec<String> = calls
        .iter()
        .enumerate()
        .map(|(place, call)| format!("rank {place} calls {call}"))
        .collect();
    format!(
        "the ranks of a group call different collectives: {}",
        each.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(flags: u16) -> (u32, String) {
        let mut asked = RequestBody {
            flags,
            peer: 9,
            tag: 7,
            bytes: 80,
            address: 8,
            ..RequestBody::default()
        };
        asked.inline[..5].copy_from_slice(b"int32");
        reason(5, 6, &asked, &["barrier".into(), "all_to_all".into()])
    }

    #[test]
    fn each_reason_names_what_is_wrong() {
        for (code, words) in [
            (NO_RANK, "rank 9 does not exist; there are 6"),
            (NO_TAG, "tag 7 is negative"),
            (SENT_TOO_LONG, "buffer in which rank 9 receives"),
            (TOO_LONG, "of 80 bytes from rank 9 with tag 7"),
            (OTHER_TYPE, "not of the buffer's type, int32"),
            (NOT_WHOLE, "80 bytes are not a whole number of items of 8"),
            (FREED, "waited for already"),
            (TWICE, "called twice"),
            (RESULT_TOO_LONG, "80 bytes is longer than the buffer of 8"),
            (99, "code 99"),
        ] {
            let (kind, text) = told(code);
            assert_eq!(kind, kind::REFUSED, "{text}");
            assert!(
                text.starts_with("rank 5, a slot: ") && text.contains(words),
                "{text}"
            );
        }
        assert_eq!(told(NO_ROOM).0, kind::NO_ROOM);
        let both = "the ranks of a group call different collectives: rank 0 calls barrier; rank 1 calls all_to_all";
        assert_eq!(told(MISMATCH), (kind::DEADLOCK, both.to_string()));
    }
}
