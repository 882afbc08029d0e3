//! Page-aligned memory, as O_DIRECT wants it, mapped once and reused.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::error::{ErrorKind, JobFailure, Result};

/// Alignment of memory, file offsets and lengths that every device accepts for O_DIRECT.
/// By convention, as said.
pub const ALIGN: usize = 4096;

/// Zeroed memory that begins at a page boundary. Pages are touched by their first use.
pub struct AlignedMemory {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: Aligned owns its mapping alone, as a boxed slice would.
unsafe impl Send for AlignedMemory {}
// SAFETY: shared references only read.
unsafe impl Sync for AlignedMemory {}

impl AlignedMemory {
    /// Map `length` bytes, rounded up to whole pages.
    pub fn new(length: usize) -> Result<AlignedMemory> {
        let length = length.max(1).next_multiple_of(ALIGN);
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(AlignedMemory { start, length })
            }
            _ => Err(JobFailure::new(
                ErrorKind::Memory,
                format!("{length} bytes of buffer cannot be allocated; give less memory"),
            )),
        }
    }
}

impl Drop for AlignedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this start and length and is unmapped once.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl Deref for AlignedMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is readable, zeroed and lives as long as self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for deref, and &mut self excludes other references.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

/// Types that every bit pattern makes.
///
/// # Safety
/// The type has no padding, no invalid bit pattern and no more alignment than a page.
pub unsafe trait Word: Copy {}
// SAFETY: plain integers.
unsafe impl Word for u32 {}
// SAFETY: plain integers.
unsafe impl Word for u64 {}

/// The bytes as words; the bytes begin at a word boundary and are whole words.
pub fn words<T: Word>(bytes: &[u8]) -> &[T] {
    // SAFETY: Word says that every bit pattern is a value.
    let (head, words, tail) = unsafe { bytes.align_to::<T>() };
    assert!(
        head.is_empty() && tail.is_empty(),
        "bytes are not aligned words"
    );
    words
}

/// The bytes as mutable words.
pub fn words_mut<T: Word>(bytes: &mut [u8]) -> &mut [T] {
    // SAFETY: Word says that every bit pattern is a value, in both directions.
    let (head, words, tail) = unsafe { bytes.align_to_mut::<T>() };
    assert!(
        head.is_empty() && tail.is_empty(),
        "bytes are not aligned words"
    );
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zeroed_and_writable() {
        let mut memory = AlignedMemory::new(5000).unwrap();
        assert_eq!(memory.len(), 8192);
        assert_eq!(memory.as_ptr() as usize % ALIGN, 0);
        assert!(memory.iter().all(|&byte| byte == 0));
        words_mut::<u64>(&mut memory[8..24])[1] = 7;
        assert_eq!(words::<u64>(&memory[16..24]), [7]);
    }

    #[test]
    fn more_memory_than_there_is_is_an_error() {
        let failure = AlignedMemory::new(1 << 60).err().unwrap();
        assert_eq!(failure.kind, ErrorKind::Memory);
    }

    #[test]
    #[should_panic(expected = "not aligned words")]
    fn unaligned_bytes_are_no_words() {
        words::<u64>(&AlignedMemory::new(64).unwrap()[1..9]);
    }
}
