// Slots against a proxy in C++, so that ThreadSanitizer sees both sides: the last block is the proxy.
#include <tartan_comm.h>

using namespace tartan;

constexpr int RANKS = 3;
constexpr u64 HEAPS_AT = PAGE * (1 + RANKS), HEAP_BYTES = 4096, WINDOW_AT = HEAPS_AT + RANKS * HEAP_BYTES;
constexpr u64 HEADERS_AT = PAGE, SMALLS_AT = 2 * PAGE, RESULTS_AT = SMALLS_AT + 2 * RANKS * SMALL_BYTES, HALF = 65536;
constexpr u64 STATES_AT = WINDOW_AT + RESULTS_AT + 2 * HALF, DONE_AT = STATES_AT + RANKS * STATE_BYTES;
constexpr u64 BUFFERS_AT = DONE_AT + 2048, BUFFER_BYTES = 65536;
constexpr u64 ALL_BYTES = BUFFERS_AT + RANKS * BUFFER_BYTES;
static_assert(ALL_BYTES <= 128 * PAGE, "as the test has it");

struct Held {
    int rank;
    u64 seq;
    Asked asked;
};

struct Proxy {
    octet *base, *window;
    Held sends[16], receives[16];
    int n_sends = 0, n_receives = 0;
    u64 next[RANKS] = {1, 1, 1};
    u32 arrivals = 0;

    void answer(int rank, u64 seq, const Answer& reply) {
        octet* line = base + PAGE * (1 + rank) + (RING + seq % RING) * 64;
        *reinterpret_cast<Answer*>(line + 8) = reply;
        __atomic_store_n(reinterpret_cast<u64*>(line), seq, __ATOMIC_RELEASE);
    }

    bool match() {
        for (int to = 0; to < n_receives; to++)
            for (int from = 0; from < n_sends; from++) {
                const Held sent = sends[from], received = receives[to];
                if (sent.asked.peer != received.rank || sent.asked.tag != received.asked.tag) continue;
                for (int at = from; at + 1 < n_sends; at++) sends[at] = sends[at + 1];
                for (int at = to; at + 1 < n_receives; at++) receives[at] = receives[at + 1];
                n_sends--, n_receives--;
                Answer reply = {0, sent.rank, sent.asked.tag, sent.asked.flags, sent.asked.bytes, sent.asked.address, {}};
                for (u64 at = 0; at < INLINE_BYTES; at++) reply.inside[at] = sent.asked.inside[at];
                answer(received.rank, received.seq, reply);
                answer(sent.rank, sent.seq, reply);
                return true;
            }
        return false;
    }

    void serve(u32* done) {
        while (__atomic_load_n(done, __ATOMIC_RELAXED) < RANKS) {
            for (int rank = 0; rank < RANKS; rank++) {
                const u64 seq = next[rank];
                octet* line = base + PAGE * (1 + rank) + seq % RING * 64;
                if (__atomic_load_n(reinterpret_cast<u64*>(line), __ATOMIC_ACQUIRE) != seq) continue;
                next[rank]++;
                const Held held = {rank, seq, *reinterpret_cast<const Asked*>(line + 8)};
                if (held.asked.op == SEND) sends[n_sends++] = held;
                if (held.asked.op == RECV) receives[n_receives++] = held;
                if (held.asked.op == ARRIVE) {
                    answer(rank, seq, {});
                    if (++arrivals == RANKS * held.asked.bytes)
                        __atomic_store_n(word(window + RELEASE_AT), static_cast<u32>(held.asked.bytes), __ATOMIC_RELEASE);
                }
            }
            while (match()) {
            }
            __nanosleep(1);
        }
    }
};

__device__ void talk(Slot& me, double* mine) {
    const int next = (me.rank() + 1) % RANKS, last = (me.rank() + RANKS - 1) % RANKS, n = 40;
    double* all = mine + n;
    for (int turn = 0; turn < 3; turn++) {
        for (int at = me.thread(); at < n; at += me.threads()) mine[at] = me.rank() + at;
        if (me.rank() == 0) me.send(mine, n * sizeof(double), next, turn);
        me.recv(mine, n * sizeof(double), last, turn);
        if (me.rank() != 0) me.send(mine, n * sizeof(double), next, turn);
        int own = me.rank();
        if (me.rank() == 0) me.send(&own, sizeof own, next, turn);
        if (me.rank() == 1) me.recv(&own, sizeof own, last, turn);
        me.all_reduce(mine, all, n * sizeof(double));
        for (int at = me.thread(); at < n; at += me.threads())
            if (all[at] != RANKS * at + 0.0) __trap();
    }
    me.all_gather(mine, me.rank() ? 17000 : 8, all, 40000);
    me.barrier();
}

// A block of the heap is used again although its sender and its reader have exchanged nothing since it was read.
__device__ void reuse(Slot& me, octet* base, double* mine) {
    const u64 bytes = 3000;
    if (me.rank() == 1) me.recv(mine, bytes, 0, 0);
    if (me.rank() == 2) me.recv(mine, bytes, 0, 1);
    if (me.rank() != 0) return;
    me.send(mine, bytes, 1, 0);
    while (load_relaxed(word(base + HEAPS_AT)) != 0) __nanosleep(1);
    me.send(mine, bytes, 2, 1);
}

extern "C" __global__ void proof(unsigned char* base, int blocks, int what) {
    const Slots slots = {base, base + WINDOW_AT, reinterpret_cast<SlotState*>(base + STATES_AT), HEAPS_AT, HEAP_BYTES,
                         HEADERS_AT, SMALLS_AT, RESULTS_AT, HALF, 0, 0, RANKS, RANKS, static_cast<u32>(blocks), 0};
    u32* done = word(base + DONE_AT);
    if (blockIdx.x == RANKS * slots.blocks) {
        if (threadIdx.x == 0) {
            Proxy proxy;
            proxy.base = slots.base, proxy.window = slots.window;
            proxy.serve(done);
        }
        return;
    }
    auto me = slots.here();
    double* mine = reinterpret_cast<double*>(base + BUFFERS_AT + me.rank() * BUFFER_BYTES);
    if (what == 0)
        talk(me, mine);
    else
        reuse(me, base, mine);
    if (me.thread() == 0) __atomic_fetch_add(done, 1u, __ATOMIC_RELAXED);
}
