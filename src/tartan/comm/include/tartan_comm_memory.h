// Words, lines and types as slots and the host share them, and loads and stores in the order that the rules ask for.
#pragma once

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define TARTAN_COMM_GPU 1
#define TARTAN_DEVICE __device__
// Code that every call would repeat: kernels with many calls would take minutes to compile.
#define TARTAN_CALLED __device__ __noinline__
#else
#define TARTAN_DEVICE
#define TARTAN_CALLED
#endif

namespace tartan {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using octet = unsigned char;

constexpr int ANY_SOURCE = -1;
constexpr int ANY_TAG = -1;

// ---- Constants of the host; a test compares them --------------------------------------------------------------------

constexpr u64 PAGE = 4096;
constexpr u64 RING = 8;
constexpr u64 INLINE_BYTES = 24;
constexpr u64 ABORT_AT = 64;
constexpr u64 WAIT_AT = 1152;
constexpr u64 HEADER_BYTES = 128;
constexpr u64 SIGNATURE_BYTES = 112;
constexpr u64 SMALL_BYTES = 16384;
constexpr u64 BLOCK_HEADER_BYTES = 64;
constexpr u64 RELEASE_AT = 64;
constexpr u64 SLOTS_BYTES = 96;

constexpr u64 SEND = 1;
constexpr u64 RECV = 2;
constexpr u64 WAIT = 3;
constexpr u64 TEST = 4;
constexpr u64 PROBE = 5;
constexpr u64 ARRIVE = 7;
constexpr u64 FAIL = 8;
constexpr u64 IN_GROUP = 100;
constexpr u64 ENDED = 101;
constexpr u64 DEFERRED = 32768;
constexpr u64 IN_LINE = 16384;
constexpr u64 NOW = 8192;
constexpr u64 DONE = 0;
constexpr u64 IS_TOO_LONG = 1;
constexpr u64 PENDING = 2;
constexpr u64 UNKNOWN = 3;

constexpr u64 NO_RANK = 1;
constexpr u64 NO_TAG = 2;
constexpr u64 SENT_TOO_LONG = 3;
constexpr u64 TOO_LONG = 4;
constexpr u64 OTHER_TYPE = 5;
constexpr u64 NO_ROOM = 6;
constexpr u64 MISMATCH = 7;
constexpr u64 NOT_WHOLE = 8;
constexpr u64 FREED = 9;
constexpr u64 TWICE = 10;
constexpr u64 RESULT_TOO_LONG = 11;

// Of slots alone, and of the text that describes payloads.
constexpr u32 IN_BASE = 0xFFFFFFFFu;
constexpr u64 ONE_DIMENSION = 256;
constexpr u64 STATE_BYTES = 2048;
constexpr u64 TEXT_BYTES = 48;        // of the description of one part of a bundle
constexpr u32 BLOCKS = 32;            // payloads of a slot that wait to be received
constexpr u32 MOST_SLOT_BLOCKS = 32;  // thread blocks of a slot
constexpr u32 EAGER_LOOKS = 20;

// ---- Lines ----------------------------------------------------------------------------------------------------------

// A request behind its number.
struct Asked {
    u16 op, flags;
    int peer, tag;
    u32 group;
    u64 address, bytes;
    octet inside[INLINE_BYTES];
};

// A reply behind its number.
struct Answer {
    int status, source, tag;
    u32 flags;
    u64 bytes, address;
    octet inside[INLINE_BYTES];
};

// What a slot waits for, behind its epoch; the text follows.
struct Told {
    u32 call;
    int peer, tag;
    u32 at_low, at_high, window, expected, length;
};
static_assert(sizeof(Asked) == 56 && sizeof(Answer) == 56 && sizeof(Told) == 32, "as the host has them");

// What a slot keeps between its calls. Thread 0 writes, all read after they have met.
struct SlotState {
    u64 seq, turn, number, block, place;
    u32 round, epoch, stopped, entered, joined;
    u32 arrived, passes;
    u32 first_block, n_blocks;
    Answer answer;
    u64 begins[BLOCKS], lengths[BLOCKS];
    u32 leaves[MOST_SLOT_BLOCKS];
};

// ---- Loads and stores -----------------------------------------------------------------------------------------------

// Where an order is needed. A build for tests weakens one of them.
enum Place { NOWHERE, R1, R4, R5, R5_ARRIVE, R5_PASS, R8, HEAP_GIVE, HEAP_TAKE, EPOCH };
#ifndef TARTAN_COMM_WEAKENED
#define TARTAN_COMM_WEAKENED NOWHERE
#endif

TARTAN_DEVICE inline u32* word(octet* at) { return reinterpret_cast<u32*>(at); }
TARTAN_DEVICE inline u64 rounded(u64 bytes) { return (bytes + 63) / 64 * 64; }

#ifdef TARTAN_COMM_GPU
template <Place> TARTAN_DEVICE inline u64 load_acquire(const u64* at) {
    u64 value;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}
template <Place> TARTAN_DEVICE inline u32 load_acquire(const u32* at) {
    u32 value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
template <Place> TARTAN_DEVICE inline void store_release(u64* at, u64 value) {
    asm volatile("st.release.sys.u64 [%0], %1;" : : "l"(at), "l"(value) : "memory");
}
template <Place> TARTAN_DEVICE inline void store_release(u32* at, u32 value) {
    asm volatile("st.release.sys.u32 [%0], %1;" : : "l"(at), "r"(value) : "memory");
}
TARTAN_DEVICE inline u32 load_relaxed(const u32* at) {
    u32 value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
TARTAN_DEVICE inline void store_relaxed(u32* at, u32 value) {
    asm volatile("st.relaxed.sys.u32 [%0], %1;" : : "l"(at), "r"(value) : "memory");
}
// Among the blocks of a slot.
TARTAN_DEVICE inline u32 load_here(const u32* at) {
    u32 value;
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
TARTAN_DEVICE inline u32 add_here(u32* at, u32 by) {
    u32 before;
    asm volatile("atom.add.acq_rel.gpu.u32 %0, [%1], %2;" : "=r"(before) : "l"(at), "r"(by) : "memory");
    return before;
}
template <Place> TARTAN_DEVICE inline void meet_threads() { __syncthreads(); }
TARTAN_DEVICE inline void nap(u32 looks) {
    if (looks >= EAGER_LOOKS) __nanosleep(200);
}
TARTAN_DEVICE inline void leave() { asm volatile("exit;"); }
TARTAN_DEVICE inline bool is_own(const void* data) { return __isLocal(data); }
#else
template <Place place> constexpr int order(int strong) {
    return place == TARTAN_COMM_WEAKENED ? __ATOMIC_RELAXED : strong;
}
template <Place place, class T> T load_acquire(const T* at) {
    return __atomic_load_n(at, order<place>(__ATOMIC_ACQUIRE));
}
template <Place place, class T> void store_release(T* at, T value) {
    __atomic_store_n(at, value, order<place>(__ATOMIC_RELEASE));
}
inline u32 load_relaxed(const u32* at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
inline void store_relaxed(u32* at, u32 value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
inline u32 load_here(const u32* at) { return __atomic_load_n(at, order<R5_PASS>(__ATOMIC_ACQUIRE)); }
inline u32 add_here(u32* at, u32 by) { return __atomic_fetch_add(at, by, order<R5_ARRIVE>(__ATOMIC_ACQ_REL)); }
template <Place place> void meet_threads() {
    if (place != TARTAN_COMM_WEAKENED) __syncthreads();
}
inline void nap(u32 looks) {
    if (looks >= EAGER_LOOKS) __nanosleep(200);
}
[[noreturn]] inline void leave() { ::emulator::end_thread(); }
inline bool is_own(const void* data) { return ::emulator::is_local(data); }
#endif

// The share of one of several threads in a copy: 16 bytes at a time where both addresses allow it.
TARTAN_CALLED inline void copy(octet* to, const octet* from, u64 bytes, u32 thread, u32 threads) {
    struct alignas(16) Quad {
        u64 low, high;
    };
    u64 done = 0;
    if ((reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from)) % 16 == 0) {
        const u64 quads = bytes / 16;
        for (u64 at = thread; at < quads; at += threads)
            reinterpret_cast<Quad*>(to)[at] = reinterpret_cast<const Quad*>(from)[at];
        done = quads * 16;
    }
    for (u64 at = done + thread; at < bytes; at += threads) to[at] = from[at];
}

// ---- Types of items -------------------------------------------------------------------------------------------------

// A short text, made by thread 0.
struct Text {
    char text[SIGNATURE_BYTES];
    u32 length = 0;
    TARTAN_CALLED Text& add(const char* more) {
        while (*more && length < SIGNATURE_BYTES) text[length++] = *more++;
        return *this;
    }
    TARTAN_CALLED Text& add(u64 number) {
        char digits[20];
        int n = 0;
        do digits[n++] = static_cast<char>('0' + number % 10);
        while (number /= 10);
        while (n && length < SIGNATURE_BYTES) text[length++] = digits[--n];
        return *this;
    }
};

template <char letter, char kind, u64 bytes> struct Item {
    TARTAN_DEVICE static constexpr char character() { return letter; }
    // Letters of long and long long stand for one type.
    TARTAN_DEVICE static constexpr char one(char other) { return other == 'q' ? 'l' : other == 'Q' ? 'L' : other; }
    TARTAN_DEVICE static bool is(char other) { return one(other) == one(letter); }
    TARTAN_DEVICE static constexpr u64 item() { return bytes; }
    // What NumPy writes for an array of one dimension, such as ('<f4', (12,)).
    TARTAN_CALLED static void describe(Text& text, u64 all) {
        const char size = static_cast<char>('0' + bytes);
        const char code[] = {'(', '\'', bytes == 1 ? '|' : '<', kind, size, '\'', ',', ' ', '(', 0};
        text.add(code).add(all / bytes).add(",))");
    }
    TARTAN_CALLED static bool is_described(const char* text, u32 length) {
        Text mine;
        describe(mine, 0);
        for (u32 at = 0; at < 9; at++)
            if (at >= length || text[at] != mine.text[at]) return false;
        return true;
    }
};

// Types without a kind of their own travel as bytes.
template <class T> struct Kind : Item<'B', 'u', 1> {
    TARTAN_DEVICE static constexpr const char* name() { return "uint8"; }
};
#define TARTAN_COMM_KIND(type, letter, kind, text)                              \
    template <> struct Kind<type> : Item<letter, kind, sizeof(type)> {          \
        TARTAN_DEVICE static constexpr const char* name() { return text; }      \
    };
TARTAN_COMM_KIND(bool, '?', 'b', "bool")
TARTAN_COMM_KIND(signed char, 'b', 'i', "int8")
TARTAN_COMM_KIND(short, 'h', 'i', "int16")
TARTAN_COMM_KIND(unsigned short, 'H', 'u', "uint16")
TARTAN_COMM_KIND(int, 'i', 'i', "int32")
TARTAN_COMM_KIND(unsigned, 'I', 'u', "uint32")
TARTAN_COMM_KIND(long, 'l', 'i', "int64")
TARTAN_COMM_KIND(unsigned long, 'L', 'u', "uint64")
TARTAN_COMM_KIND(long long, 'l', 'i', "int64")
TARTAN_COMM_KIND(unsigned long long, 'L', 'u', "uint64")
TARTAN_COMM_KIND(float, 'f', 'f', "float32")
TARTAN_COMM_KIND(double, 'd', 'f', "float64")
#undef TARTAN_COMM_KIND

}  // namespace tartan
