//! Requests in flight between memory and files: io_uring, or a few threads with pread and pwrite.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::{mpsc, Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// How requests reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMethod {
    /// io_uring where the kernel offers it, else threads.
    Auto,
    Uring,
    Threads,
}

/// Size and depth of the rings of a job, and how they reach the disk.
#[derive(Clone, Copy, Debug)]
pub struct RingPlan {
    /// Bytes of one request, a multiple of the alignment.
    pub bytes: usize,
    /// How many requests are in flight at most.
    pub depth: usize,
    pub method: IoMethod,
}

/// One read or write of `length` bytes at `offset`.
#[derive(Clone, Copy)]
pub struct IoRequest {
    pub descriptor: RawFd,
    pub write: bool,
    pub offset: u64,
    pub pointer: *mut u8,
    pub length: usize,
    /// Comes back with the completion.
    pub tag: usize,
}

// SAFETY: the pointer is used only under the promise of `Ring::submit`.
unsafe impl Send for IoRequest {}

/// What became of a request: its tag, and the bytes moved.
pub type Completion = (usize, io::Result<usize>);

enum Way {
    #[cfg(target_os = "linux")]
    Uring(Box<io_uring::IoUring>),
    Threads(Workers),
}

/// Some requests in flight. Dropping it waits for them.
pub struct Ring {
    way: Way,
    in_flight: usize,
}

impl Ring {
    /// A ring for up to `depth` requests in flight.
    pub fn new(method: IoMethod, depth: usize) -> io::Result<Ring> {
        let way = match method {
            IoMethod::Threads => Way::Threads(Workers::start(depth)?),
            IoMethod::Uring => uring(depth)?,
            IoMethod::Auto => uring(depth).or_else(|_| Workers::start(depth).map(Way::Threads))?,
        };
        Ok(Ring { way, in_flight: 0 })
    }

    pub fn name(&self) -> &'static str {
        match self.way {
            #[cfg(target_os = "linux")]
            Way::Uring(_) => "uring",
            Way::Threads(_) => "threads",
        }
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Start a request.
    ///
    /// # Safety
    /// The memory of the request stays valid, and no other thread touches it (reads it, for a write), until `wait`
    /// has returned its tag or the ring is dropped; the descriptor stays open as long.
    pub unsafe fn submit(&mut self, request: IoRequest) -> io::Result<()> {
        match &mut self.way {
            #[cfg(target_os = "linux")]
            Way::Uring(ring) => {
                let entry = uring_entry(request);
                // SAFETY: the caller keeps memory and descriptor alive.
                unsafe { ring.submission().push(&entry) }
                    .map_err(|_| io::Error::other("more requests than the ring is deep"))?;
                ring.submit()?;
            }
            Way::Threads(workers) => workers.submit(request),
        }
        self.in_flight += 1;
        Ok(())
    }

    /// Wait for any request in flight to complete.
    pub fn wait(&mut self) -> io::Result<Completion> {
        assert!(self.in_flight > 0, "nothing is in flight");
        let completion = match &mut self.way {
            #[cfg(target_os = "linux")]
            Way::Uring(ring) => uring_wait(ring)?,
            Way::Threads(workers) => workers.wait()?,
        };
        self.in_flight -= 1;
        Ok(completion)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if self.wait().is_err() {
                // Memory that the kernel may still write must not be freed: better to stop here.
                std::process::abort();
            }
        }
    }
}

#[cfg(target_os = "linux")]
fn uring(depth: usize) -> io::Result<Way> {
    let entries = depth.next_power_of_two().max(8) as u32;
    Ok(Way::Uring(Box::new(io_uring::IoUring::new(entries)?)))
}

#[cfg(not(target_os = "linux"))]
fn uring(_depth: usize) -> io::Result<Way> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

#[cfg(target_os = "linux")]
fn uring_entry(request: IoRequest) -> io_uring::squeue::Entry {
    use io_uring::{opcode, types};
    let (file, length) = (types::Fd(request.descriptor), request.length as u32);
    let entry = match request.write {
        true => opcode::Write::new(file, request.pointer, length)
            .offset(request.offset)
            .build(),
        false => opcode::Read::new(file, request.pointer, length)
            .offset(request.offset)
            .build(),
    };
    entry.user_data(request.tag as u64)
}

#[cfg(target_os = "linux")]
fn uring_wait(ring: &mut io_uring::IoUring) -> io::Result<Completion> {
    loop {
        if let Some(entry) = ring.completion().next() {
            let moved = match entry.result() {
                code if code < 0 => Err(io::Error::from_raw_os_error(-code)),
                bytes => Ok(bytes as usize),
            };
            return Ok((entry.user_data() as usize, moved));
        }
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
}

/// How many threads stand in for a ring; more gain nothing on one device.
/// By judgement, as said.
const MOST_WORKERS: usize = 4;

#[derive(Default)]
struct Inbox {
    requests: VecDeque<IoRequest>,
    closed: bool,
}

struct Workers {
    inbox: Arc<(Mutex<Inbox>, Condvar)>,
    outbox: mpsc::Receiver<Completion>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    fn start(depth: usize) -> io::Result<Workers> {
        let inbox = Arc::new((Mutex::<Inbox>::default(), Condvar::new()));
        let (sender, outbox) = mpsc::channel();
        let spawn = |_| {
            let (inbox, sender) = (Arc::clone(&inbox), sender.clone());
            std::thread::Builder::new()
                .name("tartan-sort-io".into())
                .stack_size(128 << 10)
                .spawn(move || work(&inbox, &sender))
        };
        let threads = (0..depth.clamp(1, MOST_WORKERS))
            .map(spawn)
            .collect::<io::Result<_>>()?;
        Ok(Workers {
            inbox,
            outbox,
            threads,
        })
    }

    fn submit(&mut self, request: IoRequest) {
        self.inbox
            .0
            .lock()
            .expect("no holder panics")
            .requests
            .push_back(request);
        self.inbox.1.notify_one();
    }

    fn wait(&mut self) -> io::Result<Completion> {
        self.outbox
            .recv()
            .map_err(|_| io::Error::other("the I/O threads are gone"))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.inbox.0.lock().expect("no holder panics").closed = true;
        self.inbox.1.notify_all();
        for thread in self.threads.drain(..) {
            // Workers do not panic, and Drop cannot report an error.
            let _ = thread.join();
        }
    }
}

fn work(inbox: &(Mutex<Inbox>, Condvar), outbox: &mpsc::Sender<Completion>) {
    loop {
        let mut state = inbox.0.lock().expect("no holder panics");
        let request = loop {
            match state.requests.pop_front() {
                Some(request) => break request,
                None if state.closed => return,
                None => state = inbox.1.wait(state).expect("no holder panics"),
            }
        };
        drop(state);
        if outbox.send((request.tag, perform(&request))).is_err() {
            return;
        }
    }
}

fn perform(request: &IoRequest) -> io::Result<usize> {
    let (pointer, offset) = (
        request.pointer.cast::<libc::c_void>(),
        request.offset as i64,
    );
    loop {
        // SAFETY: the promise of `Ring::submit` covers memory and descriptor.
        let moved = unsafe {
            match request.write {
                true => libc::pwrite(request.descriptor, pointer, request.length, offset),
                false => libc::pread(request.descriptor, pointer, request.length, offset),
            }
        };
        match usize::try_from(moved) {
            Ok(moved) => return Ok(moved),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}
