//! Messages among ranks: `tartan_comm` on NumPy arrays of bytes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use numpy::{PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tartan_comm::arena::{Arena, ArenaLayout, Window};
use tartan_comm::desk::Places;
use tartan_comm::group::{CollectiveFailure, Group};
use tartan_comm::line::{flag, op, ReplyBody, RequestBody, INLINE};
use tartan_comm::meeting::found;
use tartan_comm::meeting::NodeMeeting;
use tartan_comm::proxy::Proxy;
use tartan_comm::rank::{NodeRank, WaitEnd};
use tartan_comm::slots::{SlotMemory, CONSTANTS};
use tartan_comm::stream::LEAST;

use crate::comm_memory::{view, CommMemory};
use crate::in_order::{InOrder, InOrderMut};

create_exception!(
    _native,
    CommFailure,
    PyException,
    "Why a call of a communicator ended: its arguments are a kind and a detail."
);

/// Add the classes of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("CommFailure", module.py().get_type::<CommFailure>())?;
    module.add("COMM_INLINE", INLINE)?;
    let constants = PyDict::new(module.py());
    for (name, value) in CONSTANTS {
        constants.set_item(name, value)?;
    }
    module.add("COMM_CONSTANTS", constants)?;
    module.add_class::<CommArena>()?;
    module.add_class::<CommRank>()?;
    module.add_class::<CommMemory>()?;
    module.add_class::<CommGroup>()?;
    module.add_class::<CommSlots>()?;
    module.add_class::<CommProxy>()
}

fn os_error(error: std::io::Error) -> PyErr {
    PyOSError::new_err(error.to_string())
}

fn failure(kind: &'static str, detail: impl ToString) -> PyErr {
    CommFailure::new_err((kind, detail.to_string()))
}

/// Look at signals as Python does; keep what they raise.
fn check(raised: &mut Option<PyErr>) -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => true,
        Err(error) => {
            *raised = Some(error);
            false
        }
    })
}

/// The memory that the processes of a node share.
#[pyclass(frozen, module = "tartan._native")]
struct CommArena {
    arena: Arc<Arena>,
}

#[pymethods]
impl CommArena {
    #[new]
    #[pyo3(signature = (ranks, members, heap_bytes, half_bytes, streams=true))]
    fn new(
        ranks: usize,
        members: usize,
        heap_bytes: usize,
        half_bytes: usize,
        streams: bool,
    ) -> PyResult<Self> {
        let layout = ArenaLayout {
            ranks,
            members,
            heap: heap_bytes.next_multiple_of(4096),
            half: half_bytes.next_multiple_of(4096),
            streams,
        };
        let arena = Arena::new(layout).map_err(os_error)?;
        Ok(Self {
            arena: Arc::new(arena),
        })
    }

    fn abort(&self, kind: u32, reason: &str) {
        self.arena.abort(kind, reason);
    }

    fn reason(&self) -> Option<(u32, String)> {
        self.arena.reason()
    }

    fn found(&self, slot: usize, members: Vec<u32>) -> PyResult<()> {
        if members.len() > self.arena.layout.members {
            return Err(PyValueError::new_err("more members than ranks"));
        }
        let window = self.arena.window(slot).map_err(os_error)?;
        found(&window, &members);
        Ok(())
    }

    /// Map the memory for slots of which the first is this rank, and make the first argument of their kernel.
    fn slots(&self, local: usize, rank: usize, blocks: u32, states: u64) -> PyResult<CommSlots> {
        let memory = SlotMemory::new(Arc::clone(&self.arena)).map_err(os_error)?;
        let slots = memory.slots(local, rank, blocks, states);
        // SAFETY: a plain structure without padding, read as its bytes.
        let words: [u8; size_of::<tartan_comm::slots::Slots>()] =
            unsafe { std::mem::transmute(slots) };
        Ok(CommSlots {
            _memory: memory,
            words: words.to_vec(),
        })
    }

    /// Tell that a slot has returned.
    fn end(&self, rank: usize) -> PyResult<()> {
        if rank >= self.arena.layout.ranks {
            return Err(PyValueError::new_err("no rank of this node"));
        }
        self.arena.end(rank);
        Ok(())
    }

