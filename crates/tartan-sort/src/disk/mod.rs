//! Files by O_DIRECT where that is accepted, and streams of reads and writes through rings of aligned buffers.
//!
//! A ring (`ring`) moves bytes between memory and files with many requests in flight: io_uring where the kernel
//! offers it, a few threads with pread and pwrite elsewhere. A stream owns a ring and its memory: `read` delivers
//! any list of file ranges in the order asked for, `write` appends to one file after the other. Both hide the
//! alignment that O_DIRECT wants and give it up, request by request, where a file system refuses it.

pub mod file;
pub mod read;
pub mod ring;
pub mod write;

pub use file::{DataFile, Direct};
pub use read::ReadStream;
pub use ring::{IoMethod, RingPlan};
pub use write::WriteStream;
