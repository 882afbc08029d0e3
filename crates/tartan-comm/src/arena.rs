//! The memory of a node: one memory file, passed by descriptor, and where everything lies in it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::line::{ReplyLine, RequestLine, RING};
use crate::lists::head_bytes;
use crate::wait::wake;
use crate::words;

/// Bytes of a page: all parts of the arena begin at one.
/// By arithmetic: a page of memory.
pub const PAGE: usize = 4096;
/// A contribution to a collective of at most so many bytes needs no second meeting.
/// By judgement: copying 16 KiB costs each rank some microseconds, a second meeting as much as a barrier (18 to 20 us,
/// `tartan bench comm`).
pub const SMALL: usize = 16 * 1024;
/// Bytes of the words by which the ranks tell each other what they call.
/// By format: the words, and SIGNATURE bytes of text.
pub const HEADER: usize = 128;
/// Bytes of a text that describes a call.
/// By format.
pub const SIGNATURE: usize = HEADER - 16;
/// The most bytes for what the desk remembers.
/// By judgement: a million messages under way of NODE bytes each; untouched pages cost nothing. No benchmark.
const MOST_DESK: usize = 128 << 20;
/// Groups that a node can have at a time; those that were freed make room for others.
/// By judgement: programs make tens; MPICH has 2,048 communicators. No benchmark.
pub const MAX_GROUPS: usize = 1024;

/// Where the abort word lies: 1 once all waits are ended.
/// ABORT, ABORT_KIND, ABORT_BYTES, ABORT_TEXT, DESK and GROUPS, by format of the first page.
pub const ABORT: usize = 64;
const ABORT_KIND: usize = 68;
const ABORT_BYTES: usize = 72;
const ABORT_TEXT: usize = 1024;
const DESK: usize = 128;
const GROUPS: usize = 256;
/// Where the bytes lie by which another node knows that it has mapped this arena, and how many they are.
/// TOKEN and TOKEN_BYTES, by format of the first page.
const TOKEN: usize = 512;
const TOKEN_BYTES: usize = 32;
/// Where a rank tells what it waits for, in its page.
/// By format.
pub const WAIT: usize = 1152;

/// A mapping of a part of the arena.
pub struct Window {
    base: *mut u8,
    len: usize,
}