    /// The memory that all ranks of the node map, from an offset on: for the leader, which carries blocks.
    fn view(
        slf: Bound<'_, Self>,
        begin: usize,
        n_bytes: usize,
    ) -> PyResult<Bound<'_, PyArray1<u8>>> {
        view(
            slf.clone().into_any(),
            &slf.get().arena.base,
            begin,
            n_bytes,
        )
    }

    /// What another node of this machine needs to map this memory: a descriptor of this process, bytes, and a token.
    fn share<'py>(&self, py: Python<'py>) -> PyResult<(i32, usize, Bound<'py, PyBytes>)> {
        let (file, bytes, token) = self.arena.share().map_err(os_error)?;
        Ok((file, bytes, PyBytes::new(py, &token)))
    }

    /// Whether what another node has shared can be mapped.
    #[staticmethod]
    fn reads(path: &str, n_bytes: usize, token: &[u8]) -> bool {
        Arena::map_shared(path, n_bytes, token).is_ok()
    }

    fn take_slot(&self) -> usize {
        self.arena.take_slot()
    }

    /// What a rank waits for: its epoch (odd: it waits), the call, peer, tag and text.
    fn waiting(&self, rank: usize) -> PyResult<(u32, u32, i32, i32, String)> {
        if rank >= self.arena.layout.ranks {
            return Err(PyValueError::new_err("no rank of this node"));
        }
        let told = self.arena.told(rank);
        Ok((told.epoch, told.call, told.peer, told.tag, told.text))
    }
}

/// The memory of a node, mapped for the slots of a kernel.
#[pyclass(frozen, module = "tartan._native")]
struct CommSlots {
    _memory: SlotMemory,
    words: Vec<u8>,
}

#[pymethods]
impl CommSlots {
    /// The first argument of the kernel, as bytes; the addresses in it hold as long as this object.
    #[getter]
    fn words<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.words)
    }
}

/// One rank of a node.
#[pyclass(frozen, module = "tartan._native")]
struct CommRank {
    rank: Mutex<NodeRank>,
    arena: Arc<Arena>,
    broken: AtomicBool,
    /// What is being sent in parts.
    kept: Mutex<Option<Py<PyAny>>>,
}

type Answer = (i32, i32, i32, u32, u64, u64, Py<PyBytes>);

fn answer(py: Python<'_>, reply: &ReplyBody) -> Answer {
    let inline = PyBytes::new(py, &reply.inline[..(reply.bytes as usize).min(INLINE)]);
    let (source, tag) = (reply.source, reply.tag);
    (
        reply.status,
        source,
        tag,
        reply.flags,
        reply.bytes,
        reply.address,
        inline.unbind(),
    )
}

impl CommRank {
    fn lock(&self) -> PyResult<MutexGuard<'_, NodeRank>> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(failure("broken", ""));
        }
        match self.rank.try_lock() {
            Ok(rank) => Ok(rank),
            Err(TryLockError::Poisoned(rank)) => Ok(rank.into_inner()),
            Err(TryLockError::WouldBlock) => Err(failure("busy", "")),
        }
    }

    fn stopped(&self, stop: WaitEnd, raised: Option<PyErr>) -> PyErr {
        match stop {
            WaitEnd::Aborted => failure("stopped", ""),
            WaitEnd::NoRoom(bytes) => failure("no-room", bytes),
            WaitEnd::Interrupted => {
                self.broken.store(true, Ordering::Relaxed);
                raised.unwrap_or_else(|| failure("broken", ""))
            }
        }
    }

    fn ask(&self, py: Python<'_>, request: RequestBody) -> PyResult<Answer> {
        let mut rank = self.lock()?;
        let mut raised = None;
        let rank = &mut *rank;
        let result = py.detach(|| rank.ask(request, &mut || check(&mut raised)));
        result
            .map(|reply| answer(py, &reply))
            .map_err(|stop| self.stopped(stop, raised))
    }

    fn post(&self, py: Python<'_>, request: RequestBody) -> PyResult<u64> {
        let mut rank = self.lock()?;
        let mut raised = None;
        let rank = &mut *rank;
        py.detach(|| rank.post(request, &mut || check(&mut raised)))
            .map_err(|stop| self.stopped(stop, raised))
    }

    fn may_stream(&self, payload: &[u8], to: i32) -> PyResult<bool> {
        Ok(payload.len() >= LEAST && self.lock()?.may_stream(to as usize))
    }

    fn keep(&self, array: Option<Py<PyAny>>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = array;
    }

    #[allow(clippy::too_many_arguments, reason = "the words of a line")]
    fn sending(
        &self,
        payload: &[u8],
        description: &[u8],
        kind: u16,
        to: i32,
        tag: i32,
        group: u32,
    ) -> PyResult<RequestBody> {
        let mut request = unlaid(payload, kind, to, tag, group);
        if description.is_empty() && payload.len() <= INLINE {
            request.flags |= flag::INLINE;
            request.inline[..payload.len()].copy_from_slice(payload);
        } else {
            let laid = self.lock()?.lay_out(description, payload);
            request.address = laid.map_err(|stop| self.stopped(stop, None))?;
        }
        Ok(request)
    }
}

/// A send whose payload lies nowhere yet.
fn unlaid(payload: &[u8], kind: u16, to: i32, tag: i32, group: u32) -> RequestBody {
    RequestBody {
        op: op::SEND,
        flags: kind,
        peer: to,
        tag,
        group,
        bytes: payload.len() as u64,
        ..RequestBody::default()
    }
}

fn receiving(source: i32, tag: i32, group: u32, capacity: u64) -> RequestBody {
    RequestBody {
        op: op::RECV,
        peer: source,
        tag,
        group,
        bytes: capacity,
        ..RequestBody::default()
    }
}

fn deferred(mut request: RequestBody) -> RequestBody {
    request.flags |= flag::DEFER;
    request
}

#[pymethods]
impl CommRank {
    #[new]
    fn new(arena: &CommArena, nodes: Vec<u32>, rank: usize, has_core: bool) -> PyResult<Self> {
        let me = *nodes
            .get(rank)
            .ok_or_else(|| PyValueError::new_err("no rank of these"))?;
        let first = nodes.iter().position(|&node| node == me).unwrap_or(rank);
        let places = Places {
            node: nodes,
            me,
            first,
        };
        let arena = Arc::clone(&arena.arena);
        Ok(Self {
            rank: Mutex::new(NodeRank::new(
                Arc::clone(&arena),
                places,
                rank - first,
                has_core,
            )),
            arena,
            broken: AtomicBool::new(false),
            kept: Mutex::new(None),
        })
    }

    #[allow(clippy::too_many_arguments, reason = "the words of a line")]
    fn send(
        &self,
        py: Python<'_>,
        payload: PyReadonlyArray1<'_, u8>,
        description: &[u8],
        kind: u16,
        to: i32,
        tag: i32,
        group: u32,
    ) -> PyResult<Answer> {
        let bytes = payload.in_order()?;
        if !self.may_stream(bytes, to)? {
            let request = self.sending(bytes, description, kind, to, tag, group)?;
            return self.ask(py, request);
        }
        let request = unlaid(bytes, kind, to, tag, group);
        let mut rank = self.lock()?;
        let mut raised = None;
        let rank = &mut *rank;
        let result =
            py.detach(|| rank.send_stream(request, description, bytes, &mut || check(&mut raised)));
        result
            .map(|reply| answer(py, &reply))
            .map_err(|stop| self.stopped(stop, raised))
    }

    /// Begin to send a payload in parts, which must stay as it is until `end_stream`; None where it cannot go so.
    #[allow(clippy::too_many_arguments, reason = "the words of a line")]
    fn begin_stream(
        &self,
        py: Python<'_>,
        payload: PyReadonlyArray1<'_, u8>,
        description: &[u8],
        kind: u16,
        to: i32,
        tag: i32,
        group: u32,
    ) -> PyResult<Option<u64>> {
        let bytes = payload.in_order()?;
        if !self.may_stream(bytes, to)? {
            return Ok(None);
        }
        let request = deferred(unlaid(bytes, kind, to, tag, group));
        let mut rank = self.lock()?;
        let mut raised = None;
        let rank = &mut *rank;
        // SAFETY: the array is kept until the stream is ended; the caller leaves it as it is.
        let posted = py.detach(|| unsafe {
            rank.begin_stream(request, description, bytes, &mut || check(&mut raised))
        });
        let number = posted.map_err(|stop| self.stopped(stop, raised))?;
        self.keep(Some(payload.as_any().clone().unbind()));
        Ok(Some(number))
    }