// SAFETY: a window is an address range that stays mapped until it is dropped; what is read and written in it is ordered
// by the atomics that each user names.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Map `len` bytes of a file from `offset` on, both multiples of a page.
    pub fn map(file: &OwnedFd, offset: usize, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping of a file, at an address that the system chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            base: base.cast(),
            len,
        })
    }

    /// The address of a range.
    ///
    /// # Panics
    /// If it does not lie inside the window.
    pub fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(
            offset <= self.len && bytes <= self.len - offset,
            "bytes {offset} to {} of a window of {}",
            offset.wrapping_add(bytes),
            self.len
        );
        // SAFETY: inside the mapping, as checked.
        unsafe { self.base.add(offset) }
    }

    /// A shared word.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4));
        // SAFETY: inside the mapping and aligned; it is only ever used as an atomic.
        unsafe { &*self.at(offset, 4).cast() }
    }

    /// A shared word of 64 bits.
    pub fn long(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8));
        // SAFETY: inside the mapping and aligned; it is only ever used as an atomic.
        unsafe { &*self.at(offset, 8).cast() }
    }

    /// Copy bytes into the window.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: inside the mapping; the caller's protocol gives it this range until it publishes it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copy bytes out of the window.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.at(offset, bytes.len());
        // SAFETY: inside the mapping; the caller's protocol has published this range to it.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Let all of it be zero, and give its memory back to the system.
    pub fn clear(&self) {
        // SAFETY: a shared mapping of a memory file, whole pages of it; pages read as zero afterwards.
        let removed = unsafe { libc::madvise(self.base.cast(), self.len, libc::MADV_REMOVE) };
        if removed != 0 {
            // The words that a new group looks at lie in the first page.
            self.write(0, &[0; PAGE]);
        }
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` and unmapped once.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// How large the parts of an arena are.
#[derive(Clone, Copy, Debug)]
pub struct ArenaLayout {
    /// Ranks of this node.
    pub ranks: usize,
    /// Ranks of all nodes.
    pub members: usize,
    /// Bytes for payloads that a rank has sent; and for those that came from other nodes.
    pub heap: usize,
    /// Bytes for the result of a collective.
    pub half: usize,
    /// Whether all ranks can receive payloads in parts; slots cannot.
    pub streams: bool,
}

impl ArenaLayout {
    /// Where the lines of a rank begin.
    pub fn block(rank: usize) -> usize {
        PAGE * (1 + rank)
    }

    /// Where the heap of a rank begins; that of other nodes' payloads comes after those of all ranks.
    pub fn heap_at(&self, rank: usize) -> usize {
        Self::block(self.ranks) + rank * self.heap
    }

    /// Where that lies which the desk remembers, and its bytes.
    pub fn desk(&self) -> (usize, usize) {
        let bytes = (self.heap / 8).next_multiple_of(PAGE).min(MOST_DESK);
        let heads = head_bytes(self.ranks).next_multiple_of(PAGE);
        (self.heap_at(self.ranks + 1), heads + bytes)
    }

    /// The end of what all map: the windows of groups come after.
    pub fn base_bytes(&self) -> usize {
        let (at, bytes) = self.desk();
        at + bytes
    }

    fn table(&self) -> usize {
        (4 * self.members).next_multiple_of(PAGE)
    }

    /// Where the headers of a half lie in the window of a group.
    pub fn header_at(&self, half: usize, member: usize) -> usize {
        PAGE + self.table() + (half * self.members + member) * HEADER
    }

    /// Where a small contribution lies in the window of a group.
    pub fn small_at(&self, half: usize, member: usize) -> usize {
        let headers = (2 * self.members * HEADER).next_multiple_of(PAGE);
        PAGE + self.table() + headers + (half * self.members + member) * SMALL
    }

    /// Where the large result of a half begins in the window of a group.
    pub fn data_at(&self, half: usize) -> usize {
        self.small_at(2, 0) + half * self.half
    }

    /// Bytes of the window of a group.
    pub fn window_bytes(&self) -> usize {
        self.data_at(2)
    }

    fn window_at(&self, slot: usize) -> usize {
        self.base_bytes() + slot * self.window_bytes()
    }
}

/// What a rank tells about a wait, for the search for deadlocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitNote {
    /// Odd while the rank waits.
    pub epoch: u32,
    /// The call, as the code of a request; `IN_GROUP` for collectives, `ENDED` for a rank that has returned.
    pub call: u32,
    pub peer: i32,
    pub tag: i32,
    /// Window of the group in which the awaited word lies, or `u32::MAX`; and where.
    pub slot: u32,
    pub offset: u64,
    pub expected: u32,
    pub text: String,
}

/// Calls of `WaitNote` that are not requests.
/// IN_GROUP and ENDED, by format: beyond all numbers of calls.
pub const IN_GROUP: u32 = 100;
pub const ENDED: u32 = 101;
/// The slot of words that lie in the part that all map.
pub const IN_BASE: u32 = u32::MAX;

/// The arena of a node.
pub struct Arena {
    file: OwnedFd,
    /// Becomes readable when there is something for other nodes; ranks have it by descent from the node process.
    outbox: OwnedFd,
    pub base: Window,
    pub layout: ArenaLayout,
}

impl Arena {
    /// Make an arena; memory is taken where it is touched.
    pub fn new(layout: ArenaLayout) -> io::Result<Self> {
        // SAFETY: the name is a C string; the result is checked.
        let fd = unsafe { libc::memfd_create(c"tartan-comm".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nothing else owns.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let bytes = layout.window_at(MAX_GROUPS) as libc::off_t;
        // SAFETY: an open descriptor.
        if unsafe { libc::ftruncate(file.as_raw_fd(), bytes) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: no memory is involved; the result is checked.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        let base = Window::map(&file, 0, layout.base_bytes())?;
        Ok(Self {
            file,
            // SAFETY: a fresh descriptor that nothing else owns.
            outbox: unsafe { OwnedFd::from_raw_fd(event) },
            base,
            layout,
        })
    }

    /// What another node of this machine needs to map the part that all ranks map: the descriptor of this process, the
    /// bytes, and a token that no other arena has.
    ///
    /// # Errors
    /// Where the system gives no random bytes.
    pub fn share(&self) -> io::Result<(RawFd, usize, Vec<u8>)> {
        let mut token = vec![0; TOKEN_BYTES];
        // SAFETY: so many bytes of a vector.
        let got = unsafe { libc::getrandom(token.as_mut_ptr().cast(), TOKEN_BYTES, 0) };
        if got != TOKEN_BYTES as isize {
            return Err(io::Error::last_os_error());
        }
        self.base.write(TOKEN, &token);
        Ok((self.file.as_raw_fd(), self.base.len(), token))
    }

    /// Map what another node of this machine has shared, by the path of its descriptor.
    ///
    /// # Errors
    /// Where it cannot be opened, or is another one.
    pub fn map_shared(path: &str, bytes: usize, token: &[u8]) -> io::Result<Window> {
        let other = || io::Error::other("this is not the memory of the other node");
        // on another machine the path may name anything
        if !std::fs::read_link(path)?.starts_with("/memfd:tartan-comm (deleted)") {
            return Err(other());
        }
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() < bytes as u64 || bytes < PAGE {
            return Err(other());
        }
        let window = Window::map(&OwnedFd::from(file), 0, bytes)?;
        let mut found = vec![0; TOKEN_BYTES];
        window.read(TOKEN, &mut found);
        if found == token {
            Ok(window)
        } else {
            Err(other())
        }
    }

    /// Map the window of a group.
    pub fn window(&self, slot: usize) -> io::Result<Window> {
        if slot >= MAX_GROUPS {
            return Err(io::Error::other(format!(
                "more than {MAX_GROUPS} groups of ranks on a node"
            )));
        }
        let layout = &self.layout;
        Window::map(&self.file, layout.window_at(slot), layout.window_bytes())
    }

    /// Take the window of a new group, `MAX_GROUPS` where all are in use; window 0 is that of all ranks.
    pub fn take_slot(&self) -> usize {
        for (number, first) in (0..MAX_GROUPS).step_by(32).enumerate() {
            let word = self.base.word(GROUPS + 4 * number);
            let of_all = u32::from(number == 0);
            let take = |used: u32| {
                let used = used | of_all;
                (used != u32::MAX).then(|| used | (used + 1))
            };
            if let Ok(used) = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, take) {
                return first + (used | of_all).trailing_ones() as usize;
            }
        }
        MAX_GROUPS
    }

    /// Give the window of a group back that none of its ranks uses any more; its memory is that of the system again.
    pub fn give_slot_back(&self, slot: usize, window: &Window) {
        debug_assert!(slot > 0);
        window.clear();
        let word = self.base.word(GROUPS + 4 * (slot / 32));
        word.fetch_and(!(1 << (slot % 32)), Ordering::AcqRel);
    }

    /// The line in which a rank writes the request of this number.
    pub fn request(&self, rank: usize, seq: u64) -> *mut RequestLine {
        let line = (seq % RING) as usize * size_of::<RequestLine>();
        self.rank_block(rank, line, size_of::<RequestLine>()).cast()
    }

    /// The line in which it is answered.
    pub fn reply(&self, rank: usize, seq: u64) -> *mut ReplyLine {
        let lines = RING as usize * size_of::<RequestLine>();
        let line = lines + (seq % RING) as usize * size_of::<ReplyLine>();
        self.rank_block(rank, line, size_of::<ReplyLine>()).cast()
    }

    /// Where the low word of the acknowledgement of a request lies.
    pub fn ack_at(&self, rank: usize, seq: u64) -> usize {
        let lines = RING as usize * size_of::<RequestLine>();
        ArenaLayout::block(rank) + lines + (seq % RING) as usize * size_of::<ReplyLine>()
    }

    fn rank_block(&self, rank: usize, offset: usize, bytes: usize) -> *mut u8 {
        assert!(rank < self.layout.ranks);
        self.base.at(ArenaLayout::block(rank) + offset, bytes)
    }

    /// Whether a rank sleeps until its line is answered (R6); written by the rank.
    pub fn sleeps(&self, rank: usize) -> &AtomicU32 {
        self.base.word(ArenaLayout::block(rank) + WAIT - 64)
    }

    /// Who has it answers requests.
    pub fn desk(&self) -> &AtomicU32 {
        self.base.word(DESK)
    }

    /// The descriptor that becomes readable when there is something for other nodes.
    pub fn outbox(&self) -> RawFd {
        self.outbox.as_raw_fd()
    }

    /// Tell the leader that there is something for other nodes.
    pub fn tell_leader(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight bytes of the stack.
        unsafe { libc::write(self.outbox.as_raw_fd(), one.as_ptr().cast(), 8) };
    }

    /// The number of the present or latest wait of a rank; odd while it waits. Written by the rank.
    pub fn epoch(&self, rank: usize) -> &AtomicU32 {
        self.base.word(ArenaLayout::block(rank) + WAIT)
    }

    /// Tell what a rank will wait for; its epoch is even.
    pub fn describe(&self, rank: usize, wait: &WaitNote) {
        let at = ArenaLayout::block(rank) + WAIT;
        self.base.write(at + 4, &wait.call.to_ne_bytes());
        self.base.write(at + 8, &wait.peer.to_ne_bytes());
        self.base.write(at + 12, &wait.tag.to_ne_bytes());
        self.base.write(at + 16, &wait.offset.to_ne_bytes());
        self.base.write(at + 24, &wait.slot.to_ne_bytes());
        self.base.write(at + 28, &wait.expected.to_ne_bytes());
        let text = &wait.text.as_bytes()[..wait.text.len().min(SIGNATURE)];
        self.base.write(at + 32, &(text.len() as u32).to_ne_bytes());
        self.base.write(at + 36, text);
    }

    /// Tell that a rank has returned and asks for nothing any more; a slot may have told so itself.
    pub fn end(&self, rank: usize) {
        let told = self.told(rank);
        if told.epoch % 2 == 1 && told.call == ENDED {
            return;
        }
        let ended = WaitNote {
            epoch: 0,
            call: ENDED,
            peer: 0,
            tag: 0,
            slot: IN_BASE,
            offset: 0,
            expected: 0,
            text: String::new(),
        };
        self.describe(rank, &ended);
        let odd = told.epoch.wrapping_add(1 + told.epoch % 2);
        self.epoch(rank).store(odd, Ordering::SeqCst);
    }

    /// What a rank has told of its wait; only where its epoch was the same before and after, and odd, is it whole.
    pub fn told(&self, rank: usize) -> WaitNote {
        let at = ArenaLayout::block(rank) + WAIT;
        let number = |offset: usize| {
            let mut bytes = [0; 4];
            self.base.read(at + offset, &mut bytes);
            u32::from_ne_bytes(bytes)
        };
        let epoch = self.epoch(rank).load(Ordering::Acquire);
        let mut text = vec![0; (number(32) as usize).min(SIGNATURE)];
        self.base.read(at + 36, &mut text);
        WaitNote {
            epoch,
            call: number(4),
            peer: number(8) as i32,
            tag: number(12) as i32,
            offset: u64::from(number(16)) | u64::from(number(20)) << 32,
            slot: number(24),
            expected: number(28),
            text: String::from_utf8_lossy(&text).into_owned(),
        }
    }

    /// End all waits of this node for a reason; the first one counts.
    pub fn abort(&self, kind: u32, reason: &str) {
        let word = self.base.word(ABORT);
        if words::claim_abort(word) {
            let mut end = reason.len().min(PAGE - ABORT_TEXT);
            while !reason.is_char_boundary(end) {
                end -= 1;
            }
            self.base.write(ABORT_KIND, &kind.to_ne_bytes());
            self.base.write(ABORT_BYTES, &(end as u32).to_ne_bytes());
            self.base.write(ABORT_TEXT, &reason.as_bytes()[..end]);
            words::abort(word);
        }
        wake(self.desk());
        for rank in 0..self.layout.ranks {
            let told = self.told(rank);
            // Words in windows are not mapped here: whoever waits there looks at the abort word ten times a second.
            if told.epoch % 2 == 1 && told.slot == IN_BASE && told.offset.is_multiple_of(4) {
                wake(self.base.word(told.offset as usize));
            }
        }
    }

    /// Whether all waits were ended (R7).
    pub fn aborted(&self) -> bool {
        words::is_aborted(self.base.word(ABORT))
    }

    /// Why all waits were ended: a kind and a text.
    pub fn reason(&self) -> Option<(u32, String)> {
        if !words::has_reason(self.base.word(ABORT)) {
            return None;
        }
        let number = |offset| self.base.word(offset).load(Ordering::Relaxed);
        let mut text = vec![0; (number(ABORT_BYTES) as usize).min(PAGE - ABORT_TEXT)];
        self.base.read(ABORT_TEXT, &mut text);
        Some((
            number(ABORT_KIND),
            String::from_utf8_lossy(&text).into_owned(),
        ))
    }
}