    /// Copy all the rest of what was begun.
    fn end_stream(&self, py: Python<'_>) -> PyResult<()> {
        let mut rank = match self.rank.try_lock() {
            Ok(rank) => rank,
            Err(TryLockError::Poisoned(rank)) => rank.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(failure("busy", "")),
        };
        let rank = &mut *rank;
        py.detach(|| rank.finish_stream());
        self.keep(None);
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the words of a line")]
    fn isend(
        &self,
        py: Python<'_>,
        payload: PyReadonlyArray1<'_, u8>,
        description: &[u8],
        kind: u16,
        to: i32,
        tag: i32,
        group: u32,
    ) -> PyResult<u64> {
        let bytes = payload.in_order()?;
        if !self.may_stream(bytes, to)? {
            let request = self.sending(bytes, description, kind, to, tag, group)?;
            return self.post(py, deferred(request));
        }
        let request = deferred(unlaid(bytes, kind, to, tag, group));
        let mut rank = self.lock()?;
        let mut raised = None;
        let rank = &mut *rank;
        let posted = py.detach(|| {
            // SAFETY: the stream is ended before the payload is.
            let posted = unsafe {
                rank.begin_stream(request, description, bytes, &mut || check(&mut raised))
            };
            rank.finish_stream();
            posted
        });
        posted.map_err(|stop| self.stopped(stop, raised))
    }

    fn recv(
        &self,
        py: Python<'_>,
        source: i32,
        tag: i32,
        group: u32,
        capacity: u64,
    ) -> PyResult<Answer> {
        let mut rank = self.lock()?;
        let mut raised = None;
        let rank = &mut *rank;
        let request = receiving(source, tag, group, capacity);
        let result = py.detach(|| rank.ask_beside(request, &mut || check(&mut raised)));
        result
            .map(|reply| answer(py, &reply))
            .map_err(|stop| self.stopped(stop, raised))
    }

    fn irecv(
        &self,
        py: Python<'_>,
        source: i32,
        tag: i32,
        group: u32,
        capacity: u64,
    ) -> PyResult<u64> {
        self.post(py, deferred(receiving(source, tag, group, capacity)))
    }

    fn wait(&self, py: Python<'_>, request: u64, now: bool) -> PyResult<Answer> {
        let asked = RequestBody {
            op: if now { op::TEST } else { op::WAIT },
            address: request,
            ..RequestBody::default()
        };
        self.ask(py, asked)
    }

    /// Wait until one of several requests has ended; false where one of them is unknown.
    fn wait_any(&self, py: Python<'_>, requests: Vec<u64>) -> PyResult<bool> {
        let mut rank = self.lock()?;
        let mut raised = None;
        let rank = &mut *rank;
        py.detach(|| rank.wait_any(&requests, &mut || check(&mut raised)))
            .map_err(|stop| self.stopped(stop, raised))
    }

    fn probe(
        &self,
        py: Python<'_>,
        source: i32,
        tag: i32,
        group: u32,
        now: bool,
    ) -> PyResult<Answer> {
        let asked = RequestBody {
            op: op::PROBE,
            flags: if now { flag::NOW } else { 0 },
            ..receiving(source, tag, group, 0)
        };
        self.ask(py, asked)
    }

    /// The memory in which the block of a message lies.
    fn memory(&self, source: i32, in_parts: bool) -> PyResult<CommMemory> {
        let memory = self.lock()?.memory_of(source, in_parts);
        Ok(CommMemory { memory })
    }

    /// Map the memory of another node, in which payloads of some ranks lie that come in parts.
    fn add_near(&self, ranks: Vec<i32>, path: &str, n_bytes: usize, token: &[u8]) -> PyResult<()> {
        let window = Arena::map_shared(path, n_bytes, token).map_err(os_error)?;
        self.lock()?.add_near(ranks.into_iter(), window);
        Ok(())
    }

    /// Copy a payload that comes in parts, and give its block back.
    fn drain(
        &self,
        py: Python<'_>,
        memory: &CommMemory,
        block: u64,
        begin: usize,
        mut out: PyReadwriteArray1<'_, u8>,
    ) -> PyResult<()> {
        let out = out.in_order_mut()?;
        let mut rank = self.lock()?;
        let mut raised = None;
        let rank = &mut *rank;
        let memory = &memory.memory;
        py.detach(|| rank.drain(memory, block, begin, out, &mut || check(&mut raised)))
            .map_err(|stop| self.stopped(stop, raised))
    }

    /// Wait until a payload that comes in parts lies in its block as a whole; return where.
    fn whole(
        &self,
        py: Python<'_>,
        memory: &CommMemory,
        block: u64,
        begin: usize,
        n_bytes: usize,
    ) -> PyResult<usize> {
        let mut rank = self.lock()?;
        let mut raised = None;
        let rank = &mut *rank;
        let memory = &memory.memory;
        py.detach(|| rank.whole(memory, block, begin, n_bytes, &mut || check(&mut raised)))
            .map_err(|stop| self.stopped(stop, raised))
    }

    fn end(&self) -> PyResult<()> {
        self.lock()?.end();
        Ok(())
    }
}

/// The ranks of a group, as one of them sees it.
#[pyclass(frozen, module = "tartan._native")]
struct CommGroup {
    group: Mutex<Group>,
    window: Arc<Window>,
    rank: Py<CommRank>,
}

impl CommGroup {
    fn lock(&self) -> PyResult<MutexGuard<'_, Group>> {
        match self.group.try_lock() {
            Ok(group) => Ok(group),
            Err(TryLockError::Poisoned(group)) => Ok(group.into_inner()),
            Err(TryLockError::WouldBlock) => Err(failure("busy", "")),
        }
    }

    fn raise(&self, py: Python<'_>, failed: CollectiveFailure, raised: Option<PyErr>) -> PyErr {
        match failed {
            CollectiveFailure::Stop(stop) => self.rank.bind(py).get().stopped(stop, raised),
            CollectiveFailure::TooLarge(bytes) => failure("too-large", bytes),
            CollectiveFailure::Mismatch(calls) => CommFailure::new_err(("mismatch", calls)),
        }
    }
}

#[pymethods]
impl CommGroup {
    #[new]
    fn new(
        py: Python<'_>,
        rank: Py<CommRank>,
        group: u32,
        slot: usize,
        mine: usize,
        n_local: u32,
    ) -> PyResult<Self> {
        let arena = Arc::clone(&rank.bind(py).get().arena);
        let group = Group::new(arena, group, slot, mine, n_local).map_err(os_error)?;
        Ok(Self {
            window: Arc::clone(&group.window),
            group: Mutex::new(group),
            rank,
        })
    }

    /// Exchange contributions; return where they lie, and whether one behind the other.
    fn exchange(
        &self,
        py: Python<'_>,
        signature: &[u8],
        contribution: PyReadonlyArray1<'_, u8>,
    ) -> PyResult<(bool, Vec<(usize, usize)>)> {
        let contribution = contribution.in_order()?;
        let rank = self.rank.bind(py).get();
        let (mut rank, mut group) = (rank.lock()?, self.lock()?);
        let mut raised = None;
        let (one, all) = (&mut *rank, &mut *group);
        let result =
            py.detach(|| all.exchange(one, signature, contribution, &mut || check(&mut raised)));
        match result {
            Ok(()) => Ok((group.joined, group.places.clone())),
            Err(failed) => Err(self.raise(py, failed, raised)),
        }
    }

    fn meet_here(&self, py: Python<'_>, signature: &[u8]) -> PyResult<()> {
        let rank = self.rank.bind(py).get();
        let (mut rank, mut group) = (rank.lock()?, self.lock()?);
        let mut raised = None;
        let (one, all) = (&mut *rank, &mut *group);
        py.detach(|| all.meet_here(one, signature, &mut || check(&mut raised)))
            .map_err(|failed| self.raise(py, failed, raised))
    }

    /// Use the group no more.
    fn leave(&self) -> PyResult<()> {
        self.lock()?.leave();
        Ok(())
    }

    /// Room for a result of so many bytes behind the contributions.
    fn room(&self, n_bytes: usize) -> PyResult<Option<usize>> {
        Ok(self.lock()?.room(n_bytes))
    }

    /// Copy all contributions, one behind the other.
    fn copy(&self, py: Python<'_>, mut out: PyReadwriteArray1<'_, u8>) -> PyResult<()> {
        let out = out.in_order_mut()?;
        let group = self.lock()?;
        let group = &*group;
        if group.places.iter().map(|place| place.1).sum::<usize>() != out.len() {
            return Err(PyValueError::new_err("the result has another size"));
        }
        py.detach(|| {
            let mut rest = out;
            for &(at, bytes) in &group.places {
                let (part, after) = rest.split_at_mut(bytes);
                group.window.read(at, part);
                rest = after;
            }
        });
        Ok(())
    }

    fn view(slf: Bound<'_, Self>, at: usize, n_bytes: usize) -> PyResult<Bound<'_, PyArray1<u8>>> {
        view(slf.clone().into_any(), &slf.get().window, at, n_bytes)
    }
}

/// The proxy of a node.
#[pyclass(frozen, module = "tartan._native")]
struct CommProxy {
    proxy: Proxy,
}

type Messages = Vec<(u32, Py<PyBytes>, Option<(usize, usize)>)>;
/// Number of the group, its window, half, phase, round.
type Place = (u32, u32, u32, u32, u32);

fn meeting((group, slot, half, phase, round): Place) -> NodeMeeting {
    NodeMeeting {
        group,
        slot,
        half,
        phase,
        round,
    }
}

#[pymethods]
impl CommProxy {
    #[new]
    #[pyo3(signature = (arena, nodes, me, first, polls=false))]
    fn new(
        arena: &CommArena,
        nodes: Vec<u32>,
        me: u32,
        first: usize,
        polls: bool,
    ) -> PyResult<Self> {
        let places = Places {
            node: nodes,
            me,
            first,
        };
        let proxy = Proxy::start(Arc::clone(&arena.arena), places, polls).map_err(os_error)?;
        Ok(Self { proxy })
    }

    /// The descriptor that becomes readable when there is something for other nodes.
    #[getter]
    fn outbox_fd(&self) -> i32 {
        self.proxy.outbox()
    }

    /// Messages for other nodes, and meetings that all ranks of this node have come to.
    fn take(&self, py: Python<'_>) -> PyResult<(Messages, Vec<Place>)> {
        let (messages, meetings) = py.detach(|| self.proxy.with(tartan_comm::desk::NodeDesk::take));
        let messages = messages
            .iter()
            .map(|(to, head, block)| (*to, PyBytes::new(py, head).unbind(), *block));
        let meetings = meetings
            .iter()
            .map(|one| (one.group, one.slot, one.half, one.phase, one.round));
        Ok((messages.collect(), meetings.collect()))
    }

    /// Give the block of a message back that was carried to another node.
    fn sent(&self, block: usize) {
        self.proxy.with(|desk| desk.sent(block));
    }

    /// Take room for a block of another node's message; all but its first four bytes may be written.
    fn reserve(&self, n_bytes: usize) -> PyResult<usize> {
        self.proxy
            .with(|desk| desk.reserve(n_bytes))
            .map_err(os_error)
    }

    #[pyo3(signature = (head, block=None))]
    fn deliver(&self, py: Python<'_>, head: &[u8], block: Option<(usize, usize)>) -> PyResult<()> {
        py.detach(|| self.proxy.with(|desk| desk.deliver(head, block)))
            .map_err(os_error)
    }

    fn members(&self, slot: u32) -> PyResult<Vec<u32>> {
        self.proxy.with(|desk| desk.members(slot)).map_err(os_error)
    }

    fn pack<'py>(
        &self,
        py: Python<'py>,
        place: Place,
        members: Vec<usize>,
    ) -> PyResult<Bound<'py, PyArray1<u8>>> {
        let packed = py
            .detach(|| self.proxy.with(|desk| desk.pack(meeting(place), &members)))
            .map_err(os_error)?;
        Ok(PyArray1::from_vec(py, packed))
    }

    fn unpack(
        &self,
        py: Python<'_>,
        place: Place,
        members: Vec<usize>,
        packed: PyReadonlyArray1<'_, u8>,
    ) -> PyResult<()> {
        let packed = packed.in_order()?;
        py.detach(|| {
            self.proxy
                .with(|desk| desk.unpack(meeting(place), &members, packed))
        })
        .map_err(os_error)
    }

    fn release(&self, slot: u32, turn: u32) -> PyResult<()> {
        self.proxy
            .with(|desk| desk.release(slot, turn))
            .map_err(os_error)
    }

    fn stuck(&self) -> Option<u64> {
        self.proxy.stuck()
    }
}
